"""What positions inject, as far as it follows from the configuration: transformers' own module, run without a weight.

Angles, cosines, sines, slopes and computed tables come out of the class's code; what is made of a parameter does not,
and neither does anything of the text.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tinput.errors import BadIds
from tinput.models.skeleton import Skeleton
from tinput.positions.effects import Effect
from tinput.record.anatomy import Anatomy, Stack
from tinput.record.attention import surroundings_of
from tinput.record.injected import Entries, effects_of
from tinput.record.recording import past_only, reach
from tinput.record.trace import LayerEffect, Recording

__all__ = ["Outline", "outline"]

if TYPE_CHECKING:
    from tinput.agree import Agreement

WHY = "made of numbers that only the weights hold"
MOST = 1 << 29  # numbers at a time: 2 GB
_IDS = 97  # different ids in the made-up text


@dataclass(frozen=True, eq=False)
class Outline:
    """What positions inject, from the configuration alone: recorded from the class's own code, and the formulas beside.

    effects, positions, textbook, textbook_reason, agreement: as in a Trace. An effect that is made of parameters is
    None with its reason
    """

    positions: Tensor | None
    effects: tuple[LayerEffect, ...]
    textbook: tuple[Effect | None, ...] | None
    textbook_reason: str
    agreement: Agreement


def outline(skeleton: Skeleton, anatomy: Anatomy, stack: Stack, length: int, *, ahead: tuple[str, ...]) -> Recording:
    """The effects for a text of `length` tokens; block input and stages are empty. Raises BadIds, NotRecorded.

    ahead: a shorter text's `Needs.ahead`, by which the run ends before pairs of tokens would take memory
    """
    bare = skeleton.without_weights()
    _check_size(bare, length, bool(ahead))
    low = min(20, max(0, bare.vocab_size - _IDS - 1))  # past the usual special ids
    ids = low + torch.arange(length) % min(_IDS, max(1, bare.vocab_size - low))
    front, block, call = reach(bare, anatomy, stack, ids, read=False, ahead=ahead)
    entries = Entries.of(front, block, call)
    tables = {entry.table for entry in (*entries.added, *entries.inside) if entry.table is not None}
    computed = frozenset(table for table in tables if bare.initial(table) is not None)

    front, block, call = reach(bare, anatomy, stack, ids, only=computed, ahead=ahead)
    entries, around = Entries.of(front, block, call), None
    if call is not None:
        with contextlib.suppress(ValueError):
            around = surroundings_of(front, call, entries.inside)
    found = effects_of(front, stack, entries, around=around, why=WHY)
    effects = tuple(_known(effect) for effect in found)
    used = next((effect.positions for effect in effects if effect.positions is not None), None)
    causal = None if around is None else past_only(around[1])
    return Recording(stack, used, (), torch.empty(0), effects, None, WHY, (), causal)


def _check_size(skeleton: Skeleton, length: int, ahead: bool) -> None:
    """Raises BadIds for a text whose numbers would not fit: a vector a token, and where attention is run all pairs."""
    config = skeleton.config.get_text_config()
    width, heads = (int(getattr(config, name, None) or 1) for name in ("hidden_size", "num_attention_heads"))
    most = MOST // width if ahead else min(MOST // width, math.isqrt(MOST // heads))
    if length > most:
        raise BadIds(f"An outline of {length:,} tokens takes more memory than it is worth; choose {most:,} or fewer.")


def _known(layer: LayerEffect) -> LayerEffect:
    """The effect, if no number of it is missing."""
    tensors = (value for value in vars(layer.effect).values() if isinstance(value, Tensor)) if layer.effect else ()
    if any(bool(torch.isnan(value).any()) for value in tensors):
        return replace(layer, effect=None, reason=WHY)
    return layer
