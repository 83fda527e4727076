"""Recorded against textbook: the same tensors by two ways, and how far they are apart.

How near is near enough: two correct float32 computations of cos(p f) part company as p grows, so cos, sin, vectors and
biases agree when max |difference| <= 1e-6 * max |recorded| + max(position) * 2^-23. What a model rounds to bfloat16 or
float16 as the last step may be half a step of that dtype off besides; a computed table that a file holds in such a
dtype is compared with the formula's values rounded to it.

Of a rotation the angles say nothing of the pairs that they turn. So the recorded q and k before the rotation are turned
by the formula, in its pairs, and must be those after it. Where the model norms or scales them besides, their directions
are looked at, which that leaves as they are, unless it weighs the dimensions.

What is injected into several layers must be the formula's in each kind of layer that the configuration tells apart, and
in no layer that it leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tinput.models.skeleton import Skeleton
from tinput.positions import SCHEMES, Add, Bias, Content, Effect, Nothing, Rotate
from tinput.positions.rope import rotate_by
from tinput.record import Attention, LayerEffect, Recording, Stack, Trace
from tinput.record.injection import pairs
from tinput.record.outline import WHY

__all__ = ["Agreement", "Clues", "compare", "effects", "formula", "tolerance"]


@dataclass(frozen=True)
class Agreement:
    """How far the textbook is from what was recorded.

    max_abs_diff: the largest absolute difference over all effects; tolerance: what is allowed (see above)
    ok: True, False, or None where there is nothing to compare; message: a sentence that says which, and why
    """

    max_abs_diff: float | None
    tolerance: float | None
    ok: bool | None
    message: str


@dataclass(frozen=True, eq=False)
class Clues:
    """What the formulas need beside the configuration.

    config: config.json as a plain mapping; rows: (name of a table, index (n,)) -> its rows; n_rows: name -> how many
    blocks: for each layer the number of its block in the model's list; a block may run more than once
    own: both sides are tinput's own code, so their agreement says nothing
    """

    config: Mapping[str, Any]
    rows: Callable[[str, Tensor], Tensor]
    n_rows: Callable[[str], int]
    own: bool = False
    blocks: tuple[int, ...] = ()

    @classmethod
    def of(cls, skeleton: Skeleton, stack: Stack, config: Mapping[str, Any], *, own: bool) -> Clues:
        """Of a model's stack. config: the whole model's; a composite has one for the part around this stack."""
        weights, path = skeleton.weights, stack.path
        while path:
            path = path.rpartition(".")[0]
            part = getattr(skeleton.model.get_submodule(path), "config", None)
            if part is not None:
                config = part.to_dict()
                break
        blocks = tuple(int(path.rpartition(".")[2]) for path in stack.paths)
        if weights is None:
            return cls(config, _no_table, _no_table, own, blocks)
        return cls(config, weights.rows, lambda name: weights.shape(name)[0], own, blocks)


def _no_table(*_: Any) -> Any:
    raise ValueError(WHY)


def tolerance(recorded: Tensor, positions: Tensor) -> float:
    """What two correct float32 computations may differ by. recorded: any shape, in the model's dtype; positions: (seq,)

    Lower precision adds its rounding: the same computation, cast last.
    """
    size = float(recorded.abs().max()) if recorded.numel() else 0.0
    farthest = float(positions.abs().max()) if positions.numel() else 0.0
    step = torch.finfo(recorded.dtype).eps if recorded.is_floating_point() and recorded.itemsize < 4 else 0.0
    return 1e-6 * size + farthest * 2.0**-23 + step / 2 * size


def compare(found: Recording, seq: int, clues: Clues) -> tuple[tuple[Effect | None, ...] | None, str, Agreement]:
    """The textbook's effects (None where it has none), the reason if it has none at all, and the agreement."""
    count = torch.arange(seq)
    answers = [_answer(e, found, count if e.positions is None else e.positions, clues) for e in found.effects]
    textbook = tuple(answer.effect for answer in answers)
    reasons = [answer.reason for answer in answers if answer.reason]
    if all(effect is None for effect in textbook):
        reason = "; ".join(dict.fromkeys(reasons)) or "no formula"
        return None, reason, Agreement(None, None, None, f"nothing to compare: {reason}")
    return textbook, "; ".join(dict.fromkeys(reasons)), _agreement(answers, clues.own)


