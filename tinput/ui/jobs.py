"""What takes long, done step by step: a button, a bar, a stop, and one at a time on the whole server.

A job is shared by all sessions (cached by all that changes its result) and kept where it was stopped. A page that is
left, or on which something else is chosen, stops by itself: Streamlit ends its run at the next step that is drawn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import streamlit as st

from tinput.ui import literal

__all__ = ["Job", "in_line", "offer", "turn"]


class Job(Protocol):
    """What can be stopped between two steps, a second each at most, and gone on with.

    current: what the next step does, in words
    """

    @property
    def steps(self) -> int: ...
    @property
    def done(self) -> int: ...
    @property
    def finished(self) -> bool: ...
    @property
    def current(self) -> str: ...
    def advance(self) -> None: ...


_LINE: list[object] = []  # whose turn it is, first to last; thirty at once on a small server would all be slow
_GUARD = threading.Lock()


def in_line() -> int:
    """How many computations run or wait on this server."""
    return len(_LINE)


@contextmanager
def turn(wait: Callable[[int], object]) -> Iterator[None]:
    """A turn at computing, first come, first served. wait: called again and again with how many are before this one."""
    mine = object()
    with _GUARD:
        _LINE.append(mine)
    try:
        while True:
            with _GUARD:
                before = _LINE.index(mine)
            if not before:
                break
            wait(before)
            time.sleep(0.2)
        yield
    finally:
        with _GUARD:
            _LINE.remove(mine)


def offer(jobs: Sequence[Job], name: str, words: str) -> None:
    """A button that does what is left of some jobs; the page is drawn anew at the end. Nothing where nothing is left.

    name: of the button, unique on the page; words: on it
    Call it last: what comes after it on the page waits.
    """
    left = [job for job in jobs if not job.finished]
    if not left:
        return
    steps, done = sum(job.steps for job in jobs), sum(job.done for job in jobs)
    words = f"Go on ({100 * done // steps} % is done)" if done else words
    if not st.button(words, key=f"go-{name}", icon=":material/play_arrow:"):
        return
    bar = st.progress(done / steps)
    st.button("Stop", key=f"stop-{name}", icon=":material/stop:")  # any click ends this run at its next step

    def wait(before: int) -> None:
        others = "One computation is" if before == 1 else f"{before} computations are"
        bar.progress(done / steps, f"{others} before this one on this server: it starts by itself.")

    for job in left:
        with turn(wait):  # one for each job, so that a long row of them lets others in between
            while not job.finished:
                done = sum(one.done for one in jobs)
                bar.progress(min(1.0, done / steps), literal.visible(job.current))
                job.advance()
    st.rerun()
