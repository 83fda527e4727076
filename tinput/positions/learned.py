r"""Learned positions: a table with a trained vector for each position, added to the token's embedding.

Gehring et al. 2017, "Convolutional Sequence to Sequence Learning" (https://arxiv.org/abs/1705.03122), section 3.1;
Vaswani et al. 2017, section 3.5 and table 3, row E; Devlin et al. 2019 (BERT), figure 2. There is no formula for the
numbers. What can be said is which row a token gets, and how long a text may be:

    row = position                    BERT, GPT-2
    row = position + 2                OPT, BART: the table has two rows more than the configuration's context
    row = pad + 1 + position          RoBERTa: the positions themselves start there, and a pad keeps the pad's row

Reformer (Kitaev et al. 2020, https://arxiv.org/abs/2001.04451, and its published code) keeps no table of n rows but two
factors of n1 and n2 rows, n1 n2 = n: a position's vector is row p // n2 of the one beside row p % n2 of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .coverage import MISSING, NEW, SEEN, Coverage
from .effects import Add, Effect
from .spelling import CONTEXT, pick, text_part

__all__ = [
    "PAST",
    "coverage",
    "notice",
    "offset",
    "positions_past_pads",
    "predict",
    "recognise",
    "rows_for",
    "table_of",
    "usable_length",
    "variants",
]

NAME = "learned"
LABEL = "Learned table"
COLOUR = "#E69F00"
INJECTION = "added to the embedding"
FORMULA = r"x_p = \mathrm{embedding}(t_p) + P_{p + \mathrm{offset}}, \quad P \in \mathbb{R}^{n \times d}"
PAPER = "Gehring et al. 2017, section 3.1; Vaswani et al. 2017, table 3, row E"


def offset(config: Mapping[str, Any], n_rows: int) -> int:
    """How many rows the table has beyond the configuration's context: 2 in OPT and BART, else mostly 0."""
    context = pick(text_part(config), *CONTEXT)
    return max(0, n_rows - int(context)) if context else 0


def rows_for(config: Mapping[str, Any], positions: Tensor, n_rows: int) -> Tensor:
    """The row of each position: (seq,) int64.

    positions: (seq,) int64, as the model numbers them; n_rows: of its table
    Raises ValueError for a position that the table has no row for. Source: the published code of OPT and BART.
    """
    rows = positions + offset(config, n_rows)
    if len(rows) and (int(rows.max()) >= n_rows or int(rows.min()) < 0):
        last = n_rows - 1 - offset(config, n_rows)
        raise ValueError(f"position {int(positions.max())} is past the last one, {last}, of a table of {n_rows} rows")
    return rows


def table_of(factors: Sequence[Tensor]) -> Tensor:
    """The table of a position's vectors that two factors stand for: (n1 * n2, width1 + width2).

    factors: (n1, 1, width1) and (1, n2, width2). Source: Kitaev et al. 2020, its published code.
    """
    grid = torch.broadcast_shapes(*(factor.shape[:-1] for factor in factors))
    return torch.cat([factor.expand(*grid, -1) for factor in factors], dim=-1).flatten(0, -2)


def usable_length(config: Mapping[str, Any], n_rows: int, first: int = 0) -> int:
    """How many tokens fit: the rows from the first token's row on.

    first: the position that the model gives its first token; RoBERTa's is pad + 1, so rows - pad - 1 tokens fit
    """
    return max(0, n_rows - offset(config, n_rows) - first)


def positions_past_pads(ids: Tensor, pad: int) -> Tensor:
    """RoBERTa's numbering: (seq,) int64 from pad + 1 on, counting only what is no pad; a pad's position is `pad`.

    ids: (seq,) int64. With pad 1 the ids 0 5 1 2 get the positions 2 3 1 4.
    Source: fairseq's make_positions (Ott et al. 2019).
    """
    real = (ids != pad).long()
    return real.cumsum(-1) * real + pad