def effects(recorded: Effect, textbook: Effect, positions: Tensor, attention: Attention | None = None) -> Agreement:
    """How far one effect is from another that a formula gave, right or wrong: what `compare` says of a trace's.

    positions: (seq,) int64, those that both are made of; attention: the layer that a recorded rotation turned, if its
    q and k are to be looked at too
    """
    return _agreement([_answer_of(recorded, textbook, positions, attention, None)], own=False)


def formula(layer: LayerEffect, found: Recording | Trace, seq: int, clues: Clues) -> Callable[[Tensor], Effect]:
    """The formula that gives what was recorded, as a function of the positions: (seq,), whole or not, -> the effect.

    Raises ValueError, with a reason, where no formula does; the function does for positions that have no value.
    """
    positions = torch.arange(seq) if layer.positions is None else layer.positions
    answer, scheme = _answer(layer, found, positions, clues), SCHEMES.get(layer.scheme)
    if answer.effect is None or scheme is None:
        raise ValueError(answer.reason or "the textbook has no formula for what this model does")
    if answer.difference is not None and answer.allowed is not None and answer.difference > answer.allowed:
        raise ValueError(
            f"the formula differs from what was recorded by {answer.difference:.2g}, more than {answer.allowed:.2g}"
        )
    given = {key: value for key, value in _given(layer, found, clues).items() if key not in ("queries", "keys")}
    return lambda at: scheme.predict(clues.config, at, variant=answer.variant, **given)


@dataclass(frozen=True, eq=False)
class _Answer:
    effect: Effect | None
    difference: float | None = None
    allowed: float | None = None
    variant: str = ""
    reason: str = ""
    said: str = ""  # the variant, where it does not go without saying


def _answer(layer: LayerEffect, found: Recording | Trace, positions: Tensor, clues: Clues) -> _Answer:
    """The published variant of the scheme's formula that comes nearest to what was recorded."""
    scheme = SCHEMES.get(layer.scheme)
    if layer.effect is None:
        return _Answer(None, reason=layer.reason)
    if scheme is None:
        return _Answer(None, reason="the textbook has no formula for what this model does")
    if isinstance(layer.effect, Nothing):
        return _Answer(layer.effect)
    best, refused = None, getattr(scheme, "REASON", "")
    variants = scheme.variants(clues.config)
    for variant in variants:
        try:
            effect = scheme.predict(clues.config, positions, variant=variant, **_given(layer, found, clues))
        except ValueError as error:
            refused = refused or str(error)
            continue
        if effect is None:
            continue
        if isinstance(effect, Content) and isinstance(layer.effect, Content) and not _parts(layer.effect, effect):
            continue
        answer = _answer_of(layer.effect, effect, positions, _attention(layer, found), layer.stored)
        answer = replace(answer, variant=variant, said="" if variant == variants[0] else variant)
        if best is None or (answer.difference or 0.0) < (best.difference or 0.0):
            best = answer
    if best is None:
        return _Answer(None, reason=refused)
    wrong = _left_out(layer, found, clues) or _other_kinds(layer, found, positions, clues, best)
    return replace(best, difference=float("inf"), allowed=0.0, reason=wrong) if wrong and not best.reason else best


def _left_out(layer: LayerEffect, found: Recording | Trace, clues: Clues) -> str:
    """A sentence, where an effect was found in other layers than those that the configuration names; else ""."""
    named = getattr(SCHEMES[layer.scheme], "layers", lambda _: None)(clues.config)
    if named is None:
        return ""
    reached = {number for effect in found.effects if effect.scheme == layer.scheme for number in effect.layers}
    for number, block in enumerate(clues.blocks):
        if block < len(named) and named[block] != (number in reached):
            return f"layer {number} {'has' if number in reached else 'lacks'} it, against the configuration"
    return ""


def _other_kinds(layer: LayerEffect, found: Recording | Trace, positions: Tensor, clues: Clues, best: _Answer) -> str:
    """A sentence, where the formula gives something else in another kind of layer that an effect reaches; else ""."""
    assert layer.effect is not None
    kinds: dict[str, int] = {}
    for number in layer.layers if not isinstance(layer.effect, Content) else ():  # content meets it in each anew
        if (kind := _layer_type(clues, number)) is not None:
            kinds.setdefault(kind, number)
    for kind, number in [*kinds.items()][1:]:
        given = _given(layer, found, clues) | {"layer": number, "layer_type": kind}
        try:
            effect = SCHEMES[layer.scheme].predict(clues.config, positions, variant=best.variant, **given)
        except ValueError:
            continue
        if effect is not None:
            difference, allowed, _ = _difference(layer.effect, effect, positions, layer.stored)
            if difference > allowed:
                return f"in layer {number}, of type {kind}, the formula gives another"
    return ""


