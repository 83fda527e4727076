r"""No position at all (NoPE): Haviv et al. 2022 (https://arxiv.org/abs/2203.16634), Kazemnejad et al. 2023
(https://arxiv.org/abs/2305.19466).

Nothing tells positions apart at the input. A decoder can still find order out, since its mask shows the first token
fewer others than the last; recurrent and convolution layers see order anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .coverage import SEEN, Coverage
from .effects import Effect, Nothing

__all__ = ["coverage", "notice", "predict", "recognise", "variants"]

NAME = "none"
LABEL = "None (NoPE)"
COLOUR = "#999999"
INJECTION = "nowhere"
FORMULA = r"x_p = \mathrm{embedding}(t_p)"
PAPER = "Haviv et al. 2022; Kazemnejad et al. 2023"


def recognise(effect: type, looked_up: bool = False, bend: float | None = None) -> bool:  # noqa: ARG001
    """Whether what was found in a model is this scheme.

    effect: the class of what is injected; looked_up: in a learned table; bend: how far a bias is from linear, relative
    """
    return effect is Nothing


def variants(config: Mapping[str, Any]) -> tuple[str, ...]:  # noqa: ARG001 - one signature for all schemes
    """("",)."""
    return ("",)


def predict(config: Mapping[str, Any], positions: Tensor, **_: Any) -> Nothing:  # noqa: ARG001
    """`Nothing`."""
    return Nothing()


def coverage(config: Mapping[str, Any], places: Tensor, trained: int, **_: Any) -> dict[str, Coverage]:  # noqa: ARG001
    """Nothing enters, so nothing can be new."""
    state = torch.full((1, len(places)), SEEN)
    said = f"No position enters. New beyond {trained:,} tokens is only how many keys a query has to choose from."
    return {"": Coverage(state, "nothing", "position", (said,))}


def notice(effect: Effect, positions: Tensor) -> list[str]:  # noqa: ARG001
    """What it means, in two sentences."""
    return [
        f"Nothing tells the {len(positions)} positions apart before the first block: "
        "equal tokens enter it with equal vectors.",
        "Only the causal mask, or a layer that reads in order, can let the model find out what comes first.",
    ]
