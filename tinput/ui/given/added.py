"""Vectors that are added: computed ones, and a learned table with what can be asked of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st
import torch
from torch import Tensor

from tinput import measure
from tinput.positions import Add
from tinput.surgery import bundled_table
from tinput.ui import cache
from tinput.ui.given.sizes import recorded_effect, width_of

if TYPE_CHECKING:
    from tinput.ui.kit import Page


@dataclass(frozen=True, eq=False)
class Vectors:
    """What is added at each position, (seq, width), the frequencies behind it (pair,), and the token's own part.

    layout: of the vectors, never ""
    """

    own: bool
    added: Tensor
    frequencies: Tensor
    token: Tensor | None
    layout: str

    @property
    def sum(self) -> Tensor | None:
        return None if self.token is None else self.token + self.added


def vectors(page: Page, scheme: Any, layout: str, base: float, width: int) -> Vectors:
    """Computed vectors for the text's positions.

    layout "" and width 0: the model's, the paper's layout where it has none; base: of the frequencies. Where all three
    are the model's own (a base of 10,000), what was recorded.
    """
    recorded = recorded_effect(page, scheme)
    own = isinstance(recorded, Add) and not layout and not width and base == 10_000
    wide = width or (recorded.vectors.shape[-1] if isinstance(recorded, Add) else width_of(page))
    plan = layout or "interleaved"
    if isinstance(recorded, Add) and not layout:
        plan = scheme.layout_of(recorded.vectors, page.model.config, page.positions)
    frequencies = scheme.frequencies(wide, base, plan)
    if own:
        assert isinstance(recorded, Add)
        added = recorded.vectors.float()
    else:
        added = scheme.table(page.positions, wide, base=base, layout=plan)
    return Vectors(own, added, frequencies, _token_part(page, added), plan)


def _token_part(page: Page, added: Tensor) -> Tensor | None:
    """What the added vector meets, (seq, width), as it is just before: the other input of the recorded sum."""
    stages = page.trace.stages
    total = next((stage for stage in reversed(stages) if stage.role == "sum"), None)
    recorded = page.effect_of(Add)
    if total is not None and recorded is not None and recorded.vectors.shape == total.value.shape:
        token = total.value - recorded.vectors
    else:
        token = page.trace.block_input
    return token if token.shape == added.shape else None


_ROWS = 2048  # of a table that are looked at; every n-th of a longer one


@dataclass(frozen=True, eq=False)
class Table:
    """A table of positions. rows: (n, width); positions: (n,) int64; size: of the whole; step: every step-th is here

    source: the model that learned it
    """

    own: bool
    rows: Tensor
    positions: Tensor
    size: int
    step: int
    source: str
    name: str = ""
    first: int = 0

    @property
    def note(self) -> str:
        parts = ["" if self.own else f"what-if: from {self.source}"]
        parts += [f"1 position in {self.step} shown"] if self.step > 1 else []
        return ", ".join(filter(None, parts))


def table(page: Page, scheme: Any) -> Table | None:
    """The model's own table; without one, what the bundled model with this scheme learned; None without that too."""
    name = next((f.table for f in page.trace.effects if isinstance(f.effect, Add) and f.table is not None), None)
    if name is not None:
        return _own_table(page.key, name)
    bundled = bundled_table(scheme.NAME)
    if bundled is None:
        return None
    source, rows = bundled
    step = -(-len(rows) // _ROWS)
    return Table(False, rows[::step], torch.arange(0, len(rows), step), len(rows), step, source)


@st.cache_resource(max_entries=8, show_spinner=False)
def _own_table(key: cache.Key, name: str) -> Table:
    opened = cache.model(key)
    first = next((i.first_row for i in opened.stack().injections if i.table == name), 0)
    size = opened.table_size(name) - first
    step = -(-size // _ROWS)
    positions = torch.arange(0, size, step)
    return Table(True, opened.table_rows(name, positions + first), positions, size, step, key.name, name, first)


@st.cache_resource(max_entries=32, show_spinner=False)
def looked_at(key: tuple[Any, ...], what: str, _rows: Tensor, _positions: Tensor) -> Any:  # noqa: ARG001
    """One of measure's answers about a table, kept: a singular value decomposition takes longer than a page may.

    key: all that says which table it is
    """
    if what == "cosine":
        return measure.cosine(_rows)
    if what == "norms":
        return measure.norms(_rows)
    if what == "singular values":
        return measure.singular_values(_rows)
    if what == "periods":
        return measure.periods(_rows)
    if what == "components":
        return measure.project(_rows, 8)
    return measure.probe(_rows, _positions)