# What one could do about a position past the table: no published model does. (positions, number of rows) -> positions
PAST: dict[str, Callable[[Tensor, int], Tensor]] = {
    "clamped": lambda positions, n: positions.clamp(max=n - 1),  # the last row again and again
    "wrapped": lambda positions, n: positions % n,  # the table from its start
}


def recognise(effect: type, looked_up: bool = False, bend: float | None = None) -> bool:  # noqa: ARG001
    """Whether what was found in a model is this scheme.

    effect: the class of what is injected; looked_up: in a learned table; bend: how far a bias is from linear, relative
    """
    return effect is Add and looked_up


def variants(config: Mapping[str, Any]) -> tuple[str, ...]:  # noqa: ARG001 - one signature for all schemes
    """What a configuration leaves open: whether spare rows are an offset, or the positions are rows already."""
    return ("offset", "rows")


def predict(
    config: Mapping[str, Any],
    positions: Tensor,
    *,
    variant: str = "",
    rows: Callable[[Tensor], Tensor] | None = None,
    n_rows: int | None = None,
    factors: Sequence[Tensor] = (),
    **_: Any,
) -> Add:
    """What is added to the embeddings: `Add`, (seq, width), rows of the model's own table.

    positions: (seq,) int64; rows: index (n,) int64 -> those rows, (n, width); n_rows: how many the table has
    factors: of a table that is kept in factors, (n1, 1, width1) and (1, n2, width2)
    variant: one of `variants(config)`; "offset" if ""
    Raises ValueError without `rows` (the numbers are learned), for another variant, or a position past the table.
    """
    if factors:
        return Add(table_of(factors)[positions].to(torch.float32))
    if rows is None or n_rows is None:
        raise ValueError("the vectors are learned: the table is needed, as `rows` and `n_rows`")
    if variant not in ("", *variants(config)):
        raise ValueError(f"unknown variant {variant!r}: choose one of {', '.join(variants(config))}")
    index = rows_for({} if variant == "rows" else config, positions, n_rows)
    return Add(rows(index).to(torch.float32))


def coverage(
    config: Mapping[str, Any],  # noqa: ARG001 - one signature for all schemes
    places: Tensor,
    trained: int,
    *,
    usable: int | None = None,
    **_: Any,
) -> dict[str, Coverage]:
    """Which positions have a row, and a trained one. places: positions, (n,) int64; usable: how many tokens fit."""
    rows = usable if usable is not None else trained
    state = torch.where(places >= rows, MISSING, torch.where(places >= trained, NEW, SEEN))
    past = int(places.max()) + 1 - rows
    said = (
        f"The table ends after {rows:,} positions: the last {past:,} of these {past + rows:,} tokens have no row."
        if past > 0
        else f"The table has {rows:,} positions: each of these tokens has a row."
    )
    more = f"Rows from {trained:,} on are there, and training never used them." if trained < rows else ""
    return {"": Coverage(state[None], "table", "position", tuple(filter(None, (said, more))))}


def notice(effect: Effect, positions: Tensor) -> list[str]:
    """What to see in the vectors: two or three sentences with their own numbers."""
    if not isinstance(effect, Add) or len(effect.vectors) == 0:
        return []
    vectors = effect.vectors.float()
    norms = vectors.norm(dim=1)
    long = int(norms.argmax())
    out = [
        f"Each position has a trained vector; its length is {float(norms.mean()):.3g} on average "
        f"and greatest at position {int(positions[long])}, {float(norms[long]):.3g}."
    ]
    if len(vectors) > 1:
        near = torch.nn.functional.cosine_similarity(vectors[:-1], vectors[1:])
        ends = torch.nn.functional.cosine_similarity(vectors[:1], vectors[-1:])
        out.append(
            f"Positions next to each other here have cosine {float(near.mean()):.2f} on average, "
            f"the first and the last {float(ends[0]):.2f}."
        )
    out.append("A position past the table has no vector: the model cannot read a longer text.")
    return out
