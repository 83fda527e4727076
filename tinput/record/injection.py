"""Where positions enter, read off the tape.

A tensor computed from positions alone meets content in an operation. Which operation says how:
an addition before the first block is `Add`; a product on the way to q and k, with a cosine and a sine, is `Rotate`;
an addition to the scores is `Bias`; a matrix product with content, or a choice of scores by distance, is `Content`.
Masks are no positions: what comes out of a comparison is kept apart by the tape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tinput.models.tree import tensors_in
from tinput.positions.effects import Add, Bias, Content, Rotate
from tinput.record.front import PRODUCTS, AttentionCall, Block, Front
from tinput.record.tape import Flow, Op

__all__ = [
    "SUMS",
    "Entry",
    "Fit",
    "before_block",
    "by_zero",
    "fit_rotation",
    "in_attention",
    "neutral",
    "query_and_key",
    "vectors_of_distances",
    "without_mask",
]

SUMS = frozenset("add __add__ __radd__ add_ __iadd__ sub __sub__ __rsub__ sub_ __isub__ where".split())
_TIMES = frozenset("mul __mul__ __rmul__ mul_ __imul__ multiply addcmul".split())
_PICKS = frozenset(["gather", "take_along_dim"])
_LOOKUPS = frozenset(["embedding", "index_select", "__getitem__"])


@dataclass(frozen=True, eq=False)
class Entry:
    """One way in.

    carriers: the operations whose results are injected (for a rotation the cosines, with `sines` beside them)
    at: the operations in which they meet content; table: the parameter they were looked up in, or None
    key: the same for entries that inject the same tensors
    """

    kind: type
    carriers: tuple[Op, ...]
    at: tuple[Op, ...]
    table: str | None
    key: tuple
    sines: tuple[Op, ...] = ()


def before_block(front: Front, block: Block) -> list[Entry]:
    """What enters on the way from the ids to a block's input, in order."""
    tape = front.tape
    seen: dict[int, Op] = {}
    for index in block.makers:
        seen.update({op.index: op for op in tape.back(tape.ops[index])})
    found = []
    for index in sorted(seen):
        op = seen[index]
        if op.name in SUMS and op.has(Flow.CONTENT):
            found += [_entry(front, Add, carrier, op) for carrier in _carriers(front, op)]
    return found


def in_attention(front: Front, call: AttentionCall) -> list[Entry]:
    """What enters in one attention call: rotations first, then what is added to the scores."""
    tape = front.tape
    start = call.block.start if call.block else 0
    query, key = query_and_key(call)
    inside: dict[int, Op] = {}
    for tensor in (query, key):
        maker = tape.last(tensor)
        if maker is not None:
            inside.update({op.index: op for op in tape.back(maker, since=start)})
    found = _rotations(front, [inside[i] for i in sorted(inside)])
    if call.product is None:
        mask = _argument(call.op, 3, "attn_mask")
        maker = None if mask is None else tape.last(mask)
        if maker is not None and maker.position_only:
            bare = _bare(front, maker)
            found.append(Entry(Bias, (maker,), (call.op,), table_of(front, bare), (_root(front, bare),)))
        if maker is None or not maker.has(Flow.CONTENT):
            return found
    for op in tape.back(call.op, since=start):
        if op.index in inside or not op.has(Flow.CONTENT):
            continue
        kind = None
        if op.name in SUMS or (op is call.product and op.name == "baddbmm"):
            kind = Bias
        elif op.name in PRODUCTS:
            kind = Content
        if kind is not None:
            found += [_entry(front, kind, carrier, op) for carrier in _carriers(front, op)]
        elif op.name in _PICKS and (index := _picked_by_position(front, op)) is not None:
            found.append(Entry(Content, (index,), (op,), None, ("picked",)))
    return found


# --- what carries a position


def _entry(front: Front, kind: type, carrier: Op, at: Op) -> Entry:
    return Entry(kind, (carrier,), (at,), table_of(front, carrier), (_root(front, carrier),))


def _carriers(front: Front, op: Op) -> list[Op]:
    """The arguments of an operation that are computed from positions alone, floating point."""
    tape, found = front.tape, []
    for tensor in tensors_in((op.args, op.kwargs)):
        makers = op.reads.get(id(tensor), ())
        if makers and (tensor.is_floating_point() or tensor.is_complex()):
            flow = Flow.CONST
            for index in makers:
                flow |= tape.ops[index].flow
            if flow & Flow.POSITION and not flow & Flow.CONTENT:
                found.append(tape.ops[makers[-1]])
    return found


