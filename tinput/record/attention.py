"""The first attention layer: q and k before and after the rotation, scores, bias, mask and weights.

Scores and weights are fields: computed for what is looked at, never kept as (heads, seq, seq).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tinput.positions.effects import Bias, Content, Rotate
from tinput.record.front import AttentionCall, Front
from tinput.record.injection import Entry, by_zero, query_and_key, without_mask
from tinput.record.layouts import as_heads, as_scores, product_axes, repeated_heads
from tinput.record.tape import CannotReplay, Op
from tinput.window import Field

__all__ = ["Attention", "attention_of", "heads_of", "position_share", "products", "softmaxed"]

# Models write "masked" as -inf, as the dtype's lowest number, or as -1e30; scores never get near the last.
MASKED = -1e29
# What a mask takes away from a score at the least: -1e4 in the oldest models.
FAR_BELOW = -5e3
_COPIES = frozenset(["expand", "expand_as", "repeat", "repeat_interleave", "broadcast_to"])


@dataclass(frozen=True, eq=False)
class Attention:
    """One attention layer on one text. Fields are (heads, query, key).

    layer: its number; q, q_before: (heads, seq, d_head), after and before the rotation (equal without one)
    k, k_before: (kv_heads, seq, d_head); scale: what q k^T is multiplied by
    scores: scale * q k^T, without bias and mask; bias: what positions add, zeros if nothing
    mask: 0 where a key is seen, -inf where not; weights: softmax(scores + bias + mask), each row sums to 1
        (to less where the model has `sinks`, (heads,): a learned score that takes part of the weight)
    weights_source: "recorded" from the model's own softmax, or "computed" from the above: a fused kernel keeps none
    """

    layer: int
    q_before: Tensor | None
    q: Tensor
    k_before: Tensor | None
    k: Tensor
    scale: float
    scores: Field
    bias: Field
    mask: Field
    weights: Field
    weights_source: str
    sinks: Tensor | None = None
    before_reason: str = ""

    @property
    def heads(self) -> int:
        return self.q.shape[0]

    @property
    def kv_heads(self) -> int:
        return self.k.shape[0]


def attention_of(front: Front, call: AttentionCall, entries: list[Entry]) -> Attention:
    """What one attention call was given and made. Raises ValueError for shapes that are not understood."""
    rotation = next((entry for entry in entries if entry.kind is Rotate), None)
    q, k = heads_of(front, call)
    q_before, k_before, reason = q, k, ""
    if rotation is not None:
        try:
            q_before, k_before = heads_of(front, call, by_zero(rotation))
            if k_before.shape != k.shape:
                k_before = k_before[:: k_before.shape[0] // k.shape[0]]
        except (CannotReplay, ValueError) as error:
            q_before, k_before, reason = None, None, f"q and k before the rotation cannot be computed back ({error})"
    heads, n_query, n_key = q.shape[0], q.shape[1], k.shape[1]
    scale = _scale(front, call, q)
    bias = _bias(front, call, entries, (heads, n_query, n_key))
    scores = products(q.detach().clone(), k.detach().clone(), scale)
    mask = _mask(call, scores, bias)
    if call.product is None:
        weights, source, sinks = softmaxed(scores, bias, mask), "computed", None
    else:
        value = as_scores(call.op.value, heads, n_query, call.op.value.shape[-1])
        sinks = None
        if value.shape[-1] == n_key + 1:  # a column of its own beside the keys: a sink
            logits = as_scores(_softmax_input(front, call).value, heads, n_query, n_key + 1)
            sinks = _sinks(front, call, logits)
        weights, source = Field.of(value[..., :n_key].clone()), "recorded"
    return Attention(
        layer=call.block.number if call.block else 0,
        q_before=None if q_before is None else q_before.detach().clone(),
        q=q.detach().clone(),
        k_before=None if k_before is None else k_before.detach().clone(),
        k=k.detach().clone(),
        scale=scale,
        scores=scores,
        bias=bias,
        mask=mask,
        weights=weights,
        weights_source=source,
        sinks=sinks,
        before_reason=reason,
    )


def surroundings_of(front: Front, call: AttentionCall, entries: list[Entry]) -> tuple[Field, Field | None]:
    """Bias and mask of an attention call whose q and k are not known; the mask is None where it cannot be told.

    Raises ValueError for shapes that are not understood.
    """
    q, k = heads_of(front, call)
    shape = (q.shape[0], q.shape[1], k.shape[1])
    entries = [entry for entry in entries if entry.kind is Bias]
    bias = _bias(front, call, entries, shape)
    if torch.isnan(bias.tensor()).any():
        raise ValueError("the bias takes more than positions")
    nothing = Field.of(torch.zeros(()).expand(shape))
    if call.product is None:
        return bias, _mask(call, nothing, bias)
    scores = _softmax_input(front, call)
    try:
        logits = front.tape.replay(scores, {call.product.index: torch.zeros_like(call.product.value)})
    except CannotReplay:
        return bias, None
    logits = as_scores(logits[..., : shape[2]].float(), *shape)
    if torch.isnan(logits).any():
        return bias, None
    return bias, Field.of(_infinite(lambda _, __: logits - bias.tensor() <= FAR_BELOW, *map(torch.arange, shape[1:])))


def heads_of(front: Front, call: AttentionCall, known: dict[int, Any] | None = None) -> tuple[Tensor, Tensor]:
    """q (heads, seq, d_head) and k (kv_heads, seq, d_head) of a call, had some operations had other results (`known`).

    Raises CannotReplay, and ValueError for shapes that are not understood.
    """
    raw_q, raw_k = query_and_key(call)
    grouped = _was_copied(front, raw_k)
    if known:
        reader = call.product or call.op
        raw_q, raw_k = (front.tape.replay_argument(reader, raw, known) for raw in (raw_q, raw_k))
    q, k = (as_heads(raw, front) for raw in product_axes(call, raw_q, raw_k))
    return q, repeated_heads(k) if grouped else k


def _was_copied(front: Front, key: Tensor) -> bool:
    """Whether k was copied for grouped-query attention: rearrangements alone lie between it and a smaller tensor."""
    op = front.tape.last(key)
    while op is not None and op.inputs:
        if op.name in _COPIES:
            source = front.tape.ops[op.inputs[-1]].out
            return isinstance(source, Tensor) and source.numel() < key.numel()
        if front.tape.past_layout(op) is op:
            return False
        op = front.tape.ops[op.inputs[-1]]
    return False


def _scale(front: Front, call: AttentionCall, q: Tensor) -> float:
    if call.product is None:
        given = call.op.kwargs.get("scale")
        return 1 / math.sqrt(q.shape[-1]) if given is None else float(given)
    scale = float(call.product.kwargs.get("alpha", 1.0))
    return scale * _later_scale(front, call, call.product)


def _later_scale(front: Front, call: AttentionCall, since: Op) -> float:
    """What the scores are multiplied by between an operation and the softmax."""
    tape = front.tape
    after = {since.index}
    scale = 1.0
    for op in tape.back(call.op):
        if op.index > since.index and any(index in after for index in op.inputs):
            after.add(op.index)
            factor = _factor(op)
            if factor is not None:
                scale *= factor
    return scale


def _factor(op: Op) -> float | None:
    name = op.name.strip("_")
    if name not in ("mul", "imul", "rmul", "div", "truediv", "itruediv", "true_divide"):
        return None
    numbers = [a for a in op.args if isinstance(a, (int, float))]
    numbers += [float(a) for a in op.args if isinstance(a, Tensor) and a.numel() == 1 and a.ndim == 0]
    if not numbers:
        return None
    return float(numbers[0]) if "mul" in name else 1 / float(numbers[0])


def _softmax_input(front: Front, call: AttentionCall) -> Op:
    tensor = call.op.args[0] if call.op.args else call.op.kwargs["input"]
    op = front.tape.last(tensor)
    assert op is not None  # scores come from a product
    return op


def _sinks(front: Front, call: AttentionCall, logits: Tensor) -> Tensor | None:
    """The learned score beside the keys, (heads,): what was appended, before the row's maximum was taken away."""
    for op in reversed(front.tape.back(_softmax_input(front, call))):
        if op.name in ("cat", "concat") and isinstance(op.out, Tensor) and op.out.shape[-1] == logits.shape[-1]:
            return as_scores(op.value, *logits.shape)[:, 0, -1].clone()
    return None


