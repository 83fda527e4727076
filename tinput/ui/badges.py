"""Badges: which scheme, and how far the textbook is from what was recorded. HTML, escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinput.positions import SCHEMES
from tinput.ui import literal

if TYPE_CHECKING:
    from tinput.agree import Agreement

__all__ = ["GREEN", "GREY", "RED", "agreement", "plain", "row", "scheme"]

GREEN, RED, GREY = "#2E9E4F", "#D32F2F", "#999999"


def scheme(name: str, reason: str = "") -> str:
    """A scheme and where it enters, in its colour. reason: shown on hover"""
    found = SCHEMES.get(name)
    if found is None:
        return literal.badge("a scheme that the textbook does not have", GREY, reason)
    return literal.badge(f"{found.LABEL}: {found.INJECTION}", found.COLOUR, reason)


def agreement(found: Agreement, reason: str = "") -> str:
    """Green when recorded and textbook agree, red when not, grey when nothing can be compared. reason: on hover"""
    return literal.badge(found.message, {True: GREEN, False: RED, None: GREY}[found.ok], reason)


def plain(words: str) -> str:
    """A grey one."""
    return literal.badge(words, GREY)


def row(*badges: str) -> str:
    """Badges beside each other."""
    return f'<div class="badges">{"".join(badges)}</div>'
