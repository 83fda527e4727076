"""What a model would do if something were otherwise: numbers that are not recorded, and always labelled so."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["dropout"]


def dropout(x: Tensor, p: float, seed: int) -> Tensor:
    """`x` as training would pass it on: each value 0 with chance p, the others divided by 1 - p.

    The same seed drops the same values, whatever other threads draw. Source: Srivastava et al. 2014.
    """
    generator = torch.Generator().manual_seed(seed)
    kept = torch.rand(x.shape, generator=generator) >= p
    return x * kept / (1 - p)
