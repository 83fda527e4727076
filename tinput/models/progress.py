"""How far a long read is: told to whoever listens, who may stop it by raising.

    with progress.to(lambda done, total, step: bar.update(done / max(total, 1), step)):
        trace = model.trace(text)

The listener is called in the thread that reads for it, a few times a second: with the bytes that are here, those that
are wanted (both of this step alone, the last call with all of them), and what the step is ("12 rows of ...").
What it raises ends the read and comes out of the call that wanted it. Nothing that is half read is kept.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextvars import ContextVar
from typing import Any

__all__ = ["Cancelled", "Listener", "Meter", "run", "to"]

Listener = Callable[[int, int, str], Any]
WORKERS = 8  # connections at a time
EVERY = 0.1  # seconds between two calls of the listener
PATIENCE = 2.0  # seconds in which jobs that were stopped may end

_listener: ContextVar[Listener | None] = ContextVar("tinput_progress", default=None)


class Cancelled(Exception):
    """Raised in the threads of a read that was stopped. It stays there: the listener's own error comes out."""


@contextlib.contextmanager
def to(listener: Listener | None) -> Iterator[None]:
    """Tells `listener` of every read in this block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


class Meter:
    """Bytes of one step: what the threads that read it count on."""

    def __init__(self, step: str, total: int = 0):
        self.step, self.total, self.done = step, total, 0
        self.signs = 0  # of life, where something comes that is no byte of the step yet
        self._stopped = threading.Event()
        self._lock = threading.Lock()

    def add(self, n: int) -> None:
        """n more bytes are here. Raises Cancelled if nobody wants them any more."""
        if self._stopped.is_set():
            raise Cancelled
        with self._lock:
            self.done += n

    def alive(self) -> None:
        """Something comes, though it cannot be counted yet. Raises Cancelled as `add` does."""
        self.add(0)
        self.signs += 1

    def expect(self, n: int) -> None:
        """n more bytes are wanted."""
        with self._lock:
            self.total += n

    def sleep(self, seconds: float) -> None:
        """Waits, unless the read is stopped meanwhile: then it raises Cancelled."""
        if self._stopped.wait(seconds):
            raise Cancelled

    def stop(self) -> None:
        self._stopped.set()


def run(meter: Meter, jobs: Iterable[Callable[[], Any]]) -> list[Any]:
    """Does all jobs, at most WORKERS at a time, while the listener is told of the meter; their results, in order.

    The first error ends it: the other jobs are stopped, and waited for.
    """
    jobs, listener = list(jobs), _listener.get()
    if len(jobs) < 2 and listener is None:
        return [job() for job in jobs]
    pool = ThreadPoolExecutor(min(WORKERS, max(1, len(jobs))), thread_name_prefix="tinput-read")
    futures = [pool.submit(job) for job in jobs]
    try:
        waiting = set(futures)
        while waiting:
            over, waiting = wait(waiting, None if listener is None else EVERY, FIRST_EXCEPTION)
            for future in over:
                future.result()
            if listener is not None:
                listener(meter.done, max(meter.total, meter.done), meter.step)
        return [future.result() for future in futures]
    except BaseException:
        meter.stop()
        for future in futures:
            future.cancel()
        wait(futures, PATIENCE)  # one that hangs in a library's call ends by itself, and what it brings is dropped
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
