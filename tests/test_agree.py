"""Recorded against textbook: agreement where the configuration is right, and red where it is not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from tests import tiny
from tests.oracle import STACKS, checkpoint, checkpoint_of, open_model, some_ids
from tinput.agree import effects, tolerance
from tinput.open import Model
from tinput.positions import SCHEMES, Rotate

NOTHING_TO_COMPARE = {"mamba"}


@pytest.mark.parametrize(("name", "stack"), [case for case in STACKS if case[0] not in NOTHING_TO_COMPARE])
@pytest.mark.parametrize("length", [1, 40])
def test_they_agree(name, stack, length):
    trace = checkpoint(name).trace(some_ids(length), stack)
    agreement = trace.agreement
    assert agreement.ok is True, agreement.message
    assert agreement.max_abs_diff <= agreement.tolerance
    assert agreement.message.startswith("matches transformers")
    assert f"max |Δ| = {agreement.max_abs_diff:.2g}" in agreement.message
    assert len(trace.textbook) == len(trace.effects)
    for mine, theirs in zip(trace.effects, trace.textbook, strict=True):
        assert type(mine.effect) is type(theirs)


def test_nothing_to_compare_is_neither_right_nor_wrong(monkeypatch):
    agreement = checkpoint("mamba").trace(some_ids(6)).agreement
    assert (agreement.ok, agreement.max_abs_diff, agreement.tolerance) == (None, None, None)
    assert "no position enters" in agreement.message
    monkeypatch.setattr(SCHEMES["relative"], "VARIANTS", {})  # content and distance in a way that nobody knows
    trace = checkpoint("xlnet").trace(some_ids(6))
    assert (trace.agreement.ok, trace.agreement.max_abs_diff, trace.textbook) == (None, None, None)
    assert "content and distance" in trace.agreement.message
    assert trace.effect.scores.shape == (4, 6, 6)


def test_falcons_rounding_is_explained():
    trace = checkpoint("falcon-alibi").trace(some_ids(12))
    assert trace.agreement.ok is True
    assert "bfloat16" in trace.agreement.message


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("bloom", "by_key"),
        ("mpt", "by_last_key"),
        ("marian", "halves"),
        ("xlnet", "sines of the distance"),
        ("deberta-v2-relative", "row by distance"),
    ],
)
def test_the_variant_is_named(name, variant):
    assert f"matches transformers ({variant}), " in checkpoint(name).trace(some_ids(6)).agreement.message


@pytest.mark.parametrize("name", ["opt", "bert", "llama", "distilbert-sinusoidal"])
def test_the_usual_variant_goes_without_saying(name):
    assert "matches transformers, " in checkpoint(name).trace(some_ids(6)).agreement.message


def test_tolerance():
    """1e-6 of the largest recorded value, and a rounding of float32 for each position."""
    assert tolerance(torch.tensor([0.5, -2.0]), torch.tensor([0, 1, 8])) == pytest.approx(2e-6 + 8 * 2**-23)
    assert tolerance(torch.zeros(3), torch.tensor([0])) == 0.0
    assert tolerance(torch.zeros(0), torch.zeros(0)) == 0.0
    rounded = torch.tensor([0.5, -2.0]).bfloat16()
    assert tolerance(rounded, torch.tensor([8])) == pytest.approx(2e-6 + 8 * 2**-23 + 2.0 * 2**-8)  # half a step of it
    far = checkpoint("llama", max_position_embeddings=131072).trace([5, 6], positions=[0, 131071]).agreement
    assert far.tolerance == pytest.approx(1e-6 + 131071 * 2**-23, rel=1e-3)
    assert far.ok is True


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "gptj", "gpt_oss", "marian", "bloom", "t5", "bert", "falcon"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_they_agree_in_lower_precision(name, dtype, tmp_path, monkeypatch):
    """Computed in float32 and cast last: off by half a step of the dtype at most, which is still far from wrong."""
    made: Any = tiny.build(name)
    made.to(getattr(torch, dtype)).save_pretrained(tmp_path)
    model = open_model(tmp_path)
    trace = model.trace(ids=some_ids(40), dtype="checkpoint")
    assert trace.dtype == dtype
    assert trace.agreement.ok is True, trace.agreement.message
    assert model.trace(ids=some_ids(40)).agreement.ok is True
    if name == "llama":
        told(monkeypatch, **rope(11_000.0))
        assert model.trace(ids=some_ids(40), dtype="checkpoint").agreement.ok is False


# --- a formula given wrong numbers is found out


def told(monkeypatch, **changes: Any) -> None:
    """From now on the textbook is told another configuration than the model has."""
    clues = Model._clues

    def other(self, *args):
        true = clues(self, *args)
        return dataclasses.replace(true, config={**true.config, **changes})

    monkeypatch.setattr(Model, "_clues", other)


def rope(theta: float = 1e4, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, **more}}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama", rope(10_001.0)),
        ("llama", rope(500_000.0)),
        ("llama", rope(rope_type="linear", factor=2.0)),
        ("llama", rope(partial_rotary_factor=0.5)),
        ("gpt_neox", rope(partial_rotary_factor=0.5)),
        ("gpt_neox", rope(partial_rotary_factor=1.0)),
        ("gptj", {"rotary_dim": 4}),
        ("gemma3_text", {"layer_types": ["full_attention", "sliding_attention"]}),
        ("deepseek_v3", {"qk_rope_head_dim": 16}),
        ("opt", {"max_position_embeddings": 127}),
        ("bart", {"max_position_embeddings": 129}),
        ("xlnet", {"d_model": 32}),
        ("xlnet", {"clamp_len": 20}),
        ("xlnet", {"attn_type": "uni"}),
        ("deberta-v2-relative", {"position_buckets": 10}),
        ("deberta-v2-relative", {"max_position_embeddings": 100}),
        ("t5", {"relative_attention_max_distance": 64}),
        ("t5", {"relative_attention_num_buckets": 16}),
    ],
)
def test_a_wrong_configuration_is_red(name, changes, monkeypatch):
    made = checkpoint(name)
    assert made.trace(some_ids(40)).agreement.ok is True
    told(monkeypatch, **changes)
    agreement = made.trace(some_ids(40)).agreement
    assert agreement.ok is False
    assert agreement.max_abs_diff > agreement.tolerance
    assert agreement.message.startswith("differs from transformers")


def test_a_small_error_in_a_formula_is_red(monkeypatch):
    """One part in 10,000 of what is added: more than rounding, less than the eye sees."""
    for name in ("marian", "bloom", "distilbert-sinusoidal", "t5", "bert", "llama"):
        made = checkpoint(name)
        scheme = SCHEMES[made.model.scheme]
        predict = scheme.predict

        def off(*args, predict=predict, **kwargs):
            effect = predict(*args, **kwargs)
            shifted = {
                key: value * 1.0001
                for key, value in vars(effect).items()
                if isinstance(value, torch.Tensor) and key != "angles"
            }
            return dataclasses.replace(effect, **shifted)

        with monkeypatch.context() as patch:
            patch.setattr(scheme, "predict", off)
            assert made.trace(some_ids(20)).agreement.ok is False, name
        assert made.trace(some_ids(20)).agreement.ok is True


def test_one_wrong_effect_of_two_is_red(monkeypatch):
    """Gemma 3's local theta right, its global one wrong."""
    made = checkpoint("gemma3_text")
    right = made.full.config.to_dict()["rope_parameters"]
    wrong = {**right, "full_attention": {**right["full_attention"], "rope_theta": 999_000.0}}
    told(monkeypatch, rope_parameters=wrong)
    assert made.trace(some_ids(40)).agreement.ok is False


