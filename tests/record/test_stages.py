"""The stages of tiny models: order, roles, and values against the outputs of transformers' modules."""

from __future__ import annotations

import pytest
import torch

from tests import census
from tests.oracle import STACKS, checkpoint, open_model, some_ids, watch

EMBED = ["embedding token"]
BERT = [
    "embedding token",
    "embedding segment",
    "add sum",
    "embedding position",
    "add sum",
    "layer_norm norm",
    "dropout dropout",
]
NO_SEGMENTS = [line for line in BERT if "segment" not in line][:1] + BERT[3:]
SEQ2SEQ = ["embedding token", "mul scale", "embedding position", "add sum", "layer_norm norm", "dropout dropout"]

# "op role" of each stage, as each class computes them.
EXPECTED = {
    "bert": BERT,
    "roberta": BERT,
    "albert": [*BERT, "linear projection"],
    "distilbert": NO_SEGMENTS,
    "distilbert-sinusoidal": NO_SEGMENTS,
    "deberta-v2": [*NO_SEGMENTS[:-1], "mul other", "dropout dropout"],
    "deberta-v2-relative": ["embedding token", "layer_norm norm", "mul other", "dropout dropout"],
    "gpt2": ["embedding token", "embedding position", "add sum", "dropout dropout"],
    "opt": ["embedding token", "embedding position", "add sum"],
    "opt-narrow": ["embedding token", "embedding position", "linear projection", "add sum"],
    "bart": SEQ2SEQ,
    "marian": [line for line in SEQ2SEQ if "norm" not in line],
    "t5": ["embedding token", "dropout dropout"],
    "xlnet": ["embedding token", "dropout dropout"],
    "gptj": ["embedding token", "dropout dropout"],
    "gpt_neox": ["embedding token", "dropout dropout"],
    "bloom": ["embedding token", "layer_norm norm"],
    "modernbert": ["embedding token", "layer_norm norm", "dropout dropout"],
    "gemma": ["embedding token", "mul scale"],
    "gemma3_text": ["embedding token", "mul scale"],
    "mpt": EMBED,
    "falcon": EMBED,
    "falcon-alibi": EMBED,
    "llama": EMBED,
    "mistral": EMBED,
    "qwen2": EMBED,
    "qwen3": EMBED,
    "phi3": EMBED,
    "cohere2": EMBED,
    "smollm3": EMBED,
    "deepseek_v3": EMBED,
    "gpt_oss": EMBED,
    "mamba": EMBED,
}


@pytest.mark.parametrize(("name", "stack"), STACKS)
def test_the_stages_in_the_models_own_order(name, stack):
    trace = checkpoint(name).trace(some_ids(12), stack)
    assert [f"{stage.op} {stage.role}" for stage in trace.stages] == EXPECTED[name]


@pytest.mark.parametrize("length", [1, 2, 40])
@pytest.mark.parametrize("name", ["bert", "opt-narrow", "marian", "bart", "gemma", "deberta-v2"])
def test_the_stages_do_not_depend_on_the_length(name, length):
    trace = checkpoint(name).trace(some_ids(length))
    assert [f"{stage.op} {stage.role}" for stage in trace.stages] == EXPECTED[name]


@pytest.mark.parametrize(("name", "stack"), STACKS)
def test_values_are_the_outputs_of_the_modules(name, stack):
    """Each module's last stage has the value that a hook sees come out of the module."""
    made = checkpoint(name)
    ids = some_ids(12)
    trace, seen = made.trace(ids, stack), made.run(ids, stack)
    leaves = {path for path, module in made.full.named_modules() if not list(module.children())}
    last = {stage.module: stage for stage in trace.stages if stage.module in leaves}
    assert last
    for path, stage in last.items():
        assert _equal(stage.value, seen.outputs[path]), stage


def _equal(value: torch.Tensor, output: torch.Tensor) -> bool:
    """Batch axis apart: it is first, second (sequence first) or absent."""
    return torch.equal(value, output.reshape(value.shape)) and output.numel() == value.numel()


