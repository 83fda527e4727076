"""The first attention layer: q and k before and after the rotation, scores, bias, mask and weights.

Scores and weights are fields: computed for what is looked at, never kept as (heads, seq, seq).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tinput.positions.effects import Bias, Content, Rotate
from tinput.record.between import (
    FAR_BELOW,
    MASKED,
    cap_in,
    given_mask,
    infinite,
    later_scale,
    left_over,
    mask_of,
    other_of,
    scale_of,
    sinks_of,
    softmax_input,
)
from tinput.record.front import AttentionCall, Front
from tinput.record.injection import Entry, by_zero, query_and_key, without_mask
from tinput.record.layouts import as_heads, as_scores, is_one_block, own_block, product_axes, repeated_heads
from tinput.record.tape import CannotReplay
from tinput.window import Field

__all__ = ["Attention", "attention_of", "cap_of", "heads_of", "position_share", "products", "softmaxed"]

_COPIES = frozenset(["expand", "expand_as", "repeat", "repeat_interleave", "broadcast_to"])


@dataclass(frozen=True, eq=False)
class Attention:
    """One attention layer on one text. Fields are (heads, query, key).

    layer: its number; q, q_before: (heads, seq, d_head), as it is and had the rotation been by zero (equal without one)
    k, k_before: (kv_heads, seq, d_head); scale: what q k^T is multiplied by
    scores: scale * q k^T, without bias and mask; bias: what positions add, zeros if nothing
    mask: 0 where a key is seen, -inf where not; weights: softmax(scores + bias + mask), each row sums to 1
        (to less where the model has `sinks`: a learned score that takes part of the weight, (heads,), or (heads, query)
        where each query makes its own)
    weights_source: "recorded" from the model's own softmax, or "computed" from the above: a fused kernel keeps none
    other: what else is added to the scores before the softmax, beside positions and mask, or None where nothing is:
        Gemma 2's cap, Funnel's segments, Doge's mask of its own; then weights = softmax(scores + bias + other + mask)
    cap: c where scores become c tanh(scores / c), which `other` is the difference of; None without
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
    other: Field | None = None
    cap: float | None = None

    @property
    def heads(self) -> int:
        return self.q.shape[0]

    @property
    def kv_heads(self) -> int:
        return self.k.shape[0]

    def weights_with(self, head: int, bias: Tensor | None = None) -> Tensor:
        """A head's weights, (query, key), had positions added `bias`, (query, key), to its scores in place of what they
        do add; None: nothing. All else is the model's own."""
        own = [None if part is None else part[head] for part in (self.scores, self.other, self.mask)]
        scores, other, mask = own
        assert scores is not None and mask is not None  # noqa: PT018
        nothing = torch.zeros(()).expand(scores.shape)
        sinks = None if self.sinks is None else self.sinks[head]
        return softmaxed(scores, Field.of(nothing if bias is None else bias), mask, sinks, other).tensor()


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
    scale = scale_of(front, call, q)
    bias = _bias(front, call, entries, (heads, n_query, n_key))
    scores = products(q.detach().clone(), k.detach().clone(), scale)
    cap = cap_in(front, call)
    capped = None if cap is None else cap_of(scores, cap)
    left = left_over(front, call, scores, bias, capped)
    mask = mask_of(call, scores, left)
    if call.product is None:
        sinks, other = None, other_of(left, capped, scores, False)
        weights, source = softmaxed(scores, bias, mask, other=other), "computed"
    else:
        beside = call.op.value.shape[-1] == n_key + 1  # a column of its own beside the keys: a sink
        value = as_scores(call.op.value, heads, n_query, n_key + beside)
        sinks = None
        if beside:
            sinks = sinks_of(front, call, heads, n_query)
        other = other_of(left, capped, scores, sinks is not None)
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
        other=other,
        cap=cap,
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
        return bias, mask_of(call, nothing, left_over(front, call, nothing, bias))
    scores = softmax_input(front, call)
    try:
        logits = front.tape.replay(scores, {call.product.index: torch.zeros_like(call.product.value)})
    except CannotReplay:
        return bias, None
    logits = as_scores(logits.float()[..., : None if logits.ndim == 5 else shape[2]], *shape)
    if torch.isnan(logits).any():
        return bias, None
    return bias, Field.of(infinite(lambda _, __: logits - bias.tensor() <= FAR_BELOW, *map(torch.arange, shape[1:])))


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
    if is_one_block(raw_q, raw_k):
        q, k = own_block(q, k, front.ids.shape[1])
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


