"""What a lesson is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Lesson", "Step"]

TEXT = "The old man saw the young man"  # two words for one thing's place: only order tells who saw whom


@dataclass(frozen=True)
class Step:
    """A question, its possible answers, and what settles it.

    show: draws the picture with its words; returns which of `options` the numbers in it say is right
    page, link: where the same thing can be tried on one's own text: a page's file name, and what its address holds
    """

    ask: str
    options: tuple[str, ...]
    show: Callable[[], int]
    page: str
    link: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Lesson:
    """Some steps, in order. key: for the address bar; title: for the menu."""

    key: str
    title: str
    steps: tuple[Step, ...]