def _attention(layer: LayerEffect, found: Recording | Trace) -> Attention | None:
    """The recorded attention layer, if this effect reaches it."""
    return found.attention if found.attention is not None and found.attention.layer in layer.layers else None


def _answer_of(
    recorded: Effect,
    textbook: Effect,
    positions: Tensor,
    attention: Attention | None,
    stored: torch.dtype | None,
) -> _Answer:
    difference, allowed, reason = _difference(recorded, textbook, positions, stored)
    if not reason and difference <= allowed and isinstance(textbook, Rotate) and attention is not None:
        sides = {"q": (attention.q_before, attention.q), "k": (attention.k_before, attention.k)}
        for name, (before, after) in sides.items():
            turned = _turned(textbook, before, after, allowed)
            if turned is not None and turned[0] > turned[1]:
                reason = f"{name} turned by the formula, in pairs that are {textbook.layout}, is not the model's {name}"
                return _Answer(textbook, *turned, reason=reason)
    return _Answer(textbook, difference, allowed, reason=reason)


def _turned(textbook: Rotate, plain: Tensor | None, found: Tensor, allowed: float) -> tuple[float, float] | None:
    """How far a q or k (heads, seq, d_head) turned by the formula is from the model's, and what is allowed.

    A rotation keeps every length but for the magnitude, whatever the pairs; where it was normed or scaled besides, the
    directions are compared. None where it is not to be had, or where no pairs give the directions either.
    """
    if plain is None or plain.shape != found.shape or plain.shape[1] != textbook.cos.shape[0]:
        return None
    before, after = plain.float(), found.float()
    stop = textbook.start + textbook.rotary_dim
    if stop > before.shape[-1]:
        return None
    magnitude = torch.hypot(textbook.cos[:, :1], textbook.sin[:, :1])  # (seq, 1)
    length = torch.cat((before[..., : textbook.start], magnitude * before[..., textbook.start : stop]), dim=-1)
    length = torch.cat((length, before[..., stop:]), dim=-1).norm(dim=-1)
    step = torch.finfo(found.dtype).eps
    kept = torch.allclose(length, after.norm(dim=-1), rtol=max(1e-5, step / 2))
    if not kept:
        before, after = (part / part.norm(dim=-1, keepdim=True).clamp_min(1e-12) for part in (before, after))

    def apart(layout: str) -> float:
        ways = (
            rotate_by(before, textbook.cos, sign * textbook.sin, layout, textbook.start)
            for sign in (1, -1)  # some models turn the other way round, which the recorder notes
        )
        return min(float((way - after).abs().max()) for way in ways)

    difference, enough = apart(textbook.layout), float(before.abs().max()) * (2 * allowed + 2 * step + 1e-6)
    if not kept and difference > enough and all(apart(layout) > enough for layout in ("half", "interleaved")):
        return None
    return difference, enough


def _given(layer: LayerEffect, found: Recording | Trace, clues: Clues) -> dict[str, Any]:
    """What the recording knows and the configuration may not say: sizes, the table, the direction."""
    given: dict[str, Any] = {}
    given["layer"] = layer.layers[0] if layer.layers else None
    if layer.layers and (kind := _layer_type(clues, layer.layers[0])) is not None:
        given["layer_type"] = kind
    if layer.table is not None:
        table = layer.table
        given["rows"] = lambda index: clues.rows(table, index)
        given["n_rows"] = clues.n_rows(table)
    given["factors"] = [clues.rows(name, torch.arange(clues.n_rows(name))) for name in layer.factors]
    if isinstance(layer.effect, Add):
        given["width"] = layer.effect.vectors.shape[-1]
    if isinstance(layer.effect, Rotate):
        given["layout"] = layer.effect.layout
    if isinstance(layer.effect, Bias):
        given["heads"], given["queries"], given["keys"] = layer.effect.scores.shape
    if found.causal is not None:
        given["stack"] = "decoder" if found.causal else "encoder"
    return given


def _layer_type(clues: Clues, layer: int) -> str | None:
    """What the configuration calls the kind of a layer; None where it does not."""
    types = clues.config.get("layer_types")
    if not isinstance(types, (list, tuple)):
        return None
    if clues.blocks and len(types) > max(clues.blocks) + 1:  # Dory lists what stands between its blocks too
        types = [kind for kind in types if "attention" in kind]
    number = clues.blocks[layer] if layer < len(clues.blocks) else layer
    return types[number] if number < len(types) else None


