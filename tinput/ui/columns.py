"""What the side by side page is made of: its columns, their controls, and the aligned tokens on top."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st
import torch
from streamlit.components.v2 import component

from tinput.align import Part, align
from tinput.positions import SCHEMES
from tinput.positions.spelling import D_MODEL, HEADS, pick, text_part
from tinput.twins import NAMES
from tinput.ui import badges, cache, kit, literal, sources
from tinput.ui.compare import Column, Together

if TYPE_CHECKING:
    from tinput.positions import Effect
    from tinput.tokens import Tokens

__all__ = ["chips", "choose", "heads", "link", "schemes", "together"]

BUNDLED = "Bundled six"
OTHERS = ("other", "third", "fourth")  # keys of the columns after the first, whose model is the page's
MOST = 256  # parts of a text in one picture
_SQUARES = 120_000  # cells of all squares of parts by parts together: 0.64 MB on the wire
OWN = "its own scheme"

_link = component("tinput.link", js=Path(__file__).with_name("link.js").read_text(encoding="utf-8"))


# --- choosing -------------------------------------------------------------------------------------------------------


def choose(page: kit.Page) -> Together:
    """The columns, with their controls: how many, which model, which stack; and the first column is the page's."""
    how_many = kit.choose("Columns", ["2", "3", "4", BUNDLED], key="columns")
    if how_many == BUNDLED:
        return together([(each, None) for each in _bundled(page)], [name.split("/")[-1] for name in NAMES])
    count = int(how_many)
    chosen: list[tuple[kit.Page, str | None]] = []
    for number, place in enumerate(st.columns(count, gap="medium")):
        with place:
            if number == 0:
                kit.html(_title("First model, chosen at the side", page.name), paper=_title("First model", page.name))
                chosen.append(_stacked(page, 0))
                continue
            key = OTHERS[number - 1]
            label = f"{('Second', 'Third', 'Fourth')[number - 1]} model"
            name = kit.model_choice(label, key=key, default=_default(number, page.name), chosen=False)
            if count > 2:
                st.button(
                    "Remove this model", on_click=_remove, args=(number, count, page.name), key=f"remove-{key}",
                    type="tertiary", icon=":material/close:",
                )  # fmt: skip
            if kit.presenting():  # the list is out of sight
                kit.html(_title("", name))
            chosen.append(_stacked(kit.open_page(name, page.text), number))
    return together(chosen)


def _title(label: str, name: str) -> str:
    above = "" if kit.presenting() else f"<small>{literal.inline(label)}</small>"
    return f'<p class="fixed">{above}<b>{literal.inline(_short(name))}</b></p>'


def _bundled(page: kit.Page) -> list[kit.Page]:
    """The text through all bundled models; what holds for all of them is said once."""
    pages = [page if name == page.name else kit.open_page(name, page.text) for name in NAMES]
    shown = [
        literal.badge(f"{each.name.split('/')[-1]}: {scheme.INJECTION}", scheme.COLOUR, each.model.reason)
        for each in pages
        for scheme in (SCHEMES[each.model.scheme],)
    ]
    kit.html(badges.row(*shown, badges.agreement(pages[0].trace.agreement, pages[0].trace.textbook_reason)))
    cut = next((each.cut for each in pages if each.cut), "")
    if cut:
        kit.note(f"Shown: {cut}.")
    return pages


def _default(number: int, first: str) -> str:
    """The model of a column, 1 to 3, that nobody chose: unlike the first column's, and unlike the others' defaults."""
    start = NAMES.index(sources.SECOND_MODEL)
    return [name for name in (*NAMES[start:], *NAMES[:start]) if name != first][number - 1]


def _remove(number: int, count: int, first: str) -> None:
    """Take a column out: those after it move up. first: the first column's model"""
    for place in range(number, count - 1):
        following = st.session_state.get(OTHERS[place]) or _default(place + 1, first)
        st.session_state[OTHERS[place - 1]] = following
    st.session_state["columns"] = str(count - 1)


