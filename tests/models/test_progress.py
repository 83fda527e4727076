"""Whoever listens hears of each step in its own thread, and stops it by raising."""

from __future__ import annotations

import threading
import time

import pytest

from tinput.models import progress
from tinput.models.progress import Cancelled, Meter


def work(meter: Meter, n: int, pause: float = 0.0) -> int:
    for _ in range(n):
        time.sleep(pause)
        meter.add(1)
    return n


def test_all_jobs_are_done_and_told_in_the_callers_thread():
    heard, threads = [], set()

    def listen(done: int, total: int, step: str) -> None:
        heard.append((done, total, step))
        threads.add(threading.get_ident())

    meter = Meter("a step", 60)
    with progress.to(listen):
        assert progress.run(meter, [lambda n=n: work(meter, n, 0.005) for n in (10, 20, 30)]) == [10, 20, 30]
    assert threads == {threading.get_ident()}
    assert heard[-1] == (60, 60, "a step")
    assert [done for done, _, _ in heard] == sorted(done for done, _, _ in heard)
    heard.clear()
    assert progress.run(meter, [lambda: 1]) == [1]
    assert not heard  # outside the block nobody listens


def test_what_the_listener_raises_comes_out_and_ends_the_jobs():
    class Enough(Exception):
        pass

    def listen(done: int, total: int, step: str) -> None:  # noqa: ARG001
        if done:
            raise Enough

    meter, ended = Meter("a step", 10_000), []

    def job() -> None:
        try:
            work(meter, 5_000, 0.002)
        except Cancelled:
            ended.append(1)
            raise

    start = time.monotonic()
    with progress.to(listen), pytest.raises(Enough):
        progress.run(meter, [job, job])
    assert time.monotonic() - start < 3
    assert ended == [1, 1]


def test_the_first_error_ends_the_other_jobs_too():
    meter = Meter("a step")

    def fails() -> None:
        time.sleep(0.05)
        raise ValueError("no")

    start = time.monotonic()
    with pytest.raises(ValueError, match="no"):
        progress.run(meter, [fails, lambda: work(meter, 5_000, 0.002)])
    assert time.monotonic() - start < 3


def test_a_wait_ends_when_the_read_is_stopped():
    meter = Meter("a step")
    threading.Timer(0.05, meter.stop).start()
    start = time.monotonic()
    with pytest.raises(Cancelled):
        meter.sleep(10)
    assert time.monotonic() - start < 5
