"""Reading that may take long: done in a thread of its own, while the page shows how far it is and can stop it.

A run of a page that is stopped, by the button or by anything else that the visitor changes, stops the reading too. What
was read by then is kept on disk, so going on begins where it ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import streamlit as st
from streamlit.runtime.scriptrunner import add_script_run_ctx

from tinput.models import progress
from tinput.models.sources import bytes_said
from tinput.ui import literal

__all__ = ["AT_ONCE", "go_on", "run", "stopped"]

AT_ONCE = 0.5  # seconds after which the page says what it is doing
_EVERY = 0.15
_STOPPED = "stopped_reading"  # what the visitor stopped: it is not begun again by itself
T = TypeVar("T")


class _Left(Exception):
    """Nobody waits for the reading any more."""


class _Reading(threading.Thread):
    """Work in a thread, and how far it is."""

    def __init__(self, work: Callable[[], Any]):
        super().__init__(name="tinput-reading", daemon=True)
        self._work = work
        self.left = threading.Event()
        self.done, self.total, self.step = 0, 0, ""
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with progress.to(self._told):
                self.result = self._work()
        except BaseException as error:  # it is raised again where the page waits
            self.error = error

    def _told(self, done: int, total: int, step: str) -> None:
        if self.left.is_set():
            raise _Left
        self.done, self.total, self.step = done, total, step


def run(what: str, work: Callable[[], T]) -> T:
    """`work()`, shown as it goes on if it takes more than half a second. what: whose reading it is, to stop and go on.

    Raises what `work` raises.
    """
    reading = _Reading(work)
    add_script_run_ctx(reading)  # the caches that it fills belong to this server
    reading.start()
    place = st.empty()
    try:
        reading.join(AT_ONCE)
        if reading.is_alive():
            with place.container(border=True, key="reading"):
                words, bar = st.empty(), st.progress(0.0)
                st.button("Stop", on_click=_stop, args=(what,), key="stop-reading")
            while reading.is_alive():
                words.html(literal.paragraphs([_how_far(what, reading)]))
                bar.progress(min(1.0, reading.done / reading.total) if reading.total else 0.0)
                reading.join(_EVERY)
    finally:  # a stopped run ends here, by an exception of Streamlit's own
        reading.left.set()
    place.empty()
    if reading.error is not None:
        raise reading.error
    return reading.result


def stopped(what: str) -> bool:
    """Whether the visitor stopped this reading, and has not gone on."""
    return st.session_state.get(_STOPPED) == what


def go_on(label: str = "Go on") -> None:
    """A button that begins the stopped reading again."""
    st.button(label, on_click=_forget, key="go-on-reading", type="primary")


def _how_far(what: str, reading: _Reading) -> str:
    if not reading.step:
        return f"{what}: looking it up"
    if not reading.total:
        return reading.step
    return f"{reading.step}, {bytes_said(reading.done)} of {bytes_said(reading.total)}"


def _stop(what: str) -> None:
    st.session_state[_STOPPED] = what


def _forget() -> None:
    st.session_state.pop(_STOPPED, None)