def _bias(front: Front, call: AttentionCall, entries: list[Entry], shape: tuple[int, int, int]) -> Field:
    heads, n_query, n_key = shape
    parts = []
    for entry in entries:
        if entry.kind is Bias:
            value = without_mask(front, entry.carriers[0])
            factor = 1.0
            if call.product is not None:
                factor = float(entry.at[0].kwargs.get("beta", 1.0)) if entry.at[0] is call.product else 1.0
                factor *= _later_scale(front, call, entry.at[0])
            value = as_scores(value.detach().clone(), heads, n_query, n_key)
            parts.append(value if factor == 1.0 else value * factor)
    share = position_share(front, call, entries, shape)
    if share is not None:
        parts.append(share)
    if not parts:
        return Field.of(torch.zeros((), dtype=torch.float32).expand(shape))
    return Field.of(parts[0] if len(parts) == 1 else sum(parts[1:], parts[0]))


def position_share(
    front: Front, call: AttentionCall, entries: list[Entry], shape: tuple[int, int, int]
) -> Tensor | None:
    """What content-and-distance terms add to the scores, (heads, query, key): the scores less those without them."""
    at = [op for entry in entries if entry.kind is Content for op in entry.at]
    if not at:
        return None
    if call.product is None:  # a fused kernel is given them with the mask
        given = _given_mask(call)
        assert given is not None  # it is where the entry was found
        given = as_scores(given, *shape)
        return given.masked_fill(given <= MASKED, 0.0)
    n_key = shape[-1]
    scores = _softmax_input(front, call)
    try:
        without = front.tape.replay(scores, {op.index: torch.zeros_like(op.value) for op in at})
    except CannotReplay:
        return None
    share = as_scores((scores.value - without)[..., :n_key], *shape)
    return torch.where(as_scores(scores.value[..., :n_key], *shape) <= MASKED, torch.zeros_like(share), share)