def _picked_by_position(front: Front, op: Op) -> Op | None:
    """The index, where content is picked by one that is made of positions and differs from query to query."""
    for tensor in tensors_in((op.args, op.kwargs)):
        makers = op.reads.get(id(tensor), ())
        if makers and not tensor.is_floating_point() and tensor.ndim >= 2:
            maker = front.tape.ops[makers[-1]]
            if maker.position_only:
                return maker
    return None


def _root(front: Front, op: Op) -> int:
    return front.tape.past_layout(op).index


def table_of(front: Front, carrier: Op) -> str | None:
    """The parameter in which positions were looked up on the way to a carrier, or None."""
    for op in reversed(front.tape.back(carrier)):
        if op.name in _LOOKUPS and op.position_only:
            for tensor in tensors_in((op.args, op.kwargs)):
                name = front.placeholders.name_of(tensor)
                if name:
                    return name
    return None


def vectors_of_distances(front: Front, carrier: Op) -> Tensor | None:
    """What positions alone gave on the way to a carrier, (distance, width), before any parameter met it; or None."""
    learned: set[int] = set()
    found = None
    for op in front.tape.back(carrier):
        named = any(front.placeholders.name_of(tensor) for tensor in tensors_in((op.args, op.kwargs)))
        if named or learned.intersection(op.inputs):
            learned.add(op.index)
        elif op.position_only and isinstance(op.out, Tensor) and op.out.is_floating_point():
            found = op.value
    if found is None or found.ndim < 2 or found.numel() != found.shape[0] * found.shape[-1]:
        return None
    return found.reshape(found.shape[0], found.shape[-1])


# --- biases and masks


def _bare(front: Front, op: Op) -> Op:
    """The operation that made a bias before it was merged with a mask."""
    part = _unmasked_part(front, op)
    while part is not None:
        op = part
        part = _unmasked_part(front, op)
    return op


def _unmasked_part(front: Front, op: Op) -> Op | None:
    """One step from a bias with a mask in it towards the bias alone; None if there is none to take."""
    tape = front.tape
    if not isinstance(op.out, Tensor) or not op.out.is_floating_point():
        return None  # whole numbers are positions and buckets on their way, which sums and choices make up
    inputs = [(t, tape.ops[op.reads[id(t)][-1]]) for t in tensors_in((op.args, op.kwargs)) if op.reads.get(id(t))]
    positions = [maker for tensor, maker in inputs if maker.position_only and tensor.dtype != torch.bool]
    others = [maker for _, maker in inputs if not maker.position_only]
    if len(positions) != 1:
        return None
    if op.name in ("where", "masked_fill", "masked_fill_"):
        return positions[0]
    if op.name in SUMS and others and all(maker.flow == Flow.MASK for maker in others):
        return positions[0]
    if len(inputs) == 1 and tape.past_layout(op) is not op:
        return positions[0]
    return None


def without_mask(front: Front, op: Op) -> Tensor:
    """The value of a bias had no mask been merged into it: rearrangements after the merge are kept."""
    tape = front.tape
    merged = [o for o in tape.back(op) if o.name in ("where", "masked_fill", "masked_fill_", *SUMS) and o.position_only]
    for merge in merged:
        part = _unmasked_part(front, merge)
        if part is not None:
            value = part.value
            if isinstance(merge.out, Tensor) and value.shape != merge.out.shape:
                value = value.expand(merge.out.shape)
            return tape.replay(op, {merge.index: value})
    return op.value


# --- q, k and the rotation


def _argument(op: Op, place: int, name: str) -> Any:
    return op.args[place] if len(op.args) > place else op.kwargs.get(name)


def query_and_key(call: AttentionCall) -> tuple[Tensor, Tensor]:
    """q and k as the attention call was given them."""
    if call.product is None:
        return _argument(call.op, 0, "query"), _argument(call.op, 1, "key")
    factors = [t for t in tensors_in((call.product.args, call.product.kwargs)) if t.is_floating_point()]
    return factors[-2], factors[-1]


def _rotations(front: Front, ops: list[Op]) -> list[Entry]:
    """A cosine and a sine that multiply q and k."""
    meetings: dict[int, tuple[Op, list[Op]]] = {}
    for op in ops:
        if op.name in _TIMES and op.has(Flow.CONTENT):
            for carrier in _carriers(front, op):
                meetings.setdefault(carrier.index, (carrier, []))[1].append(op)
    cosines, sines = _cosines_and_sines(front, list(meetings.values()))
    if not cosines:
        return []
    at = tuple(op for _, ops in meetings.values() for op in ops)
    key = (_root(front, cosines[0]), _root(front, sines[0]) if sines else None)
    return [Entry(Rotate, tuple(cosines), at, table_of(front, cosines[0]), key, tuple(sines))]