def _difference(
    recorded: Effect, textbook: Effect, positions: Tensor, stored: torch.dtype | None
) -> tuple[float, float, str]:
    """The largest difference, what is allowed, and a reason where the two cannot be laid side by side.

    stored: the dtype in which a file holds the table that was recorded, if it is one
    """
    if type(recorded) is not type(textbook):
        what = f"the model injects {type(recorded).__name__}, the formula {type(textbook).__name__}"
        return float("inf"), 0.0, what
    if isinstance(recorded, Rotate) and isinstance(textbook, Rotate):
        if recorded.rotary_dim != textbook.rotary_dim or recorded.start != textbook.start:
            return (
                float("inf"),
                0.0,
                (
                    f"the model turns {recorded.rotary_dim} dimensions from {recorded.start}, "
                    f"the formula {textbook.rotary_dim} from {textbook.start}"
                ),
            )
        rotary = recorded.rotary_dim
        sides = [(pairs(recorded.cos, rotary), textbook.cos), (pairs(recorded.sin, rotary), textbook.sin)]
        if recorded.angles.shape == textbook.angles.shape:  # by themselves: turns are left out of both
            apart = (recorded.angles.double() - textbook.angles.double()) / (2 * math.pi)
            angle = 2 * math.pi * float((apart - apart.round()).abs().max()) if apart.numel() else 0.0
            if angle > 2 * (allowed := tolerance(recorded.cos, positions)):
                return angle, 2 * allowed, "the angles differ"
    elif isinstance(recorded, Add) and isinstance(textbook, Add):
        mine, theirs = recorded.vectors, textbook.vectors
        if stored is not None and stored.itemsize < mine.itemsize:
            mine, theirs = mine.to(stored), theirs.to(stored)
        sides = [(mine, theirs)]
    elif isinstance(recorded, Bias) and isinstance(textbook, Bias):
        sides = [(recorded.scores, textbook.scores)]
    elif isinstance(recorded, Content) and isinstance(textbook, Content):
        sides = _parts(recorded, textbook)
    else:
        return 0.0, 0.0, ""
    if any(mine.shape != theirs.shape for mine, theirs in sides):
        mine, theirs = next((mine, theirs) for mine, theirs in sides if mine.shape != theirs.shape)
        return float("inf"), 0.0, f"the model's has shape {tuple(mine.shape)}, the formula's {tuple(theirs.shape)}"
    difference = max(float((mine.float() - theirs.float()).abs().max()) for mine, theirs in sides)
    return difference, max(tolerance(mine, positions) for mine, _ in sides), ""


def _parts(recorded: Content, textbook: Content) -> list[tuple[Tensor, Tensor]]:
    """What a formula says of content and distance beside the same as recorded; empty where that was not recorded."""
    pairs = [(getattr(recorded, key), getattr(textbook, key)) for key in ("vectors", "rows")]
    pairs = [(mine, theirs) for mine, theirs in pairs if theirs is not None]
    return [] if any(mine is None for mine, _ in pairs) else pairs


def _agreement(answers: list[_Answer], own: bool) -> Agreement:
    compared = [a for a in answers if a.difference is not None and a.allowed is not None]
    if not compared:
        return Agreement(None, None, None, "no position enters: nothing to compare")
    if own:
        return Agreement(None, None, None, "tinput's own model: nothing to compare it with")
    worst = max(compared, key=lambda a: (a.difference or 0.0) - (a.allowed or 0.0))
    ok = all((a.difference or 0.0) <= (a.allowed or 0.0) for a in compared)
    shown = f"max |Δ| = {worst.difference:.2g}, allowed {worst.allowed:.2g}"
    variants = ", ".join(dict.fromkeys(a.said for a in compared if a.said))
    what = f" ({variants})" if variants else ""
    left = [a.reason for a in answers if a.effect is None and a.reason]
    rest = f"; not compared: {left[0]}" if left else ""
    if ok:
        return Agreement(worst.difference, worst.allowed, True, f"matches transformers{what}, {shown}{rest}")
    why = f": {worst.reason}" if worst.reason else ""
    if worst.difference == float("inf"):  # no two numbers were laid side by side
        return Agreement(worst.difference, worst.allowed, False, f"differs from transformers{what}{why}{rest}")
    return Agreement(worst.difference, worst.allowed, False, f"differs from transformers{what}{why}, {shown}{rest}")
