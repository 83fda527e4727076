"""What a change does to a model's attention, in numbers and words; a value followed back; a score by frequency pair.

A change is described by plain values (`Cut.what`), under which its result is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import streamlit as st
import torch

from tinput import surgery
from tinput.errors import TinputError
from tinput.positions import SCHEMES
from tinput.ui import kit, literal, words
from tinput.ui.cuts import NOWHERE, SCHEME, SHIFT, SHUFFLE, TURNED, Cut

if TYPE_CHECKING:
    from tinput.open import Model
    from tinput.record import Attention, Trace
    from tinput.surgery import Change, Link, Pairs
    from tinput.ui.kit import Page

__all__ = [
    "band",
    "by_head",
    "by_pair",
    "change",
    "followed",
    "law",
    "links_table",
    "mask_note",
    "measured",
]

T = TypeVar("T")


# --- the change -------------------------------------------------------------------------------------------------------


def change(page: Page, cut: Cut) -> Change:
    """The model's attention and the changed one. Ends the page, with a sentence, where that cannot be had."""
    before = page.trace.attention
    assert before is not None  # the page has ended before
    after = _tried(lambda: _after((page.key, page.text, page.ids), cut.what, page.model, page.trace))
    if not cut.masked:
        before, after = surgery.unmasked(before), surgery.unmasked(after)
    return surgery.Change(before, after)


@st.cache_resource(max_entries=16, show_spinner=False)
def _after(about: tuple[Any, ...], what: tuple[Any, ...], _model: Model, _trace: Trace) -> Attention:  # noqa: ARG001
    kind, *values = what
    if kind == "swap":
        import ast

        return surgery.swap(_model, _trace, values[0], ast.literal_eval(values[1]))
    if kind == "shuffle":
        return surgery.shuffle(_model, _trace, surgery.shuffled(len(_trace.ids), values[0], values[1:]))
    return surgery.move(_model, _trace, values)


@dataclass(frozen=True)
class Measured:
    """Of one head: the largest |difference| of scores and of weights, and the largest |score| before."""

    scores: float
    weights: float
    size: float
    moved: tuple[float, ...]

    @property
    def same_scores(self) -> bool:
        return self.scores <= 1e-5 * max(1.0, self.size)

    @property
    def same_weights(self) -> bool:
        return self.weights <= 1e-5


def measured(page: Page, cut: Cut, found: Change, head: int) -> Measured:
    """The numbers of a change, kept between reruns."""
    return _measured((page.key, page.text, page.ids, cut.what, cut.masked), head, found)


@st.cache_data(max_entries=256, show_spinner=False)
def _measured(about: tuple[Any, ...], head: int, _found: Change) -> Measured:  # noqa: ARG001 - for the key
    scores, weights = _found.largest(head)
    return Measured(scores, weights, _found.size(head), tuple(_found.moved().tolist()))


# --- words ------------------------------------------------------------------------------------------------------------


def band(cut: Cut, said: Sequence[str]) -> None:
    """The band that says what is changed, what came of it, and that these are not the model's own numbers."""
    source = "computed from the model's own q, k, projections and mask; it was not trained so"
    if cut.kind == SHUFFLE:
        source = "recorded from the model's own run in that order"
    elif cut.as_it_is:
        source = "the model's own"
    lines = [*said, f"The attention after the change is {source}."]
    kit.html(
        f'<div class="whatif"><p>{literal.inline("What if ")}<b>{literal.inline(cut.told)}</b>'
        f"{literal.inline('? ' + ' '.join(lines))}</p></div>"
    )


def law(page: Page, cut: Cut, seen: Measured, head: int, step: int) -> list[str]:
    """What changed, in numbers, and why it had to."""
    among = "" if step == 1 else f", over 1 query in {step}"
    scores, weights, largest = map(_number, (seen.scores, seen.weights, seen.size))
    first = f"no score changes by more than {scores}" if seen.same_scores else f"scores change by up to {scores}"
    second = f"no weight by more than {weights}" if seen.same_weights else f"weights by up to {weights}"
    moved = f"In head {head} {first} (the largest score is {largest} in size), {second}{among}."
    lines = (moved, _why(page, cut, seen), *cut.said)
    return [line for line in lines if line]


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def _why(page: Page, cut: Cut, seen: Measured) -> str:
    if cut.kind == SHUFFLE:
        return _of_shuffle(page, cut, seen)
    if cut.kind != SCHEME and all(SCHEMES[n].INJECTION == NOWHERE for n in page.trace.schemes if n in SCHEMES):
        return (
            f"{page.name} has no positions, so that nothing can change: choose another scheme, or shuffle its tokens."
        )
    return _of_shift(page, seen) if cut.kind == SHIFT else ""


