"""Controls, each bound to the address bar under its key; what they are set to is noted in `takeaway`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from tinput.ui import literal, sources, takeaway
from tinput.ui.place import html

if TYPE_CHECKING:
    from tinput.ui.kit import Page

__all__ = ["choose", "line", "model_choice", "number", "query_and_key", "slider", "toggle", "token"]


def choose(label: str, options: Sequence[str] | Mapping[str, str], *, key: str, default: str = "") -> str:
    """One of a few words, as a row of segments. options: labels, or label -> what is returned. Ours, not user text.

    default: a label; the first one if it is left out. A choice that is no longer among the options falls back to it.
    """
    labels = list(options)
    default = default or labels[0]
    _forget_unless(key, lambda value: value in labels)
    with_labels = st.segmented_control(
        label, labels, default=default, required=True, key=key, bind="query-params", wrap=True
    )
    chosen = with_labels or default
    _note(label, chosen)
    return options[chosen] if isinstance(options, Mapping) else chosen


def toggle(label: str, *, key: str, default: bool = False, help: str | None = None) -> bool:
    """A switch."""
    on = st.toggle(label, value=default, key=key, bind="query-params", help=help)
    _note(label, "yes" if on else "no")
    return on


def number(
    label: str, *, key: str, default: int = 0, low: int = 0, high: int | None = None, help: str | None = None
) -> int:
    """A whole number, low to high, both included. `high` may depend on the model: a larger value is brought down."""
    _clamp(key, low, high)
    start = _between(default, low, high)
    chosen = int(st.number_input(label, low, high, start, 1, key=key, bind="query-params", help=help))
    _note(label, f"{chosen:,}")
    return chosen


def slider(
    label: str, low: float, high: float, *, key: str, default: float, step: float | None = None, help: str | None = None
) -> float:
    """A number on a scale; whole when low, high and default are."""
    _clamp(key, low, high)
    start = _between(default, low, high)
    chosen = st.slider(label, low, high, start, step, key=key, bind="query-params", help=help)
    _note(label, f"{chosen:,.6g}")
    return chosen


def line(label: str, *, key: str, placeholder: str = "", help: str | None = None) -> str:
    """A line of text, as it was typed."""
    typed = st.text_input(label, key=key, placeholder=placeholder, bind="query-params", help=help) or ""
    if typed:
        _note(label, typed)
    return typed


def token(page: Page, label: str = "Token", *, key: str = "token", default: int = 0) -> int:
    """One of the text's tokens, by number; its literal label stands beside. The key is the same on all pages."""
    scale, name = st.columns([3, 2], vertical_alignment="bottom")
    with scale:
        index = int(slider(label, 0, page.seq - 1, key=key, default=default)) if page.seq > 1 else 0
    with name:
        html(
            literal.chip(page.labels[index], kind="chosen")
            + f' <span class="more">id {page.tokens.ids[index]}, position {int(page.positions[index])}</span>'
        )
    return index


def query_and_key(page: Page) -> tuple[int, int]:
    """The token that looks and the one that is looked at; at first some way apart, so that there is a distance."""
    return token(page, "Query", key="looks", default=5), token(page, "Key", key="seen", default=2)


def model_choice(label: str, *, key: str, default: str, help: str | None = None, chosen: bool = True) -> str:
    """A model out of the list, or typed. The answer is only a name: `open_page` says what may be opened.

    chosen: False leaves the list empty until somebody chooses, with the default in grey. What is chosen is then in the
    address whatever it is, so that the default may go by another model: a link without it means the default still.
    """
    options = sources.offered(st.session_state.get(key) or st.query_params.get(key))
    picked = st.selectbox(
        label,
        options,
        options.index(default) if chosen else None,
        placeholder=None if chosen else default,
        key=key,
        bind="query-params",
        accept_new_options=True,
        help=help,
    )
    _note(label, picked or default)
    return picked or default


def _note(label: str, value: str) -> None:
    takeaway.current().add(takeaway.Setting(label, value))


def _between(value: float, low: float, high: float | None) -> Any:
    return max(low, value) if high is None else min(max(low, value), high)


def _clamp(key: str, low: float, high: float | None) -> None:
    """A value kept from another model or text may lie outside; Streamlit would raise."""
    value = st.session_state.get(key)
    if value is not None and value != _between(value, low, high):
        st.session_state[key] = _between(value, low, high)


def _forget_unless(key: str, good: Callable[[Any], bool]) -> None:
    if key in st.session_state and not good(st.session_state[key]):
        del st.session_state[key]
