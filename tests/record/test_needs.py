"""A trace without q and k reads less and tells the same; and nothing that it tells comes from what was left out."""

from __future__ import annotations

import math

import pytest
import torch

from tests.oracle import STACKS, checkpoint
from tests.record.test_front import Read
from tinput.errors import BadIds, NotRecorded
from tinput.positions.effects import Content
from tinput.record import needed, record
from tinput.record.needs import Needs
from tinput.record.recording import reach

IDS = [9, 7, 9, 30, 7, 12]


def tensors(effect) -> dict[str, torch.Tensor]:
    return {} if effect is None else {k: v for k, v in vars(effect).items() if isinstance(v, torch.Tensor)}


@pytest.mark.parametrize(("name", "stack"), STACKS)
def test_without_attention_the_rest_is_the_same(name, stack, monkeypatch):
    """Against from_pretrained for the block's input, against the whole trace for all else, bit for bit."""
    made = checkpoint(name)
    whole = made.trace(IDS, stack)
    read = Read(monkeypatch)
    spare = made.trace(IDS, stack, attention=False)
    assert spare.attention is None
    assert "attention=True" in spare.attention_reason
    seen = made.run(IDS, stack).block_input
    assert spare.block_input.numel() == seen.numel()
    if spare.block_input.shape == seen.shape[1:]:
        assert torch.equal(spare.block_input, seen[0])
    assert torch.equal(spare.block_input, whole.block_input)
    assert [(s.name, s.op, s.module) for s in spare.stages] == [(s.name, s.op, s.module) for s in whole.stages]
    assert all(torch.equal(a.value, b.value) for a, b in zip(spare.stages, whole.stages, strict=True))
    assert spare.schemes == whole.schemes
    for a, b in zip(spare.effects, whole.effects, strict=True):
        if isinstance(b.effect, Content):  # it is content and distance: without q there is none
            assert a.effect is None
            assert a.reason
            continue
        assert type(a.effect) is type(b.effect)
        assert tensors(a.effect).keys() == tensors(b.effect).keys()
        assert all(torch.equal(value, tensors(b.effect)[key]) for key, value in tensors(a.effect).items())
        assert a.positions is b.positions or torch.equal(a.positions, b.positions)
    if not any(isinstance(found.effect, Content) for found in whole.effects):
        assert spare.agreement == whole.agreement
    if whole.attention is not None and whole.causal is not None:
        assert spare.causal in (whole.causal, None)
    inside = [
        key for key in read.whole if ".0." in key and key.rsplit(".", 2)[-2] in ("q_proj", "k_proj", "query", "q")
    ]
    assert not inside  # q and k are not read


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("llama", ["self_attn.q_proj.weight", "self_attn.k_proj.weight", "input_layernorm.weight"]),
        ("bert", [f"attention.self.{part}.{kind}" for part in ("query", "key") for kind in ("weight", "bias")]),
        ("gpt2", ["attn.c_attn.weight", "attn.c_attn.bias", "ln_1.weight", "ln_1.bias"]),
    ],
)
def test_the_bytes_of_q_and_k_are_said_before_they_are_read(name, keys, monkeypatch):
    made = checkpoint(name)
    state = made.full.state_dict()
    first = f"{next(iter(made.first_block.values()))}."
    expected = sum(state[first + key].numel() * 4 for key in keys)
    read = Read(monkeypatch)
    assert made.model.attention_bytes() == expected
    assert not read.whole
    assert not read.rows


def test_what_is_needed_is_found_without_reading(monkeypatch):
    made = checkpoint("gpt2")
    made.trace([5])
    model = made.model
    skeleton = model._skeleton(torch.float32)
    read = Read(monkeypatch)
    found = needed(skeleton, model.anatomy, model.stack(), torch.tensor(IDS))
    assert {name: index.tolist() for name, index in found.rows.items()} == {
        "transformer.wte.weight": [7, 9, 12, 30],
        "transformer.wpe.weight": [0, 1, 2, 3, 4, 5],
    }
    assert found.whole == frozenset()
    assert found.attention == {
        f"transformer.h.0.{k}" for k in ("ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias")
    }
    assert not read.whole
    assert not read.rows
    with pytest.raises(BadIds, match="320 rows"):
        needed(skeleton, model.anatomy, model.stack(), torch.tensor([320]))


@pytest.mark.parametrize(
    ("name", "ahead"),
    [
        ("llama", True),
        ("gpt2", True),
        ("phi3", True),
        ("gptj", False),  # each layer looks its angles up itself
        ("bloom", False),  # a bias
        ("t5", False),
    ],
)
def test_a_run_that_finds_all_of_positions_ahead_of_the_blocks_ends_there(name, ahead):
    """In Llama each layer only puts an axis for the heads into the cosines that were made before."""
    made = checkpoint(name)
    model, ids = made.model, torch.tensor(IDS)
    skeleton = model._skeleton(torch.float32)
    steps = needed(skeleton, model.anatomy, model.stack(), ids).ahead
    assert bool(steps) is ahead
    if ahead:
        front, block, call = reach(skeleton, model.anatomy, model.stack(), ids, read=False, ahead=steps)
        assert call is None
        assert len(front.tape.ops) <= block.start


def test_a_rotation_that_is_scaled_by_length_is_not_taken_for_a_short_texts():
    """Dynamic NTK computes other frequencies past the trained length: other operations, so the run goes on."""
    scaled = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    made = checkpoint("llama", max_position_embeddings=8, rope_parameters=scaled)
    for length in (6, 8, 9, 30):
        ids = [5 + k for k in range(length)]
        whole, spare = made.trace(ids), made.trace(ids, attention=False)
        assert torch.equal(spare.effect.cos, whole.effect.cos)
        assert torch.equal(spare.effect.angles, whole.effect.angles)
        assert spare.agreement.ok is whole.agreement.ok is True


def traced(name: str, needs: Needs):
    model = checkpoint(name).model
    return record(
        model._skeleton(torch.float32),
        model.anatomy,
        model.stack(),
        torch.tensor(IDS),
        None,
        needs=needs,
        without_attention="not asked for",
    )


def test_what_was_left_out_by_mistake_is_read_after_all(monkeypatch):
    """Told that nothing is needed, the run finds out what is, and reads that and no more."""
    made = checkpoint("bert")
    expected = made.trace(IDS).block_input
    read = Read(monkeypatch)
    found = traced("bert", Needs({}, frozenset(), frozenset()))
    assert torch.equal(found.block_input, expected)
    assert not [key for key in (*read.whole, *read.rows) if ".layer.0." in key]


def test_a_left_out_weight_that_is_never_let_in_is_an_error(monkeypatch):
    from tinput.record import recording as module

    monkeypatch.setattr(module, "missed", lambda front, ops: frozenset())  # noqa: ARG005 - as if names were unknown
    with pytest.raises(NotRecorded, match="depends on a weight that was left out"):
        traced("bert", Needs({}, frozenset(), frozenset()))


def test_what_is_left_out_is_not_a_number():
    """Were something reported to slip past the tape, it would be NaN, which is refused."""
    model = checkpoint("llama").model
    whole = model.trace(ids=IDS)
    skeleton = model._skeleton(torch.float32)
    only = frozenset(["model.embed_tokens.weight"])
    front, block, call = reach(skeleton, model.anatomy, model.stack(), torch.tensor(IDS), only=only)
    assert torch.equal(block.input[0], whole.block_input)
    assert call is not None
    assert torch.isnan(call.op.args[0]).all()  # q
    assert front.placeholders.touched == only
    assert math.isfinite(float(block.input.sum()))
