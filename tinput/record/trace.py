"""What was recorded for one text and one model, as values: a Trace outlives the model that made it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tinput.errors import NotRecorded
from tinput.models.skeleton import Skeleton
from tinput.models.tree import tensors_in
from tinput.positions.effects import Add, Bias, Content, Effect, Nothing, Rotate
from tinput.record.anatomy import Anatomy, Injection, Stack, find
from tinput.record.attention import Attention, attention_of, surroundings_of
from tinput.record.front import AttentionCall, Block, Front, run
from tinput.record.injection import SUMS, Entry, before_block, in_attention, pairs, vectors_of_distances
from tinput.record.layouts import by_position, sequence_first
from tinput.record.needs import Needs, attended, missed, needs_of, reported
from tinput.record.stages import Stage, stages_of
from tinput.record.tape import Op
from tinput.window import Field

if TYPE_CHECKING:
    from tinput.agree import Agreement
    from tinput.models.named import ModuleWeights
    from tinput.tokens import Tokens

__all__ = ["LayerEffect", "Trace", "reach", "record"]


@dataclass(frozen=True, eq=False)
class LayerEffect:
    """What positions inject, and into which layers.

    table: the parameter in which positions were looked up, or None; scheme: how the textbook calls it
    reason: why `effect` is None where it could not be recorded
    positions: (seq,) int64, those that this effect is made of, or None where none are seen: MPNet's table counts past
    pads, its bias does not
    factors: the parameters of a table that is kept in several
    stored: the dtype in which the file holds a table of computed vectors, where it holds one
    """

    layers: tuple[int, ...]
    effect: Effect | None
    scheme: str = ""
    table: str | None = None
    reason: str = ""
    positions: Tensor | None = None
    stored: torch.dtype | None = None
    factors: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Trace:
    """All that was recorded for one text and one model, and the textbook's answer beside it.

    ids: (seq,) int64; tokens: None when ids were given; positions: (seq,) int64 as the model used them, or None
    stages: from the ids to the first block; block_input: (seq, d_model), or (seq, ...) where a model has another shape
    effects: what positions inject, in the order in which it enters; attention: the first attention layer, or a later
    one if only that has positions; None with `attention_reason` where there is none to be had
    textbook: the same effects from the formulas, one an effect (None where there is no formula), or None altogether
    with `textbook_reason`; agreement: how far the two are apart
    """

    model: str
    revision: str | None
    dtype: str
    checkpoint_dtype: str
    stack: str
    ids: Tensor
    tokens: Tokens | None
    positions: Tensor | None
    stages: tuple[Stage, ...]
    block_input: Tensor
    effects: tuple[LayerEffect, ...]
    attention: Attention | None
    attention_reason: str = ""
    textbook: tuple[Effect | None, ...] | None = None
    textbook_reason: str = ""
    agreement: Agreement = None  # type: ignore[assignment] - always set by the one who compares
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    causal: bool | None = None  # whether attention sees the past alone; None where that was not seen

    def __repr__(self) -> str:  # the numbers would fill the screen
        return f"Trace({self.model!r}, {len(self.ids)} tokens, {' → '.join(stage.name for stage in self.stages)})"

    @property
    def effect(self) -> Effect:
        """The first of the effects that was recorded; Nothing where no position enters."""
        return next((found.effect for found in self.effects if found.effect is not None), Nothing())

    @property
    def schemes(self) -> tuple[str, ...]:
        """The schemes of the effects, each once, in the order in which they enter."""
        return tuple(dict.fromkeys(found.scheme for found in self.effects))

    @property
    def scheme(self) -> str:
        """The scheme that the model is named by: the first."""
        return self.schemes[0]

    def arrays(self) -> dict[str, Any]:
        """Every tensor as a numpy array under a plain name; low precision as float32."""
        found: dict[str, Tensor | None] = {
            "ids": self.ids,
            "positions": self.positions,
            "block_input": self.block_input,
        }
        for place, stage in enumerate(self.stages):
            found[f"stage_{place:02}_{stage.op}"] = stage.value
        for side, effects in (("recorded", [e.effect for e in self.effects]), ("textbook", self.textbook or ())):
            for place, effect in enumerate(effects):
                for name, value in vars(effect).items() if effect is not None else ():
                    if isinstance(value, Tensor):
                        found[f"{side}_{place}_{name}"] = value
        if self.attention is not None:
            for name in ("q_before", "q", "k_before", "k", "sinks"):
                found[f"attention_{name}"] = getattr(self.attention, name)
            for name in ("scores", "bias", "mask", "weights"):
                found[f"attention_{name}"] = getattr(self.attention, name).tensor()
        return {
            name: (value.float() if value.is_floating_point() else value).numpy()
            for name, value in found.items()
            if value is not None
        }

    def provenance(self) -> dict[str, Any]:
        """Where the numbers are from: model, revision, dtypes, text, versions."""
        return {
            "model": self.model,
            "revision": self.revision,
            "dtype": self.dtype,
            "checkpoint_dtype": self.checkpoint_dtype,
            "stack": self.stack,
            "text": self.tokens.text if self.tokens is not None else None,
            "pieces": list(self.tokens.pieces) if self.tokens is not None else None,
            "schemes": list(self.schemes),
            "stages": [[stage.name, stage.op, stage.module, stage.note] for stage in self.stages],
            "agreement": self.agreement.message,
            "notes": list(self.notes),
            "versions": self.versions,
        }

    def save(self, path: str | Path) -> Path:
        """Writes everything to an .npz: the arrays, and `provenance` as JSON text. Returns the path."""
        import numpy as np

        path = Path(path)
        arrays = self.arrays()
        np.savez_compressed(path, provenance=np.array(json.dumps(self.provenance())), **arrays)
        return path if path.suffix == ".npz" else path.with_name(path.name + ".npz")


@dataclass(frozen=True, eq=False)
class Recording:
    """A Trace's recorded half: what `record` hands to whoever compares it with the textbook.

    causal: whether attention sees the past alone, None where that was not seen
    """

    stack: Stack
    positions: Tensor | None
    stages: tuple[Stage, ...]
    block_input: Tensor
    effects: tuple[LayerEffect, ...]
    attention: Attention | None
    attention_reason: str
    notes: tuple[str, ...]
    causal: bool | None = None


def record(
    skeleton: Skeleton,
    anatomy: Anatomy,
    stack: Stack,
    ids: Tensor,
    positions: Tensor | None,
    name_scheme: Any,
    *,
    needs: Needs | None = None,
    without_attention: str = "",
) -> Recording:
    """Runs the model's front on ids (seq,) and reads the tape.

    name_scheme: Injection -> the scheme's name
    needs: what may be read (see `needs`), where that is not everything; without_attention: why q and k are left out
    Raises BadIds, BadFile, NotRecorded.
    """
    front, block, call = _sparing(skeleton, anatomy, stack, ids, positions, needs, not without_attention)
    seq, wanted = len(ids), stack.first_attention
    added = before_block(front, block)
    inside = in_attention(front, call) if call is not None else []
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
        attention, reason = _attention(front, stack, call, inside, wanted)
        around = None if attention is None else (attention.bias, attention.mask)
    elif call is not None:
        with contextlib.suppress(ValueError):
            around = surroundings_of(front, call, inside)
    effects = effects_of(
        front, stack, added, inside, call, attention, around, reason, positions, seq, name_scheme, skeleton.weights
    )
    used = next((effect.positions for effect in effects if effect.positions is not None), None)
    used = used if positions is None else positions.clone()
    return Recording(
        stack,
        used,
        stages_of(front, block),
        block_input.detach().clone(),
        effects,
        attention,
        reason,
        tuple(notes),
        None if around is None else past_only(around[1]),
    )


def needed(skeleton: Skeleton, anatomy: Anatomy, stack: Stack, ids: Tensor, positions: Tensor | None = None) -> Needs:
    """What a trace of ids (seq,) will read, found by a run that reads nothing. Raises BadIds, NotRecorded."""
    front, block, call = reach(skeleton, anatomy, stack, ids, positions, read=False)
    return needs_of(front, stack, block, call)


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
        front, block, call = reach(skeleton, anatomy, stack, ids, positions, only=only)
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
) -> tuple[Front, Block, AttentionCall | None]:
    """Runs the model's front on ids (seq,): the run, the stack's first block, and the attention call that is traced.

    read: with the checkpoint's numbers, or with made-up ones; only: the parameters that may be read, None for all
    Raises BadIds, BadFile, NotRecorded.
    """
    decoder = stack is not anatomy.stacks[0]
    wanted = stack.first_attention

    def done(front: Front) -> bool:
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


def effects_of(
    front: Front,
    stack: Stack,
    added: list[Entry],
    inside: list[Entry],
    call: AttentionCall | None,
    attention: Attention | None,
    around: tuple[Field, Field | None] | None,
    why: str,
    given: Tensor | None,
    seq: int,
    name_scheme: Any,
    weights: ModuleWeights | None,
) -> tuple[LayerEffect, ...]:
    """What a run shows of each of a stack's injections. attention, around: q and k, or bias and mask, if they are had;
    why: the reason where neither is; given: (seq,) positions that were set by hand
    """
    layer = call.block.number if call is not None and call.block is not None else None
    found = []
    adds = iter(added)
    tables = _table_modules(front)
    for injection in stack.injections:
        effect, entry, reason = None, None, ""
        try:
            if injection.effect is Add:
                entry = next(adds, None)
                effect = None if entry is None else Add(_vectors(entry.carriers[0].value, seq))
            elif layer in injection.layers:
                entry = next((e for e in inside if e.kind is injection.effect), None)
                if entry is not None and (attention is not None or injection.effect is not Content):
                    effect = _injected(front, injection, entry, around, seq)
                if isinstance(effect, Content):
                    effect = replace(effect, **_of_distances(front, inside, seq))
            elif injection.effect is Rotate:
                carriers = [find(front, place) for place in injection.carriers[:1]]
                sines = [find(front, place) for place in injection.sines[:1]]
                if all(op is not None for op in (*carriers, *sines)):
                    effect = _rotation(front, injection, carriers[0], sines[0] if sines else None, seq)  # type: ignore[arg-type]
        except ValueError as error:
            reason = str(error)
        if effect is None and not reason and entry is not None and attention is None:
            reason = why
        elif effect is None and not reason:
            reason = f"made in layer {injection.layers[0]}, which the recording did not get through"
            reason += f": {front.error.rstrip('.')}" if front.error else ""
        carrier = entry.carriers[0] if entry is not None else next(_found(front, injection), None)
        used = None if carrier is None else _positions(front, carrier, tables, given, seq)
        stored = _stored(weights, entry) if injection.computed else None
        factors = _factors(front, entry) if injection.learned and injection.table is None else ()
        scheme = name_scheme(injection)
        found.append(LayerEffect(injection.layers, effect, scheme, injection.table, reason, used, stored, factors))
    if not found:
        layers = tuple(range(stack.n_layers))
        return (LayerEffect(layers, Nothing(), name_scheme(None)),)
    return tuple(found)


def _factors(front: Front, entry: Entry | None) -> tuple[str, ...]:
    """The parameters that what is added was put together of, in their own order."""
    if entry is None or entry.kind is not Add:
        return ()
    read = (front.placeholders.name_of(t) for op in front.tape.back(entry.carriers[0]) for t in tensors_in(op.args))
    return tuple(sorted({name for name in read if name}))


def _stored(weights: ModuleWeights | None, entry: Entry | None) -> torch.dtype | None:
    table = None if entry is None else entry.table
    return weights.dtype(table) if weights is not None and table is not None and weights.has(table) else None


def _vectors(value: Tensor, seq: int) -> Tensor:
    """What is added, (seq, width), from (1, seq, width), (seq, width) or (seq, 1, width)."""
    if value.ndim != 2:
        value = sequence_first(value, seq)[0]
    return value[:seq].detach().clone()  # some models pad the text to a window of theirs


def _injected(
    front: Front, injection: Injection, entry: Entry, around: tuple[Field, Field | None] | None, seq: int
) -> Effect | None:
    if injection.effect is Rotate:
        return _rotation(front, injection, entry.carriers[0], entry.sines[0] if entry.sines else None, seq)
    if around is None:
        return None
    scores = around[0].tensor() if around[0].whole is None else around[0].whole
    return Bias(scores) if injection.effect is Bias else Content(scores)


def _of_distances(front: Front, inside: list[Entry], seq: int) -> dict[str, Tensor | None]:
    """The vectors of distances that meet content in one layer, and the rows of them that are picked for each pair."""
    content = [op for entry in inside if entry.kind is Content for op in entry.carriers]
    vectors = (vectors_of_distances(front, op) for op in content if op.value.is_floating_point())
    picked = (op.value for op in content if not op.value.is_floating_point() and _of_pairs(op.value, seq))
    rows = next(picked, None)
    return {
        "vectors": next((found.detach().clone() for found in vectors if found is not None), None),
        "rows": None if rows is None else rows.reshape(-1, seq, seq)[0].to(torch.int64).clone(),
    }


def _of_pairs(value: Tensor, seq: int) -> bool:
    return value.shape[-1] == seq and value.numel() % (seq * seq) == 0


def _rotation(front: Front, injection: Injection, cosine: Op, sine: Op | None, seq: int) -> Rotate:
    value = cosine.value
    if value.is_complex():
        cos, sin = value.real, value.imag
    else:
        assert sine is not None  # a real cosine has a sine
        cos, sin = value, sine.value
    cos, sin = by_position(cos, seq), by_position(sin, seq)
    fit = injection.fit
    width = cos.shape[-1]
    rotary = fit.rotary_dim if fit is not None else width
    angle = _angle(front, cosine, seq)
    if angle is None:  # held as cosines and sines only: the angle within one turn
        angle = torch.atan2(sin, cos)
    return Rotate(
        cos.detach().clone(),
        sin.detach().clone(),
        pairs(angle, rotary).detach().clone(),
        fit.layout if fit is not None else "half",
        fit.start if fit is not None else 0,
    )


def _angle(front: Front, cosine: Op, seq: int) -> Tensor | None:
    """The argument of the cosine, (seq, width)."""
    for op in reversed(front.tape.back(cosine)):
        if op.name.rstrip("_") == "cos" and op.args and isinstance(op.args[0], Tensor):
            try:
                return by_position(op.args[0], seq).float()
            except ValueError:
                return None
    return None


def _found(front: Front, injection: Injection) -> Iterator[Op]:
    return (op for place in injection.carriers[:1] if (op := find(front, place)) is not None)


def _positions(front: Front, carrier: Op, tables: set[str], given: Tensor | None, seq: int) -> Tensor | None:
    """The position ids behind what is injected: the last whole numbers, one a token, that the model itself made."""
    rows = seq
    whole = [op for op in front.tape.back(carrier) if op.position_only and _one_a_token(op.value, seq)]
    if not whole and carrier.value.ndim > 1:  # padded to a window of the model's
        rows = carrier.value.shape[-2]
        whole = [op for op in front.tape.back(carrier) if op.position_only and _one_a_token(op.value, rows)]
    outside = [op for op in whole if op.module not in tables]
    if outside:
        value = outside[-1].value
    elif given is not None:
        value = given
    elif whole:  # a table that counts for itself: the count, before its offset is added
        moved = [place for place, op in enumerate(whole) if place and op.name in SUMS and _with_number(op)]
        value = whole[moved[-1] - 1 if moved else 0].value
    else:
        return None
    return value.flatten()[:seq].to(torch.int64).clone()


def _with_number(op: Op) -> bool:
    return any(isinstance(part, int) for part in op.args)


def _one_a_token(value: object, seq: int) -> bool:
    if not isinstance(value, Tensor) or value.dtype not in (torch.int64, torch.int32):
        return False
    return value.numel() == seq and value.ndim > 0


def _table_modules(front: Front) -> set[str]:
    """Modules that are one table: an offset added inside belongs to the table's rows, not to the positions."""
    owners = {name.rpartition(".")[0] for name in front.placeholders.names.values()}
    return {path for path in front.leaves if path in owners}