def _given_mask(call: AttentionCall) -> Tensor | None:
    return call.op.args[3] if len(call.op.args) > 3 else call.op.kwargs.get("attn_mask")


def _mask(call: AttentionCall, scores: Field, bias: Field) -> Field:
    heads, n_query, n_key = shape = scores.shape
    hidden: Callable[[Tensor, Tensor], Tensor]
    given = None
    if call.product is None:
        given = _given_mask(call)
        causal = call.op.args[5] if len(call.op.args) > 5 else call.op.kwargs.get("is_causal", False)
        if given is not None and given.dtype == torch.bool:
            given = ~given
        elif given is not None:  # a bias may be part of it
            given = given - bias.tensor() <= FAR_BELOW
        if given is None:
            later = (lambda rows, columns: columns[None, :] > rows[:, None]) if causal else None
            return Field(shape, lambda rows, columns: _infinite(later, rows, columns).expand(heads, -1, -1))
    else:
        logits = (call.op.args[0] if call.op.args else call.op.kwargs["input"])[..., :n_key]
        given = as_scores(logits.float(), heads, n_query, n_key) - scores.tensor() - bias.tensor() <= FAR_BELOW
    kept = as_scores(given, heads, n_query, n_key)
    if bool((kept == kept[:1]).all()):  # one mask for all heads is kept once
        kept = kept[:1].clone().expand(shape)
    hidden = lambda rows, columns: kept[:, rows[:, None], columns[None, :]]  # noqa: E731 - it is a value
    return Field(shape, lambda rows, columns: _infinite(hidden, rows, columns))


def _infinite(hidden: Callable[[Tensor, Tensor], Tensor] | None, rows: Tensor, columns: Tensor) -> Tensor:
    if hidden is None:
        return torch.zeros(len(rows), len(columns), dtype=torch.float32)
    where = hidden(rows, columns)
    return torch.zeros(where.shape, dtype=torch.float32).masked_fill_(where, -math.inf)


def products(q: Tensor, k: Tensor, scale: float) -> Field:
    """scale * q k^T, (heads, query, key). q: (heads, seq, d_head); k: (kv_heads, seq, d_head)"""
    groups = q.shape[0] // k.shape[0]

    def at(rows: Tensor, columns: Tensor) -> Tensor:
        keys = k[:, columns].repeat_interleave(groups, dim=0)  # (heads, columns, d_head)
        return scale * (q[:, rows] @ keys.transpose(-1, -2))

    def lead(head: int) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda rows, columns: scale * (q[head, rows] @ k[head // groups, columns].T)

    return Field((q.shape[0], q.shape[1], k.shape[1]), at, lead)


def softmaxed(scores: Field, bias: Field, mask: Field, sinks: Tensor | None = None) -> Field:
    """softmax(scores + bias + mask) over the keys, (heads, query, key); sinks: (heads,), a score beside the keys."""
    n_key = scores.shape[-1]

    def of(scores: Field, bias: Field, mask: Field, sink: Tensor | None) -> Callable[[Tensor, Tensor], Tensor]:
        def at(rows: Tensor, columns: Tensor) -> Tensor:
            keys = torch.arange(n_key)  # a weight needs its whole row
            logits = scores.at(rows, keys) + bias.at(rows, keys) + mask.at(rows, keys)
            if sink is not None:
                logits = torch.cat((logits, sink[..., None, None].expand(*logits.shape[:-1], 1)), dim=-1)
            weights = torch.softmax(logits, dim=-1)[..., :n_key]
            return weights if torch.equal(columns, keys) else weights[..., columns]

        return at

    def one(head: int) -> Callable[[Tensor, Tensor], Tensor]:
        return of(scores[head], bias[head], mask[head], None if sinks is None else sinks[head])

    return Field(scores.shape, of(scores, bias, mask, sinks), one)
