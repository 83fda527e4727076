"""A process with settings of its own that runs functions for a test: `huggingface_hub` reads its settings at import.

One process a setting runs many jobs, so that a test does not pay for the imports. What a job prints and logs, down to
DEBUG, what it raises, and how often it opened a connection come back with its value. It may reach this machine only.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.hub import Hub

__all__ = ["TOKEN", "Client", "Outcome", "client"]

ROOT = Path(__file__).resolve().parents[1]
TOKEN = "hf_" + "neverToBeSeen" * 3  # what HF_TOKEN is, unless `env` says otherwise


@dataclass
class Outcome:
    """What became of a job.

    value: what it returned; kinds: the names of the error's class and its ancestors, () if there was none
    said: str(error); shown: everything a person might see: the error's repr, the whole traceback, prints and logs
    printed: prints, warnings and logs of level WARNING and above; connections: how many were opened
    """

    value: Any
    kinds: tuple[str, ...]
    said: str
    shown: str
    printed: str
    connections: int


class Client:
    """The process. Call it with a module-level function and its arguments: its value, or AssertionError.

    home: the folder that holds its caches; another client may be given it, as `home=`
    """

    def __init__(self, endpoint: str, home: Path, env: dict[str, str | None]):
        self.home = home
        settings = {
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(home / "hf"),
            "HF_TOKEN": TOKEN,
            "XDG_CACHE_HOME": str(home / "cache"),
            "HOME": str(home),
            "HF_HUB_OFFLINE": None,
            "TRANSFORMERS_OFFLINE": None,
            "OMP_NUM_THREADS": "1",
            "no_proxy": "*",
            **env,
        }
        settings = {**os.environ, **settings}
        self._log = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - closed in close()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hub_client"],
            cwd=ROOT,
            env={name: value for name, value in settings.items() if value is not None},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def __call__(self, job: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        outcome = self.outcome(job, *args, **kwargs)
        assert not outcome.kinds, f"{job.__qualname__} raised:\n{outcome.shown}"
        return outcome.value

    def outcome(self, job: Callable[..., Any], *args: Any, **kwargs: Any) -> Outcome:
        """Like a call, but an error is told. A job that takes over two minutes ends the process."""
        self.send(job, *args, **kwargs)
        return self.receive()

    def send(self, job: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Starts a job; `receive` waits for it. For jobs in several processes at once."""
        assert self._process.stdin
        pickle.dump((job.__module__, job.__qualname__, args, kwargs), self._process.stdin)
        self._process.stdin.flush()

    def receive(self) -> Outcome:
        assert self._process.stdout
        watch = threading.Timer(120, self._process.kill)
        watch.start()
        try:
            return pickle.load(self._process.stdout)
        except EOFError:
            self._log.seek(0)
            raise RuntimeError(f"the client's process ended: {self._log.read()[-4000:].decode()}") from None
        finally:
            watch.cancel()

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()


@contextlib.contextmanager
def client(hub: Hub | str, *, home: Path | None = None, env: dict[str, str | None] | None = None) -> Iterator[Client]:
    """A process whose Hub is `hub` (or an address). env: settings besides; None takes one away.

    home: another client's, to share its caches; by default one of its own, gone afterwards
    """
    own = Path(tempfile.mkdtemp(prefix="tinput-hub-")) if home is None else None
    running = Client(hub if isinstance(hub, str) else hub.url, own or home or Path(), env or {})
    try:
        yield running
    finally:
        running.close()
        if own:
            shutil.rmtree(own, ignore_errors=True)


# --- in the process -------------------------------------------------------------------------------------------------


def _work() -> None:
    import logging

    answers = os.fdopen(os.dup(1), "wb")
    jobs: IO[bytes] = sys.stdin.buffer
    opened: list[Any] = []
    sys.addaudithook(_here_only(opened))
    prints, logs = (tempfile.TemporaryFile("w+b", buffering=0) for _ in range(2))  # noqa: SIM115
    os.dup2(prints.fileno(), 1)
    os.dup2(prints.fileno(), 2)
    logging.basicConfig(stream=os.fdopen(os.dup(logs.fileno()), "w", buffering=1), level=logging.DEBUG)

    while True:
        try:
            module, name, args, kwargs = pickle.load(jobs)
        except EOFError:
            return
        for stream in (prints, logs):
            stream.seek(0)
            stream.truncate()
        opened.clear()
        value, kinds, said, shown = None, (), "", ""
        try:
            value = getattr(importlib.import_module(module), name)(*args, **kwargs)
        except Exception as error:
            kinds = tuple(kind.__name__ for kind in type(error).__mro__)
            said, shown = str(error), f"{error!r}\n{''.join(traceback.format_exception(error))}"
        sys.stdout.flush()
        sys.stderr.flush()
        printed, logged = ((stream.seek(0), stream.read().decode(errors="replace"))[1] for stream in (prints, logs))
        outcome = Outcome(value, kinds, said, shown + printed + logged, printed, len(opened))
        pickle.dump(outcome, answers)
        answers.flush()


def _here_only(opened: list[Any]) -> Callable[[str, tuple[Any, ...]], None]:
    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "socket.connect" and isinstance(args[1], tuple):
            opened.append(args[1])
            if args[1][0] not in ("127.0.0.1", "::1", "localhost"):
                raise OSError(f"the tests are offline, and something asked for {args[1][0]!r}")

    return hook


if __name__ == "__main__":
    from tests import hub_client

    hub_client._work()  # under its own name, so that an Outcome is the same class on both sides
