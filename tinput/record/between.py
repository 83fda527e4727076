"""Between q k^T and the softmax of an attention call: scale, cap, mask, sinks, and whatever else a model adds there."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tinput.record.front import AttentionCall, Front
from tinput.record.layouts import as_scores
from tinput.record.tape import Op
from tinput.window import Field

__all__ = [
    "FAR_BELOW",
    "MASKED",
    "cap_in",
    "given_mask",
    "infinite",
    "later_scale",
    "left_over",
    "mask_of",
    "other_of",
    "scale_of",
    "sinks_of",
    "softmax_input",
]

# Models write "masked" as -inf, as the dtype's lowest number, or as -1e30; scores never get near the last.
MASKED = -1e29
# What a mask takes away from a score at the least: -1e4 in the oldest models.
FAR_BELOW = -5e3


def scale_of(front: Front, call: AttentionCall, q: Tensor) -> float:
    """What q k^T is multiplied by."""
    if call.product is None:
        given = call.op.kwargs.get("scale")
        return 1 / math.sqrt(q.shape[-1]) if given is None else float(given)
    scale = float(call.product.kwargs.get("alpha", 1.0))
    return scale * later_scale(front, call, call.product)


def later_scale(front: Front, call: AttentionCall, since: Op) -> float:
    """What the scores are multiplied by between an operation and the softmax."""
    factors = (_factor(op) for op in _between(front, call, since))
    return math.prod(factor for factor in factors if factor is not None)


def _between(front: Front, call: AttentionCall, since: Op) -> list[Op]:
    """The operations that carry a result on to the softmax."""
    after, found = {since.index}, []
    for op in front.tape.back(call.op):
        if op.index > since.index and any(index in after for index in op.inputs):
            after.add(op.index)
            found.append(op)
    return found


def cap_in(front: Front, call: AttentionCall) -> float | None:
    """c where scores are made c tanh(scores / c): what they are multiplied by after the tangent."""
    between = [] if call.product is None else _between(front, call, call.product)
    bent = next((op for op in between if op.name.strip("_") == "tanh"), None)
    return None if bent is None else later_scale(front, call, bent)


def _factor(op: Op) -> float | None:
    name = op.name.strip("_")
    if name not in ("mul", "imul", "rmul", "div", "truediv", "itruediv", "true_divide"):
        return None
    numbers = [a for a in op.args if isinstance(a, (int, float))]
    numbers += [float(a) for a in op.args if isinstance(a, Tensor) and a.numel() == 1 and a.ndim == 0]
    if not numbers:
        return None
    return float(numbers[0]) if "mul" in name else 1 / float(numbers[0])


def softmax_input(front: Front, call: AttentionCall) -> Op:
    """What made the scores that become weights."""
    tensor = call.op.args[0] if call.op.args else call.op.kwargs["input"]
    op = front.tape.last(tensor)
    assert op is not None  # scores come from a product
    return op


def _with_sink(front: Front, call: AttentionCall) -> Tensor:
    """The scores with a column of sinks beside them, as they were before a row's maximum was taken away."""
    width = call.op.value.shape[-1]
    for op in reversed(front.tape.back(softmax_input(front, call))):
        if op.name in ("cat", "concat") and isinstance(op.out, Tensor) and op.out.shape[-1] == width:
            return op.value
    return softmax_input(front, call).value


def sinks_of(front: Front, call: AttentionCall, heads: int, n_query: int) -> Tensor:
    """The learned score beside the keys, (heads,), or (heads, query) where it is another for each."""
    logits = _with_sink(front, call)
    sinks = as_scores(logits, heads, n_query, logits.shape[-1])[..., -1].clone()
    return sinks[:, 0] if torch.equal(sinks, sinks[:, :1].expand_as(sinks)) else sinks


def given_mask(call: AttentionCall) -> Tensor | None:
    """The mask of a fused call, which may hold more than a mask."""
    return call.op.args[3] if len(call.op.args) > 3 else call.op.kwargs.get("attn_mask")


def left_over(
    front: Front, call: AttentionCall, scores: Field, bias: Field, capped: Field | None = None
) -> Tensor | None:
    """What is added to the scores beside positions and a cap, (heads, query, key): the mask, and anything else.

    True where a key is hidden, if that is all that is said; None where nothing is added.
    """
    heads, n_query, n_key = scores.shape
    if call.product is None:
        given = given_mask(call)
        if given is None:
            return None
        given = as_scores(given, heads, n_query, n_key)
        return ~given if given.dtype == torch.bool else given - bias.tensor()
    logits = call.op.args[0] if call.op.args else call.op.kwargs["input"]
    if logits.shape[-1] == n_key + 1:
        logits = _with_sink(front, call)[..., :n_key]
    left = as_scores(logits.float(), heads, n_query, n_key) - scores.tensor() - bias.tensor()
    return left if capped is None else left - capped.tensor()


def other_of(left: Tensor | None, capped: Field | None, scores: Field, sinks: bool) -> Field | None:
    """What is left over where keys are seen, if it tells one key from another by more than rounding; and the cap."""
    if left is None or left.dtype == torch.bool:
        return capped
    hidden = left <= FAR_BELOW
    if not bool(left.masked_fill(hidden, 0.0).any()):
        return capped
    most = left.masked_fill(hidden, -math.inf).amax(-1, keepdim=True)
    least = left.masked_fill(hidden, math.inf).amin(-1, keepdim=True)
    values = scores.tensor()
    rounding = 16 * torch.finfo(values.dtype).eps * max(1.0, float(values.abs().max()))
    if float(torch.maximum(most, -least).max() if sinks else (most - least).max()) <= rounding:
        return capped  # the softmax takes away what all keys of a row have in common, unless a sink is beside them
    rest = left.masked_fill(hidden, 0.0)
    return Field.of(rest.expand(scores.shape) if capped is None else rest + capped.tensor())


def mask_of(call: AttentionCall, scores: Field, left: Tensor | None) -> Field:
    """0 where a key is seen, -inf where not. left: see `left_over`"""
    heads = scores.shape[0]
    hidden: Callable[[Tensor, Tensor], Tensor]
    if left is None:
        causal = call.op.args[5] if len(call.op.args) > 5 else call.op.kwargs.get("is_causal", False)
        later = (lambda rows, columns: columns[None, :] > rows[:, None]) if causal else None
        return Field(scores.shape, lambda rows, columns: infinite(later, rows, columns).expand(heads, -1, -1))
    kept = left if left.dtype == torch.bool else left <= FAR_BELOW
    if bool((kept == kept[:1]).all()):  # one mask for all heads is kept once
        kept = kept[:1].clone()
    kept = kept.expand(scores.shape)
    hidden = lambda rows, columns: kept[:, rows[:, None], columns[None, :]]  # noqa: E731 - it is a value
    return Field(scores.shape, lambda rows, columns: infinite(hidden, rows, columns))


def infinite(hidden: Callable[[Tensor, Tensor], Tensor] | None, rows: Tensor, columns: Tensor) -> Tensor:
    """A mask of what is hidden, where anything is."""
    if hidden is None:
        return torch.zeros(len(rows), len(columns), dtype=torch.float32)
    where = hidden(rows, columns)
    return torch.zeros(where.shape, dtype=torch.float32).masked_fill_(where, -math.inf)
