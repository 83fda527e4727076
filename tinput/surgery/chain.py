"""Where a value came from: from bytes to one number, each step with its value, its words, and the Python that gives it.

A link's code stands on the variables of the links before it; together they run, after the three lines of `opening`, and
the last variable is the value. A link is only written as a formula if the formula, worked out here, gives what was
recorded; else its line reads the recording and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tinput.errors import BadFile, BadIds, NotRecorded
from tinput.positions import Add, Bias, Rotate
from tinput.surgery.parts import layer_of, own_rotation, turn

if TYPE_CHECKING:
    from tinput.open import Model
    from tinput.record import Attention, Stage, Trace

__all__ = ["Link", "input_chain", "opening", "program", "weight_chain"]

_NEAR = 1e-5  # how far a formula may be from what was recorded, relative


@dataclass(frozen=True)
class Link:
    """One step on the way to a value.

    name: of the step; value: the number at the cell, or what the step gave in words; words: what is done
    code: a line of Python or a few; read: whether it only reads the recording, since no formula gave the same
    """

    name: str
    value: float | str
    words: str
    code: str
    read: bool = False


def opening(model: Model, trace: Trace) -> str:
    """The Python that makes `model` and `trace`, as a chain's code needs them."""
    given = f"ids={trace.ids.tolist()}" if trace.tokens is None else repr(trace.tokens.text)
    stack = f", stack={trace.stack!r}" if trace.stack != model.stacks[0] else ""
    return (
        "import torch\nimport tinput\nfrom tinput import surgery\n\n"
        f"model = tinput.open_model({trace.model!r})\ntrace = model.trace({given}{stack})\n"
    )


def program(links: Sequence[Link]) -> str:
    """The code of all links: run after `opening`, its last line is the value."""
    last = links[-1].code.strip().splitlines()[-1].split(" = ")[0]
    return "\n".join([*(link.code for link in links), last])


# --- a value of the block input ---------------------------------------------------------------------------------------


def input_chain(model: Model, trace: Trace, token: int, dimension: int) -> tuple[Link, ...]:
    """How a token's value in one dimension of the block input was made, from its bytes on.

    Raises BadIds for a cell that is not there, NotRecorded where the block input has no row for each token.
    """
    seq, x = len(trace.ids), trace.block_input
    if x.ndim != 2 or len(x) != seq or not trace.stages:
        raise NotRecorded(f"The block input of {trace.model} has the shape {tuple(x.shape)}: no row for each token.")
    if not (0 <= token < seq and 0 <= dimension < x.shape[1]):
        raise BadIds(f"There are {seq} tokens and {x.shape[1]:,} dimensions; token {token}, {dimension} is not there.")
    links = list(_to_the_id(trace, token))
    rows: dict[int, Tensor] = {}
    for number in _behind(trace, len(trace.stages) - 1):
        stage = trace.stages[number]
        if len(stage.value) != seq:  # prompts put ahead, windows, pooling
            shape = " × ".join(map(str, stage.value.shape))
            words = f"As it was recorded, not one row a token: {stage.op} in {stage.module}."
            links.append(Link(stage.name, shape, words, f"x{number} = trace.stages[{number}].value", read=True))
            continue
        recorded = stage.value.reshape(seq, -1)[token].float()
        ways = _ways(model, trace, number, rows, token)
        text = next((code for code, make in ways if _gives(make, recorded)), "")
        words = _words(stage) if text else f"As it was recorded: {stage.op} in {stage.module}."
        code = f"x{number} = " + (text or f"trace.stages[{number}].value.flatten(1)[{token}].float()")
        value = float(recorded[dimension]) if len(recorded) == x.shape[1] else _long(recorded)
        links.append(Link(stage.name, value, words, code, read=not text))
        rows[number] = recorded
    last, cell = len(trace.stages) - 1, x[token].float()
    whole = last in rows and _gives(lambda: rows[last], cell)
    words = f"Dimension {dimension} of the row that enters the first block{'' if whole else ', as it was recorded'}."
    source = f"x{last}[{dimension}]" if whole else f"trace.block_input[{token}, {dimension}]"
    links.append(Link("block input", float(cell[dimension]), words, f"value = float({source})", read=not whole))
    return tuple(links)


