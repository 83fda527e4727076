"""What can be done to a model's attention: the controls of each kind of change, and what they say.

No scheme is named here: the choice is SCHEMES', and what a rotation can be set to is asked of its module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from tinput import surgery
from tinput.positions import SCHEMES
from tinput.ui import given, kit

if TYPE_CHECKING:
    from tinput.ui.kit import Page

__all__ = ["CUTS", "NOWHERE", "SCHEME", "SHIFT", "SHUFFLE", "TURNED", "WIDE", "Cut", "controls", "positions_of"]

SCHEME, SHIFT, STRETCH, REPEAT, SHUFFLE, HAND = (
    "Another scheme", "Shift", "Stretch", "Repeat", "Shuffle the tokens", "By hand",
)  # fmt: skip
CUTS = (SHIFT, SCHEME, STRETCH, REPEAT, SHUFFLE, HAND)
WIDE = (SCHEME, SHUFFLE, HAND)  # their controls take a row
NOWHERE, TURNED = "nowhere", "rotation of q and k"  # values of a scheme's INJECTION
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
    default = next(label for label, name in labels.items() if SCHEMES[name].INJECTION == NOWHERE)
    name = kit.choose("Scheme", labels, key="into", default=default)
    if found[name].reason:
        kit.stop(found[name].reason, "Choose another scheme.")
    module, own = SCHEMES[name], name in page.trace.schemes
    config, options = _turning(page, module) if module.INJECTION == TURNED else (None, [])
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
