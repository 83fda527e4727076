"""Which parameters a trace needs, found before any is read; and whether what is reported came from those alone.

A run with random numbers in place of weights leaves a tape of the same shape as the real one. What the block's input,
the stages and the positions' effects depend on is read off it backward: tables of which some rows are looked up, and
parameters that are taken whole. What q and k take besides stands apart, since in a large model it is most of the bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from tinput.models.tree import tensors_in
from tinput.positions.effects import Add, Content, Rotate
from tinput.record.anatomy import Stack, find
from tinput.record.front import AttentionCall, Block, Front
from tinput.record.injection import before_block, in_attention, query_and_key
from tinput.record.layouts import by_position
from tinput.record.tape import Op

__all__ = ["Needs", "attended", "missed", "needs_of", "reported", "steps_ahead"]

_LOOKUPS = frozenset(["embedding", "index_select"])


@dataclass(frozen=True, eq=False)
class Needs:
    """rows: a table's name -> the rows (n,) int64 that are looked up; whole: the names of parameters taken whole
    attention: the names of those that only q, k and their scores take, whole
    ahead: the names of the operations ahead of the first block, where all that positions inject is made among them and
    used as it is made: a run that begins with just these may end there. Empty where it is not so
    """

    rows: dict[str, Tensor]
    whole: frozenset[str]
    attention: frozenset[str]
    ahead: tuple[str, ...] = ()

    def names(self, attention: bool) -> frozenset[str]:
        """All of them, with or without those of q and k."""
        return self.whole | self.rows.keys() | (self.attention if attention else frozenset())


def needs_of(front: Front, stack: Stack, block: Block, call: AttentionCall | None) -> Needs:
    """What a run's results took."""
    rows, whole = _parameters(front, reported(front, stack, block, call))
    more_rows, more = _parameters(front, attended(front, call))
    attention = (more | more_rows.keys()) - whole - rows.keys()
    looked_up = {name: index for name, index in rows.items() if name not in whole}
    ahead = steps_ahead(front, block) if _ahead(front, stack, block, call) else ()
    return Needs(looked_up, whole, attention, ahead)


def steps_ahead(front: Front, block: Block) -> tuple[str, ...]:
    """The names of the operations before the first block: a rotation scaled by length has others for a long text."""
    return tuple(op.name for op in front.tape.ops[: block.start])


def _ahead(front: Front, stack: Stack, block: Block, call: AttentionCall | None) -> bool:
    """Whether a run may end at the first block and tell the same of positions."""
    inside = in_attention(front, call) if call is not None else []
    for injection in stack.injections:
        if injection.effect is Rotate:
            entry = next((entry for entry in inside if entry.kind is Rotate), None)
            made = [find(front, place) for place in (*injection.carriers[:1], *injection.sines[:1])]
            used = [] if entry is None else [*entry.carriers[:1], *entry.sines[:1]]
            if not used or len(made) != len(used):
                return False
            if not all(_made_so(front, block, *pair) for pair in zip(made, used, strict=True)):
                return False
        elif injection.effect is not Add:
            return False
    return True


def _made_so(front: Front, block: Block, made: Op | None, used: Op) -> bool:
    """Whether what is used in a block is what was made ahead of it, but for axes that were put between."""
    if made is None or made.index >= block.start or front.tape.past_layout(made) is not front.tape.past_layout(used):
        return False
    if not isinstance(made.value, Tensor) or not isinstance(used.value, Tensor):  # cosines and sines in one: GPT-J
        return False
    try:
        return torch.equal(*(by_position(op.value, front.ids.shape[1]) for op in (made, used)))
    except ValueError:
        return False


def reported(front: Front, stack: Stack, block: Block, call: AttentionCall | None) -> list[Op]:
    """The operations behind all that a trace tells without q and k."""
    ends = [front.tape.ops[index] for index in block.makers]
    entries = before_block(front, block) + (in_attention(front, call) if call is not None else [])
    for entry in entries:
        if entry.kind is not Content:
            ends += [*entry.carriers, *entry.sines]
    for injection in stack.injections:
        if injection.effect is not Content:
            places = (find(front, place) for place in (*injection.carriers[:1], *injection.sines[:1]))
            ends += [op for op in places if op is not None]
    return _behind(front, ends)


def attended(front: Front, call: AttentionCall | None) -> list[Op]:
    """The operations behind q, k and their scores."""
    if call is None:
        return []
    if call.product is not None:
        return _behind(front, [call.op])
    mask = call.op.args[3] if len(call.op.args) > 3 else call.op.kwargs.get("attn_mask")
    ends = [front.tape.last(tensor) for tensor in (*query_and_key(call), mask) if isinstance(tensor, Tensor)]
    return _behind(front, [op for op in ends if op is not None])


def missed(front: Front, ops: Iterable[Op]) -> frozenset[str] | None:
    """The parameters left out of a run that these operations took after all; None if they took none."""
    names, any_missed = set(), False
    for op in ops:
        if getattr(op.func, "left_out", False):
            any_missed = True
            names |= {front.placeholders.names.get(id(t), "") for t in tensors_in((op.args, op.kwargs))} - {""}
    return frozenset(names) if any_missed else None


def _behind(front: Front, ends: Collection[Op]) -> list[Op]:
    found: dict[int, Op] = {}
    for end in ends:
        if end.index not in found:
            found.update({op.index: op for op in front.tape.back(end)})
    return [found[index] for index in sorted(found)]


def _parameters(front: Front, ops: list[Op]) -> tuple[dict[str, Tensor], frozenset[str]]:
    """Tables with the rows looked up in them, and what is taken whole."""
    rows: dict[str, list[Tensor]] = {}
    whole = set()
    for op in ops:
        tensors = tensors_in((op.args, op.kwargs))
        names = [name for tensor in tensors if (name := front.placeholders.name_of(tensor))]
        index = next((t for t in tensors if not t.is_floating_point() and t.dtype != torch.bool), None)
        if op.name in _LOOKUPS and len(names) == 1 and index is not None:
            rows.setdefault(names[0], []).append(index.flatten().to(torch.int64))
        else:
            whole.update(names)
    return {name: torch.unique(torch.cat(parts)) for name, parts in rows.items()}, frozenset(whole)
