"""What follows from the configuration alone is what a trace of the weights' model tells of positions."""

from __future__ import annotations

import json

import pytest
import torch

from tests.oracle import checkpoint, open_model
from tinput.errors import BadIds, NoWeights, TooLong
from tinput.models.weights import Weights

COMPUTED = [
    "llama",
    "gemma3_text",
    "gptj",
    "gpt_neox",
    "deepseek_v3",
    "bloom",
    "mpt",
    "falcon-alibi",
    "marian",
    "smollm3",
]
LEARNED = ["gpt2", "bert", "roberta", "opt", "t5", "bart"]


@pytest.fixture
def bare(tmp_path):
    """name -> the model of a folder that holds its configuration and nothing else."""

    def make(name: str):
        made = checkpoint(name)
        (tmp_path / "config.json").write_text((made.folder / "config.json").read_text())
        return made, open_model(tmp_path)

    return make


@pytest.mark.parametrize("name", COMPUTED)
def test_computed_effects_are_those_of_the_whole_model(bare, name):
    made, model = bare(name)
    trace = made.trace(list(range(20, 31)))
    found = model.outline(11)
    assert model.layer_schemes == made.model.layer_schemes
    assert len(found.effects) == len(trace.effects)
    for mine, theirs in zip(found.effects, trace.effects, strict=True):
        assert (mine.layers, mine.scheme, type(mine.effect)) == (theirs.layers, theirs.scheme, type(theirs.effect))
        values = {key: value for key, value in vars(mine.effect).items() if isinstance(value, torch.Tensor)}
        assert values
        assert all(torch.equal(value, getattr(theirs.effect, key)) for key, value in values.items())
    assert found.agreement.ok is True
    assert found.agreement == trace.agreement or name == "deepseek_v3"
    assert found.positions is trace.positions or torch.equal(found.positions, trace.positions)


@pytest.mark.parametrize("name", LEARNED)
def test_a_learned_table_is_not_made_up(bare, name):
    _, model = bare(name)
    found = model.outline(5)
    assert [layer.effect for layer in found.effects] == [None] * len(found.effects)
    assert {layer.reason for layer in found.effects} == {"made of numbers that only the weights hold"}
    assert found.textbook is None
    assert found.agreement.ok is None


def test_a_model_without_weights_says_so_when_it_is_traced(bare):
    made, model = bare("llama")
    assert model.weights is None
    assert isinstance(model.no_weights, NoWeights)
    assert model.checkpoint_dtype == "float32"
    assert (model.scheme, model.reason) == (made.model.scheme, made.model.reason)
    for ask in (
        lambda: model.trace(ids=[1, 2]),
        lambda: model.embedding_rows(torch.tensor([1])),
        model.attention_bytes,
    ):
        with pytest.raises(NoWeights, match=r"no weights: no model\.safetensors"):
            ask()


def test_no_weight_is_read_where_there_are_some(monkeypatch):
    model = checkpoint("marian").model
    model.anatomy  # noqa: B018 - found once
    monkeypatch.setattr(Weights, "tensor", lambda *_: pytest.fail("a tensor was read"))
    monkeypatch.setattr(Weights, "rows", lambda *_: pytest.fail("rows were read"))
    assert model.outline(7).agreement.ok is True


def test_more_tokens_than_positions(bare):
    _, model = bare("roberta")
    with pytest.raises(TooLong, match="positions for 126 tokens") as caught:
        model.outline(127)
    assert caught.value.usable == 126
    with pytest.raises(BadIds):
        model.outline(5, stack="middle")


def test_long_texts_of_scaled_rotations(bare, tmp_path):
    """The length counts: dynamic NTK has other frequencies past the trained length."""
    checkpoint("llama")
    bare("llama")
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    config |= {
        "max_position_embeddings": 32,
        "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4},
    }
    file.write_text(json.dumps(config))
    model = open_model(tmp_path)
    short, long = model.outline(32).effects[0].effect, model.outline(64).effects[0].effect
    assert float(short.angles[1, -1]) == pytest.approx(3.1623e-4, rel=1e-4)  # head 16
    assert float(long.angles[1, -1]) == pytest.approx(1.0541e-4, rel=1e-4)


@pytest.mark.parametrize("length", [0, -1, True, 1.5, "5", None])
@pytest.mark.parametrize("name", ["llama", "bert", "bloom"])
def test_a_length_is_a_whole_number(bare, name, length):
    with pytest.raises(BadIds, match="at least 1"):
        bare(name)[1].outline(length)


def test_an_outline_that_needs_no_attention_takes_no_pairs(bare):
    """30,000 tokens: all pairs of a 4-headed layer would be 14 GB; the last angle is 29,999 times the first's."""
    _, model = bare("llama")
    found = model.outline(30_000)
    effect = found.effects[0].effect
    assert found.agreement.ok is True
    assert effect.angles.shape[0] == 30_000
    assert float(effect.angles[-1, 0]) == 29_999
    with pytest.raises(BadIds, match="8,388,608 or fewer"):
        model.outline(10**9)


def test_an_outline_of_all_pairs_has_an_end(bare):
    _, model = bare("bloom")
    with pytest.raises(BadIds, match=r"choose 11,585 or fewer"):
        model.outline(60_000)
