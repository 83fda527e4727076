"""What a survey does not run again is like what has run: modules that differ in one thing alone, and whole models."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests import tiny
from tests.oracle import checkpoint
from tinput.record import anatomy
from tinput.record.front import Front
from tinput.record.repeats import Repeats
from tinput.record.tape import Flow, Tape

X = torch.ones(1, 4, 8)
SHARED = SimpleNamespace(turn=0)


class Part(nn.Module):
    """Five steps and more; what it does besides hangs on one thing."""

    def __init__(self, **own):
        super().__init__()
        self.table = nn.Parameter(torch.ones(4, 8))
        for name, value in own.items():
            setattr(self, name, value)

    def forward(self, x, peek=False):
        SHARED.ran.append(self)
        for _ in range(6):
            x = x + 1
        if peek or self.peeks():
            return x + torch.arange(4)[:, None]
        return x

    def peeks(self):
        config, index = getattr(self, "config", None), getattr(self, "layer_idx", None)
        by_config = config is not None and config.kinds[index] == "positions"
        by_turn = config is None and getattr(getattr(self, "shared", None), "turn", 0) == 5
        return getattr(self, "flag", False) or (index == 5 and config is None) or by_config or by_turn


def flows(parts, repeats, kwargs=({},) * 9):
    """What each part's result depends on, when all run one after another; and which of them ran."""
    SHARED.ran = []
    tape = Tape()
    tape.source(X, Flow.CONTENT)
    placeholders = SimpleNamespace(random_like=lambda t: torch.rand(t.shape))
    front = Front(tape, placeholders, X)  # type: ignore[arg-type] - all that it is asked for here
    found = []
    with torch.no_grad(), tape:
        for place, (part, more) in enumerate(zip(parts, kwargs, strict=False)):
            SHARED.turn = place
            start = len(tape.ops)
            out = repeats.call(front, part, part.forward, (X,), more) if repeats else part(X, **more)
            found.append((tape.flow_of(out), sum(op.position_only for op in tape.ops[start:])))
    return found, [part in SHARED.ran for part in parts]


CONFIG = SimpleNamespace(kinds=["content"] * 5 + ["positions"] + ["content"] * 3)
BY_ONE_THING = {
    "an attribute": [Part(flag=place == 5) for place in range(9)],
    "the index": [Part(layer_idx=place) for place in range(9)],
    "the configuration at the index": [Part(layer_idx=place, config=CONFIG) for place in range(9)],
    "what is shared": [Part(shared=SHARED) for _ in range(9)],
}


@pytest.mark.parametrize("thing", BY_ONE_THING)
def test_a_part_that_sees_positions_in_layer_5_alone_is_run_there(thing):
    parts = BY_ONE_THING[thing]
    plain, _ = flows(parts, None)
    assert plain[5] == (Flow.CONTENT | Flow.POSITION, plain[5][1])
    assert plain[5][1] > 0
    found, ran = flows(parts, Repeats())
    assert found == plain
    assert ran[5]


def test_an_argument_tells_two_calls_apart():
    parts, arguments = [Part() for _ in range(9)], [{"peek": place == 5} for place in range(9)]
    plain, _ = flows(parts, None, arguments)
    found, ran = flows(parts, Repeats(), arguments)
    assert found == plain
    assert ran == [True, *[False] * 4, True, *[False] * 3]


def test_deep_inside_another_part():
    parts = [nn.Sequential(nn.Identity(), Part(flag=place == 5)) for place in range(9)]
    plain, _ = flows(parts, None)
    assert plain[5][1] > 0
    assert flows(parts, Repeats())[0] == plain


class Buffered(Part):
    """One of them has numbers of its own."""

    def __init__(self, counts):
        super().__init__()
        self.register_buffer("counts", counts)


def with_a_forward_of_its_own():
    part = Part()
    part.forward = lambda x, peek=False: [SHARED.ran.append(part), x + 1 + 1 + 1 + 1 + 1][1]  # noqa: ARG005
    return part


@pytest.mark.parametrize(
    "other",
    [
        Buffered(torch.arange(4)),
        type("Other", (Part,), {})(),
        Part(table=nn.Parameter(torch.ones(5, 8))),
        with_a_forward_of_its_own(),
        Part(items=[torch.ones(1)]),
    ],
)
def test_what_cannot_be_the_same_is_run(other):
    _, ran = flows([Part(), Part(), other, Part()], Repeats())
    assert ran == [True, False, True, False]


def test_a_part_that_is_like_one_that_has_run_is_not_run():
    _, ran = flows([Part() for _ in range(9)], Repeats())
    assert ran == [True] + [False] * 8


def test_a_part_that_is_given_positions_is_run_each_time():
    tape = Tape()
    tape.source(X, Flow.POSITION)
    SHARED.ran, repeats, parts = [], Repeats(), [Part(), Part()]
    with torch.no_grad(), tape:
        for part in parts:
            repeats.call(Front(tape, None, X), part, part.forward, (X,), {})  # type: ignore[arg-type]
    assert [part in SHARED.ran for part in parts] == [True, True]


@pytest.mark.parametrize("name", tiny.CONFIGS)
def test_a_survey_finds_the_same_with_all_run(name, monkeypatch):
    skeleton = checkpoint(name).model._skeleton(torch.float32)
    found = anatomy.survey(skeleton)
    monkeypatch.setattr(Repeats, "call", lambda *given: given[3](*given[4], **given[5]))
    everything = anatomy.survey(skeleton)
    assert [what(stack) for stack in found.stacks] == [what(stack) for stack in everything.stacks]
    assert (found.order, found.error) == (everything.order, everything.error)


def what(stack):
    ways = [
        (way.effect, way.layers, way.table, way.learned, way.carriers, way.sines, way.fit) for way in stack.injections
    ]
    return stack.path, stack.paths, stack.attention_layers, stack.first_attention, ways