def _to_the_id(trace: Trace, token: int) -> Iterator[Link]:
    if trace.tokens is not None:
        piece = bytes(trace.tokens.bytes[token])
        words = "These bytes of the text are one token." if piece else "The tokenizer puts it in: no byte of the text."
        yield Link("bytes", repr(piece), words, f"piece = trace.tokens.bytes[{token}]")
    yield Link("id", str(int(trace.ids[token])), "The tokenizer's number for it.", f"token_id = trace.ids[[{token}]]")


def _behind(trace: Trace, last: int) -> list[int]:
    """The stages that one stage depends on, and itself, in order."""
    found, todo = {last}, [last]
    while todo:
        for before in trace.stages[todo.pop()].inputs:
            if before not in found:
                found.add(before)
                todo.append(before)
    return sorted(found)


Way = tuple[str, Callable[[], Tensor]]  # the code, and what it does


def _ways(model: Model, trace: Trace, number: int, rows: dict[int, Tensor], token: int) -> Iterator[Way]:
    """Formulas that may have made a stage's row, (width,), out of those before it."""
    stage = trace.stages[number]
    inputs = [(f"x{i}", rows[i]) for i in stage.inputs if i in rows]
    if stage.role == "token":
        yield "model.embedding_rows(token_id)[0]", lambda: model.embedding_rows(trace.ids[[token]])[0]
    elif stage.role == "position":
        yield from _position(model, trace, token)
    elif stage.role == "segment":
        name = f"{stage.module}.weight"
        code = f"model.table_rows({name!r}, torch.tensor([0]))[0]"
        yield code, lambda: model.table_rows(name, torch.tensor([0]))[0]
    elif stage.role == "sum" and len(inputs) == 2:
        (a, left), (b, right) = inputs
        yield f"{a} + {b}", lambda: left + right
        yield f"{a} - {b}", lambda: left - right
    elif len(inputs) == 1:
        yield from _of_one(model, stage, *inputs[0])


def _position(model: Model, trace: Trace, token: int) -> Iterator[Way]:
    for index, found in enumerate(trace.effects):
        if not isinstance(found.effect, Add):
            continue
        at = "torch.arange(len(trace.ids))" if found.positions is None else f"trace.effects[{index}].positions"
        positions = torch.arange(len(trace.ids)) if found.positions is None else found.positions
        code = f"model.formula(trace, {index})({at}).vectors[{token}]"

        def make(index: int = index, positions: Tensor = positions) -> Tensor:
            effect: Any = model.formula(trace, index)(positions)
            return effect.vectors[token]

        yield code, make


def _of_one(model: Model, stage: Stage, name: str, x: Tensor) -> Iterator[Way]:
    """Steps that work on one row."""
    weight, bias = (f"{stage.module}.{part}" for part in ("weight", "bias"))
    number = stage.number

    def table(name: str, rows: int) -> Tensor:
        return model.table_rows(name, torch.arange(rows))

    def shown(name: str, rows: int | str) -> str:
        return f"model.table_rows({name!r}, torch.arange({rows}))"

    if stage.role == "scale" and number is not None:
        yield f"{name} * {number!r}", lambda: x * number
        yield f"{name} / {number!r}", lambda: x / number
    elif stage.role == "norm" and number is not None:
        plain = f"({name} - {name}.mean()) / ({name}.var(correction=0) + {number!r}).sqrt()"
        scaled = f"{plain} * {shown(weight, len(x))}"
        unit = lambda: (x - x.mean()) / (x.var(correction=0) + number).sqrt()  # noqa: E731
        yield f"{scaled} + {shown(bias, len(x))}", lambda: unit() * table(weight, len(x)) + table(bias, len(x))
        yield scaled, lambda: unit() * table(weight, len(x))
        yield plain, unit
        root = f"{name} / ({name}.square().mean() + {number!r}).sqrt()"
        short = lambda: x / (x.square().mean() + number).sqrt()  # noqa: E731
        yield f"{root} * {shown(weight, len(x))}", lambda: short() * table(weight, len(x))
        yield f"{root} * (1 + {shown(weight, len(x))})", lambda: short() * (1 + table(weight, len(x)))
    elif stage.role == "projection":
        out = stage.value.shape[-1]
        matrix = f"{shown(weight, out)} @ {name}"
        yield f"{matrix} + {shown(bias, out)}", lambda: table(weight, out) @ x + table(bias, out)
        yield matrix, lambda: table(weight, out) @ x
    yield name, lambda: x  # a dropout that is off, a mask of ones