@pytest.mark.parametrize("name", ["llama", "gptj", "gpt_neox", "deepseek_v3", "cohere2", "qwen3"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_wrong_pairing_is_red(name, dtype, tmp_path):
    """The angles are the same; only q, turned in the wrong pairs, tells."""
    tiny.build(name).to(getattr(torch, dtype)).save_pretrained(tmp_path)
    trace = open_model(tmp_path).trace(ids=some_ids(20), dtype="checkpoint")
    right, attention = trace.textbook[0], trace.attention
    assert effects(trace.effect, right, trace.positions, attention).ok is True
    other = {"half": "interleaved", "interleaved": "half"}[right.layout]
    wrong = dataclasses.replace(right, layout=other)
    agreement = effects(trace.effect, wrong, trace.positions, attention)
    assert agreement.ok is False
    assert f"in pairs that are {other}, is not the model's q" in agreement.message
    assert agreement.max_abs_diff == pytest.approx(
        float((SCHEMES[trace.scheme].rotate_by(attention.q_before.float(), right.cos, right.sin, other, right.start)
               - attention.q.float()).abs().max()), rel=0.2
    )  # fmt: skip


@pytest.mark.parametrize("name", ["llama", "gemma", "deepseek_v3"])
def test_a_k_that_was_recorded_unturned_is_red(name):
    trace = checkpoint(name).trace(some_ids(20))
    attention = dataclasses.replace(trace.attention, k_before=trace.attention.k)
    agreement = effects(trace.effect, trace.textbook[0], trace.positions, attention)
    assert agreement.ok is False
    assert "k turned by the formula" in agreement.message


def test_a_pairing_found_wrong_by_the_recorder_is_red(monkeypatch):
    """The whole way: a recorder that names the other pairing has its trace in red."""
    from tinput.record import injected as recorder

    made = checkpoint("llama")
    rotation = recorder._rotation

    def other(*args):
        return dataclasses.replace(rotation(*args), layout="interleaved")

    monkeypatch.setattr(recorder, "_rotation", other)
    assert made.trace(some_ids(20)).agreement.ok is False


def test_a_norm_after_the_rotation_is_no_disagreement(tmp_path):
    """Llama 4 norms q after it was turned: then its direction alone is looked at."""
    sizes = {"num_key_value_heads": 2, "head_dim": 16, "intermediate_size_mlp": 96, "num_local_experts": 2}
    trace = checkpoint_of(tmp_path, "llama4_text", "Llama4ForCausalLM", attention_chunk_size=8, **sizes).trace(
        some_ids(9)
    )
    assert isinstance(trace.effect, Rotate)
    assert trace.agreement.ok is True
    assert not torch.equal(trace.attention.k, trace.attention.k_before)  # q and k are given a complex factor each


def test_a_formula_given_wrong_is_compared_like_a_traces_own():
    trace = checkpoint("bloom").trace(some_ids(9))
    rows, columns = torch.arange(9), torch.arange(9)
    alibi = SCHEMES["alibi"]
    for convention, ok in (("by_key", True), ("distance", False)):
        bias = alibi.bias(rows, columns, alibi.slopes(4), convention)
        agreement = effects(trace.effect, type(trace.effect)(bias), rows)
        assert agreement.ok is ok
        assert agreement.max_abs_diff == float((bias - trace.effect.scores).abs().max())


@pytest.mark.parametrize(
    ("said", "ignored"),
    [
        ({"alibi_bias_max": 16}, "alibi_bias_max of 16 is ignored, it is 8"),
        ({"alibi": False}, "alibi = false is ignored"),
    ],
)
def test_a_setting_that_transformers_ignores_is_said(said, ignored):
    agreement = checkpoint("mpt", attn_config=said).trace(some_ids(9)).agreement
    assert agreement.ok is True
    assert f"matches transformers (by_last_key; the configuration's {ignored}), " in agreement.message


def test_a_table_stored_in_bfloat16_is_compared_with_rounded_sinusoids(tmp_path, monkeypatch):
    """Run in float32, and what the file holds is rounded: the formula rounded alike gives the very same."""
    made: Any = tiny.build("distilbert-sinusoidal")
    made.to(torch.bfloat16).save_pretrained(tmp_path)
    model = open_model(tmp_path)
    agreement = model.trace(ids=some_ids(40)).agreement
    assert agreement.ok is True
    assert agreement.max_abs_diff == 0
    assert agreement.tolerance < 0.005
    predict = SCHEMES["sinusoidal"].predict
    monkeypatch.setattr(SCHEMES["sinusoidal"], "predict", lambda *a, **k: type(e := predict(*a, **k))(e.vectors * 1.02))
    assert model.trace(ids=some_ids(40)).agreement.ok is False


def test_a_scheme_without_a_formula_is_said_to_be_so(monkeypatch):
    made = checkpoint("bloom")

    def refuse(*_, **__):
        raise ValueError("the configuration does not say how many heads it has")

    monkeypatch.setattr(SCHEMES["alibi"], "predict", refuse)
    trace = made.trace(some_ids(6))
    assert trace.agreement.ok is None
    assert trace.textbook is None
    assert "how many heads" in trace.textbook_reason
    assert "how many heads" in trace.agreement.message


def test_the_bundled_models_prove_nothing():
    """Both sides are tinput's own code there, and the badge says that there is nothing to compare."""
    from tinput import twins

    for name in twins.NAMES:
        trace = open_model(name).trace("the cat sat")
        assert trace.agreement.ok is None
        own = "own model" if trace.scheme != "none" else "no position"
        assert own in trace.agreement.message
        assert trace.scheme == name.removeprefix("tinput/")
