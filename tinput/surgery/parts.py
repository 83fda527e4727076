"""What the traced attention layer is made of, and the same layer with one of its parts made otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tinput.errors import BadIds, NotRecorded
from tinput.positions import Bias, Effect, Rotate
from tinput.positions.rope import rotate_by
from tinput.record.attention import cap_of, products, softmaxed
from tinput.record.injection import pairs
from tinput.window import Field

if TYPE_CHECKING:
    from tinput.record import Attention, LayerEffect, Trace

At = Callable[[Tensor], Effect]  # a formula: positions (seq,) -> the effect there
_TILE = 128  # queries and keys for which a bias is made at a time


def turn(x: Tensor, rotation: Rotate) -> Tensor:
    """q or k turned: (heads, seq, d_head), as the rotation says. Su et al. 2021, equation 14."""
    cos, sin = (pairs(part.float(), rotation.rotary_dim) for part in (rotation.cos, rotation.sin))
    return rotate_by(x, cos, sin, rotation.layout, rotation.start)


def own_rotation(trace: Trace) -> Rotate:
    """The rotation of the layer that was traced, so that `turn` makes its q and k of those before.

    Where a model turns the other way round, it is a copy with the sines' sign changed. Raises NotRecorded where there
    is no rotation, or where q and k are changed after it (a norm, a scale).
    """
    base, own = layer_of(trace), rotation_of(trace)
    if own is None:
        raise NotRecorded(f"{trace.model} does not rotate q and k in layer {base.layer}; choose a model that does.")
    if base.q_before is None or base.k_before is None:
        raise NotRecorded(f"{base.before_reason[:1].upper()}{base.before_reason[1:]}; choose another model.")
    for rotation in (own, replace(own, sin=-own.sin, angles=-own.angles)):
        if all(_near(turn(x, rotation), y) for x, y in ((base.q_before, base.q), (base.k_before, base.k))):
            return rotation
    raise NotRecorded(f"{trace.model} changes q or k after their rotation, so that cannot be taken back or set anew.")


def _near(one: Tensor, other: Tensor) -> bool:
    step = max(1e-5, torch.finfo(other.dtype).eps)
    return one.shape == other.shape and float((one - other).abs().max()) <= 4 * step * float(other.abs().max())


def layer_of(trace: Trace) -> Attention:
    """The traced attention layer, if its rows and columns are the tokens. Raises NotRecorded."""
    base = trace.attention
    if base is None:
        raise NotRecorded(f"There is no attention to change in {trace.model}: {trace.attention_reason.rstrip('.')}.")
    seq = len(trace.ids)
    if not seq == base.q.shape[1] == base.k.shape[1]:
        raise NotRecorded(
            f"The attention of {trace.model} has {base.q.shape[1]:,} queries and {base.k.shape[1]:,} keys for "
            f"{seq:,} tokens: they are not one a token, so positions cannot be set anew."
        )
    return base


def effects_in(trace: Trace) -> list[tuple[int, LayerEffect]]:
    """What positions inject into the traced layer, each with its number among the trace's effects."""
    layer = layer_of(trace).layer
    return [(index, found) for index, found in enumerate(trace.effects) if layer in found.layers]


def rotation_of(trace: Trace) -> Rotate | None:
    """The recorded rotation of the traced layer."""
    return next((found.effect for _, found in effects_in(trace) if isinstance(found.effect, Rotate)), None)


def unturned(trace: Trace) -> tuple[Tensor, Tensor]:
    """q and k had the rotation been by zero, (heads, seq, d_head) and (kv_heads, seq, d_head)."""
    base = layer_of(trace)
    if base.q_before is None or base.k_before is None:
        raise NotRecorded(f"{base.before_reason[:1].upper()}{base.before_reason[1:]}; choose another model.")
    return base.q_before, base.k_before


def with_parts(trace: Trace, q: Tensor, k: Tensor, rotation: Rotate | None, bias: Field | None) -> Attention:
    """The layer with other q and k (before `rotation`) and another bias; scale, mask, cap and sinks as they were."""
    base = layer_of(trace)
    turned = (q, k)
    if rotation is not None:
        own = rotation_of(trace)
        if own is not None:
            backwards = own_rotation(trace) is not own
            rotation = replace(rotation, start=own.start, sin=-rotation.sin if backwards else rotation.sin)
        turned = (turn(q, rotation), turn(k, rotation))
    scores = products(*turned, base.scale)
    bias = bias or Field.of(torch.zeros(()).expand(scores.shape))
    other = base.other if base.cap is None else cap_of(scores, base.cap)
    return replace(
        base,
        q_before=q,
        q=turned[0],
        k_before=k,
        k=turned[1],
        scores=scores,
        bias=bias,
        weights=softmaxed(scores, bias, base.mask, base.sinks, other),
        other=other,
        weights_source="computed",
        before_reason="",
    )


def bias_of(formula: At, positions: Tensor, heads: int) -> Field:
    """A bias as a function, (heads, query, key): the formula is asked for a few queries and keys at a time."""
    last = positions.max()[None]  # some conventions count from the last key

    def at(rows: Tensor, columns: Tensor, head: int | slice = slice(None)) -> Tensor:
        strips = []
        for some in rows.split(_TILE):
            tiles = []
            for others in columns.split(_TILE):
                together = torch.cat((positions[some], positions[others], last))
                effect = asked(formula, together)
                assert isinstance(effect, Bias)
                tiles.append(effect.scores[head, ..., : len(some), len(some) : -1])
            strips.append(torch.cat(tiles, dim=-1))
        return torch.cat(strips, dim=-2)

    shape = (heads, len(positions), len(positions))
    return Field(shape, at, lambda head: lambda rows, columns: at(rows, columns, head))


def asked(formula: At, positions: Tensor) -> Effect:
    """The effect at some positions. Raises BadIds where the scheme has no value for one."""
    try:
        return formula(positions)
    except ValueError as error:
        said = str(error)
        raise BadIds(f"{said[:1].upper()}{said[1:]}; choose other positions.") from error


def positions_in(positions: Sequence[float] | Tensor, trace: Trace) -> Tensor:
    """(seq,), int64 where all are whole, else float64. Raises BadIds."""
    seq = len(trace.ids)
    try:
        at = torch.as_tensor(positions, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise BadIds(f"Positions are numbers, one a token ({error}).") from None
    if at.shape != (seq,):
        raise BadIds(f"There are {seq} tokens and {at.numel()} positions; give one position for each token.")
    if not bool(at.isfinite().all()) or float(at.abs().max()) > 2**53:
        raise BadIds("Positions are finite numbers, as far as whole ones can be told apart (9e15).")
    return at.long() if torch.equal(at, at.round()) else at


def check_rows(at: Tensor, table: str, by_position: bool) -> None:
    """Raises BadIds for a position that a table has no row for; one by distance has a row for each whole distance."""
    if at.is_floating_point():
        wrong = next(float(p) for p in at if p != p.round())
        raise BadIds(f"Position {wrong:g} has no row in {table}: give whole numbers.")
    if by_position and int(at.min()) < 0:
        raise BadIds(f"Position {int(at.min())} has no row in {table}: give positions from 0 on.")
