r"""Relative bias: a learned number for each bucket of distances and each head, added to the scores (T5).

Raffel et al. 2020, "Exploring the Limits of Transfer Learning" (https://arxiv.org/abs/1910.10683), section 2.1:
near distances have a bucket each, far ones share buckets whose width grows as the logarithm, and from max_distance on
there is one bucket for all. In an encoder the past and the future have half of the buckets each; in a decoder only the
past has any.

CPM-Ant (its published code) puts a prompt ahead of the text and has buckets for distances within the prompt and within
the text; between the two all distances share one bucket for each direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..window import Field
from .coverage import BLANK, NEW, SEEN, Coverage
from .effects import Bias, Effect
from .spelling import pick

__all__ = ["bias", "buckets", "coverage", "field", "notice", "predict", "recognise", "variants"]

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
    bidirectional: True in an encoder; False in a decoder, where every key to come is in bucket 0 with the token itself
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
    """What is added to the scores: (heads, query, key). table: (num_buckets, heads); buckets: (query, key) int64.

    Source: Raffel et al. 2020, section 2.1.
    """
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


def recognise(effect: type, looked_up: bool = False, bend: float | None = None) -> bool:  # noqa: ARG001
    """Whether what was found in a model is this scheme.

    effect: the class of what is injected; looked_up: in a learned table; bend: how far a bias is from linear, relative
    """
    return effect is Bias and looked_up


def variants(config: Mapping[str, Any]) -> tuple[str, ...]:  # noqa: ARG001 - one signature for all schemes
    """Nothing is left open: ("",)."""
    return ("",)


def predict(
    config: Mapping[str, Any],
    positions: Tensor,
    *,
    variant: str = "",  # noqa: ARG001
    rows: Callable[[Tensor], Tensor] | None = None,
    n_rows: int | None = None,
    queries: int | None = None,
    keys: int | None = None,
    stack: str = "encoder",
    **_: Any,
) -> Bias:
    """What is added to the scores: `Bias`, (heads, query, key), without the mask.

    positions: (seq,) int64; queries, keys: how many there are, seq if None (a model may put tokens of its own ahead)
    rows: index (n,) int64 -> those rows of the model's own table, (n, heads); n_rows: how many it has
    stack: "encoder" (both directions) or "decoder" (the past alone)
    Raises ValueError without `rows`: the numbers are learned. Source: Raffel et al. 2020, section 2.1.
    """
    if rows is None:
        raise ValueError("the bias is learned: its table is needed, as `rows`")
    of_segments = pick(config, "position_bias_num_buckets")
    num_buckets = int(pick(config, "relative_attention_num_buckets") or of_segments or n_rows or 32)
    max_distance = int(pick(config, "relative_attention_max_distance", "position_bias_max_distance") or 128)
    key = positions if keys in (None, len(positions)) else torch.arange(keys)
    query = positions if queries in (None, len(positions)) else torch.arange(queries)
    index = buckets(
        key[None, :] - query[:, None],
        bidirectional=stack == "encoder" or bool(of_segments),
        num_buckets=num_buckets,
        max_distance=max_distance,
    )
    if of_segments:
        index = _between_segments(config, index, num_buckets)
    return Bias(bias(rows(torch.arange(int(index.max()) + 1)).float(), index))


def _between_segments(config: Mapping[str, Any], index: Tensor, num_buckets: int) -> Tensor:
    """CPM-Ant: the prompt is segment 0, the text segment 2; where they differ the pair of them is the bucket."""
    segment = [torch.where(torch.arange(n) < int(config["prompt_length"]), 0, 2) for n in index.shape]
    query, key = segment[0][:, None], segment[1][None, :]
    return torch.where(query == key, index, num_buckets + query * int(config["segment_types"]) + key)


def coverage(
    config: Mapping[str, Any], places: Tensor, trained: int, *, stack: str = "encoder", **_: Any
) -> dict[str, Coverage]:
    """Which bucket each distance falls into, and whether a distance of the training did. places: (n,) int64, back."""
    count = int(pick(config, "relative_attention_num_buckets") or 32)
    far = int(pick(config, "relative_attention_max_distance") or 128)
    sizes: dict[str, Any] = {"bidirectional": stack == "encoder", "num_buckets": count, "max_distance": far}
    used = buckets(-places, **sizes)  # (place,)
    known = torch.zeros(count, dtype=torch.bool)
    known[buckets(-torch.arange(trained), **sizes)] = True
    back = count // 2 if sizes["bidirectional"] else count  # the others are for keys to come
    met = used[None, :] == torch.arange(back)[:, None]
    state = torch.where(met, torch.where(known[:back], SEEN, NEW)[:, None], BLANK)
    new = int((~known[used]).sum())
    said = (
        f"From {far:,} tokens back on, all distances share bucket {back - 1}.",
        f"Training at {trained:,} tokens has used {int(known[:back].sum())} of the {back} buckets that look back: "
        + ("the rest come new." if new else "no distance is new, however long the text."),
    )
    return {"": Coverage(state, "bucket", "distance", said)}


def notice(effect: Effect, positions: Tensor) -> list[str]:
    """What to see in the bias: two or three sentences with its own numbers."""
    if not isinstance(effect, Bias) or effect.scores.numel() == 0:
        return []
    last = effect.scores[:, -1]  # (heads, key): how the last token sees the others
    spread = last.max(dim=1).values - last.min(dim=1).values
    head = int(spread.argmax())
    best = int(last[head].argmax())
    back = len(positions) - 1 - best
    favourite = "itself" if back == 0 else "the token before it" if back == 1 else f"{back} tokens back"
    out = [f"Each of the {len(last)} heads has learned its own preference for distances; far ones share a number."]
    if last.shape[1] > 1:
        out.append(
            f"Head {head} tells distances apart most: {float(last[head].min()):.2f} to {float(last[head].max()):.2f}; "
            f"the last token's favourite is {favourite}."
        )
    return out
