"""For every test: offline, one thread, and a home of its own, whatever the machine has set up."""

from __future__ import annotations

import atexit
import ipaddress
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator

import pytest

# Before anything imports torch, transformers or huggingface_hub: they read these once.
_home = tempfile.mkdtemp(prefix="tinput-tests-")
atexit.register(shutil.rmtree, _home, ignore_errors=True)
os.environ |= {
    "HF_HOME": _home,
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "STREAMLIT_BROWSER_GATHER_USAGE_STATS": "false",
    "STREAMLIT_CLIENT_SHOW_ERROR_DETAILS": "full",  # of a server in a process of its own; _faults_show does it here
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
for name in ("HF_TOKEN", "HF_ENDPOINT", "TINPUT_MODELS"):
    os.environ.pop(name, None)

_outside: list[str] = []  # every address outside this machine that something tried to reach


def _is_here(host: object) -> bool:
    if host in (None, "", b"", "localhost", b"localhost"):
        return True
    try:
        return ipaddress.ip_address(host.decode() if isinstance(host, bytes) else str(host)).is_loopback
    except ValueError:
        return False


def _guard(host: object) -> None:
    if not _is_here(host):
        _outside.append(str(host))
        raise OSError(f"the tests are offline, and something asked for {host!r}")


@pytest.fixture(autouse=True)
def _faults_show() -> None:
    """Visitors see no traceback of a fault, the tests do: it fails them. Streamlit reads no environment in here."""
    if config := sys.modules.get("streamlit.config"):
        config.set_option("client.showErrorDetails", "full")


@pytest.fixture(scope="session", autouse=True)
def _loopback_only() -> Iterator[None]:
    """Sockets reach this machine only."""
    connect, connect_ex, getaddrinfo = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo

    def guarded(method):
        def call(self, address):
            if self.family in (socket.AF_INET, socket.AF_INET6):
                _guard(address[0])
            return method(self, address)

        return call

    def lookup(host, *args, **kwargs):
        _guard(host)
        return getaddrinfo(host, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded(connect))
        patch.setattr(socket.socket, "connect_ex", guarded(connect_ex))
        patch.setattr(socket, "getaddrinfo", lookup)
        yield


@pytest.fixture(autouse=True)
def offline() -> Iterator[list[str]]:
    """The addresses outside this machine that the test tried to reach; a test that leaves any there fails."""
    _outside.clear()
    yield _outside
    assert not _outside, f"the test tried to reach {_outside}"


@pytest.fixture(scope="module")  # while it is open, playwright holds this thread's event loop
def browser():
    """A real browser (playwright's Browser). Without one the test fails in CI and is skipped elsewhere."""
    from tests.serve import chromium, find_browser

    if find_browser() is None:
        reason = "no browser: install Chromium, or name one in TINPUT_BROWSER"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with chromium() as running:
        yield running


@pytest.fixture(scope="session")
def app_url() -> Iterator[str]:
    """The address of the whole app, running in a process of its own."""
    from tests.serve import server

    with server() as url:
        yield url