def _cosines_and_sines(front: Front, meetings: list[tuple[Op, list[Op]]]) -> tuple[list[Op], list[Op]]:
    factors = [carrier for carrier, _ in meetings if carrier.out.is_complex()]
    if factors:  # a complex factor is both; q and k may be given one each
        return factors, []
    cosines, sines, unknown = [], [], []
    for carrier, ops in meetings:
        names = {op.name.rstrip("_") for op in front.tape.back(carrier)} & {"cos", "sin"}
        group = unknown if len(names) != 1 else cosines if names == {"cos"} else sines
        group.append((carrier, ops))
    if unknown and not cosines and not sines:  # both come out of one table: x * cos + turned(x) * sin tells which
        for carrier, ops in unknown:
            others = [op for other, theirs in unknown if other is not carrier for op in theirs]
            mine = {maker.index for op in ops for maker in _content_inputs(front, op)}
            behind = {o.index for op in others for maker in _content_inputs(front, op) for o in front.tape.back(maker)}
            turned = (
                any({maker.index for maker in _content_inputs(front, op)} - mine for op in others) and mine <= behind
            )
            (cosines if turned else sines).append((carrier, ops))
    if not cosines or not sines:
        return [], []
    return [carrier for carrier, _ in cosines], [carrier for carrier, _ in sines]


def _content_inputs(front: Front, op: Op) -> list[Op]:
    makers = [front.tape.ops[makers[-1]] for makers in op.reads.values() if makers]
    return [maker for maker in makers if maker.has(Flow.CONTENT)]


def neutral(front: Front, entry: Entry, op: Op, argument: Tensor | None = None) -> Tensor:
    """The result of an operation, or one of its arguments (a q or k), had the rotation been by zero.

    Raises CannotReplay.
    """
    known = by_zero(entry)
    return front.tape.replay(op, known) if argument is None else front.tape.replay_argument(op, argument, known)


def by_zero(entry: Entry) -> dict[int, Any]:
    """What the operations of a rotation would give, by index, had it been by zero: cosines 1, sines 0."""
    known: dict[int, Any] = {}
    for op in entry.carriers:
        known[op.index] = torch.ones_like(op.value)  # for a complex factor: 1 + 0i
    for op in entry.sines:
        known[op.index] = torch.zeros_like(op.value)
    return known


@dataclass(frozen=True)
class Fit:
    """How a rotation pairs dimensions: found by trying each way on a q before and after."""

    layout: str
    start: int
    rotary_dim: int
    sign: int = 1


def fit_rotation(before: Tensor, after: Tensor, cos: Tensor, sin: Tensor) -> Fit | None:
    """The pairing that turns `before` into `after`, (heads, seq, d_head), by cos and sin (seq, width), or None."""
    width, head = cos.shape[-1], before.shape[-1]
    best: tuple[float, Fit] | None = None
    for rotary in {width, 2 * width}:
        if rotary > head or rotary % 2:
            continue
        for layout in ("half", "interleaved"):
            c, s = pairs(cos, rotary), pairs(sin, rotary)
            for start in dict.fromkeys((0, head - rotary)):
                for sign in (1, -1):
                    turned = _turn(before, c, sign * s, layout, start)
                    error = float((turned - after).abs().max())
                    if best is None or error < best[0]:
                        best = (error, Fit(layout, start, rotary, sign))
    if best is None or best[0] > 1e-3 * max(1.0, float(after.abs().max())):
        return None
    return best[1]


def pairs(values: Tensor, rotary: int) -> Tensor:
    """(seq, width) -> (seq, pair): one value for each pair, where a model holds each twice."""
    pair = rotary // 2
    if values.shape[-1] == pair:
        return values
    halves, alternate = values[..., :pair], values[..., ::2]
    repeated = torch.equal(halves, values[..., pair:])
    if repeated or not torch.equal(alternate, values[..., 1::2]):
        return halves
    return alternate


def _turn(x: Tensor, cos: Tensor, sin: Tensor, layout: str, start: int) -> Tensor:
    stop = start + 2 * cos.shape[-1]
    part = x[..., start:stop]
    if layout == "half":
        a, b = part.chunk(2, dim=-1)
        turned = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    else:
        a, b = part[..., ::2], part[..., 1::2]
        turned = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
    return torch.cat((x[..., :start], turned, x[..., stop:]), dim=-1)
