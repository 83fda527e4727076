"""The steps from ids to the first block, cut backward from the block's input, in the model's own order.

A stage is an operation on the way that changes numbers; mere rearrangements are none. Beside the path of the content
stand the branches that join it: a position's vector, a segment's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tinput.models.tree import tensors_in
from tinput.record.front import Block, Front
from tinput.record.injection import SUMS, table_of
from tinput.record.layouts import sequence_first
from tinput.record.tape import LAYOUT, Flow, Op

__all__ = ["Stage", "stages_of"]

_LOOKUPS = frozenset(["embedding", "index_select"])
_CASTS = frozenset(["to", "type_as", "type", "half", "bfloat16", "_to_copy"])


@dataclass(frozen=True, eq=False)
class Stage:
    """One step from ids to the first block.

    name: for people ("token embedding", "+ position", "× 5.66"); op: torch's ("embedding", "add", "layer_norm")
    module: the path of the module that did it; value: (seq, width), what came out, in the run's dtype
    note: a size, a probability, what the step adds; formula: LaTeX
    role: token, position, segment, sum, scale, norm, dropout, projection or other; inputs: the stages it works on
    number: what it multiplies or divides by, where that is one number; a norm's ε
    """

    name: str
    op: str
    module: str
    value: Tensor
    note: str = ""
    formula: str = ""
    role: str = "other"
    inputs: tuple[int, ...] = ()
    number: float | None = None

    def __repr__(self) -> str:  # the numbers would fill the screen
        return f"Stage({self.name!r}, {self.op!r}, {self.module!r}, {tuple(self.value.shape)})"


def stages_of(front: Front, block: Block) -> tuple[Stage, ...]:
    """The stages of a block's input, first to last."""
    tape = front.tape
    path: dict[int, Op] = {}
    for index in block.makers:
        path.update({op.index: op for op in tape.back(tape.ops[index])})
    ops = _without_norm_parts(front, [op for op in (path[i] for i in sorted(path)) if _is_step(op)])
    joined = {op.index: op for op in ops}
    for op in ops:
        joined.update(_branches(front, op))
    chosen = [joined[index] for index in sorted(joined)]
    number = {op.index: place for place, op in enumerate(chosen)}
    rounded = _rounded(front, path.values())
    return tuple(_stage(front, op, number, rounded.get(op.index, op).value) for op in chosen)


def _rounded(front: Front, ops: Iterable[Op]) -> dict[int, Op]:
    """Operation -> the one that rounds its result to the run's dtype, as the last step of the same module."""
    found: dict[int, Op] = {}
    for op in ops:
        if op.name in _CASTS and len(op.inputs) > 0 and isinstance(op.out, Tensor):
            maker = front.tape.ops[op.inputs[0]]
            whole = isinstance(maker.out, Tensor) and maker.out.is_floating_point()
            if whole and maker.module == op.module and op.out.dtype.itemsize < maker.out.dtype.itemsize:
                found[maker.index] = op
    return found


def _is_step(op: Op) -> bool:
    value = op.out
    return (
        isinstance(value, Tensor)
        and value.is_floating_point()
        and value.ndim >= 2
        and op.has(Flow.CONTENT)
        and op.name not in LAYOUT
    )


def _without_norm_parts(front: Front, ops: list[Op]) -> list[Op]:
    """A norm written out in one module (square, mean, rsqrt, times weight) is one step: its last operation."""
    parts: dict[str, list[Op]] = {}
    for op in ops:
        if op.module in front.leaves:
            parts.setdefault(op.module, []).append(op)
    dropped: set[int] = set()
    for group in parts.values():
        if any(op.name == "rsqrt" for op in group):
            dropped.update(op.index for op in group[:-1])
    return [op for op in ops if op.index not in dropped]


