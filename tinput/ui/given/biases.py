"""Biases on the scores, the weights with and without them, and the buckets of a learned bias."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tinput.positions import Bias
from tinput.positions.spelling import pick, text_part
from tinput.surgery import bundled_table
from tinput.ui.given.sizes import n_heads, recorded_effect
from tinput.window import Field, Window

if TYPE_CHECKING:
    from tinput.ui.kit import Page


def slopes(page: Page, scheme: Any) -> Tensor:
    """The slope of each head, (heads,): the textbook's for the model's number of heads and its alibi_bias_max."""
    config = text_part(page.model.config)
    nested = config.get("attn_config")
    steepest = pick(config, "alibi_bias_max") or (pick(nested, "alibi_bias_max") if isinstance(nested, dict) else None)
    return scheme.slopes(n_heads(page), bias_max=steepest or 8)


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
    recorded = recorded_effect(page, scheme)
    if isinstance(recorded, Bias) and not force:
        return Heads(True, Field.of(recorded.scores), is_causal(page))
    return Heads(False, what_if, is_causal(page) and not force)


def is_causal(page: Page) -> bool:
    """Whether the first token is kept from seeing the last; yes where nothing was recorded."""
    attention, seen = page.trace.attention, page.trace.causal
    if page.seq < 2 or (attention is None and seen is None):
        return page.trace.stack == "decoder"
    if attention is None:
        return bool(seen)
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
    bundled = bundled_table(scheme.NAME)
    if bundled is None:
        return Buckets(False, None, 32, 128, not is_causal(page), "")
    source, rows = bundled
    return Buckets(False, rows, len(rows), 128, False, source)


def distances(farthest: int, ahead: bool) -> Tensor:
    """key minus query, (n,) int64: from `farthest` tokens back to the query itself, or as far ahead."""
    return torch.arange(-farthest, farthest + 1 if ahead else 1)
