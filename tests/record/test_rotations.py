"""Rotations as they are found: theta, part, pairing and scaling in every spelling of a configuration."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests import tiny
from tests.oracle import Checkpoint, checkpoint, checkpoint_of, open_model, some_ids
from tests.record.test_attention import turned


def test_theta_in_the_dict_wins_over_the_old_key():
    """In the old key, in the dict, in both, in neither."""
    new = {"rope_type": "default", "rope_theta": 500000.0}
    for given, theta in [
        ({"rope_theta": 20000.0}, 20000.0),
        ({"rope_parameters": new}, 500000.0),
        ({"rope_parameters": new, "rope_theta": 20000.0}, 500000.0),
        ({}, 10000.0),
    ]:
        trace = checkpoint("llama", **given).trace([7, 8])
        assert torch.allclose(trace.effect.angles[1], theta ** -(torch.arange(8) / 8), rtol=1e-5), given
        assert trace.agreement.ok is True


def test_a_theta_that_only_the_old_key_of_the_file_holds(tmp_path):
    """As published: config.json written by hand, before `rope_parameters` was there."""
    import json

    tiny.make("llama", tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    for key in ("rope_parameters", "rope_scaling"):
        config.pop(key, None)
    file.write_text(json.dumps(config | {"rope_theta": 1e6}))
    trace = open_model(tmp_path).trace(ids=[7, 8])
    assert torch.allclose(trace.effect.angles[1], 1e6 ** -(torch.arange(8) / 8), rtol=1e-5)
    assert trace.agreement.ok is True


def test_partial_rotation_in_two_spellings():
    """rotary_dim, and a share of the head."""
    gptj = checkpoint("gptj", rotary_dim=4).trace(some_ids(6))
    assert torch.allclose(gptj.effect.angles[1], torch.tensor([1.0, 0.01]))
    assert torch.equal(gptj.attention.q[..., 4:], gptj.attention.q_before[..., 4:])
    half = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}
    neox = checkpoint("gpt_neox", hidden_size=32, **half).trace(some_ids(6))
    assert torch.allclose(neox.effect.angles[1], torch.tensor([1.0, 0.01]))
    assert torch.equal(neox.attention.q[..., 4:], neox.attention.q_before[..., 4:])
    old = checkpoint("gpt_neox", hidden_size=32, rotary_pct=0.5).trace(some_ids(6))
    assert torch.equal(old.effect.angles, neox.effect.angles)
    for trace in (gptj, neox, old):
        assert trace.agreement.ok is True


def test_the_two_spellings_of_the_published_models(tmp_path):
    """rotary_dim=64 of a 128-wide head is 32 frequencies; rotary_pct=.5 of an 8-wide one is 1, .01."""
    sizes = {"head_dim": 128, "num_key_value_heads": 2, "num_local_experts": 2, "num_experts_per_tok": 2}
    sizes |= {"bos_token_id": 1, "eos_token_id": 2}
    made = checkpoint_of(tmp_path / "minimax", "minimax_m2", "MiniMaxM2ForCausalLM", rotary_dim=64, **sizes)
    trace, seen = made.trace(some_ids(6)), made.run(some_ids(6))
    assert trace.effect.angles.shape == (6, 32)
    assert torch.equal(trace.attention.q, seen.fused[0].query[0])
    assert torch.equal(trace.attention.q[..., 64:], trace.attention.q_before[..., 64:])
    assert trace.agreement.ok is True

    sizes = {"hidden_size": 32, "bos_token_id": 1, "eos_token_id": 2}
    made = checkpoint_of(tmp_path / "neox", "gpt_neox_japanese", "GPTNeoXJapaneseForCausalLM", rotary_pct=0.5, **sizes)
    trace = made.trace(some_ids(6))
    assert torch.allclose(trace.effect.angles[1], torch.tensor([1.0, 0.01]))
    assert trace.effect.rotary_dim == 4
    assert trace.agreement.ok is True


def test_a_rotation_the_other_way_round_is_said(tmp_path):
    """NanoChat's sine has the other sign; the angles are the same."""
    sizes = {"num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2}
    trace = checkpoint_of(tmp_path, "nanochat", "NanoChatForCausalLM", **sizes).trace(some_ids(6))
    assert any("minus the angle" in note for note in trace.notes)
    assert trace.agreement.ok is True
    assert checkpoint("llama").trace(some_ids(6)).notes == ()


def test_llama_4s_layers_without_rotation(tmp_path):
    """Every fourth layer has none; the pairs of the others lie side by side, as complex numbers."""
    sizes = {"num_hidden_layers": 8, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size_mlp": 96}
    sizes |= {"num_local_experts": 2, "attention_chunk_size": 8, "num_experts_per_tok": 1}
    made = checkpoint_of(tmp_path, "llama4_text", "Llama4ForCausalLM", **sizes)
    assert made.model.layer_schemes == ("rope", "rope", "rope", "none", "rope", "rope", "rope", "none")
    trace, seen = made.trace(some_ids(6)), made.run(some_ids(6))
    assert trace.effect.layout == "interleaved"
    assert torch.equal(trace.attention.q, seen.fused[0].query[0])
    assert torch.equal(trace.block_input, seen.block_input[0])
    assert trace.agreement.ok is True


@pytest.mark.parametrize(
    ("name", "layout", "start", "width"),
    [
        ("llama", "half", 0, 16),
        ("falcon", "half", 0, 16),
        ("phi3", "half", 0, 16),
        ("modernbert", "half", 0, 16),
        ("gpt_neox", "half", 0, 4),
        ("gptj", "interleaved", 0, 8),
        ("cohere2", "interleaved", 0, 16),
        ("deepseek_v3", "half", 16, 8),  # sorted into evens and odds first: half-split by the time it is turned
    ],
)
def test_pairing_and_place(name, layout, start, width):
    effect = checkpoint(name).trace(some_ids(6)).effect
    assert (effect.layout, effect.start, effect.rotary_dim) == (layout, start, width)


def test_two_pairings_of_the_same_angles():
    """q = 1, 2, 3, 4 at position 1; the two effects as recorded, the turn by the definition."""
    q = torch.tensor([[[0.0] * 4, [1.0, 2.0, 3.0, 4.0]]])
    small = {"num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 4}
    half = checkpoint("llama", **small).trace([7, 8]).effect
    between = checkpoint("gptj", n_head=16, rotary_dim=4).trace([7, 8]).effect
    assert torch.allclose(half.angles, between.angles)
    for effect, expected in [
        (half, [-1.9841, 1.9599, 2.4624, 4.0198]),
        (between, [-1.1426, 1.9221, 2.9599, 4.0298]),
    ]:
        found = turned(q, effect.angles, effect.layout, effect.start)[0, 1]
        assert torch.allclose(found.float(), torch.tensor(expected), atol=1e-4)


@pytest.mark.parametrize(
    ("mscale", "expected"),
    [((1.0, 1.0), 1.0), ((0.707, 1.0), 0.92104), ((0.707, None), 1.36889), ((None, None), 1.36889)],
)
def test_yarns_magnitude(mscale, expected):
    """Peng et al. 2023, equation 22: 0.1 ln 40 + 1 = 1.36889, and DeepSeek's ratio of two such."""
    rope: dict[str, Any] = {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 40.0,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 4096,
    }
    rope |= {key: value for key, value in zip(("mscale", "mscale_all_dim"), mscale, strict=True) if value is not None}
    trace = checkpoint("llama", rope_parameters=rope).trace([7, 8, 9])
    assert torch.allclose(torch.hypot(trace.effect.cos, trace.effect.sin), torch.tensor(expected), atol=1e-5)
    assert trace.agreement.ok is True
    assert torch.allclose(trace.effect.angles[1, 0], torch.tensor(1.0), atol=1e-5)  # apart from the angle


def test_dynamic_frequencies_start_afresh():
    """transformers' module keeps the frequencies of the longest text so far; a trace does not."""
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    made = checkpoint("llama", max_position_embeddings=32, rope_parameters=rope)
    for length, last in [(20, 3.1623e-4), (32, 3.1623e-4), (64, 1.0541e-4), (40, 2.1082e-4), (8, 3.1623e-4)]:
        trace = made.trace(some_ids(length))
        frequency = float(trace.effect.angles[1, -1])
        assert frequency == pytest.approx(last, rel=1e-4), length
        assert trace.agreement.ok is True, trace.agreement.message
        fresh = Checkpoint("llama", made.folder, made.eager(), made.first_block)
        own = fresh.full.model.rotary_emb(torch.zeros(1, length, 1), torch.arange(length)[None])  # type: ignore[union-attr]
        assert torch.equal(trace.effect.cos, own[0][0])


def test_llama_3s_three_bands():
    """Of a head of 64 with theta 5e5: some pairs as they are, some squeezed, a ramp between."""
    rope = {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    trace = checkpoint("llama", head_dim=64, rope_parameters=rope).trace([7, 8])
    plain = 5e5 ** -(torch.arange(32).double() / 32)
    divided = plain / trace.effect.angles[1].double()
    expected = torch.tensor([1.0] * 15 + [1.651, 3.292, 9.667] + [32.0] * 14, dtype=torch.float64)
    assert torch.allclose(divided, expected, rtol=1e-3)
    assert trace.agreement.ok is True


SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 32},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "longrope": {"factor": 4.0, "original_max_position_embeddings": 32},
}


@pytest.mark.parametrize(
    ("name", "scaling"),
    [*((name, scaling) for name in ("llama", "gpt_neox") for scaling in SCALINGS), ("phi3", "longrope")],
)
@pytest.mark.parametrize("length", [10, 50])
def test_every_scaling_agrees_with_the_formula(name, scaling, length):
    pair = {"gpt_neox": 2}.get(name, 8)
    rope = {"rope_type": scaling, "rope_theta": 1e4, **SCALINGS[scaling]}
    if scaling == "longrope":
        rope |= {"short_factor": [1.0 + 0.1 * i for i in range(pair)], "long_factor": [2.0 + i for i in range(pair)]}
    if name == "gpt_neox":
        rope["partial_rotary_factor"] = 0.25
    longest = 32 if scaling == "dynamic" else 128
    more = {"original_max_position_embeddings": 32} if scaling == "longrope" else {}
    made, ids = checkpoint(name, rope_parameters=rope, max_position_embeddings=longest, **more), some_ids(length)
    trace = made.trace(ids)
    assert trace.agreement.ok is True, trace.agreement.message
    # against the whole model: a fresh one, which has seen no other length
    seen = made.run(ids, full=type(made.full).from_pretrained(made.folder).eval())
    assert torch.equal(trace.attention.q, seen.fused[0].query[0])
    plain = 1e4 ** -(torch.arange(pair) / pair)
    at_rest = scaling == "dynamic" and length <= longest
    assert torch.allclose(trace.effect.angles[1], plain, rtol=1e-4) == at_rest


def test_hard_positions_far_out():
    """At the end of a long context the tolerance grows with the position, and the two still agree."""
    trace = checkpoint("llama", max_position_embeddings=131072).trace([5, 6, 7], positions=[0, 50_000, 131_071])
    assert trace.agreement.ok is True
    exact = torch.outer(trace.positions.double(), 1e4 ** -(torch.arange(8).double() / 8))
    assert math.isclose(float((trace.effect.angles.double() - exact).abs().max()), 0.0, abs_tol=131_071 * 2**-23)
