"""The first attention layer of a model, had positions been otherwise: another scheme, other positions, other order.

Everything else stays the model's own. q and k before the rotation are the recorded ones; vectors that are added before
the block go through the model's own norm and projections (`Model.with_vectors`); the scheme's own formula is the one
that gives what was recorded (`Model.formula`). The mask stays as it is: it goes by place in the text, not by position.

What comes out is an `Attention` as a trace holds one, its scores and weights functions, with `weights_source`
"computed": none of it is recorded, but for `shuffle`, which is the model's own run of the tokens in another order.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tinput.errors import BadIds, NotRecorded, TinputError
from tinput.open import open_model
from tinput.positions import SCHEMES, Add, Bias, Content, Nothing, Rotate
from tinput.record.attention import MASKED, softmaxed
from tinput.surgery.parts import (
    At,
    asked,
    bias_of,
    check_rows,
    effects_in,
    layer_of,
    positions_in,
    rotation_of,
    unturned,
    with_parts,
)
from tinput.window import Field

if TYPE_CHECKING:
    from tinput.open import Model
    from tinput.record import Attention, Trace

__all__ = [
    "Choice",
    "choices",
    "is_causal",
    "move",
    "shuffle",
    "shuffled",
    "swap",
    "unmasked",
]

_BOTH_WAYS = "symmetric"  # the variant of a bias that by itself looks back only


# --- the model's own scheme at other positions


def move(model: Model, trace: Trace, positions: Sequence[float] | Tensor) -> Attention:
    """Attention had each token stood at another position, by the model's own scheme.

    positions: (seq,), one a token, in any order; fractions where the scheme is a formula, whole numbers for a table
    Raises BadIds for positions that the scheme has no value for, NotRecorded where it cannot be computed.
    """
    q, k = unturned(trace)
    at = positions_in(positions, trace)
    rotation = bias = None
    for index, found in effects_in(trace):
        if isinstance(found.effect, Content):
            raise NotRecorded(
                f"In {trace.model} content and distance meet in the scores, so positions cannot be moved by "
                "themselves; choose another model."
            )
        if found.table is not None:
            check_rows(at, f"the table of {trace.model}", isinstance(found.effect, Add))
        formula = model.formula(trace, index)
        if isinstance(found.effect, Bias):
            bias = bias_of(formula, at, len(q))
            continue
        effect = asked(formula, at)
        if isinstance(effect, Rotate):
            rotation = effect
        elif isinstance(effect, Add):
            instead = model.with_vectors(trace, effect.vectors)
            q, k = instead.q, instead.k
    return with_parts(trace, q, k, rotation, bias)


# --- another scheme


@dataclass(frozen=True)
class Choice:
    """A scheme that may stand in the place of a model's own.

    reason: why it cannot, in a sentence, or ""; table: the bundled model whose learned table it takes, or ""
    """

    scheme: str
    reason: str = ""
    table: str = ""


def choices(trace: Trace) -> tuple[Choice, ...]:
    """Every scheme of the textbook, and whether `swap` can put it into this trace's attention."""
    found = []
    for name in SCHEMES:
        if name in trace.schemes:
            found.append(Choice(name))
            continue
        try:
            found.append(Choice(name, table=_foreign(trace, name, None)[1]))
        except TinputError as error:
            found.append(Choice(name, reason=str(error)))
    return tuple(found)


