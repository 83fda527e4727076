"""What can be done to a model's attention: the controls of each change, its words, its code, and the change itself.

A change is described by plain values (`Cut.what`), under which its result is kept. No scheme is named here: the choice
is SCHEMES', and what a rotation can be set to is asked of its module.
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
from tinput.ui import given, kit, literal, words

if TYPE_CHECKING:
    from tinput.open import Model
    from tinput.record import Attention, Trace
    from tinput.surgery import Change, Link, Pairs
    from tinput.ui.kit import Page

__all__ = [
    "CUTS",
    "WIDE",
    "Cut",
    "band",
    "by_head",
    "by_pair",
    "change",
    "controls",
    "followed",
    "law",
    "links_table",
    "mask_note",
    "measured",
    "positions_of",
]

T = TypeVar("T")
SCHEME, SHIFT, STRETCH, REPEAT, SHUFFLE, HAND = (
    "Another scheme", "Shift", "Stretch", "Repeat", "Shuffle the tokens", "By hand",
)  # fmt: skip
CUTS = (SHIFT, SCHEME, STRETCH, REPEAT, SHUFFLE, HAND)
WIDE = (SCHEME, SHUFFLE, HAND)  # their controls take a row
_NOWHERE, _TURNED = "nowhere", "rotation of q and k"  # values of a scheme's INJECTION
_AS_IT_IS = "as it is"
_MOVE = "after = surgery.move(model, trace, positions)\n"


@dataclass(frozen=True)
class Cut:
    """One change. kind: of CUTS; what: all that says which, plain values; code: the lines that make `after`

    told: "all tokens stood 100 positions further": the what-if in words; as_it_is: nothing is changed
    masked: whether the mask stays; said: what is to be known besides
    """

    kind: str
    what: tuple[Any, ...]
    code: str
    told: str
    as_it_is: bool = False
    masked: bool = True
    said: tuple[str, ...] = ()


# --- controls ---------------------------------------------------------------------------------------------------------


def controls(page: Page, kind: str) -> Cut:
    """The controls of a kind of change, and what they say. Ends the page where what was typed cannot be read."""
    if kind == SCHEME:
        return _scheme(page)
    if kind == SHUFFLE:
        return _shuffle(page)
    own = "torch.arange(len(trace.ids))" if page.trace.positions is None else "trace.positions"
    at = page.positions
    if kind == SHIFT:
        by = kit.number("Shift all positions by", key="shift", default=100, high=100_000)
        return _moved(kind, at + by, f"{own} + {by}", f"all tokens stood {by:,} positions further on")
    if kind == STRETCH:
        times = float(kit.choose("Distances times", ["0.25", "0.5", "2", "4"], key="times", default="2"))
        return _moved(kind, at * times, f"{own} * {times:g}", f"all distances were {times:g} times as long")
    if kind == REPEAT:
        every = kit.number("Positions start again every … tokens", key="again", default=4, low=1, high=100_000)
        first = int(at.min())
        code = f"({own} - {first}) % {every} + {first}" if first else f"{own} % {every}"
        return _moved(kind, (at - first) % every + first, code, f"positions started again every {every:,} tokens")
    return _hand(page, own)


def _moved(kind: str, at: torch.Tensor, code: str, told: str) -> Cut:
    lines = f"positions = {code}\n{_MOVE}"
    return Cut(kind, ("move", *at.tolist()), lines, told)


def _hand(page: Page, own: str) -> Cut:
    which = kit.choose("Set", ["One token", "All, as a list"], key="set")
    at = page.positions.tolist()
    if which == "One token":
        left, right = kit.columns([3, 2])
        with left:
            token = kit.token(page)
        with right:
            there = kit.number("Its position", key="at", default=50, high=1_000_000)
        lines = f"positions = {own}.clone()\npositions[{token}] = {there}\n{_MOVE}"
        at[token] = there
        told = f"token {token}, {page.labels[token]}, stood at position {there:,}"
        return Cut(HAND, ("move", *at), lines, told)
    typed = kit.line(
        f"A position for each of the {page.seq} tokens", key="places", placeholder=", ".join(map(str, at[:12])),
        help="Numbers with blanks or commas between them. Fractions are fine where the scheme is a formula.",
    )  # fmt: skip
    found = positions_of(typed, page.seq) if typed.strip() else [float(p) for p in at]
    if isinstance(found, str):
        kit.stop(found, "What you typed stays as it is.")
    shown = [int(p) if p == int(p) else p for p in found]
    lines = f"positions = {shown}\n{_MOVE}"
    return Cut(HAND, ("move", *found), lines, "each token stood where the list says")


def positions_of(typed: str, count: int) -> list[float] | str:
    """The positions in what was typed, or a sentence on what is wrong with it."""
    found = []
    for piece in typed.replace(",", " ").replace(";", " ").split():
        try:
            found.append(float(piece))
        except ValueError:
            return f"“{piece[:40]}” is no number: type {count} numbers, with blanks or commas between them."
        if abs(found[-1]) > 1e9:  # not NaN, which is refused by the one below
            return f"{piece[:40]} is too far: type positions up to 1,000,000,000."
        if found[-1] != found[-1]:
            return f"“{piece[:40]}” is no position: type {count} numbers."
    if len(found) != count:
        return f"There are {count} tokens and {len(found)} positions: type one for each token."
    return found


def _shuffle(page: Page) -> Cut:
    left, right = kit.columns([2, 3])
    with left:
        seed = kit.number("Seed", key="order", default=0, high=9_999)
    masked = True
    if surgery.is_causal(page.trace.attention):
        with right:
            masked = not kit.toggle("Without the mask", key="bare", help="Each token sees all, before and after")
    keep = [i for i, special in enumerate(page.tokens.special) if special]
    lines = f"order = surgery.shuffled(len(trace.ids), seed={seed}, keep={keep})\n"
    lines += "after = surgery.shuffle(model, trace, order)\n"
    told = "the same tokens came in another order"
    said = (f"The {len(keep)} special tokens stay where they are." if keep else "",)
    return Cut(SHUFFLE, ("shuffle", seed, *keep), lines, told, masked=masked, said=said)


def _scheme(page: Page) -> Cut:
    found = {choice.scheme: choice for choice in surgery.choices(page.trace)}
    labels = {SCHEMES[name].LABEL: name for name in found}
    default = next(label for label, name in labels.items() if SCHEMES[name].INJECTION == _NOWHERE)
    name = kit.choose("Scheme", labels, key="into", default=default)
    if found[name].reason:
        kit.stop(found[name].reason, "Choose another scheme.")
    module, own = SCHEMES[name], name in page.trace.schemes
    config, options = _turning(page, module) if module.INJECTION == _TURNED else (None, [])
    more = f", {config!r}" if config else ""
    told = f"the scheme were {module.LABEL}" if not own else f"{module.LABEL} stayed as it is"
    said = []
    if config:
        told = f"the scheme were {module.LABEL} with " + ", ".join(options)
    if found[name].table:
        said.append(f"The table is {found[name].table}'s: it was learned with other weights than these.")
    lines = f"after = surgery.swap(model, trace, {name!r}{more})\n"
    return Cut(SCHEME, ("swap", name, repr(config)), lines, told, own and not config, said=tuple(said))


def _turning(page: Page, module: Any) -> tuple[dict[str, Any] | None, list[str]]:
    """What a rotation is set to besides, and that in words; None: as the model has it, or as the paper does."""
    sizes, length = given.turning(page, module), given.context(page) or 2048
    left, middle, right = kit.columns([5, 6, 3])
    with left:
        base = kit.choose("Theta", [_AS_IT_IS, "100", "10,000", "1,000,000"], key="theta")
    with middle:
        # dynamic goes by the text's length: within the context it is no change
        names = [_AS_IT_IS, *(name for name in module.stretched(sizes, length, 2.0) if name != "dynamic")]
        how = kit.choose("Scaling", names, key="scaled")
    if base == how == _AS_IT_IS:
        return None, []
    theta = sizes["rope_theta"] if base == _AS_IT_IS else float(base.replace(",", ""))
    said = [f"theta {theta:,.0f}"]
    if how == _AS_IT_IS:
        return {"rope_theta": theta}, said
    with right:
        factor = float(kit.choose("Times longer", ["2", "4", "8", "32"], key="stretch", default="4"))
    way = module.stretched(sizes | {"rope_theta": theta}, length, factor)[how]
    config = {key: way[key] for key in ("max_position_embeddings", "rope_parameters")}
    return config, [*said, f"{how} scaling, {factor:g} times longer"]


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
    lines = (f"In head {head} {first} (the largest is {largest}), {second}{among}.", _why(page, cut, seen), *cut.said)
    return [line for line in lines if line]


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def _why(page: Page, cut: Cut, seen: Measured) -> str:
    if cut.kind == SHUFFLE:
        return _of_shuffle(page, cut, seen)
    if cut.kind != SCHEME and all(SCHEMES[n].INJECTION == _NOWHERE for n in page.trace.schemes if n in SCHEMES):
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
    if all(SCHEMES[name].INJECTION == _TURNED for name in page.trace.schemes if name in SCHEMES):
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
        query, key = kit.token(page, "Query"), kit.token(page, "Key", key="seen")
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
        "Python": [link.code for link in links],
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
