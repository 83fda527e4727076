r"""ALiBi: no position in the embedding; each head subtracts from its scores a slope times the distance.

Press, Smith and Lewis 2022, "Train Short, Test Long" (https://arxiv.org/abs/2108.12409), section 3:

    softmax(q_i K^T + m . [-(i - 1), ..., -2, -1, 0])

with one slope m a head, from a geometric sequence. Heads are counted from 0 here, from 1 in the paper. Three ways of
writing the same bias are in use:

    distance      m (k - q), the paper; symmetric: -m |q - k|, for attention in both directions
    by_key        m k: BLOOM, Falcon
    by_last_key   m (k - last key): MPT

In each row they differ by a constant, which softmax removes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..window import Field
from .coverage import NEW, SEEN, Coverage
from .effects import Bias, Effect
from .spelling import D_MODEL, HEADS, pick, size, text_part

__all__ = ["CONVENTIONS", "bias", "coverage", "field", "notice", "predict", "reach", "recognise", "slopes", "variants"]

NAME = "alibi"
LABEL = "ALiBi"
COLOUR = "#009E73"
INJECTION = "bias on the scores"
FORMULA = (
    r"s_{h,q,k} = \frac{q_q \cdot k_k}{\sqrt{d}} - m_h\,(q - k), \quad m_h = 2^{-8(h+1)/H}, \quad h = 0, \dots, H - 1"
)
PAPER = "Press et al. 2022, section 3"

CONVENTIONS = ("distance", "by_key", "by_last_key")


def slopes(heads: int, *, bias_max: float = 8) -> Tensor:
    """One slope a head: (heads,), float32. Not sorted where the number of heads is no power of two.

    The sequence 2^(-bias_max k / n), k = 1 ... n, for the next power of two n; with fewer heads than n every second
    one is taken first (the sequence of n / 2 heads), then the ones between. BLOOM, MPT and Falcon do the same.
    bias_max: 8 in the paper; MPT's alibi_bias_max
    Raises ValueError for less than one head. Source: Press et al. 2022, section 3, and its published code.
    """
    if heads < 1:
        raise ValueError(f"a model has at least one head, not {heads}")
    n = 2 ** math.ceil(math.log2(heads))
    sequence = 2.0 ** (-bias_max * torch.arange(1, n + 1, dtype=torch.float64) / n)
    if n != heads:
        sequence = torch.cat((sequence[1::2], sequence[0::2]))[:heads]
    return sequence.to(torch.float32)


def bias(
    positions_q: Tensor,
    positions_k: Tensor,
    slopes: Tensor,
    convention: str = "distance",
    symmetric: bool = False,
) -> Tensor:
    """What is added to the scores, without the mask: (heads, query, key), float32.

    positions_q, positions_k: (query,), (key,) int64; slopes: (heads,)
    convention: one of CONVENTIONS; the last key of "by_last_key" is the largest of positions_k
    symmetric: -slope * |distance|, for attention in both directions (of "distance" only)
    Raises ValueError for a convention that does not exist. Source: Press et al. 2022, section 3.
    """
    steps = _steps(positions_q, positions_k, convention, symmetric, positions_k.max())
    return (slopes[:, None, None] * steps).expand(-1, len(positions_q), -1)


def field(slopes: Tensor, n_query: int, n_key: int, convention: str = "distance", symmetric: bool = False) -> Field:
    """`bias` of n_query by n_key tokens as a function: (heads, query, key), of which a window is computed when asked.

    The last query stands at the last key, so with n_key > n_query the first keys are a past.
    """
    _steps(torch.zeros(1), torch.zeros(1), convention, symmetric, torch.zeros(()))  # raise now, not when looked at
    past, last = n_key - n_query, torch.tensor(n_key - 1)

    def at(rows: Tensor, columns: Tensor) -> Tensor:
        steps = _steps(rows + past, columns, convention, symmetric, last)
        return (slopes[:, None, None] * steps).expand(-1, len(rows), -1)

    return Field((len(slopes), n_query, n_key), at)


def reach(slopes: Tensor, fraction: float = 0.01) -> Tensor:
    """The distance at which the bias alone has brought a head's weight down to `fraction`: (heads,), in tokens.

    exp(-slope * distance) = fraction, the scores being equal.
    """
    return -math.log(fraction) / slopes


def _steps(q: Tensor, k: Tensor, convention: str, symmetric: bool, last: Tensor) -> Tensor:
    """By how many tokens the slope is multiplied: (query, key), or (1, key) where all rows are alike."""
    if convention not in CONVENTIONS:
        raise ValueError(f"unknown convention {convention!r}: choose one of {', '.join(CONVENTIONS)}")
    if symmetric and convention != "distance":
        raise ValueError(f"{convention} is one-sided; symmetric goes with 'distance'")
    row, column = q[:, None], k[None, :]
    if convention == "distance":
        return -(row - column).abs() if symmetric else column - row
    return column if convention == "by_key" else column - last


def recognise(effect: type, looked_up: bool = False, bend: float | None = None) -> bool:
    """Whether what was found in a model is this scheme.

    effect: the class of what is injected; looked_up: in a learned table; bend: how far a bias is from linear, relative
    """
    return effect is Bias and not looked_up and bend is not None and bend < 0.05


def variants(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What a configuration leaves open: the convention, and Falcon's rounding and division.

    And whether it is followed at all: transformers' MPT has ALiBi with the paper's 8 whatever its `attn_config` says.
    """
    names = (*CONVENTIONS, "symmetric", "bfloat16", "bfloat16 / sqrt(d_head)")
    if (pick(config, "attn_config") or {}).get("alibi") is False:
        names = tuple(f"{name}; the configuration's alibi = false is ignored" for name in names)
    said = _bias_max(config)
    return names if said == 8 else (*names, *(f"{name}{_NOT_USED.format(said)}" for name in names))