def _branches(front: Front, op: Op) -> dict[int, Op]:
    """What joins the content in an operation, where it was itself computed: the look-up and what follows it."""
    tape, found = front.tape, {}
    for makers in op.reads.values():
        if not makers:
            continue
        maker = tape.past_layout(tape.ops[makers[-1]])
        value = maker.out
        if maker.has(Flow.CONTENT) or not isinstance(value, Tensor) or not value.is_floating_point():
            continue
        if value.ndim < 2 or value.numel() <= max(1, value.shape[-1] * (front.ids.shape[1] > 1)):
            continue
        behind = tape.back(maker)
        first = next((o for o in behind if o.name in _LOOKUPS), None)
        if first is None:
            found[maker.index] = maker
        else:
            found.update(
                {o.index: o for o in behind if o.index >= first.index and o.name not in LAYOUT and _floating(o)}
            )
    return found


def _floating(op: Op) -> bool:
    return isinstance(op.out, Tensor) and op.out.is_floating_point() and op.out.ndim >= 2


def alone(value: Tensor) -> Tensor:
    """A tensor that keeps no larger one, of which it is a part: itself where it is none."""
    value = value.detach()
    whole = value.is_contiguous() and value.untyped_storage().nbytes() == value.numel() * value.element_size()
    return value if whole else value.clone(memory_format=torch.contiguous_format)


def _stage(front: Front, op: Op, number: dict[int, int], value: Tensor) -> Stage:
    name, formula, role, note = _described(front, op)
    value, moved = sequence_first(value, front.ids.shape[1])
    inputs = tuple(sorted({number[i] for i in _nearest(front, op, number)}))
    note = "; ".join(
        part for part in (note, moved if value.ndim > 1 and value.shape[0] != op.value.shape[0] else "") if part
    )
    return Stage(name, plain(front, op), op.module, alone(value), note, formula, role, inputs, _scalar(front, op))


def _nearest(front: Front, op: Op, number: dict[int, int]) -> set[int]:
    """The stages that an operation works on, seen through what is no stage."""
    found, todo, seen = set(), list(op.inputs), set()
    while todo:
        index = todo.pop()
        if index in seen:
            continue
        seen.add(index)
        if index in number:
            found.add(index)
        else:
            todo.extend(front.tape.ops[index].inputs)
    return found


def plain(front: Front, op: Op) -> str:
    """torch's name of an operation without the marks of how it was written: `+`, `add_` and `add` are "add"."""
    if op.module in front.leaves and any(o.name == "rsqrt" and o.module == op.module for o in front.tape.back(op)):
        return "rms_norm"
    name = op.name.strip("_")
    for mark in ("i", "r"):
        if op.name.startswith(f"__{mark}") and name[1:] in ("add", "sub", "mul", "truediv", "matmul"):
            name = name[1:]
    return {"truediv": "div", "true_divide": "div", "multiply": "mul", "subtract": "sub"}.get(name, name)


