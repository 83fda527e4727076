"""What a scheme's page starts from: the model's own numbers where it has the scheme, else the textbook's at its sizes.

Every answer says which of the two it is (`own`), so that a page can label a what-if. `scheme` is the page's module of
`tinput.positions`: no scheme is named here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st
import torch
from torch import Tensor

from tinput import measure
from tinput.errors import TinputError
from tinput.positions import Add, Bias, Rotate
from tinput.positions.spelling import CONTEXT, HEADS, pick, text_part
from tinput.ui import cache
from tinput.window import Field, Window

if TYPE_CHECKING:
    from tinput.ui.kit import Page

__all__ = [
    "Buckets",
    "Heads",
    "Rotation",
    "Table",
    "Vectors",
    "buckets",
    "context",
    "distances",
    "heads",
    "is_causal",
    "looked_at",
    "pairings",
    "rotation",
    "scalings",
    "slopes",
    "stretched",
    "table",
    "theta",
    "vectors",
    "weights",
]


def context(page: Page) -> int:
    """How many tokens the model was made for, as its configuration says; 0 where it does not say."""
    return int(pick(text_part(page.model.config), *CONTEXT, "max_len") or 0)


def _width(page: Page) -> int:
    return int(page.trace.block_input.shape[-1])


def _heads(page: Page) -> int:
    attention = page.trace.attention
    return attention.heads if attention is not None else int(pick(text_part(page.model.config), *HEADS) or 8)


def _recorded(page: Page, scheme: Any) -> Any:
    """The first recorded effect of a scheme, or None."""
    return next((found.effect for found in page.trace.effects if found.scheme == scheme.NAME), None)


# --- added vectors ----------------------------------------------------------------------------------------------------


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
    recorded = _recorded(page, scheme)
    own = isinstance(recorded, Add) and not layout and not width and base == 10_000
    wide = width or (recorded.vectors.shape[-1] if isinstance(recorded, Add) else _width(page))
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


# --- a learned table --------------------------------------------------------------------------------------------------

_ROWS = 2048  # of a table that are looked at; every n-th of a longer one


@dataclass(frozen=True, eq=False)
class Table:
    """A table of positions. rows: (n, width); positions: (n,) int64; size: of the whole; step: every step-th is here"""

    own: bool
    rows: Tensor
    positions: Tensor
    size: int
    step: int
    name: str = ""
    first: int = 0

    @property
    def note(self) -> str:
        return f"1 position in {self.step} shown" if self.step > 1 else ""


def table(page: Page) -> Table:
    """The model's own table; without one, a table of its sizes as training would start it: noise of size 0.02."""
    name = next((f.table for f in page.trace.effects if isinstance(f.effect, Add) and f.table is not None), None)
    if name is not None:
        return _own_table(page.key, name)
    size = min(context(page) or 512, 512)
    return _noise(size, _width(page))


