r"""Relative positions that mix content and distance in the scores: XLNet, Funnel, DeBERTa.

Shaw et al. 2018 (https://arxiv.org/abs/1803.02155), equation 4; Dai et al. 2019, "Transformer-XL"
(https://arxiv.org/abs/1901.02860), section 3.3; He et al. 2021, "DeBERTa" (https://arxiv.org/abs/2006.03654),
equation 4. A distance has a vector of its own, and q (and in DeBERTa k) is multiplied with it: what a distance is
worth depends on the token. So nothing can be drawn without q and k; tinput records it and has no formula for now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from .effects import Content, Effect

__all__ = ["REASON", "notice", "predict", "recognise", "variants"]

NAME = "relative"
LABEL = "Relative (content and distance)"
COLOUR = "#D55E00"
INJECTION = "content and distance in the scores"
FORMULA = r"s_{q,k} = \frac{q_q \cdot k_k + q_q \cdot r_{q-k} + \dots}{\sqrt{d}}"
PAPER = "Shaw et al. 2018, equation 4; Dai et al. 2019, section 3.3; He et al. 2021, equation 4"

REASON = "these scores mix content and distance, for which the textbook has no formula yet"


def recognise(effect: type, looked_up: bool = False, bend: float | None = None) -> bool:  # noqa: ARG001
    """Whether what was found in a model is this scheme.

    effect: the class of what is injected; looked_up: in a learned table; bend: how far a bias is from linear, relative
    """
    return effect is Content


def variants(config: Mapping[str, Any]) -> tuple[str, ...]:  # noqa: ARG001 - one signature for all schemes
    """("",)."""
    return ("",)


def predict(config: Mapping[str, Any], positions: Tensor, **_: Any) -> None:
    """None, for the reason in REASON."""


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
