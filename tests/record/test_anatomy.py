"""Which layers have which position scheme: of tiny models and of variants, and how that is said."""

from __future__ import annotations

import pytest
import torch

from tests import tiny
from tests.oracle import checkpoint, open_model, some_ids
from tinput.positions import Add, Bias, Content, Nothing, Rotate

SCHEMES = {
    "learned": "bert gpt2 roberta distilbert opt opt-narrow bart albert deberta-v2",
    "sinusoidal": "marian distilbert-sinusoidal",
    "rope": "falcon llama mistral qwen2 qwen3 gemma gemma3_text gptj gpt_neox phi3 cohere2 smollm3 modernbert "
    "deepseek_v3 gpt_oss",
    "alibi": "bloom mpt falcon-alibi",
    "relative_bias": "t5",
    "relative": "xlnet deberta-v2-relative",
    "none": "mamba",
}
SCHEME = {name: scheme for scheme, names in SCHEMES.items() for name in names.split()}
EFFECT = {"learned": Add, "sinusoidal": Add, "rope": Rotate, "alibi": Bias, "relative_bias": Bias, "relative": Content}
SECOND_LAYER = {"cohere2": "none", "smollm3": "none"}


def test_every_tiny_model_is_named():
    assert SCHEME.keys() == tiny.CONFIGS.keys()


@pytest.mark.parametrize("name", tiny.CONFIGS)
def test_schemes(name):
    made, scheme = checkpoint(name), SCHEME[name]
    model = made.model
    assert model.scheme == scheme
    assert model.schemes == (scheme,)
    assert model.layer_schemes == (scheme, SECOND_LAYER.get(name, scheme))
    assert model.reason.endswith(".")
    assert model.stacks == tuple(made.first_block)
    for stack in made.first_block:
        trace = made.trace(some_ids(6), stack)
        assert trace.scheme == scheme
        assert type(trace.effect) is EFFECT.get(scheme, Nothing)
        assert [type(found.effect) for found in trace.effects if found.effect is None] == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "bert",
            "looked up by position in a learned table, is added to the embedding before the first block (BertL",
        ),
        (
            "marian",
            "computed from positions alone, is added to the embedding before the first block (Maria",
        ),
        ("llama", "rotates q and k in all 2 layers"),
        ("smollm3", "rotates q and k in 1 of 2 layers (0)"),
        ("bloom", "computed from positions alone, is added to the scores in all 2 layers"),
        ("t5", "looked up by position in a learned table, is added to the scores in all 2 layers"),
        ("mamba", "None of the 2 layers has attention"),
    ],
)
def test_the_reason_says_how_it_was_found(name, expected):
    assert expected in checkpoint(name).model.reason


def test_a_scheme_is_found_without_reading_a_weight(tmp_path):
    """The file's bytes past the header are noise: whatever is found, is not found in them."""
    for name in ("bert", "marian", "t5", "gemma3_text"):
        folder = tmp_path / name
        tiny.make(name, folder)
        file = folder / "model.safetensors"
        content = file.read_bytes()
        header = 8 + int.from_bytes(content[:8], "little")
        file.write_bytes(content[:header] + b"\xff" * (len(content) - header))  # all NaN
        model = open_model(folder)
        assert model.scheme == SCHEME[name]
        assert model.reason == checkpoint(name).model.reason


# --- layers that differ


def test_gemma_3_has_two_thetas():
    """8 layers, of which only layer 5 is full; it starts at 1/8, the sliding ones at 1."""
    rope = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    }
    made = checkpoint(
        "gemma3_text", num_hidden_layers=8, layer_types=None, sliding_window_pattern=6, rope_parameters=rope
    )
    assert made.full.config.layer_types == ["sliding_attention"] * 5 + ["full_attention"] + ["sliding_attention"] * 2
    trace = made.trace([7, 8, 9])
    sliding, full = trace.effects
    assert (sliding.layers, full.layers) == ((0, 1, 2, 3, 4, 6, 7), (5,))
    pair = torch.arange(12)
    assert torch.allclose(sliding.effect.angles[1], 1e4 ** -(pair / 12), rtol=1e-5)
    assert torch.allclose(full.effect.angles[1], 1e6 ** -(pair / 12) / 8, rtol=1e-5)
    assert made.model.layer_schemes == ("rope",) * 8
    assert trace.agreement.ok is True
    own = made.full.model.rotary_emb  # type: ignore[union-attr]
    cos, _ = own(torch.zeros(1, 3, 1), torch.arange(3)[None], "full_attention")
    assert torch.equal(full.effect.cos, cos[0])


@pytest.mark.parametrize("name", ["smollm3"])
def test_no_rope_layers_holds_1_where_rope_is_used(name):
    """Eight layers, every fourth without."""
    made = checkpoint(name, num_hidden_layers=8, no_rope_layers=None, no_rope_layer_interval=4)
    assert made.full.config.no_rope_layers == [1, 1, 1, 0, 1, 1, 1, 0]
    assert made.model.layer_schemes == ("rope", "rope", "rope", "none", "rope", "rope", "rope", "none")
    assert made.trace(some_ids(5)).effects[0].layers == (0, 1, 2, 4, 5, 6)


def test_the_first_rotation_may_come_in_a_later_layer():
    """SmolLM3 with its first layer unrotated: layer 1 is what the attention shows, and q and k there are real."""
    made, ids = checkpoint("smollm3", no_rope_layers=[0, 1]), some_ids(9)
    trace, seen = made.trace(ids), made.run(ids)
    assert made.model.layer_schemes == ("none", "rope")
    assert trace.attention.layer == 1
    assert torch.equal(trace.attention.q, seen.fused[1].query[0])
    assert torch.equal(trace.block_input, seen.block_input[0])
    assert trace.agreement.ok is True


def test_a_rotation_far_down_is_not_run_but_said():
    """At layer 6 of 8 all layers before would have to be loaded: the cosines are shown, q and k are not."""
    made, ids = checkpoint("smollm3", num_hidden_layers=8, no_rope_layers=[0] * 6 + [1, 1]), some_ids(9)
    trace = made.trace(ids)
    assert made.model.layer_schemes == ("none",) * 6 + ("rope",) * 2
    assert torch.equal(trace.block_input, made.run(ids).block_input[0])
    assert trace.attention is None
    assert "layer 6" in trace.attention_reason
    found = trace.effects[0]
    assert found.layers == (6, 7)
    assert (found.effect is None) == bool(found.reason)
    if found.effect is not None:
        assert torch.allclose(found.effect.angles[1, 0], torch.tensor(1.0))


def test_cohere_rotates_its_sliding_layers_alone():
    layers = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
    model = checkpoint("cohere2", num_hidden_layers=4, layer_types=layers).model
    assert model.layer_schemes == ("rope", "rope", "none", "rope")


def test_modernberts_two_thetas():
    made = checkpoint("modernbert")
    full, sliding = made.trace(some_ids(5)).effects
    assert (full.layers, sliding.layers) == ((0,), (1,))
    theta = made.full.config.rope_parameters
    for found, kind in ((full, "full_attention"), (sliding, "sliding_attention")):
        expected = theta[kind]["rope_theta"] ** -(torch.arange(8) / 8)
        assert torch.allclose(found.effect.angles[1], expected, rtol=1e-5)
