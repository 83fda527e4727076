"""What a page has shown, in order: noted while it runs, so that all of it can be taken along.

The kit notes each thing that it puts on the screen (`current().add(...)`); the frame begins a new `Shown` for each run
of a page. Files are made of it only when they are asked for: `onefile.html` and `notebook.cells`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

if TYPE_CHECKING:
    from pandas import DataFrame
    from plotly.graph_objects import Figure

    from tinput.record import Trace

__all__ = ["KEY", "Code", "Formula", "Group", "Heading", "Panel", "Part", "Picture", "Setting", "Shown", "Table",
           "Words", "begin", "current"]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Words:
    """HTML made by `literal` or `words`: escaped already."""

    html: str


@dataclass(frozen=True, eq=False)
class Formula:
    """LaTeX; its parts stand one below the other, divided by `,\\quad`."""

    latex: str


@dataclass(frozen=True, eq=False)
class Setting:
    """A control and how it is set."""

    label: str
    value: str


@dataclass(frozen=True, eq=False)
class Heading:
    """The title of what is folded away on the page."""

    title: str


@dataclass(frozen=True, eq=False)
class Code:
    """Python that goes with what stands before it.

    preamble: the lines that make `model`, `text`, `trace` and `labels`, with the text whole; code: those after them
    """

    name: str
    preamble: str
    code: str


@dataclass(frozen=True, eq=False)
class Picture(Code):
    """A figure, and the Python that makes it."""

    figure: Figure


@dataclass(frozen=True, eq=False)
class Table(Code):
    """A table, and the Python that makes it."""

    frame: DataFrame


@dataclass(frozen=True, eq=False)
class Panel:
    """A titled picture with its controls, and the words beside it; wide: below it."""

    title: str
    wide: bool = False
    picture: list[Part] = field(default_factory=list)
    words: list[Part] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Group:
    """A place that was kept free, and filled later."""

    parts: list[Part] = field(default_factory=list)


Part = Words | Formula | Setting | Heading | Code | Panel | Group


@dataclass(eq=False)
class Shown:
    """All that one run of a page has put on the screen, first to last.

    name: the page's in the address bar; title: in the menu; question: its own, if it has one
    texts: what was traced, as typed; sources: where the numbers are from, one mapping a model
    traces: what gives their traces again
    link: the view's, below the server's address, such as `rope?text=a+cat`; large: whether large type is on
    """

    name: str = ""
    title: str = ""
    question: str = ""
    link: str = ""
    large: bool = False
    parts: list[Part] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    sources: list[Mapping[str, object]] = field(default_factory=list)
    traces: list[partial[Trace]] = field(default_factory=list)
    _place: list[Part] | None = None

    def add(self, part: Part) -> None:
        """Note what was put on the screen."""
        (self.parts if self._place is None else self._place).append(part)

    @contextmanager
    def inside(self, place: list[Part]) -> Iterator[None]:
        """What is noted now belongs there: into a panel's picture or words."""
        before, self._place = self._place, place
        try:
            yield
        finally:
            self._place = before

    def of(self, text: str, source: Mapping[str, object], trace: partial[Trace]) -> None:
        """Note what was traced, where the numbers are from, and how to have the trace again; each once."""
        if text not in self.texts:
            self.texts.append(text)
        if source not in self.sources:
            self.sources.append(source)
        if all((trace.args, trace.keywords) != (known.args, known.keywords) for known in self.traces):
            self.traces.append(trace)

    def every(self) -> Iterator[Part]:
        """All parts; those inside another one follow it."""
        return _within(self.parts)

    @property
    def pictures(self) -> Sequence[Picture]:
        """The figures, first to last."""
        return [part for part in self.every() if isinstance(part, Picture)]


def _within(parts: Sequence[Part]) -> Iterator[Part]:
    for part in parts:
        yield part
        if isinstance(part, Group):
            yield from _within(part.parts)
        elif isinstance(part, Panel):
            yield from _within((*part.picture, *part.words))


KEY = "_page_shown"  # in the session's state: what its last run has shown
_now: ContextVar[Shown | None] = ContextVar("shown", default=None)


def begin(name: str, title: str) -> Shown:
    """A page begins to run: nothing of it is on the screen yet."""
    shown = Shown(name, title)
    _now.set(shown)
    st.session_state[KEY] = shown
    return shown


def current() -> Shown:
    """What the page that runs in this thread has shown so far."""
    return _now.get() or Shown()