def _gives(make: Callable[[], Tensor], recorded: Tensor) -> bool:
    """Whether a formula gives what was recorded."""
    try:
        made = make()
    except (BadFile, BadIds, NotRecorded, RuntimeError, ValueError, IndexError):
        return False
    near = _NEAR * max(1.0, float(recorded.abs().max()))
    return made.shape == recorded.shape and float((made.float() - recorded).abs().max()) <= near


_WORDS = {
    "token": "The row of the embedding table with this number.",
    "position": "The vector of the token's position.",
    "segment": "The vector of the first segment: the text has one.",
    "sum": "The two added, dimension by dimension.",
    "dropout": "Off, as it is outside training: the numbers pass.",
    "projection": "A matrix times the row: each number is made of all of them.",
}


def _words(stage: Stage) -> str:
    number = stage.number
    if stage.role == "scale" and number is not None:
        return f"Each number {'divided' if stage.op == 'div' else 'multiplied'} by {number:.6g}."
    if stage.role == "norm":
        return "The row less its mean, over its standard deviation, times γ plus β: all of its numbers count."
    if stage.role == "other":
        return f"{stage.name[:1].upper()}{stage.name[1:]}: here the numbers pass."
    return _WORDS.get(stage.role, f"{stage.name}.")


# --- an attention weight ----------------------------------------------------------------------------------------------


def weight_chain(model: Model, trace: Trace, head: int, query: int, key: int) -> tuple[Link, ...]:
    """How one attention weight was made: from the block input over q and k to score, bias, mask and softmax.

    Raises BadIds for a cell that is not there, NotRecorded without attention, or where q and k before the rotation are
    not to be had.
    """
    base = layer_of(trace)
    heads, n_query, n_key = base.scores.shape
    if not (0 <= head < heads and 0 <= query < n_query and 0 <= key < n_key):
        raise BadIds(
            f"There are {heads} heads, {n_query} queries and {n_key} keys; {head}, {query}, {key} is not there."
        )
    return tuple(_weight(model, trace, base, head, query, key))


def _weight(model: Model, trace: Trace, base: Attention, head: int, query: int, key: int) -> Iterator[Link]:
    shared = head // (base.heads // base.kv_heads)
    q, k = base.q[head, query], base.k[shared]
    yield from _vectors(trace, base, (head, shared), query, key)
    row = base.scale * (k @ q)
    code = f"scores = {base.scale!r} * (keys @ q)"
    yield Link("score", float(row[key]), f"q times k, times {base.scale:.6g}: for this key and all others.", code)
    if base.cap is not None:
        words = f"Bent so that none is beyond ±{base.cap:g}: c tanh(score / c), c = {base.cap:g}."
        row = base.cap * torch.tanh(row / base.cap)
        yield Link("capped", float(row[key]), words, f"scores = {base.cap!r} * torch.tanh(scores / {base.cap!r})")
    at = torch.tensor([query]), torch.arange(len(k))
    bias = base.bias[head].at(*at)[0].float()
    if bool((bias != 0).any()):
        code, formula = _bias_of(model, trace, base, head, query, bias)
        words = "What positions add, by their formula." if formula else "What positions add, as it was recorded."
        yield Link("+ bias", float((row + bias)[key]), words, code, not formula)
        row = row + bias
    if base.other is not None and base.cap is None:
        words = "What this model adds besides, which is not of positions alone."
        code = f"scores = scores + trace.attention.other[{head}].at(torch.tensor([{query}]), torch.arange({len(k)}))[0]"
        row = row + base.other[head].at(*at)[0].float()
        yield Link("+ other", float(row[key]), words, code, True)
    mask = base.mask[head].at(*at)[0]
    if bool((mask < 0).any()):
        seen = "seen" if float(mask[key]) == 0 else "hidden: its score is -∞"
        code = f"scores = scores + trace.attention.mask[{head}].at(torch.tensor([{query}]), torch.arange({len(k)}))[0]"
        yield Link("mask", seen, f"{int((mask == 0).sum())} of {len(k)} keys are seen by this query.", code)
        row = row + mask
    if base.sinks is not None:
        place = f"[{head}]" if base.sinks.ndim == 1 else f"{head}, [{query}]"
        sink = (base.sinks if base.sinks.ndim == 1 else base.sinks[:, query])[head : head + 1]
        code = f"scores = torch.cat((scores, trace.attention.sinks[{place}]))"
        yield Link("sink", float(sink), "A learned score beside the keys, which takes part of the weight.", code)
        row = torch.cat((row, sink))
    recorded = float(base.weights[head].at(*at)[0, key])
    made = float(row.softmax(-1)[key])
    if abs(made - recorded) <= _NEAR:
        words = "e to the score, over the sum of that for all keys that are seen."
        yield Link("weight", made, words, f"weight = float(scores.softmax(-1)[{key}])")
    else:
        words = f"As it was recorded: the steps above give {made:.4g}, for this model puts more into its scores."
        rows = f"torch.tensor([{query}]), torch.tensor([{key}])"
        yield Link("weight", recorded, words, f"weight = float(trace.attention.weights[{head}].at({rows}))", read=True)


