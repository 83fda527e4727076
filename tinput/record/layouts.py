"""Tensors as models hold them, brought to tinput's axes: (seq, ...), (heads, seq, d_head), (heads, query, key)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from tinput.record.front import AttentionCall, Front

__all__ = ["as_heads", "as_scores", "by_position", "is_one_block", "own_block", "product_axes", "sequence_first"]


def sequence_first(value: Tensor, seq: int) -> tuple[Tensor, str]:
    """(1, seq, ...) or (seq, 1, ...) -> (seq, ...), and a note of what was done where that is not the usual."""
    if value.ndim >= 2 and value.shape[0] == 1 and value.shape[1] == seq:
        return value[0], ""
    if value.ndim >= 2 and value.shape[0] == seq and value.shape[1] == 1:
        return value[:, 0], "the model keeps the sequence first, (seq, batch, d_model)"
    if value.ndim == 3 and value.shape[0] == 1 and value.shape[2] == seq:
        return value[0].T, "the model keeps the channels first, (batch, d_model, seq)"
    if value.shape[0] == 1:
        return value[0], f"the model's block takes the shape {tuple(value.shape)} for {seq} tokens"
    return value, f"the model's block takes the shape {tuple(value.shape)} for {seq} tokens"


def by_position(value: Tensor, seq: int) -> Tensor:
    """A cosine, sine or angle in any of the shapes that broadcast over heads -> (seq, width). Raises ValueError."""
    if value.numel() != seq * value.shape[-1]:
        raise ValueError(f"{tuple(value.shape)} is not one row for each of {seq} positions")
    return value.reshape(seq, value.shape[-1])


def as_heads(value: Tensor, front: Front) -> Tensor:
    """q or k as attention takes them -> (heads, seq, d_head): (1, heads, seq, d) or (heads, seq, d)."""
    seq = front.ids.shape[1]
    if value.ndim == 4 and value.shape[0] == 1:
        value = value[0]
    if value.ndim > 3:
        raise ValueError(f"attention is local, in blocks of neighbours ({tuple(value.shape)})")
    if value.ndim != 3 or value.shape[1] < seq:
        raise ValueError(f"{tuple(value.shape)} is not (heads, {seq}, d_head)")
    return value


def as_scores(value: Tensor, heads: int, n_query: int, n_key: int) -> Tensor:
    """A bias or a mask in any shape that broadcasts -> (heads or 1, query or 1, key or 1), no copy."""
    value = _own_block(value, n_query, n_key)
    if value.ndim == 4 and value.shape[0] == 1:
        value = value[0]
    while value.ndim < 3:
        value = value[None]
    if value.ndim != 3:
        raise ValueError(f"{tuple(value.shape)} is not (heads, query, key)")
    return value.expand(heads, n_query, n_key)


def own_block(query: Tensor, key: Tensor, seq: int) -> tuple[Tensor, Tensor]:
    """q and k (..., seq, d) of local attention whose one block holds the text: without padding and empty neighbours."""
    length = query.shape[-2]
    return query[..., :seq, :], key[..., length : length + seq, :]


def is_one_block(query: Tensor, key: Tensor) -> bool:
    """Whether q and k are (1, block, place, heads, d) of a text in one block, k with its neighbours on both sides."""
    return query.ndim == key.ndim == 5 and query.shape[:2] == (1, 1) and key.shape[2] == 3 * query.shape[2]


def _own_block(value: Tensor, n_query: int, n_key: int) -> Tensor:
    """The same of scores, a bias or a mask, (1, block, heads, query, 3 * query)."""
    if value.ndim != 5 or value.shape[:2] != (1, 1) or value.shape[-1] != 3 * value.shape[-2]:
        return value
    length = value.shape[-2]
    return value[0, :, :, :n_query, length : length + n_key]


def product_axes(call: AttentionCall, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """q and k of a product, both with the same order of axes: (..., seq, d)."""
    product = call.product
    if product is None:
        return query, key
    if product.name == "einsum":
        return _einsum_axes(product.args[0], query, key)
    return query, key.transpose(-1, -2)


def _einsum_axes(equation: object, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    if not isinstance(equation, str) or "->" not in equation:
        raise ValueError(f"an einsum that is not understood: {equation}")
    equation = equation.replace(" ", "").replace("...", "B")  # B: the batch, whatever its axes
    left, out = equation.split("->")
    of_query, of_key = left.split(",")
    inner = [letter for letter in of_query if letter in of_key and letter not in out]
    rows = [letter for letter in of_query if letter in out and letter not in of_key]
    columns = [letter for letter in of_key if letter in out and letter not in of_query]
    shared = [letter for letter in out if letter in of_query and letter in of_key]
    if is_one_block(query, key):
        query, key = query[0], key[0]
    if query.ndim > len(of_query) and "B" in of_query:
        raise ValueError(f"attention is local, in blocks of neighbours ({tuple(query.shape)})")
    if len(inner) != 1 or len(rows) != 1 or len(columns) != 1 or query.ndim != len(of_query) or key.ndim != len(of_key):
        raise ValueError(f"an einsum that is not understood: {equation}")
    order_q = [of_query.index(letter) for letter in (*shared, *rows, *inner)]
    order_k = [of_key.index(letter) for letter in (*shared, *columns, *inner)]
    return query.permute(order_q), key.permute(order_k)


def repeated_heads(value: Tensor) -> Tensor:
    """(heads, seq, d) -> (kv_heads, seq, d): without the copies made for grouped-query attention."""
    heads = value.shape[0]
    for kv_heads in range(1, heads):
        if heads % kv_heads == 0:
            groups = value.view(kv_heads, heads // kv_heads, *value.shape[1:])
            if torch.equal(groups, groups[:, :1].expand_as(groups)):
                return groups[:, 0]
    return value
