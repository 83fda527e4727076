"""RoPE (first form; scaling methods follow)."""

from __future__ import annotations

import torch
from torch import Tensor


def angles(positions: Tensor, inv_freq: Tensor) -> Tensor:
    """How far each pair is turned: (seq, pair), radians, in the dtype of inv_freq. positions: (seq,)"""
    return positions.to(inv_freq.dtype)[:, None] * inv_freq.to(positions.device)


def rotate(x: Tensor, angles: Tensor, layout: str = "half", start: int = 0, magnitude: float = 1.0) -> Tensor:
    """Turn pairs of dimensions of q or k.

    x: (..., seq, d_head); angles: (seq, pair); the 2 * pair dimensions from `start` turn, the others pass
    """
    return rotate_by(x, magnitude * angles.cos(), magnitude * angles.sin(), layout, start)


def rotate_by(x: Tensor, cos: Tensor, sin: Tensor, layout: str = "half", start: int = 0) -> Tensor:
    """`rotate` for cosines and sines that are there already, (seq, pair) each, magnitude included."""
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)  # cast last: an angle in low precision points elsewhere
    stop = start + 2 * cos.shape[-1]
    turned = x[..., start:stop]
    if layout == "half":
        a, b = turned.chunk(2, dim=-1)  # (..., seq, pair) each
        turned = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    else:
        a, b = turned[..., 0::2], turned[..., 1::2]
        turned = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
    return torch.cat((x[..., :start], turned, x[..., stop:]), dim=-1)
