r"""Relative positions that mix content and distance in the scores: XLNet, Funnel, DeBERTa, Inkling, ProphetNet.

Shaw et al. 2018 (https://arxiv.org/abs/1803.02155), equation 4; Dai et al. 2019, "Transformer-XL"
(https://arxiv.org/abs/1901.02860), section 3.3; He et al. 2021, "DeBERTa" (https://arxiv.org/abs/2006.03654),
equations 3 and 4. A distance has a vector of its own, and q (and in DeBERTa k) is multiplied with it: what a distance
is worth depends on the token. So the scores cannot be had without q, k and the projections, and tinput records their
share; the formulas say what positions alone give, before anything of the model meets it:

    sines of the distance   a vector of sines and cosines for each distance, far ahead to far back: XLNet, Funnel
    sines of the key        the same for each key's position, where the product is factorised: Funnel by option
    row by distance         which row of a learned table a query and a key use: DeBERTa; DeBERTa-v2 in buckets
    profile by distance     which place of a learned profile they use: Inkling, of past keys alone
    bucket by distance      which of T5's buckets they use, of numbers that are made of the query: ProphetNet
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from . import relative_bias, sinusoidal
from .effects import Content, Effect
from .spelling import CONTEXT, D_MODEL, pick, size

__all__ = ["REASON", "VARIANTS", "buckets", "notice", "predict", "recognise", "variants"]

NAME = "relative"
LABEL = "Relative (content and distance)"
COLOUR = "#D55E00"
INJECTION = "content and distance in the scores"
FORMULA = r"s_{q,k} = \frac{q_q \cdot k_k + q_q \cdot r_{q-k} + \dots}{\sqrt{d}}"
PAPER = "Shaw et al. 2018, equation 4; Dai et al. 2019, section 3.3; He et al. 2021, equation 4"

REASON = "these scores mix content and distance in a way that the textbook has no formula for"


def buckets(distance: Tensor, count: int, farthest: int) -> Tensor:
    """DeBERTa-v2's bucket of each distance, signed: int64, of the same shape; near distances are their own.

    distance: query's position minus key's, any shape; count: half of them look each way; farthest: the longest distance
    Past count / 2 the buckets grow as the logarithm. Source: He et al. 2021, "DeBERTaV3", and its published code.
    """
    near = count // 2
    far = distance.abs().clamp(min=near).float() / near  # in float32, as published: at an edge the last bit decides
    steps = torch.ceil(torch.log(far) / torch.log(torch.tensor((farthest - 1) / near)) * (near - 1)) + near
    return torch.where(distance.abs() <= near, distance, steps.long() * distance.sign())


def recognise(effect: type, looked_up: bool = False, bend: float | None = None) -> bool:  # noqa: ARG001
    """Whether what was found in a model is this scheme.

    effect: the class of what is injected; looked_up: in a learned table; bend: how far a bias is from linear, relative
    """
    return effect is Content


def variants(config: Mapping[str, Any]) -> tuple[str, ...]:  # noqa: ARG001 - one signature for all schemes
    """What a configuration leaves open: which of VARIANTS, and ("") none of them."""
    return ("", *VARIANTS)


def predict(
    config: Mapping[str, Any],
    positions: Tensor,
    *,
    variant: str = "",
    layer_type: str | None = None,
    **_: Any,
) -> Content | None:
    """What positions alone give: `Content` with `vectors` or `rows`, and no scores; None for "", with REASON.

    positions: (seq,) int64; layer_type: where layers reach differently far; variant: one of VARIANTS
    Raises ValueError for another variant, or where the configuration does not say what it needs.
    """
    if variant not in ("", *VARIANTS):
        raise ValueError(f"unknown variant {variant!r}: choose one of {', '.join(VARIANTS)}")
    return VARIANTS[variant](config, positions, layer_type) if variant else None


def _sines(config: Mapping[str, Any], positions: Tensor, layer_type: str | None) -> Content:  # noqa: ARG001
    """Dai et al. 2019, appendix B: all distances there can be, from a whole text back to a whole text ahead."""
    seq = len(positions)
    distance = torch.arange(seq, -1 if config.get("attn_type") == "uni" else -seq, -1)
    if (farthest := pick(config, "clamp_len") or 0) > 0:
        distance = distance.clamp(-farthest, farthest)
    return Content(vectors=_halves(distance, config))


def _sines_of_key(config: Mapping[str, Any], positions: Tensor, layer_type: str | None) -> Content:  # noqa: ARG001
    """Dai et al. 2020, "Funnel-Transformer" (https://arxiv.org/abs/2006.03236), appendix A.2.2: psi, cosines first."""
    sine, cosine = _halves(positions, config).chunk(2, dim=-1)
    return Content(vectors=torch.cat((cosine, sine), dim=-1))


def _halves(places: Tensor, config: Mapping[str, Any]) -> Tensor:
    return sinusoidal.table(places, size(config, D_MODEL, "how wide the model is"), layout="halves")


def _rows(config: Mapping[str, Any], positions: Tensor, layer_type: str | None) -> Content:  # noqa: ARG001
    """He et al. 2021, equation 3: the distance moved to be positive, and held at the ends."""
    span, distance = _span(config), _distance(config, positions)
    count = int(pick(config, "position_buckets") or 0)
    if count > 0:
        distance, span = buckets(distance, count, span), count
    return Content(rows=(distance + span).clamp(0, 2 * span - 1))


def _rows_of_text(config: Mapping[str, Any], positions: Tensor, layer_type: str | None) -> Content:  # noqa: ARG001
    """The same, counted within the rows that a text of this length can reach: DeBERTa cuts them out first."""
    span = min(len(positions), _span(config))
    return Content(rows=(_distance(config, positions) + span).clamp(0, 2 * span - 1))


def _distance(config: Mapping[str, Any], positions: Tensor) -> Tensor:
    """Query's position less key's, (query, key); (key, query) where only k meets it."""
    distance = positions[:, None] - positions[None, :]
    return distance if "c2p" in (config.get("pos_att_type") or ["c2p"]) else distance.T


def _span(config: Mapping[str, Any]) -> int:
    said = pick(config, "max_relative_positions")
    return int(said) if said is not None and said > 0 else size(config, CONTEXT, "how long a text may be")


def _profile(config: Mapping[str, Any], positions: Tensor, layer_type: str | None) -> Content:
    """Inkling: the distance to a past key, held at the profile's end (and at 0 for keys to come, which are masked)."""
    local = "sliding" in (layer_type or "")
    reach = size(config, ("sliding_window_size",) if local else ("rel_extent",), "how far a profile reaches")
    return Content(rows=(positions[:, None] - positions[None, :]).clamp(0, reach - 1))


def _bucket(config: Mapping[str, Any], positions: Tensor, layer_type: str | None) -> Content:  # noqa: ARG001
    """Yan et al. 2020, "ProphetNet" (https://arxiv.org/abs/2001.04063), its published code: T5's, looking back."""
    count = size(config, ("num_buckets",), "how many buckets there are")
    farthest = size(config, ("relative_max_distance",), "how far the buckets reach")
    key_less_query = positions[None, :] - positions[:, None]
    found = relative_bias.buckets(key_less_query, bidirectional=False, num_buckets=count, max_distance=farthest)
    return Content(rows=found)


VARIANTS: dict[str, Callable[[Mapping[str, Any], Tensor, str | None], Content]] = {
    "sines of the distance": _sines,
    "sines of the key": _sines_of_key,
    "row by distance": _rows,
    "row by distance, of this text's": _rows_of_text,
    "profile by distance": _profile,
    "bucket by distance": _bucket,
}
"""What enters: see the top of the file. (config, positions, layer type) -> Content"""


def notice(effect: Effect, positions: Tensor) -> list[str]:
    """What it means: two or three sentences, with the size of the position's share where it was recorded."""
    out = [
        "The score of two tokens has a part that depends on their distance and on what the tokens are.",
        "Nothing is added to the embeddings: without attention this model sees no order.",
    ]
    if isinstance(effect, Content) and effect.scores is not None and effect.scores.numel():
        share = effect.scores.float()
        out.append(
            f"Over these {len(positions)} tokens the position's share of a score goes "
            f"from {float(share.min()):.2f} to {float(share.max()):.2f}."
        )
    return out
