"""A rotated score as a sum over frequency pairs.

A score is scale * sum over dimensions of q k. A rotation turns dimensions in pairs, each at its own frequency (Su et
al. 2021, equations 14 to 16), so the two terms of a pair belong together:

    score = sum over pairs of scale * (q_a k_a + q_b k_b)  +  scale * (what is not turned)

Short wavelengths tell neighbours apart, long ones carry content over any distance (Barbero et al. 2024, "Round and
Round We Go!", https://arxiv.org/abs/2410.06205).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tinput.errors import NotRecorded
from tinput.positions import Rotate
from tinput.record.attention import MASKED, Attention
from tinput.surgery.parts import own_rotation
from tinput.window import Field

if TYPE_CHECKING:
    from tinput.open import Model
    from tinput.record import Trace

__all__ = ["Pairs", "pairs_of", "split"]

_QUERIES = 64  # of a long text, for `shares`


@dataclass(frozen=True, eq=False)
class Pairs:
    """The scores of one attention layer by frequency pair.

    attention: the layer, its q and k turned; first, second: (pair,) int64, the two dimensions of each pair
    rest: (n,) int64, the dimensions that are not turned; wavelengths: (pair,) float64, tokens for a full turn, inf for
    a pair that does not turn
    """

    attention: Attention
    first: Tensor
    second: Tensor
    rest: Tensor
    wavelengths: Tensor

    def parts(self, head: int, query: int, key: int) -> Tensor:
        """What each pair adds to one score, and last what is not turned: (pair + 1,) float64. They sum to the score."""
        q, k = self._head(head)
        return self._grouped(self.attention.scale * q[query].double() * k[key].double())

    def field(self, head: int, pair: int | None) -> Field:
        """What one pair (None: what is not turned) adds to every score of a head: (query, key)."""
        q, k = self._head(head)
        where = self.rest if pair is None else torch.stack((self.first[pair], self.second[pair]))
        scale = self.attention.scale
        return Field((len(q), len(k)), lambda rows, keys: scale * (q[rows][:, where] @ k[keys][:, where].T))

    def shares(self) -> Tensor:
        """How much of what tells keys apart each pair makes: (heads, pair + 1) float32, rows that sum to 1.

        The covariance of the part with the score over the score's variance, both around each query's mean over the keys
        that it sees (a constant in a row is removed by softmax). A part that works against the score is negative. Over
        all queries, of a long text 64. NaN for a head whose scores do not vary.
        """
        base = self.attention
        n_query, n_key = base.scores.shape[-2:]
        rows, keys = torch.arange(0, n_query, -(-n_query // _QUERIES)), torch.arange(n_key)
        found = []
        for head in range(base.heads):
            q, k = (x.double() for x in self._head(head))
            seen = base.mask[head].at(rows, keys) > MASKED
            scores = (base.scale * q[rows] @ k.T).masked_fill(~seen, 0.0)
            mean = scores.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True).clamp(min=1)
            apart = (scores - mean).masked_fill(~seen, 0.0)  # (rows, key), each row sums to 0
            by_dimension = base.scale * (q[rows] * (apart @ k)).sum(0)  # (d_head,): sum of apart * its part
            found.append(self._grouped(by_dimension) / apart.square().sum())
        return torch.stack(found).float()

    def _head(self, head: int) -> tuple[Tensor, Tensor]:
        base = self.attention
        return base.q[head], base.k[head // (base.heads // base.kv_heads)]

    def _grouped(self, by_dimension: Tensor) -> Tensor:
        """(d_head,) -> (pair + 1,)"""
        turned = by_dimension[self.first] + by_dimension[self.second]
        return torch.cat((turned, by_dimension[self.rest].sum()[None]))


def split(model: Model, trace: Trace) -> Pairs:
    """The traced layer's scores by frequency pair. Raises NotRecorded where it does not rotate q and k as a whole."""
    rotation = own_rotation(trace)
    assert trace.attention is not None  # it has a rotation
    return pairs_of(trace.attention, rotation, _frequencies(model, trace))


def pairs_of(attention: Attention, rotation: Rotate, frequencies: Tensor) -> Pairs:
    """Scores of q and k that `rotation` has turned, by pair. frequencies: (pair,), radians a token."""
    count, start = rotation.angles.shape[-1], rotation.start
    pair = torch.arange(count)
    first, second = (pair, pair + count) if rotation.layout == "half" else (2 * pair, 2 * pair + 1)
    turned = torch.zeros(attention.q.shape[-1], dtype=torch.bool)
    turned[start : start + 2 * count] = True
    rest = torch.arange(len(turned))[~turned]
    return Pairs(attention, first + start, second + start, rest, 2 * torch.pi / frequencies.double().abs())


def _frequencies(model: Model, trace: Trace) -> Tensor:
    """(pair,) float64, radians a token: the formula's angles at position 1; without a formula, the recorded ones'."""
    assert trace.attention is not None
    index, found = next(
        (index, found)
        for index, found in enumerate(trace.effects)
        if isinstance(found.effect, Rotate) and trace.attention.layer in found.layers
    )
    positions = torch.arange(len(trace.ids)) if found.positions is None else found.positions
    try:
        # the farthest position is asked for too: some scalings go by it
        effect = model.formula(trace, index)(torch.stack((torch.tensor(1), positions.max().clamp(min=1))))
        assert isinstance(effect, Rotate)
        return effect.angles[0].double()
    except NotRecorded:
        farthest = int(positions.argmax())
        return found.effect.angles[farthest].double() / max(1, int(positions[farthest]))  # type: ignore[union-attr]
