"""A run in which other vectors stood where the model adds its positions: what then enters the block, and q and k.

The tape of the recorded run is played again from the place of the change on, through the model's own operations; so
scaling, norm and projections are the model's, whatever they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tinput.errors import NotRecorded
from tinput.models.skeleton import Skeleton
from tinput.positions.effects import Add, Rotate
from tinput.record.anatomy import Anatomy, Stack
from tinput.record.attention import heads_of
from tinput.record.front import Block, Front
from tinput.record.injection import before_block, by_zero, in_attention
from tinput.record.layouts import sequence_first
from tinput.record.recording import reach
from tinput.record.tape import CannotReplay

__all__ = ["Instead", "with_vectors"]


@dataclass(frozen=True, eq=False)
class Instead:
    """block_input: (seq, d_model); q: (heads, seq, d_head), k: (kv_heads, seq, d_head), before any rotation"""

    block_input: Tensor
    q: Tensor
    k: Tensor


def with_vectors(skeleton: Skeleton, anatomy: Anatomy, stack: Stack, ids: Tensor, vectors: Tensor) -> Instead:
    """Runs ids (seq,) with `vectors` (seq, width) added in place of all that positions add before the first block.

    Where the model adds none, they are added to what enters the block. Raises BadIds, BadFile, NotRecorded.
    """
    front, block, call = reach(skeleton, anatomy, stack, ids)
    if call is None:
        raise NotRecorded("The attention layer was not reached; choose a model whose first layer has attention.")
    try:
        known = _changed(front, block, vectors)
        rotation = next((entry for entry in in_attention(front, call) if entry.kind is Rotate), None)
        q, k = heads_of(front, call, known | (by_zero(rotation) if rotation else {}))
        last = front.tape.ops[block.makers[-1]]
        block_input, _ = sequence_first(front.tape.replay(last, known), len(ids))
    except (CannotReplay, ValueError, IndexError) as error:
        raise NotRecorded(f"Other vectors cannot be sent through this model's own operations ({error}).") from error
    return Instead(block_input.detach().clone(), q.detach().clone(), k.detach().clone())


def _changed(front: Front, block: Block, vectors: Tensor) -> dict[int, Any]:
    """The results that are other than recorded, by operation."""
    added = [entry for entry in before_block(front, block) if entry.kind is Add]
    if added:
        values = {entry.carriers[0].index: torch.zeros_like(entry.carriers[0].value) for entry in added}
        first = added[0].carriers[0]
        values[first.index] = _like(vectors, first.value)
        return values
    last = front.tape.ops[block.makers[-1]]
    if not isinstance(last.out, Tensor):
        raise CannotReplay(f"{last.name} makes more than the block's input")
    return {last.index: last.value + _like(vectors, last.value)}


def _like(vectors: Tensor, value: Tensor) -> Tensor:
    """(seq, width) in the shape and dtype of what it stands for."""
    if vectors.numel() != value.numel() or vectors.shape[-1] != value.shape[-1]:
        raise CannotReplay(f"the model adds {tuple(value.shape)}, and the vectors are {tuple(vectors.shape)}")
    return vectors.to(value.dtype).reshape(value.shape)
