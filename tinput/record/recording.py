"""One run for one text, read as a whole: stages, block input, effects and attention.

Where not everything is to be read, a run that reads nothing says first what the real one will need.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import replace

import torch
from torch import Tensor

from tinput.errors import NotRecorded
from tinput.models.skeleton import Skeleton
from tinput.positions.effects import Rotate
from tinput.record.anatomy import Anatomy, Stack
from tinput.record.attention import Attention, attention_of, surroundings_of
from tinput.record.front import AttentionCall, Block, Front, run
from tinput.record.injected import Entries, effects_of
from tinput.record.injection import Entry
from tinput.record.layouts import sequence_first
from tinput.record.needs import Needs, attended, missed, needs_of, reported, steps_ahead
from tinput.record.stages import alone, stages_of
from tinput.record.trace import Recording
from tinput.window import Field

__all__ = ["needed", "past_only", "reach", "record"]


def record(
    skeleton: Skeleton,
    anatomy: Anatomy,
    stack: Stack,
    ids: Tensor,
    positions: Tensor | None,
    *,
    needs: Needs | None = None,
    without_attention: str = "",
) -> Recording:
    """Runs the model's front on ids (seq,) and reads the tape.

    needs: what may be read (see `needs`), where that is not everything; without_attention: why q and k are left out
    Raises BadIds, BadFile, NotRecorded.
    """
    front, block, call = _sparing(skeleton, anatomy, stack, ids, positions, needs, not without_attention)
    seq, wanted = len(ids), stack.first_attention
    entries = Entries.of(front, block, call)
    notes: list[str] = []
    block_input, note = sequence_first(block.input, seq)
    if note:
        notes.append(f"Block input: {note}.")
    for injection in stack.injections:
        if injection.effect is Rotate and injection.fit is None:
            notes.append("How the rotation pairs dimensions was not found; it is shown as halves.")
        elif injection.fit is not None and injection.fit.sign < 0:
            notes.append("Each pair turns the other way round: by minus the angle.")
    if torch.isnan(block_input).any():
        raise NotRecorded(
            "The block input has values that are not numbers: the checkpoint holds NaN, or a weight was missed."
        )
    attention, reason, around = None, without_attention, None
    if not without_attention:
        attention, reason = _attention(front, stack, call, entries.inside, wanted)
        around = None if attention is None else (attention.bias, attention.mask)
    elif call is not None:
        with contextlib.suppress(ValueError):
            around = surroundings_of(front, call, entries.inside)
    effects = effects_of(
        front, stack, entries, attention=attention, around=around, why=reason, given=positions, weights=skeleton.weights
    )
    used = next((effect.positions for effect in effects if effect.positions is not None), None)
    used = used if positions is None else positions.clone()
    return Recording(
        stack,
        used,
        stages_of(front, block),
        alone(block_input),
        effects,
        attention,
        reason,
        tuple(notes),
        None if around is None else past_only(around[1]),
    )


def needed(
    skeleton: Skeleton,
    anatomy: Anatomy,
    stack: Stack,
    ids: Tensor,
    positions: Tensor | None = None,
    *,
    ahead: tuple[str, ...] = (),
) -> Needs:
    """What a trace of ids (seq,) will read, found by a run that reads nothing. Raises BadIds, NotRecorded.

    ahead: a shorter text's `Needs.ahead`: the run ends at the first block if it comes there the same way
    """
    front, block, call = reach(skeleton, anatomy, stack, ids, positions, read=False, ahead=ahead)
    needs = needs_of(front, stack, block, call)
    return needs if call is not None else replace(needs, ahead=ahead)


def _sparing(
    skeleton: Skeleton,
    anatomy: Anatomy,
    stack: Stack,
    ids: Tensor,
    positions: Tensor | None,
    needs: Needs | None,
    attention: bool,
) -> tuple[Front, Block, AttentionCall | None]:
    """A run that reads what is needed alone; again with more, should it come out that more was. Never with less."""
    if needs is None:
        return reach(skeleton, anatomy, stack, ids, positions)
    only = needs.names(attention)
    while True:
        ahead = () if attention else needs.ahead
        front, block, call = reach(skeleton, anatomy, stack, ids, positions, only=only, ahead=ahead)
        ops = reported(front, stack, block, call) + (attended(front, call) if attention else [])
        more = missed(front, ops)
        if more is None:
            return front, block, call
        if more <= only:
            raise NotRecorded("What the block is given depends on a weight that was left out; trace it from a folder.")
        only |= more


def past_only(mask: Field | None) -> bool | None:
    """Whether the second key is hidden from the first query."""
    if mask is None:
        return None
    first = mask.window((0, 1), None, (1, 1 << 20)).values[0, 0]
    return bool(torch.isinf(first[1:2]).any())


# A first layer with positions further down needs every layer before it loaded and run: not worth it past this one.
FARTHEST = 4


def reach(
    skeleton: Skeleton,
    anatomy: Anatomy,
    stack: Stack,
    ids: Tensor,
    positions: Tensor | None = None,
    *,
    read: bool = True,
    only: Collection[str] | None = None,
    ahead: tuple[str, ...] = (),
) -> tuple[Front, Block, AttentionCall | None]:
    """Runs the model's front on ids (seq,): the run, the stack's first block, and the attention call that is traced.

    ahead: a shorter text's `Needs.ahead`: the run ends at the first block if it comes there the same way
    read: with the checkpoint's numbers, or with made-up ones; only: the parameters that may be read, None for all
    Raises BadIds, BadFile, NotRecorded.
    """
    decoder = stack is not anatomy.stacks[0]
    wanted = stack.first_attention

    def done(front: Front) -> bool:
        if ahead and front.blocks and front.blocks[-1].stack == stack.path:
            start = front.blocks[-1].start
            if len(front.tape.ops) == start and steps_ahead(front, front.blocks[-1]) == ahead:
                return True
        if wanted is None or wanted > FARTHEST:
            return any(block.stack == stack.path and block.stop is not None for block in front.blocks)
        last = front.attentions[-1].block if front.attentions else None
        return last is not None and last.stack == stack.path and last.number >= wanted

    left_out = _unreached(anatomy, stack)
    front = run(
        skeleton, ids, read=read, positions=positions, decoder=decoder, done=done, leave_out=left_out, only=only
    )
    blocks = [block for block in front.blocks if block.stack == stack.path]
    if not blocks:
        raise front.refused or NotRecorded(
            f"The forward pass did not reach a first block ({front.error or 'none was entered'})."
        )
    return front, blocks[0], _call(front, stack, wanted)


def _unreached(anatomy: Anatomy, stack: Stack) -> list[str]:
    """The blocks that a trace of this stack does not get to: all that were first entered after the one it ends in."""
    wanted = stack.first_attention or 0
    last = stack.paths[wanted if wanted <= FARTHEST else 0]
    return list(anatomy.order[anatomy.order.index(last) + 1 :])


def _call(front: Front, stack: Stack, wanted: int | None) -> AttentionCall | None:
    for call in front.attentions:
        if call.block is not None and call.block.stack == stack.path and call.block.number == wanted:
            return call
    return None


def _attention(
    front: Front, stack: Stack, call: AttentionCall | None, inside: list[Entry], wanted: int | None
) -> tuple[Attention | None, str]:
    if wanted is None:
        return None, f"none of the {stack.n_layers} layers has attention of the usual kind, a softmax over q k"
    if call is None:
        why = front.error or f"the first with positions is layer {wanted}, which needs all layers before it"
        return None, f"the attention layer was not reached: {why.rstrip('.')}"
    try:
        return attention_of(front, call, inside), ""
    except ValueError as error:
        return None, f"q and k are not laid out for all pairs of tokens: {error}"
