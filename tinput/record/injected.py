"""What a run shows of each way in which positions enter: the vectors, the cosines and sines, the bias."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tinput.models.tree import tensors_in
from tinput.positions.effects import Add, Bias, Content, Effect, Nothing, Rotate
from tinput.record.anatomy import Injection, Stack, find
from tinput.record.attention import Attention
from tinput.record.front import AttentionCall, Block, Front
from tinput.record.injection import SUMS, Entry, before_block, in_attention, pairs, vectors_of_distances
from tinput.record.layouts import by_position, sequence_first
from tinput.record.naming import scheme_of
from tinput.record.tape import Op
from tinput.record.trace import LayerEffect
from tinput.window import Field

if TYPE_CHECKING:
    from tinput.models.named import ModuleWeights

__all__ = ["Entries", "effects_of"]


@dataclass(frozen=True, eq=False)
class Entries:
    """Where positions enter one run: before the first block, and inside the attention call that is traced."""

    call: AttentionCall | None
    added: list[Entry]
    inside: list[Entry]

    @classmethod
    def of(cls, front: Front, block: Block, call: AttentionCall | None) -> Entries:
        return cls(call, before_block(front, block), in_attention(front, call) if call is not None else [])


def effects_of(
    front: Front,
    stack: Stack,
    entries: Entries,
    *,
    attention: Attention | None = None,
    around: tuple[Field, Field | None] | None = None,
    why: str = "",
    given: Tensor | None = None,
    weights: ModuleWeights | None = None,
) -> tuple[LayerEffect, ...]:
    """What a run shows of each of a stack's injections.

    attention, around: q and k, or bias and mask, if they are had; why: the reason where neither is
    given: (seq,) positions that were set by hand
    """
    call, inside, seq = entries.call, entries.inside, front.ids.shape[1]
    layer = call.block.number if call is not None and call.block is not None else None
    found = []
    adds = iter(entries.added)
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
        scheme = scheme_of(injection)
        found.append(LayerEffect(injection.layers, effect, scheme, injection.table, reason, used, stored, factors))
    if not found:
        layers = tuple(range(stack.n_layers))
        return (LayerEffect(layers, Nothing(), scheme_of(None)),)
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
        angle = torch.atan2(sin.float(), cos.float())
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
