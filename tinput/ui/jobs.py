"""What takes long, done step by step: a button, a bar, a stop, and one at a time on the whole server.

A job is shared by all sessions (cached by all that changes its result) and kept where it was stopped. A page that is
left, or on which something else is chosen, stops by itself: Streamlit ends its run at the next step that is drawn.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

import streamlit as st

from tinput.ui import literal

__all__ = ["Job", "offer"]


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


_TURN = threading.Semaphore(1)  # thirty computations at once on a small server would all be slow
WAITING = "Somebody else's computation is running on this server: this one starts as soon as it is done."


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
    while not _TURN.acquire(timeout=0.3):
        bar.progress(done / steps, WAITING)
    try:
        for job in left:
            while not job.finished:
                bar.progress(min(1.0, sum(job.done for job in jobs) / steps), literal.visible(job.current))
                job.advance()
    finally:
        _TURN.release()
    st.rerun()