def _vectors(trace: Trace, base: Attention, heads: tuple[int, int], query: int, key: int) -> Iterator[Link]:
    """The two tokens, and the q and k that are multiplied. heads: of q, and of the k that it looks at"""
    head, shared = heads
    turned = any(isinstance(f.effect, Rotate) and base.layer in f.layers for f in trace.effects)
    for name, token in (("query", query), ("key", key)):
        role = "which looks" if name == "query" else "which is looked at"
        what = "" if trace.tokens is None else f"{bytes(trace.tokens.bytes[token])!r}, "
        code = f"{name} = trace.ids[{token}]"
        yield Link(name, f"{what}id {int(trace.ids[token])}", f"Token {token}, {role}.", code)
    said = f"The block's own norm and projection of the row of token {{}}, recorded{', before the rotation' * turned}."
    if turned:
        rotation = own_rotation(trace)
        assert base.q_before is not None
        assert base.k_before is not None
        yield _vector(
            "q", base.q_before[head, query], said.format(query), f"q = trace.attention.q_before[{head}, {query}]"
        )
        yield _vector("k", base.k_before[shared, key], said.format(key), f"keys = trace.attention.k_before[{shared}]")
        words = "Each pair of dimensions turned by the angle of position {}."
        places = _positions(trace, base.layer)
        code = "rotation = surgery.own_rotation(trace)\n"
        code += f"q = surgery.turn(trace.attention.q_before, rotation)[{head}, {query}]"
        yield _vector("q, turned", turn(base.q_before, rotation)[head, query], words.format(places[query]), code)
        code = f"keys = surgery.turn(trace.attention.k_before, rotation)[{shared}]"
        yield _vector("k, turned", turn(base.k_before, rotation)[shared, key], words.format(places[key]), code)
    else:
        yield _vector("q", base.q[head, query], said.format(query), f"q = trace.attention.q[{head}, {query}]")
        yield _vector("k", base.k[shared, key], said.format(key), f"keys = trace.attention.k[{shared}]")


def _vector(name: str, values: Tensor, words: str, code: str) -> Link:
    return Link(name, _long(values), words, code)


def _long(values: Tensor) -> str:
    return f"{len(values):,} numbers of length {float(values.float().norm()):.4g}"


def _positions(trace: Trace, layer: int) -> list[int]:
    found = next(
        (f.positions for f in trace.effects if isinstance(f.effect, Rotate) and layer in f.layers), trace.positions
    )
    return list(range(len(trace.ids))) if found is None else found.tolist()


def _bias_of(
    model: Model, trace: Trace, base: Attention, head: int, query: int, recorded: Tensor
) -> tuple[str, bool]:  # fmt: skip
    """The code that adds the bias to a row of scores, and whether it is the formula's."""
    for index, found in enumerate(trace.effects):
        if not isinstance(found.effect, Bias) or base.layer not in found.layers:
            continue
        positions = torch.arange(len(trace.ids)) if found.positions is None else found.positions
        at = "torch.arange(len(trace.ids))" if found.positions is None else f"trace.effects[{index}].positions"
        try:
            effect = model.formula(trace, index)(positions)
        except (NotRecorded, ValueError):
            continue
        if isinstance(effect, Bias) and _gives(lambda effect=effect: effect.scores[head, query], recorded):
            return f"scores = scores + model.formula(trace, {index})({at}).scores[{head}, {query}]", True
    rows = f"torch.tensor([{query}]), torch.arange({len(recorded)})"
    return f"scores = scores + trace.attention.bias[{head}].at({rows})[0]", False
