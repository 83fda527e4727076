"""Places on a page for pictures and words: panels, sentences, boxes. What is put there is noted in `takeaway`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import streamlit as st

from tinput.ui import literal, takeaway
from tinput.ui.formula import lines_of

__all__ = [
    "Ended",
    "Later",
    "Panel",
    "columns",
    "details",
    "empty",
    "html",
    "note",
    "panel",
    "sentences",
    "stop",
    "trouble",
]


def html(body: str, paper: str | None = None) -> None:
    """HTML made by `literal` or `words`.

    paper: what stands in its place where nothing can be pressed, on paper and in presenter mode; None: the same; empty:
        nothing
    """
    kept = body if paper is None else paper
    if shown := kept if st.session_state.get("present") else body:
        st.html(shown)
    if kept:
        takeaway.current().add(takeaway.Words(kept))


@dataclass(frozen=True)
class Panel:
    """A picture's place and, beside it, the place for words."""

    words: Any
    noted: list[takeaway.Part] = field(default_factory=list)

    def say(self, *sentences: str, formula: str = "", note: str = "") -> None:
        """The formula (LaTeX) and a few literal sentences, beside the picture; `note` is smaller."""
        with self.words, takeaway.current().inside(self.noted):
            if formula:
                st.latex(lines_of(formula))
                takeaway.current().add(takeaway.Formula(formula))
            if sentences:
                html(literal.paragraphs(sentences))
            if note:
                html(literal.paragraphs([note], "note"))


@contextmanager
def panel(title: str, *, wide: bool = False) -> Iterator[Panel]:
    """A titled place for one picture, with its controls above it and words beside it; wide: words below it."""
    st.html(f'<h2 class="panel-title">{literal.inline(title)}</h2>')
    picture, words = (st.container(), st.container()) if wide else st.columns([67, 33], gap="large")
    shown, noted = takeaway.current(), takeaway.Panel(title, wide)
    shown.add(noted)
    with picture, shown.inside(noted.picture):
        yield Panel(words, noted.words)


def sentences(*lines: str, paper: str | None = None) -> None:
    """Literal sentences, in the page's own size. paper: the one sentence of what is taken along, as in `html`"""
    html(literal.paragraphs(lines), _on_paper(paper, "notice"))


def note(*lines: str, paper: str | None = None) -> None:
    """Literal sentences, smaller: what was left out, a dtype. paper: as in `sentences`"""
    html(literal.paragraphs(lines, "note"), _on_paper(paper, "note"))


def trouble(what: str, *then: str, paper: str | None = None) -> None:
    """A box that says what is wrong and what to do next. paper: as in `sentences`; None: what is wrong alone"""
    html(literal.paragraphs([what, *then], "trouble"), _on_paper(what if paper is None else paper, "trouble"))


def _on_paper(sentence: str | None, css: str) -> str | None:
    return literal.paragraphs([sentence], css) if sentence else sentence


class Ended(Exception):
    """The page ends here. Not `st.stop`: after that nothing can be drawn, and the frame still has the side to end."""


def stop(*lines: str) -> NoReturn:
    """`trouble`, and the page ends here; it only ends where nothing is left to say."""
    if lines:
        trouble(*lines)
    raise Ended


@contextmanager
def details(title: str) -> Iterator[None]:
    """A folded place for details: `with kit.details("How it was recorded"): ...`"""
    takeaway.current().add(takeaway.Heading(title))
    with st.expander(title):
        yield


def columns(widths: int | Sequence[int]) -> Any:
    """Columns for controls side by side."""
    return st.columns(widths, gap="medium", vertical_alignment="bottom")


class Later:
    """A place that is filled later."""

    def __init__(self) -> None:
        self._place, self._noted = st.empty(), takeaway.Group()
        takeaway.current().add(self._noted)

    def html(self, body: str) -> None:
        """Put HTML there, made by `literal` or `words`."""
        with self.container():
            html(body)

    @contextmanager
    def container(self) -> Iterator[None]:
        """Put several things there, in place of what was."""
        self._noted.parts.clear()
        with self._place.container(), takeaway.current().inside(self._noted.parts):
            yield


def empty() -> Later:
    """A place that is filled later: `.html(...)`, or `with place.container():` for more."""
    return Later()
