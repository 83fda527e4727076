r"""Relative bias: a learned number for each bucket of distances and each head, added to the scores (T5).

Raffel et al. 2020, "Exploring the Limits of Transfer Learning" (https://arxiv.org/abs/1910.10683), section 2.1:
near distances have a bucket each, far ones share buckets whose width grows as the logarithm, and from max_distance on
there is one bucket for all. In an encoder the past and the future have half of the buckets each; in a decoder only the
past has any.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..window import Field
from .effects import Bias, Effect
from .spelling import pick

__all__ = ["bias", "buckets", "field", "notice", "predict", "variants"]

NAME = "relative_bias"
LABEL = "Relative bias (T5)"
COLOUR = "#56B4E9"
INJECTION = "bias on the scores"
FORMULA = r"s_{h,q,k} = q_q \cdot k_k + b_{h,\,\mathrm{bucket}(k - q)}"
PAPER = "Raffel et al. 2020, section 2.1"


def buckets(
    relative_position: Tensor, *, bidirectional: bool, num_buckets: int = 32, max_distance: int = 128
) -> Tensor:
    """The bucket of each distance: int64, of the same shape.

    relative_position: key's position minus query's, in tokens, any shape
    bidirectional: True in an encoder; False in a decoder, where every key to come falls into bucket 0 with the token itself
    num_buckets, max_distance: 32 and 128 in T5
    Source: Raffel et al. 2020, section 2.1, and its published code.
    """
    if bidirectional:
        num_buckets //= 2
        future = (relative_position > 0).long() * num_buckets
        distance = relative_position.abs()
    else:
        future = torch.zeros_like(relative_position, dtype=torch.long)
        distance = (-relative_position).clamp(min=0)
    exact = num_buckets // 2  # the nearest distances have a bucket each
    # in float32, as published: at a bucket's edge the last bit decides
    growth = torch.log(distance.clamp(min=1).float() / exact) / math.log(max_distance / exact) * (num_buckets - exact)
    far = (exact + growth.long()).clamp(max=num_buckets - 1)
    return future + torch.where(distance < exact, distance, far)


def bias(table: Tensor, buckets: Tensor) -> Tensor:
    """What is added to the scores: (heads, query, key). table: (num_buckets, heads); buckets: (query, key) int64"""
    return table[buckets].permute(2, 0, 1)


def field(table: Tensor, n_query: int, n_key: int, *, bidirectional: bool, max_distance: int = 128) -> Field:
    """`bias` of n_query by n_key tokens as a function: (heads, query, key). The last query stands at the last key.

    table: (num_buckets, heads)
    """
    past = n_key - n_query

    def at(rows: Tensor, columns: Tensor) -> Tensor:
        relative = columns[None, :] - (rows + past)[:, None]
        return bias(
            table,
            buckets(relative, bidirectional=bidirectional, num_buckets=len(table), max_distance=max_distance),
        )

    return Field((table.shape[1], n_query, n_key), at)