def swap(
    model: Model,
    trace: Trace,
    scheme: str,
    config: Mapping[str, Any] | None = None,
    *,
    positions: Sequence[float] | Tensor | None = None,
) -> Attention:
    """Attention with all that positions do taken away, and `scheme` (a name in SCHEMES) in its place.

    config: what its formula reads, as a config.json spells it: {"rope_theta": 500000.0}. Without one, the model's own
        scheme is put back as it is, and any other is the paper's at the model's sizes
    positions: (seq,); None: the model's own
    A scheme with a learned table takes that of the bundled model that has it, where the sizes fit.
    Raises ValueError for another name, BadIds for sizes or positions that do not fit, NotRecorded without attention.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"unknown scheme {scheme!r}: choose one of {', '.join(SCHEMES)}.")
    count = torch.arange(len(trace.ids)) if trace.positions is None else trace.positions
    at = positions_in(count if positions is None else positions, trace)
    if scheme in trace.schemes and config is None:
        return layer_of(trace) if positions is None else move(model, trace, at)
    q, k = unturned(trace)
    formula, table = _foreign(trace, scheme, config)
    if table:
        check_rows(at, f"the table of {table}", SCHEMES[scheme].INJECTION != _INTO_SCORES)
    effect = None if SCHEMES[scheme].INJECTION == _INTO_SCORES else asked(formula, at)
    added = next((found.effect for _, found in effects_in(trace) if isinstance(found.effect, Add)), None)
    if isinstance(effect, Add):
        instead = model.with_vectors(trace, effect.vectors)
        q, k = instead.q, instead.k
    elif added is not None:
        instead = model.with_vectors(trace, torch.zeros_like(added.vectors))
        q, k = instead.q, instead.k
    bias = bias_of(formula, at, len(q)) if effect is None else None
    return with_parts(trace, q, k, effect if isinstance(effect, Rotate) else None, bias)


_INTO_SCORES = "bias on the scores"  # a value of a scheme's INJECTION


def _foreign(trace: Trace, scheme: str, config: Mapping[str, Any] | None) -> tuple[At, str]:
    """A scheme's formula at the sizes of a model that does not have it, and the bundled model whose table it takes."""
    q, _ = unturned(trace)
    module, own = SCHEMES[scheme], rotation_of(trace)
    heads, _, d_head = q.shape
    added = next((found.effect for _, found in effects_in(trace) if isinstance(found.effect, Add)), None)
    width = (trace.block_input if added is None else added.vectors).shape[-1]
    causal = is_causal(trace.attention)
    given: dict[str, Any] = {
        "width": width,
        "heads": heads,
        "layout": "half" if own is None else own.layout,
        "stack": "decoder" if causal else "encoder",
        "variant": _BOTH_WAYS if not causal and _BOTH_WAYS in module.variants({}) else "",
    }
    sizes = {"head_dim": d_head - d_head % 2 if own is None else own.rotary_dim, **(config or {})}
    table, bundled = "", bundled_table(scheme)
    if bundled is not None:
        table, values = bundled
        wanted, what = (heads, "heads") if module.INJECTION == _INTO_SCORES else (width, "dimensions")
        if values.shape[1] != wanted:
            raise BadIds(
                f"{module.LABEL} is learned, and the table at hand, {table}'s, is made for {values.shape[1]} {what}, "
                f"not {wanted}; choose a bundled model."
            )
        # it was learned in a decoder, so keys to come have no rows of their own
        given |= {"rows": values.__getitem__, "n_rows": len(values), "stack": "decoder"}
    formula = functools.partial(module.predict, sizes, **given)
    try:
        effect = formula(torch.arange(2))
    except ValueError as error:
        raise BadIds(f"{module.LABEL} cannot be put in: {error}.") from error
    if not isinstance(effect, Add | Rotate | Bias | Nothing):
        raise BadIds(f"{module.LABEL} cannot be put in: it needs parameters that only a model with it has.")
    return formula, table


@functools.lru_cache(maxsize=16)
def bundled_table(scheme: str) -> tuple[str, Tensor] | None:
    """The bundled model that learned a table of this scheme, and the table, (rows, n); None where there is none."""
    name = f"tinput/{scheme}"
    try:
        model = open_model(name)
        table = next((found.table for found in model.stack().injections if found.learned and found.table), None)
        return None if table is None else (name, model.table_rows(table, torch.arange(model.table_size(table))))
    except TinputError:
        return None


# --- another order


def shuffle(model: Model, trace: Trace, order: Sequence[int] | Tensor) -> Attention:
    """Attention of the same tokens in another order, recorded; rows and columns stand in the tokens' old order.

    order: (seq,), the token that comes first, second, ...: a permutation. The tokens' positions are counted anew.
    Raises BadIds for what is no permutation, and what `Model.trace` raises.
    """
    layer_of(trace)
    order = torch.as_tensor(order, dtype=torch.int64)
    if order.shape != trace.ids.shape or not torch.equal(order.sort().values, torch.arange(len(trace.ids))):
        raise BadIds(f"An order names each of the {len(trace.ids)} tokens once, by its number from 0.")
    other = layer_of(model.trace(ids=trace.ids[order], stack=trace.stack, dtype=trace.dtype))
    place = order.argsort()  # where each token has gone
    fields = {name: getattr(other, name) for name in ("scores", "bias", "mask", "weights", "other")}
    there: dict[str, Any] = {name: _rearranged(field, place) for name, field in fields.items() if field is not None}
    if other.sinks is not None and other.sinks.ndim > 1:  # one a query
        there["sinks"] = other.sinks[:, place]
    rows = {
        name: None if value is None else value[:, place]
        for name in ("q_before", "q", "k_before", "k")
        for value in [getattr(other, name)]
    }
    return replace(other, **rows, **there)


def shuffled(count: int, seed: int, keep: Sequence[int] = ()) -> Tensor:
    """An order by chance of `count` tokens, (count,) int64, the same for the same seed; those in `keep` stay."""
    free = torch.tensor([i for i in range(count) if i not in set(keep)], dtype=torch.int64)
    order = torch.arange(count)
    order[free] = free[torch.randperm(len(free), generator=torch.Generator().manual_seed(seed))]
    return order


def _rearranged(field: Field, place: Tensor) -> Field:
    return Field(
        field.shape,
        lambda rows, columns: field.at(place[rows], place[columns]),
        lambda head: lambda rows, columns: field[head].at(place[rows], place[columns]),
    )


def unmasked(attention: Attention) -> Attention:
    """The same with each query seeing every key: what is left when the mask, too, is taken away."""
    mask = Field.of(torch.zeros(()).expand(attention.scores.shape))
    weights = softmaxed(attention.scores, attention.bias, mask, attention.sinks, attention.other)
    return replace(attention, mask=mask, weights=weights, weights_source="computed")


def is_causal(attention: Attention | None) -> bool:
    """Whether the first query is kept from seeing the last key; yes where there is none to ask."""
    if attention is None or attention.mask.shape[-1] < 2:
        return True
    n_key = attention.mask.shape[-1]
    return bool(attention.mask[0].window((0, 1), (n_key - 1, n_key)).values[0, 0] <= MASKED)
