"""What of a scheme a training at one length has shown, and what a longer text brings that it has not.

A scheme's file may export `coverage(config, places, trained, **sizes)`: name of a way -> `Coverage`. Rules like these
are behind the plots of Chen et al. 2023, "Position Interpolation" (https://arxiv.org/abs/2306.15595), section 2.2, and
of Liu et al. 2023, "Scaling Laws of RoPE-based Extrapolation" (https://arxiv.org/abs/2310.05209), section 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["BLANK", "MISSING", "NEW", "SEEN", "Coverage", "coarse", "spread", "turned"]

BLANK, SEEN, NEW, MISSING = -1, 0, 1, 2


@dataclass(frozen=True, eq=False)
class Coverage:
    """Which parts of a scheme are met at which places, and whether training met them so.

    state: (part, place) int64: SEEN, NEW (never met in training), MISSING (does not exist), BLANK (not met there)
    parts: what a row is, such as "pair"; place: what a column is, "position" or "distance"
    said: one or two sentences with the numbers
    """

    state: Tensor
    parts: str
    place: str
    said: Sequence[str] = ()

    @property
    def new(self) -> int:
        """How many parts are met somewhere as training never met them, or do not exist."""
        return int((self.state > SEEN).any(dim=1).sum())


def spread(length: int, most: int = 2048) -> Tensor:
    """Positions or distances of a text of `length` tokens, evenly spread, first and last among them: (n,) int64."""
    return torch.linspace(0, length - 1, min(length, most), dtype=torch.float64).round().long()


def coarse(state: Tensor, places: Tensor, columns: int = 128) -> tuple[Tensor, Tensor]:
    """`state` in fewer columns for a picture, and the middle of each: a cell is the newest state of its places."""
    step = -(-len(places) // columns)
    blocks = list(zip(state.split(step, dim=1), places.double().split(step), strict=True))
    return torch.stack([one.amax(1) for one, _ in blocks], 1), torch.stack([(at[0] + at[-1]) / 2 for _, at in blocks])


def turned(now: Tensor, trained: Tensor, places: Tensor, length: int, place: str) -> Coverage:
    """Pairs that turn by an angle for each token: an angle is new when a training of `length` tokens never got so far.

    now, trained: radians a token, (pair,), with which the text is read and the model was trained; places: (n,) int64
    A pair that came full circle in training has met every angle.
    """
    farthest = length * trained.double()  # (pair,) radians: where training ends
    reached = places[None, :] * now.double()[:, None]  # (pair, place)
    new = (reached >= farthest[:, None] * (1 - 1e-9)) & (farthest < 2 * math.pi)[:, None]
    slow = int((farthest < 2 * math.pi).sum())
    state = torch.where(new, NEW, SEEN)
    met = int(new.any(dim=1).sum())
    return Coverage(
        state,
        "pair",
        place,
        (
            f"{slow} of {len(trained)} pairs never came full circle within the {length:,} tokens of training.",
            f"{met} of them {'meets' if met == 1 else 'meet'} an angle here that training never showed."
            if met
            else "None of them meets an angle here that training has not shown.",
        ),
    )
