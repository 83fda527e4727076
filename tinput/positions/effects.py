"""What a position scheme injects: the tensors, and nothing about where they came from.

Vaswani et al. 2017 add a vector to each embedding; Su et al. 2021 rotate q and k; Press et al. 2022 and
Raffel et al. 2020 add a bias to the scores; Dai et al. 2019 and He et al. 2021 mix content and distance.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["Add", "Bias", "Content", "Effect", "Nothing", "Rotate"]


@dataclass(frozen=True, eq=False)
class Add:
    """A vector added to each embedding before the first block. vectors: (seq, d_model)"""

    vectors: Tensor


@dataclass(frozen=True, eq=False)
class Rotate:
    """Pairs of dimensions of q and k turned by an angle.

    cos, sin: as the model holds them, (seq, rotary_dim) or (seq, pair), magnitude included
    angles: (seq, pair), radians, without the magnitude
    layout: "half" pairs dimension i with i + rotary_dim / 2; "interleaved" pairs 2 i with 2 i + 1
    start: the first rotated dimension of a head; the rest passes unchanged
    """

    cos: Tensor
    sin: Tensor
    angles: Tensor
    layout: str = "half"
    start: int = 0

    @property
    def rotary_dim(self) -> int:
        return 2 * self.angles.shape[-1]


@dataclass(frozen=True, eq=False)
class Bias:
    """A number added to each score, without the mask. scores: (heads, query, key)"""

    scores: Tensor


@dataclass(frozen=True, eq=False)
class Content:
    """Scores that mix content and distance.

    scores: the position's share, (heads, query, key), or None where it is not to be had
    vectors: what positions alone give, before content or a parameter meets it: (distance or key, width), or None
    rows: which of a learned table's rows a query and a key use, (query, key) int64, or None
    """

    scores: Tensor | None = None
    vectors: Tensor | None = None
    rows: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Nothing:
    """No position enters."""


Effect = Add | Rotate | Bias | Content | Nothing
