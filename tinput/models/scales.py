"""FP8 weights with their scales: codes -> numbers, for whole matrices and for rows of them.

Three layouts are published, all of them to be multiplied by: one scale for the matrix, one a row (both "weight_scale":
compressed-tensors, fbgemm, ModelOpt), and one a block of rows and columns ("weight_scale_inv", the inverse of what the
weights were divided by: DeepSeek-AI 2024, https://arxiv.org/abs/2412.19437, section 3.3.2).
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch
from torch import Tensor

from tinput.errors import BadFile

__all__ = ["FP8", "block_of", "scale_of", "scaled"]

FP8 = {"F8_E4M3", "F8_E5M2"}
SUFFIXES = ("_scale_inv", "_scale")


def scale_of(key: str, names: Container[str]) -> str | None:
    """The name of the tensor with the scales of `key`; None if there is none."""
    return next((key + suffix for suffix in SUFFIXES if key + suffix in names), None)


def block_of(quantization: Any) -> tuple[int, int] | None:
    """Rows and columns of a block, as a configuration says it ("weight_block_size"); None if it does not."""
    found = quantization.get("weight_block_size") if isinstance(quantization, dict) else None
    if isinstance(found, (list, tuple)) and len(found) == 2 and all(type(n) is int and n > 0 for n in found):
        return found[0], found[1]
    return None


def scaled(
    codes: Tensor, scale: Tensor, shape: tuple[int, ...], block: tuple[int, int] | None, index: Tensor | None, name: str
) -> Tensor:
    """Rows of a matrix of this shape (out, in), float32. codes: (n, in), the rows `index`, or all of them if None

    scale: one number, (out,), (out, 1), or one a block; block: its rows and columns
    Raises BadFile for scales that do not fit.
    """
    values, scale = codes.to(torch.float32), scale.to(torch.float32)
    if scale.numel() == 1:
        return values * scale.reshape(())
    rows = torch.arange(shape[0]) if index is None else index
    if len(shape) == 2 and tuple(scale.shape) in ((shape[0],), (shape[0], 1)):
        return values * scale.reshape(-1, 1)[rows]
    if len(shape) == 2 and block is not None:
        tall, wide = (-(-size // step) for size, step in zip(shape, block, strict=True))
        if tuple(scale.shape) == (tall, wide):
            return values * scale[rows // block[0]].repeat_interleave(block[1], dim=1)[:, : shape[1]]
    raise BadFile(
        f"The scales of tensor {name!r}, {list(scale.shape)}, fit no layout that is known for {list(shape)}; "
        "look for the model in bfloat16."
    )