@st.cache_resource(max_entries=8, show_spinner=False)
def _own_table(key: cache.Key, name: str) -> Table:
    opened = cache.model(key)
    first = next((i.first_row for i in opened.stack().injections if i.table == name), 0)
    size = opened.table_size(name) - first
    step = -(-size // _ROWS)
    positions = torch.arange(0, size, step)
    return Table(True, opened.table_rows(name, positions + first), positions, size, step, name, first)


@st.cache_resource(max_entries=8, show_spinner=False)
def _noise(size: int, width: int) -> Table:
    rows = torch.randn(size, width, generator=torch.Generator().manual_seed(0)) * 0.02
    return Table(False, rows, torch.arange(size), size, 1)


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


# --- a rotation -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Rotation:
    """How q and k are turned: angles (seq, pair), frequencies (pair,) float64, and q and k before and after.

    q_before, q: (heads, seq, d_head), k_before, k: (kv_heads, seq, d_head); None where they could not be recorded
    """

    own: bool
    angles: Tensor
    frequencies: Tensor
    layout: str
    start: int
    magnitude: float
    scale: float
    q_before: Tensor | None
    q: Tensor | None
    k_before: Tensor | None
    k: Tensor | None
    reason: str
    rotate: Callable[..., Tensor]

    @property
    def d_head(self) -> int:
        return self.start + 2 * self.angles.shape[-1] if self.q is None else int(self.q.shape[-1])

    def key_head(self, head: int) -> int:
        """The head of k that a head of q looks at."""
        assert self.q is not None
        assert self.k is not None
        return head // (self.q.shape[0] // self.k.shape[0])

    def scores(self, page: Page, head: int, shift: int) -> Tensor | None:
        """scale q kT of one head, (query, key), all positions moved by `shift`; None where that cannot be had.

        Recorded anew from the model if the rotation is its own, else computed from its q and k. Masked cells are -inf.
        """
        if page.trace.attention is None:
            return None
        mask = page.trace.attention.mask[head].tensor()
        if self.own:
            try:
                trace = page.retrace(positions=(page.positions + shift).tolist()) if shift else page.trace
            except TinputError:
                return None
            return None if trace.attention is None else trace.attention.scores[head].tensor().float() + mask
        if self.q_before is None or self.k_before is None:
            return None
        positions = page.positions
        turned = (positions + shift).double()[:, None] * self.frequencies
        q, k = (
            self.rotate(x.double(), turned, self.layout, self.start, self.magnitude)
            for x in (self.q_before[head], self.k_before[self.key_head(head)])
        )
        return (self.scale * q @ k.T).float() + mask


def rotation(page: Page, scheme: Any) -> Rotation:
    """The model's rotation as recorded, or the paper's on the model's own q and k."""
    attention, recorded = page.trace.attention, page.effect_of(Rotate)
    q, k, scale = (None, None, 1.0) if attention is None else (attention.q, attention.k, attention.scale)
    if isinstance(recorded, Rotate):
        before = (None, None) if attention is None else (attention.q_before, attention.k_before)
        reason = page.trace.attention_reason if attention is None else attention.before_reason
        if any(x is not None and x.shape != y.shape for x, y in zip(before, (q, k), strict=True) if y is not None):
            before, reason = (None, None), "a part of each head alone is turned, and it was recorded by itself"
        magnitude = float(torch.hypot(recorded.cos.double(), recorded.sin.double()).mean())
        return Rotation(
            True, recorded.angles, _frequencies(page, scheme, recorded), recorded.layout, recorded.start,
            round(magnitude, 6), scale, before[0], q, before[1], k, reason, scheme.rotate,
        )  # fmt: skip
    d_head = int(q.shape[-1]) if q is not None else max(2, _width(page) // _heads(page))
    found = scheme.frequencies({"head_dim": d_head - d_head % 2, "rope_theta": 10_000.0})
    angles = scheme.angles(page.positions, found.inv_freq)
    turned = (None, None) if q is None or k is None else tuple(scheme.rotate(x, angles) for x in (q, k))
    return Rotation(
        False, angles.float(), found.inv_freq, "half", 0, 1.0, scale, q, turned[0], k, turned[1],
        page.trace.attention_reason, scheme.rotate,
    )  # fmt: skip


def _frequencies(page: Page, scheme: Any, recorded: Rotate) -> Tensor:
    """The formula's frequencies of the layers that were recorded; from the angles where it has none: (pair,)."""
    positions, config = page.positions, page.model.config
    farthest = int(positions.argmax())
    measured = recorded.angles[farthest].double() / max(1, int(positions[farthest]))
    best, error = measured, float("inf")
    for kind in dict.fromkeys([None, *scheme.layer_types(config)]):
        try:
            found = scheme.frequencies(config, layer_type=kind, seq_len=page.seq).inv_freq
        except (ValueError, KeyError):
            continue
        if found.shape == measured.shape:
            off = float((scheme.angles(positions, found) - recorded.angles.double()).abs().max())
            if off < error:
                best, error = found, off
    return best


def scalings(page: Page, scheme: Any, factor: float) -> tuple[float, dict[str, Tensor]]:
    """theta, and each published way to stretch a context on this model's width: name -> frequencies (pair,) float64.

    factor: how many times longer. A method whose numbers are found by search, not by formula, is left out.
    """
    own = rotation(page, scheme)
    base = theta(page, scheme)
    length = context(page) or 2048
    found = {}
    for name in scheme.SCALINGS:
        sizes = {
            "head_dim": 2 * own.angles.shape[-1],
            "max_position_embeddings": length,
            "rope_parameters": stretched(name, base, factor, length),
        }
        try:
            found[name] = scheme.frequencies(sizes, seq_len=int(factor * length)).inv_freq
        except (ValueError, KeyError):
            continue
    return base, found


def theta(page: Page, scheme: Any) -> float:
    """The base of the model's own rotation; the paper's 10,000 where it has none, or does not say."""
    if page.effect_of(Rotate) is None:
        return 10_000.0
    try:
        found = scheme.parse(page.model.config)
    except (ValueError, KeyError):
        return 10_000.0
    return 10_000.0 if found is None else found.theta


def stretched(name: str, theta: float, factor: float, length: int) -> dict[str, Any]:
    """What a configuration says of a scaling method: `length` tokens, made `factor` times longer."""
    return {
        "rope_type": name,
        "rope_theta": theta,
        "factor": factor,
        "original_max_position_embeddings": length,
        "partial_rotary_factor": 0.25 if name == "proportional" else 1.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }


def pairings(turned: Rotation, layouts: Sequence[str]) -> Tensor:
    """The pair that each dimension of a head belongs to, (layout, d_head) int64; -1 for one that does not turn."""
    number = torch.arange(turned.angles.shape[-1])
    index = torch.full((len(layouts), turned.d_head), -1)
    for row, layout in enumerate(layouts):
        pair = torch.cat((number, number)) if layout == "half" else number.repeat_interleave(2)
        index[row, turned.start : turned.start + len(pair)] = pair
    return index


# --- biases -----------------------------------------------------------------------------------------------------------


def slopes(page: Page, scheme: Any) -> Tensor:
    """The slope of each head, (heads,): the textbook's for the model's number of heads and its alibi_bias_max."""
    config = text_part(page.model.config)
    nested = config.get("attn_config")
    steepest = pick(config, "alibi_bias_max") or (pick(nested, "alibi_bias_max") if isinstance(nested, dict) else None)
    return scheme.slopes(_heads(page), bias_max=steepest or 8)


@dataclass(frozen=True, eq=False)
class Heads:
    """A bias of each head on the scores: (heads, query, key), without the mask; causal: later keys are masked"""

    own: bool
    field: Field
    causal: bool

    def near(self, most: int = 256) -> Bias:
        """The bias among the first tokens, none of them left out, (heads, n, n): what sentences are made from."""
        rows, columns = (min(size, most) for size in self.field.shape[-2:])
        return Bias(self.field.window((0, rows), (0, columns), cells=most).values)

    def last(self) -> Bias:
        """What the last query gets with every key, (heads, 1, keys)."""
        rows, columns = self.field.shape[-2:]
        return Bias(self.field.window((rows - 1, rows), cells=(1, columns)).values)

    def window(self, first: int, count: int, *, relative: bool = False) -> tuple[Window, Tensor | None]:
        """64 x 64 cells of some heads, and which cells are masked, (query, key), if any.

        relative: each row minus its value at the query's own key, which softmax cannot tell from the row as it is
        """
        found = self.field.window(cells=64)
        values = found.values[first : first + count]
        if relative:
            values = values - values.diagonal(dim1=1, dim2=2)[..., None]
        later = found.columns[None, :] > found.rows[:, None]
        shown = Window(values, found.rows, found.columns, found.row_step, found.column_step)
        return shown, later if self.causal else None


def heads(page: Page, scheme: Any, what_if: Field, *, force: bool = False) -> Heads:
    """The bias that the model adds in this scheme, or `what_if`; force: the what-if, looking in both directions."""
    recorded = _recorded(page, scheme)
    if isinstance(recorded, Bias) and not force:
        return Heads(True, Field.of(recorded.scores), is_causal(page))
    return Heads(False, what_if, is_causal(page) and not force)


def is_causal(page: Page) -> bool:
    """Whether the first token is kept from seeing the last; yes where nothing was recorded."""
    attention = page.trace.attention
    if attention is None or page.seq < 2:
        return page.trace.stack == "decoder"
    corner = attention.mask[0].window((0, 1), (page.seq - 1, page.seq)).values
    return bool(corner[0, 0] < -1e29)


_LONG = 64  # tokens: beyond, a weight is some hundredths, and the first token's 1 would leave it without a colour


def weights_quantile(page: Page) -> float:
    """Where the colours of attention weights end: at the largest of a short text, below a long one's few largest."""
    return 1.0 if page.seq <= _LONG else 0.995


def weights(page: Page, head: int, bias: Heads) -> tuple[Tensor, Tensor, Tensor] | None:
    """Attention weights of a head (query, key) without and with the bias, and which cells are masked.

    None where q and k were not recorded.

    The side that the model itself has is the recorded one.
    """
    attention = page.trace.attention
    if attention is None:
        return None
    head = head % attention.heads
    recorded, masked = attention.weights[head].tensor(), attention.mask[head].tensor() < -1e29
    if bias.own:
        return attention.weights_with(head), recorded, masked
    added = attention.bias[head].tensor() + bias.field[head % bias.field.shape[0]].tensor()
    return recorded, attention.weights_with(head, added), masked


@dataclass(frozen=True, eq=False)
class Buckets:
    """T5's buckets: how many, how far, and the learned table (num_buckets, heads), of this model or a bundled one."""

    own: bool
    table: Tensor | None
    num_buckets: int
    max_distance: int
    bidirectional: bool
    source: str


def buckets(page: Page, scheme: Any) -> Buckets:
    """The model's buckets and table; without them, T5's sizes and what the bundled model with this scheme learned."""
    found = next((f for f in page.trace.effects if f.scheme == scheme.NAME and f.table is not None), None)
    if found is not None and found.table is not None:
        far = int(pick(text_part(page.model.config), "relative_attention_max_distance") or 128)
        size = page.model.table_size(found.table)
        rows = page.model.table_rows(found.table, torch.arange(size))
        return Buckets(True, rows, size, far, page.trace.stack == "encoder", page.name)
    twin = f"tinput/{scheme.NAME}"
    rows = _twin_table(twin)
    if rows is None:
        return Buckets(False, None, 32, 128, not is_causal(page), "")
    return Buckets(False, rows, len(rows), 128, False, twin)


def distances(farthest: int, ahead: bool) -> Tensor:
    """key minus query, (n,) int64: from `farthest` tokens back to the query itself, or as far ahead."""
    return torch.arange(-farthest, farthest + 1 if ahead else 1)


@st.cache_resource(max_entries=2, show_spinner=False)
def _twin_table(name: str) -> Tensor | None:
    from tinput.open import open_model

    try:
        model = open_model(name)
        table = next((i.table for i in model.stack().injections if i.table is not None), None)
        return None if table is None else model.table_rows(table, torch.arange(model.table_size(table)))
    except TinputError:
        return None