def _described(front: Front, op: Op) -> tuple[str, str, str, str]:
    """Name, formula, role and note of an operation."""
    name = plain(front, op)
    shape = tuple(op.value.shape)
    if name in _LOOKUPS:
        return _lookup(op)
    if not op.has(Flow.CONTENT) and op.has(Flow.POSITION):
        if table_of(front, op) is None:
            return "position vectors", r"p_i = f(i)", "position", f"computed, {_size(shape)}"
        return f"position {name}", r"p_i", "position", ""
    if name in ("add", "sub"):
        return _sum(front, op)
    if name in ("mul", "div"):
        number = _number(op)
        others = [t for t in tensors_in((op.args, op.kwargs)) if not front.tape.flow_of(t) & Flow.CONTENT]
        if name == "mul" and number is None and any(t.numel() == front.ids.shape[1] for t in others):
            return "× mask", r"m_i\,x_i", "other", "1 for every token that is no padding"
        if number is None:
            return f"{'×' if name == 'mul' else '÷'} vector", r"x \odot w", "scale", ""
        sign = "×" if name == "mul" else "÷"
        note = "√d_model" if abs(number**2 - shape[-1]) < 0.01 * shape[-1] else ""
        return f"{sign} {number:.4g}", rf"{number:.4g}\,x" if name == "mul" else rf"x / {number:.4g}", "scale", note
    if name == "layer_norm":
        formula = r"\frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} \odot \gamma + \beta"
        return "layer norm", formula, "norm", f"ε = {_epsilon(op):.0e}"
    if name in ("rms_norm", "norm"):
        return "RMS norm", r"\frac{x}{\sqrt{\overline{x^2} + \epsilon}} \odot \gamma", "norm", ""
    if "dropout" in name:
        p = op.kwargs.get("p", op.args[1] if len(op.args) > 1 else 0.5)
        on = op.kwargs.get("training", op.args[2] if len(op.args) > 2 else True)
        return (
            "dropout",
            r"\frac{m \odot x}{1 - p},\; m \sim \mathrm{Bernoulli}(1 - p)",
            "dropout",
            (f"p = {p:g}, {'on' if on else 'off in evaluation: the numbers pass unchanged'}"),
        )
    if name in ("linear", "matmul", "addmm", "conv1d", "einsum"):
        return f"projection to {shape[-1]:,}", r"W x + b", "projection", f"{name}, to {_size(shape)}"
    words = name.replace("_", " ")
    return words, rf"\mathrm{{{words}}}(x)", "other", ""


def _lookup(op: Op) -> tuple[str, str, str, str]:
    table = next((t for t in tensors_in((op.args, op.kwargs)) if t.is_floating_point()), None)
    size = "" if table is None else f"a table of {table.shape[0]:,} rows of {table.shape[-1]:,}"
    if op.has(Flow.CONTENT):
        return "token embedding", r"e_i = E_{t_i}", "token", size
    if op.has(Flow.POSITION):
        return "position embedding", r"p_i = P_{i}", "position", size
    return "segment embedding", r"s_i = S_{0}", "segment", size


def _sum(front: Front, op: Op) -> tuple[str, str, str, str]:
    others = [front.tape.ops[makers[-1]] for makers in op.reads.values() if makers]
    kinds = {"position" for other in others if other.position_only}
    kinds |= {"segment" for other in others if not other.flow and front.tape.past_layout(other).name in _LOOKUPS}
    sign = "−" if plain(front, op) == "sub" else "+"
    if "position" in kinds and op.name in SUMS:
        return f"{sign} position", r"x_i + p_i", "sum", ""
    if "segment" in kinds:
        return f"{sign} segment", r"x_i + s_i", "sum", ""
    if sum(other.has(Flow.CONTENT) for other in others) > 1:
        return "sum", r"x_i + y_i", "sum", ""
    return f"{sign} bias", r"x_i + b", "sum", ""


def _number(op: Op) -> float | None:
    """The scalar that an operation multiplies or divides by; None for a vector."""
    for arg in (*op.args, *op.kwargs.values()):
        if isinstance(arg, (int, float)) and not isinstance(arg, bool):
            return float(arg)
        if isinstance(arg, Tensor) and arg.numel() == 1 and arg.ndim < 2 and arg.dtype != torch.bool:
            return float(arg)
    return None


def _scalar(front: Front, op: Op) -> float | None:
    """The one number that a scale or a norm goes by."""
    name = plain(front, op)
    if name in ("mul", "div"):
        return _number(op)
    if name == "layer_norm":
        return _epsilon(op)
    if name == "rms_norm":  # written out: what is added to the mean of the squares
        sums = (o for o in front.tape.back(op) if o.module == op.module and o.name.strip("_") in ("add", "radd"))
        return next((number for o in sums if (number := _number(o)) is not None), None)
    return None


def _epsilon(op: Op) -> float:
    """Of a layer norm."""
    return float(op.kwargs.get("eps", op.args[4] if len(op.args) > 4 else 1e-5))


def _size(shape: tuple[Any, ...]) -> str:
    return " × ".join(f"{size:,}" for size in shape if size != 1) or "1"