def _bias(front: Front, call: AttentionCall, entries: list[Entry], shape: tuple[int, int, int]) -> Field:
    heads, n_query, n_key = shape
    parts = []
    for entry in entries:
        if entry.kind is Bias:
            value = without_mask(front, entry.carriers[0])
            factor = 1.0
            if call.product is not None:
                factor = float(entry.at[0].kwargs.get("beta", 1.0)) if entry.at[0] is call.product else 1.0
                factor *= later_scale(front, call, entry.at[0])
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
        given = given_mask(call)
        assert given is not None  # it is where the entry was found
        given = as_scores(given, *shape)
        return given.masked_fill(given <= MASKED, 0.0)
    n_key = shape[-1]
    scores = softmax_input(front, call)
    try:
        without = front.tape.replay(scores, {op.index: torch.zeros_like(op.value) for op in at})
    except CannotReplay:
        return None
    share = as_scores((scores.value - without)[..., :n_key], *shape)
    return torch.where(as_scores(scores.value[..., :n_key], *shape) <= MASKED, torch.zeros_like(share), share)


def products(q: Tensor, k: Tensor, scale: float) -> Field:
    """scale * q k^T, (heads, query, key). q: (heads, seq, d_head); k: (kv_heads, seq, d_head)"""
    groups = q.shape[0] // k.shape[0]

    def at(rows: Tensor, columns: Tensor) -> Tensor:
        keys = k[:, columns].repeat_interleave(groups, dim=0)  # (heads, columns, d_head)
        return scale * (q[:, rows] @ keys.transpose(-1, -2))

    def lead(head: int) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda rows, columns: scale * (q[head, rows] @ k[head // groups, columns].T)

    return Field((q.shape[0], q.shape[1], k.shape[1]), at, lead)


def cap_of(scores: Field, cap: float) -> Field:
    """What is added to scores that are capped, (heads, query, key): they become cap * tanh(scores / cap).

    Gemma Team 2024, "Gemma 2" (https://arxiv.org/abs/2408.00118), section 2.
    """

    def of(scores: Field) -> Callable[[Tensor, Tensor], Tensor]:
        def at(rows: Tensor, columns: Tensor) -> Tensor:
            values = scores.at(rows, columns)
            return cap * torch.tanh(values / cap) - values

        return at

    return Field(scores.shape, of(scores), lambda head: of(scores[head]))


def softmaxed(
    scores: Field, bias: Field, mask: Field, sinks: Tensor | None = None, other: Field | None = None
) -> Field:
    """softmax(scores + bias + other + mask) over the keys, (heads, query, key), or (query, key) of one head.

    sinks: (heads,) or (heads, query), of one head () or (query,): a score beside the keys
    """
    n_key = scores.shape[-1]

    def of(parts: list[Field], sink: Tensor | None) -> Callable[[Tensor, Tensor], Tensor]:
        def at(rows: Tensor, columns: Tensor) -> Tensor:
            keys = torch.arange(n_key)  # a weight needs its whole row
            logits = functools.reduce(torch.add, (part.at(rows, keys) for part in parts))
            if sink is not None:
                logits = torch.cat((logits, sink[..., rows, None]), dim=-1)
            weights = torch.softmax(logits, dim=-1)[..., :n_key]
            return weights if torch.equal(columns, keys) else weights[..., columns]

        return at

    parts = [part for part in (scores, bias, other, mask) if part is not None]
    beside = None if sinks is None else sinks.reshape(*scores.shape[:-2], -1).expand(scores.shape[:-1])
    return Field(
        scores.shape,
        of(parts, beside),
        lambda head: of([part[head] for part in parts], None if beside is None else beside[head]),
    )
