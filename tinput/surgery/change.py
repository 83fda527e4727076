"""What a change does to attention: scores and weights before and after, and how far apart they are.

Scores are scale * q k^T with their bias. Where a query does not see a key, a score is -inf and a weight 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tinput.record.attention import MASKED
from tinput.window import Window

if TYPE_CHECKING:
    from tinput.record import Attention

__all__ = ["Change"]

_ALL = 512  # queries, of which each is looked at; of a longer text, that many evenly chosen
_STRIP = 256  # queries that are held at a time
_QUERIES = 64  # of a long text, for what is averaged over queries


@dataclass(frozen=True, eq=False)
class Change:
    """Attention on the same tokens as a model has it, and otherwise. Nothing is computed until it is asked for."""

    before: Attention
    after: Attention

    def scores(self, head: int, cells: int = 256) -> tuple[Window, Window, Window]:
        """One head's scores before, after, and after minus before: (query, key), -inf where a side is masked."""
        frame = self.before.scores[head].window(cells=cells)
        one, other = (_scores(side, head, frame.rows, frame.columns) for side in (self.before, self.after))
        apart = torch.where(one.isfinite() & other.isfinite(), other - one, -torch.inf)
        return _like(frame, one), _like(frame, other), _like(frame, apart)

    def weights(self, head: int, cells: int = 256) -> tuple[Window, Window, Window]:
        """The same of its weights; the difference is -inf where both sides are masked: elsewhere a masked one is 0."""
        frame = self.before.scores[head].window(cells=cells)
        hidden = [side.mask[head].at(frame.rows, frame.columns) <= MASKED for side in (self.before, self.after)]
        one, other = (side.weights[head].at(frame.rows, frame.columns).float() for side in (self.before, self.after))
        apart = (other - one).masked_fill(hidden[0] & hidden[1], -torch.inf)
        one, other = one.masked_fill(hidden[0], -torch.inf), other.masked_fill(hidden[1], -torch.inf)
        return _like(frame, one), _like(frame, other), _like(frame, apart)

    @property
    def step(self) -> int:
        """Every how many queries `largest` and `size` look at."""
        return -(-self.before.scores.shape[-2] // _ALL)

    def largest(self, head: int) -> tuple[float, float]:
        """The largest |difference| of one head's scores (where both sides see the key), and of its weights.

        Over all queries of a text of up to 512 tokens, over at most as many of a longer one: `step` says which.
        """
        scores = weights = 0.0
        for rows, keys in self._strips():
            one, other = (_scores(side, head, rows, keys) for side in (self.before, self.after))
            apart = torch.where(one.isfinite() & other.isfinite(), other - one, 0.0)
            scores = max(scores, float(apart.abs().max()))
            one, other = (side.weights[head].at(rows, keys).float() for side in (self.before, self.after))
            weights = max(weights, float((other - one).abs().max()))
        return scores, weights

    def size(self, head: int) -> float:
        """The largest |score| of one head before: what `largest` is to be held against."""
        seen = (_scores(self.before, head, rows, keys) for rows, keys in self._strips())
        return max(float(torch.where(scores.isfinite(), scores, 0.0).abs().max()) for scores in seen)

    def moved(self) -> Tensor:
        """Which share of its attention each head turns elsewhere: (heads,) float32, 0 to 1.

        Half the sum over keys of |weight after - weight before|, mean over queries: all of them, of a long text 64.
        """
        n_query, n_key = self.before.scores.shape[-2:]
        rows, keys = torch.arange(0, n_query, -(-n_query // _QUERIES)), torch.arange(n_key)
        found = []
        for head in range(self.before.heads):
            one, other = (side.weights[head].at(rows, keys).float() for side in (self.before, self.after))
            found.append((other - one).abs().sum(-1).mean() / 2)
        return torch.stack(found)

    def _strips(self) -> Iterator[tuple[Tensor, Tensor]]:
        n_query, n_key = self.before.scores.shape[-2:]
        return ((rows, torch.arange(n_key)) for rows in torch.arange(0, n_query, self.step).split(_STRIP))


def _scores(side: Attention, head: int, rows: Tensor, keys: Tensor) -> Tensor:
    """(query, key) float32, with the bias; -inf where masked."""
    found = side.scores[head].at(rows, keys).float() + side.bias[head].at(rows, keys).float()
    return found.masked_fill(side.mask[head].at(rows, keys) <= MASKED, -torch.inf)


def _like(frame: Window, values: Tensor) -> Window:
    return Window(values, frame.rows, frame.columns, frame.row_step, frame.column_step)