@pytest.mark.parametrize(("name", "stack"), STACKS)
def test_each_stage_follows_from_the_stages_it_names(name, stack):
    """Sums, scales and identities are done again from `inputs`: the strip of stages is a calculation, not a list."""
    trace = checkpoint(name).trace(some_ids(12), stack)
    for place, stage in enumerate(trace.stages):
        assert all(index < place for index in stage.inputs)
        given = [trace.stages[index].value for index in stage.inputs]
        if stage.op == "add":
            assert len(given) == 2, stage
            assert torch.equal(given[0] + given[1], stage.value)
        elif stage.op == "dropout":  # off in evaluation
            assert torch.equal(given[0], stage.value)
        elif stage.op == "embedding":
            assert not given
        else:
            assert given, stage
            assert stage.op != "mul" or torch.equal(given[0] * _factor(stage), stage.value)
    used = {index for stage in trace.stages for index in stage.inputs}
    assert used == set(range(len(trace.stages) - 1))  # nothing stands beside the path


def _factor(stage) -> float:
    import math

    if stage.name == "× mask":
        return 1.0
    shown = float(stage.name.removeprefix("× "))
    exact = math.sqrt(stage.value.shape[-1])
    return exact if stage.note == "√d_model" and abs(shown - exact) < 0.01 else shown


def test_what_the_stages_say():
    bert = checkpoint("bert").trace(some_ids(5)).stages
    assert [stage.name for stage in bert] == [
        "token embedding",
        "segment embedding",
        "+ segment",
        "position embedding",
        "+ position",
        "layer norm",
        "dropout",
    ]
    assert bert[0].module == "bert.embeddings.word_embeddings"
    assert "320 rows of 64" in bert[0].note
    assert "1e-12" in bert[5].note
    assert "p = 0.1" in bert[6].note
    gemma = checkpoint("gemma").trace(some_ids(5)).stages
    assert [stage.name for stage in gemma] == ["token embedding", "× 8"]
    assert gemma[1].note == "√d_model"
    albert = checkpoint("albert").trace(some_ids(5)).stages
    assert [stage.value.shape[-1] for stage in albert] == [32] * 7 + [64]  # narrow until the projection
    assert albert[-1].name == "projection to 64"
    narrow = checkpoint("opt-narrow").trace(some_ids(5)).stages
    assert {stage.role: stage.value.shape[-1] for stage in narrow} == {
        "token": 32,
        "position": 64,
        "projection": 64,
        "sum": 64,
    }
    assert checkpoint("marian").trace(some_ids(5)).stages[2].name == "position embedding"


@pytest.mark.parametrize("name", ["bert", "gemma", "marian"])
def test_every_stage_can_be_shown(name):
    for stage in checkpoint(name).trace(some_ids(5)).stages:
        assert stage.name
        assert stage.formula
        assert stage.value.ndim == 2
        assert len(stage.value) == 5
        assert "tensor(" not in repr(stage)


def test_dropout_is_off_whatever_its_probability():
    made = checkpoint("bert", hidden_dropout_prob=0.5)
    trace = made.trace(some_ids(9))
    assert torch.equal(trace.stages[-1].value, trace.stages[-2].value)
    assert "p = 0.5" in trace.stages[-1].note
    assert torch.equal(trace.block_input, made.run(some_ids(9)).block_input[0])


@pytest.mark.parametrize("kind", ["llama", "gemma", "nanochat", "neomme", "inkling2_text"])
def test_in_low_precision_a_step_ends_with_its_rounding(kind, tmp_path):
    """A norm that is computed in float32 and rounded last: the value is what the module returns, in bfloat16."""
    census.build(kind).bfloat16().save_pretrained(tmp_path)
    built = type(census.build(kind))
    whole, model, ids = built.from_pretrained(tmp_path, dtype=torch.bfloat16).eval(), open_model(tmp_path), some_ids(12)
    trace = model.trace(ids=ids, dtype="checkpoint")
    seen = watch(whole, model.stack().paths[0], ids, use_cache=False)
    assert torch.equal(trace.stages[-1].value, trace.block_input)
    assert torch.equal(trace.block_input, seen.block_input[0])
    last = {stage.module: stage.value for stage in trace.stages}
    assert {value.dtype for value in last.values()} == {torch.bfloat16}
    for path, value in last.items():
        if path in seen.outputs and not list(whole.get_submodule(path).children()):
            assert torch.equal(value, seen.outputs[path][0]), path