_NOT_USED = "; the configuration's alibi_bias_max of {} is ignored, it is 8"


def _bias_max(config: Mapping[str, Any]) -> float:
    config = text_part(config)
    return pick(config, "alibi_bias_max") or pick(pick(config, "attn_config") or {}, "alibi_bias_max") or 8


def predict(
    config: Mapping[str, Any],
    positions: Tensor,
    *,
    variant: str = "",
    heads: int | None = None,
    keys: int | None = None,
    **_: Any,
) -> Bias:
    """What is added to the scores: `Bias`, (heads, query, key), without the mask.

    positions: (seq,) int64; heads: the configuration's number if None; keys: number of keys, seq if None
    variant: one of `variants(config)`; "distance" if ""
        "bfloat16": Falcon's, by key, the slope and the product rounded to bfloat16
        "bfloat16 / sqrt(d_head)": the same as transformers' sdpa path adds it, divided like the scores
        one with "is ignored" in it: that before the semicolon, with the paper's slopes
    Raises ValueError for another variant, or where no number of heads is said. Source: Press et al. 2022, section 3.
    """
    if variant not in ("", *variants(config)):
        raise ValueError(f"unknown variant {variant!r}: choose one of {', '.join(variants(config))}")
    config = text_part(config)
    count = heads or size(config, HEADS, "how many heads it has")
    variant, ignored = variant.partition(";")[::2]
    slope = slopes(count, bias_max=8 if "alibi_bias_max" in ignored else _bias_max(config))
    key = positions if keys in (None, len(positions)) else torch.arange(keys)
    if variant.startswith("bfloat16"):
        rounded = (slope.bfloat16()[:, None] * key).float()  # (heads, key)
        if "sqrt" in variant:
            rounded = rounded / math.sqrt(size(config, D_MODEL, "how wide the model is") // count)
        return Bias(rounded[:, None, :].expand(-1, len(positions), -1))
    if variant == "symmetric":
        return Bias(bias(positions, key, slope, symmetric=True))
    return Bias(bias(positions, key, slope, variant or "distance"))


def coverage(
    config: Mapping[str, Any], places: Tensor, trained: int, *, heads: int | None = None, **_: Any
) -> dict[str, Coverage]:
    """Which heads get a bias that training never showed. places: distances, (n,) int64; trained: tokens."""
    config = text_part(config)
    slope = slopes(heads or size(config, HEADS, "how many heads it has"), bias_max=_bias_max(config))
    state = torch.where(places >= trained, NEW, SEEN).expand(len(slope), -1)
    left = torch.exp(-slope * trained)  # of a weight, at the first new distance, the scores being equal
    steep, flat = int(slope.argmax()), int(slope.argmin())
    said = (
        f"A key {trained:,} tokens back or more gets a bias lower than any in training, in every head.",
        f"By then the bias alone has brought a weight down to {float(left[flat]):.2g} of itself in the flattest "
        f"head ({flat}), to {float(left[steep]):.2g} in the steepest ({steep}).",
    )
    return {"": Coverage(state, "head", "distance", said)}


def notice(effect: Effect, positions: Tensor) -> list[str]:
    """What to see in the bias: two or three sentences with its own numbers."""
    if not isinstance(effect, Bias) or effect.scores.shape[-1] < 2:
        return []
    count, seq = effect.scores.shape[0], len(positions)
    slope = (effect.scores[:, -1, 1] - effect.scores[:, -1, 0]).abs()  # what one token more or less changes
    steep, flat = int(slope.argmax()), int(slope.argmin())
    far = reach(slope)
    return [
        f"Each of the {count} heads has a slope of its own, from {float(slope[steep]):.3g} (head {steep}) "
        f"to {float(slope[flat]):.3g} (head {flat}).",
        f"In head {steep} the bias alone brings a weight down to 1 % after {float(far[steep]):,.1f} tokens, "
        f"in head {flat} after {float(far[flat]):,.0f}; this text has {seq:,}.",
        "A number that is the same for a whole row changes nothing: softmax removes it.",
    ]
