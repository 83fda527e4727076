"""Labels are text, never markup: what a token says is what a chart shows.

Plotly reads tags, entities, `$TeX$` and `%{templates}` in every string that it draws, and Streamlit replaces colours
such as `#000001` in the whole figure. A label's own `&`, `<`, `>`, `#`, `$` and `%` become entities, which all of
them leave alone.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Sequence

__all__ = ["every", "literal", "plain", "short", "width"]

_ENTITIES = {ord(character): f"&#{ord(character)};" for character in "&<>#$%"}
# A tab or a line end in a token is something to see: the pictures of the C0 controls, U+2400 and on.
_CONTROLS = {code: chr(0x2400 + code) for code in range(32)} | {127: "␡", 9: "⇥", 10: "⏎"}
LONGEST = 80  # characters of a label in a hover box


def literal(label: object, longest: int = LONGEST) -> str:
    """A label as Plotly must be given it, so that it shows as typed; cut with … beyond `longest` columns."""
    return short(str(label), longest).translate(_ENTITIES)


def plain(text: str) -> str:
    """The label back out of what `literal` made of it."""
    return html.unescape(text)


def short(label: str, longest: int) -> str:
    """A label on one line, control characters visible, at most `longest` columns wide."""
    label = label.encode("utf-8", "backslashreplace").decode().translate(_CONTROLS)  # a lone surrogate is no JSON
    if label and not label.strip():
        label = "␣" * len(label)
    if width(label) <= longest:
        return label
    kept, room = [], longest - 1
    for character in label:
        room -= _columns(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + "…"


def width(label: str) -> int:
    """Columns that a label takes in a fixed-width font: two for Chinese and emoji, none for combining marks."""
    return sum(map(_columns, label))


def every(count: int, room: float, most: int = 40) -> int:
    """Show every n-th of `count` labels so that no more than `room` and no more than `most` are drawn."""
    return max(1, -(-count // max(1, min(most, int(room)))))


def longest(labels: Sequence[str]) -> int:
    return max(map(width, labels), default=0)


def _columns(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) == "Cf":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