def _of_shift(page: Page, seen: Measured) -> str:
    own = " and ".join(words.label(name) for name in page.trace.schemes)
    if seen.same_scores:
        return f"{own} sees distances alone, and a shift leaves every distance as it is: what is left is rounding."
    if seen.same_weights:
        return f"{own}: each row of scores moves by one number, and softmax removes it: no weight changes."
    if all(SCHEMES[name].INJECTION == TURNED for name in page.trace.schemes if name in SCHEMES):
        return f"{own}: here the frequencies go by the farthest position, which the shift has moved away."
    return f"{own}: each position has numbers of its own, so the same sentence further on is other numbers."


def _of_shuffle(page: Page, cut: Cut, seen: Measured) -> str:
    causal = cut.masked and surgery.is_causal(page.trace.attention)
    if seen.same_scores and seen.same_weights:
        return "Nothing tells positions apart here: each weight is the same number, only its place has changed."
    if seen.same_scores and causal:
        return (
            "No score has changed, since nothing tells positions apart. The weights have: the mask now shows each "
            "token other tokens. Without the mask they stay too."
        )
    seeing = " The mask, too, now shows each token other tokens." if causal else ""
    return f"The same two tokens have another score, for they stand elsewhere.{seeing}"


def by_head(seen: Measured) -> str:
    """Which heads turn how much of their attention elsewhere."""
    moved = seen.moved
    if max(moved) < 0.005:
        return "No head's attention moves."
    if len(moved) <= 8:
        return (
            "Part of each head's attention that moved: "
            + ", ".join(f"head {h}: {m:.0%}" for h, m in enumerate(moved))
            + "."
        )
    most, least = max(range(len(moved)), key=moved.__getitem__), min(range(len(moved)), key=moved.__getitem__)
    return (
        f"Most of its attention moves in head {most}, {moved[most]:.0%}, least in head {least}, {moved[least]:.0%}; "
        f"over the {len(moved)} heads {sum(moved) / len(moved):.0%} on average."
    )


def mask_note(cut: Cut, before: Attention) -> str:
    """Whose rows and columns the pictures have, and what of the mask is to be known."""
    rows = "Rows and columns are the tokens in the text's own order, in each picture."
    if not surgery.is_causal(before) or not cut.masked:
        return rows
    if cut.kind == SHUFFLE:
        return f"{rows} The mask goes by the order in which they came, and what it hides is blank."
    return f"{rows} The mask goes by place in the text, not by position: it stays as it is, and what it hides is blank."


# --- a value followed back --------------------------------------------------------------------------------------------


def followed(page: Page, what: str) -> tuple[Link, ...]:
    """The chain to a value of the block input ("input"), or to an attention weight, with its controls."""
    if what == "input":
        left, right = kit.columns([3, 2])
        with left:
            token = kit.token(page)
        with right:
            dimension = kit.number("Dimension", key="dim", high=max(0, page.trace.block_input.shape[-1] - 1))
        return _tried(lambda: surgery.input_chain(page.model, page.trace, token, dimension))
    attention = page.trace.attention
    heads = 1 if attention is None else attention.heads
    left, right = kit.columns([3, 1])
    with left:
        query, key = kit.query_and_key(page)
    with right:
        head = kit.number("Head", key="head", high=heads - 1)
    return _tried(lambda: surgery.weight_chain(page.model, page.trace, head, query, key))


def _tried(make: Callable[[], T]) -> T:
    """What is made, or the page ends with the sentence why not."""
    try:
        return make()
    except TinputError as error:
        kit.stop(str(error))


def links_table(links: Sequence[Link]) -> dict[str, list[str]]:
    """The links of a chain as a table's columns."""
    return {
        "step": [link.name for link in links],
        "value": [link.value if isinstance(link.value, str) else f"{link.value:.6g}" for link in links],
        "what is done": [link.words for link in links],
    }


# --- by frequency pair ------------------------------------------------------------------------------------------------


def by_pair(page: Page, scheme: Any) -> Pairs | str:
    """The scores of the traced layer by frequency pair; of a model that does not rotate, had it this scheme.

    A sentence where they are not to be had.
    """
    try:
        if page.has(scheme.NAME):
            return surgery.split(page.model, page.trace)
        attention = surgery.swap(page.model, page.trace, scheme.NAME)
    except TinputError as error:
        return str(error)
    rotation = scheme.predict({"head_dim": attention.q.shape[-1] // 2 * 2}, torch.arange(2))
    return surgery.pairs_of(attention, rotation, rotation.angles[1])