def _stacked(page: kit.Page, number: int) -> tuple[kit.Page, str | None]:
    """The page for a stack that is chosen where there are two."""
    stacks = page.model.stacks
    kit.html(f'<div class="narrow">{kit.header(page, strip=False)}</div>')
    if len(stacks) < 2:
        return page, None
    stack = kit.choose("Stack", list(stacks), key=f"stack{number + 1}")
    return (replace(page, trace=page.retrace(stack=stack)), stack) if stack != stacks[0] else (page, None)


def together(chosen: Sequence[tuple[kit.Page, str | None]], names: Sequence[str] = ()) -> Together:
    """Columns of pages and stacks, aligned. Equal names are told apart by a number; names: others than the models'."""
    columns: list[Column] = []
    names = names or [_short(each.name if each.asked is None else each.asked.typed) for each, _ in chosen]
    for (each, stack), short in zip(chosen, names, strict=True):
        name = short + (f", {stack}" if stack else "")
        again = sum(column.name.split(" (")[0] == name for column in columns)
        columns.append(Column(each, f"{name} ({again + 1})" if again else name, stack))
    common = align(*(_all_tokens(c.page) for c in columns), lengths=[c.page.seq for c in columns])
    base = {f.name: getattr(columns[0].page, f.name) for f in fields(kit.Page)}
    made = Together(**base, columns=tuple(columns), common=common, stop=len(common.parts))
    most = min(MOST, math.isqrt(_SQUARES // len(columns)))
    if len(common.parts) <= most:
        return made
    first = kit.number(f"First {made.unit} shown", key="part0", high=len(common.parts) - most)
    return replace(made, first=first, stop=first + most)


def _all_tokens(page: kit.Page) -> Tokens:
    """The tokens of the whole text, those that are not traced too: where a text was cut is no end of it."""
    return page.tokens if page.ids is None else cache.tokens(page.key, page.text)


def _short(name: str) -> str:
    """A folder by the last two of its names."""
    return "/".join(Path(name).parts[-2:])


def heads(page: Together) -> int | None:
    """The head that is looked at, or None for the mean over all: in the address bar."""
    left, right, _ = kit.columns([2, 1, 2])
    with left:
        mean = kit.choose("Heads", ["One head", "Mean of all"], key="heads") == "Mean of all"
    counts = [c.page.trace.attention.heads for c in page.columns if c.page.trace.attention is not None]
    with right:
        return None if mean or not counts else kit.number("Head", key="head", high=min(counts) - 1)


def schemes(page: Together) -> list[tuple[str, Effect | None]]:
    """For each column a what-if's scheme and effect, ("", None) for the column's own: a control each.

    Only what the textbook computes from sizes alone can be chosen; a learned table would be made up.
    """
    options = {OWN: ""} | {f"as if {scheme.LABEL}": name for name, scheme in SCHEMES.items() if _computed(scheme)}
    found: list[tuple[str, Effect | None]] = []
    said = []
    across = len(page.columns) if len(page.columns) <= 4 else 3
    for number, column in enumerate(page.columns):
        if number % across == 0:
            places = st.columns(across, gap="medium")
        with places[number % across]:
            key = f"as{number + 1}"
            if st.session_state.get(key, OWN) not in options:
                del st.session_state[key]
            label = st.selectbox(column.name, list(options), key=key, bind="query-params") or OWN
        name = options[label]
        effect, why = _as_if(column.page, name) if name else (None, "")
        found.append((name, effect) if effect is not None else ("", None))
        if name:
            said.append(why or f"What if {column.name} had {SCHEMES[name].LABEL}: what the formula gives at its sizes.")
    if said:
        kit.html(literal.paragraphs(said, "whatif"))
    return found


def _computed(scheme: Any) -> bool:
    """Whether a scheme follows from sizes alone: a learned table does not."""
    try:
        sizes = {D_MODEL[0]: 8, HEADS[0]: 2, "head_dim": 4}
        return scheme.predict(sizes, torch.arange(2), heads=2, width=8, keys=2) is not None
    except ValueError:
        return False


def link() -> None:
    """What stands for the same bytes is marked together, wherever the pointer is: `link.js`."""
    _link(key="link")


def _as_if(page: kit.Page, name: str) -> tuple[Effect | None, str]:
    """What the textbook's scheme would inject at a model's sizes, for its positions."""
    width, attention, config = page.trace.block_input.shape[-1], page.trace.attention, text_part(page.model.config)
    heads = int(pick(config, *HEADS) or 0) if attention is None else attention.heads
    if not heads:
        return None, f"{page.name} does not say how many heads it has."
    d_head = int(pick(config, "head_dim") or width // heads) if attention is None else attention.q.shape[-1]
    sizes = {D_MODEL[0]: width, HEADS[0]: heads, "head_dim": d_head}
    try:
        return SCHEMES[name].predict(sizes, page.positions, heads=heads, width=width, keys=page.seq), ""
    except ValueError as error:
        return None, f"{page.name}: {error}."


# --- the tokens, aligned ------------------------------------------------------------------------------------------

SHADES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")


def chips(page: Together) -> str:
    """HTML of the tokens of all columns, those that stand for the same bytes one below the other.

    Columns whose tokens are the same share a line. Each part carries its number, by which `link` finds it.
    """
    lines: dict[Any, list[int]] = {}
    for number, column in enumerate(page.columns):
        tokens, stop = column.page.tokens, max((part.tokens[number][1] for part in page.common.parts), default=0)
        lines.setdefault((tokens.ids[:stop], tokens.pieces[:stop], page.common.ranges(number)), []).append(number)
    shown = page.common.parts[: literal.STRIP_LIMIT]
    if len(lines) == 1:
        blocks = [chip for number, part in enumerate(shown) for chip in _chips(page, 0, number, part)]
        css, style = "strip", ""
    else:
        groups = list(lines.values())
        names = "".join(
            f'<span class="line" style="--line:{SHADES[k % len(SHADES)]}">'
            f"{literal.inline(', '.join(page.names[number] for number in group))}</span>"
            for k, group in enumerate(groups)
        )
        blocks = [f'<div class="part names">{names}</div>']
        for number, part in enumerate(shown):
            stack = "".join(
                f'<span class="line" style="--line:{SHADES[k % len(SHADES)]}">'
                f"{''.join(_chips(page, group[0], number, part)) or NONE}</span>"
                for k, group in enumerate(groups)
            )
            blocks.append(f'<div class="part" data-part="{number}">{stack}</div>')
        css = "strip aligned"
        whole = max(2, min(4, 12 // len(groups)))  # blocks in sight, none cut in two
        style = f' style="max-height: calc({whole} * ({len(groups)} * 1.77rem + .75rem))"'
    if len(page.common.parts) > len(shown):
        blocks.append(f'<span class="more">and {len(page.common.parts) - len(shown):,} more</span>')
    row = f'<div class="{css}"{style} tabindex="0" role="group" aria-label="tokens of the text">{"".join(blocks)}</div>'
    said = "Tokens of the same bytes of the text stand one below the other: a part of the text."
    return row + (literal.paragraphs([said], "note") if len(lines) > 1 else "")


NONE = '<span class="tok none" title="no token: this tokenizer drops it">∅</span>'


def _chips(page: Together, column: int, number: int, part: Part) -> list[str]:
    tokens = page.columns[column].page.tokens
    place = f"bytes {part.start} to {part.stop}" if part.stop > part.start else "no byte of the text"
    return [
        literal.chip(
            tokens.labels[i],
            f"part {number} · {place} · token {i} · id {tokens.ids[i]}",
            "special" if tokens.special[i] else "",
        ).replace(" title=", f' data-part="{number}" title=', 1)
        for i in range(*part.tokens[column])
    ]
