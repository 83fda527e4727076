"""The whole app in a process of its own, and a browser to look at it with: for browser tests and benchmarks.

with server() as url, chromium() as browser:
    page = browser.new_page()
    page.goto(url)
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["chromium", "find_browser", "server"]

ROOT = Path(__file__).resolve().parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")


def find_browser() -> str | None:
    """The path of a Chromium-like browser: TINPUT_BROWSER, else the first of the usual names; None without one."""
    named = os.environ.get("TINPUT_BROWSER")
    return named or next((path for name in BROWSERS if (path := shutil.which(name))), None)


@contextmanager
def server(*arguments: str, env: dict[str, str] | None = None, wait: float = 120.0) -> Iterator[str]:
    """The app on a free port of 127.0.0.1, offline; yields its address. `arguments` go to `streamlit run`.

    Raises RuntimeError, with the end of the server's log, when it does not answer within `wait` seconds.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.address", "127.0.0.1"]
    command += ["--server.port", str(port), "--server.headless", "true", *arguments]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, "HF_HUB_OFFLINE": "1", **(env or {})}, stdout=log, stderr=log
        )
        try:
            until = time.monotonic() + wait
            while not _answers(f"{url}/_stcore/health"):
                if process.poll() is not None or time.monotonic() > until:
                    log.seek(0)
                    raise RuntimeError(f"the app did not start: {log.read()[-4000:]}")
                time.sleep(0.2)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser that can reach this machine only."""
    from playwright.sync_api import sync_playwright

    path = find_browser()
    if path is None:
        raise FileNotFoundError("no browser: install Chromium, or name one in TINPUT_BROWSER")
    with sync_playwright() as playwright:
        # --no-sandbox: CI runs as root. The rest keeps the browser from calling home; nothing outside resolves.
        flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
        flags += ["--disable-component-update", "--disable-sync", "--no-first-run"]
        flags += ["--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost"]
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        try:
            yield browser
        finally:
            browser.close()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False
