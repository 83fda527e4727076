"""Other positions, schemes and orders: held against the model's own runs, changed checkpoints, and numpy.

Whatever is computed here was computed another way: by the model itself at those positions, by transformers from a
checkpoint changed on the disk, or by the paper's formula written out.
"""

from __future__ import annotations

import json
import math
import shutil
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests import tiny
from tests.record.test_between import opened as opened_beside
from tests.surgery.tools import ADDING, IDS, TURNING, apart, logits, open_model, own, weights_apart
from tinput import surgery
from tinput.errors import BadIds, NotRecorded
from tinput.twins import NAMES, folder

# --- other positions ----


@pytest.mark.parametrize("name", [*NAMES, *TURNING, *ADDING])
@pytest.mark.parametrize("at", [[7, 9, 8, 30, 31, 2, 3, 4, 4, 4], list(range(20, 30))])
def test_positions_set_by_formula_are_the_model_s_own_run_at_them(opened, name, at):
    model, trace = opened(name)
    recorded = model.trace(ids=IDS, positions=at).attention
    moved = surgery.move(model, trace, at)
    seen = (trace.attention.mask.tensor() == 0) & (recorded.mask.tensor() == 0)  # some models mask by position too
    difference = (logits(moved) - logits(recorded)).masked_fill(~seen, 0).abs().max()
    assert float(difference) <= 2e-6 * max(1.0, float(logits(recorded).abs().max()))
    torch.testing.assert_close(moved.q, recorded.q, atol=1e-5, rtol=1e-5)
    if not torch.equal(torch.tensor(at), own(trace)) and name != "tinput/none":
        assert apart(moved, trace.attention) > 1e-3 or at[1] - at[0] == 1


def test_a_cap_bends_the_scores_of_a_what_if_too(tmp_path):
    """Gemma 2's own run at other positions; its mask goes by position too, so weights are compared under one mask."""
    model, _ = opened_beside("gemma2", tmp_path, attn_logit_softcapping=0.5)
    trace, at = model.trace(ids=IDS), torch.arange(10) * 3 + 5
    recorded = model.trace(ids=IDS, positions=at).attention
    moved: Any = surgery.move(model, trace, at)
    assert float((moved.other.tensor() - recorded.other.tensor()).abs().max()) < 1e-5
    assert weights_apart(surgery.unmasked(moved), surgery.unmasked(recorded)) < 1e-5
    assert weights_apart(moved, trace.attention) > 1e-2
    back: Any = surgery.shuffle(model, trace, torch.arange(10))
    assert weights_apart(back, trace.attention) == 0
    assert float((back.other.tensor() - trace.attention.other.tensor()).abs().max()) == 0


@pytest.mark.parametrize("name", ["tinput/rope", "tinput/alibi", "tinput/relative_bias", *TURNING, "mpt"])
def test_a_shift_of_all_positions_changes_no_score(opened, name):
    model, trace = opened(name)
    shifted = surgery.move(model, trace, own(trace) + 1000)
    assert apart(shifted, trace.attention) <= 1e-5 * float(logits(trace.attention).abs().max())
    assert weights_apart(shifted, trace.attention) <= 1e-5
    stretched = surgery.move(model, trace, own(trace) * 3)  # and it is no law for want of positions
    assert apart(stretched, trace.attention) > 1e-2


@pytest.mark.parametrize("name", ["bloom", "falcon-alibi"])
def test_a_bias_by_key_moves_each_row_by_one_number_which_softmax_removes(opened, name):
    model, trace = opened(name)
    shifted = surgery.move(model, trace, own(trace) + 16)
    row = (logits(shifted) - logits(trace.attention))[:, -1]  # the last query sees all keys
    assert float(row.abs().min()) > 1e-2
    torch.testing.assert_close(row, row[:, :1].expand_as(row), atol=1e-5, rtol=1e-4)
    assert weights_apart(shifted, trace.attention) <= 1e-5


@pytest.mark.parametrize("name", ["tinput/sinusoidal", "tinput/learned", *ADDING])
def test_a_shift_of_all_positions_changes_what_is_added(opened, name):
    model, trace = opened(name)
    shifted = surgery.move(model, trace, own(trace) + 20)
    assert apart(shifted, trace.attention) > 1e-2
    assert weights_apart(shifted, trace.attention) > 1e-3


def test_fractions_of_positions_are_the_formula_s_there(opened):
    model, trace = opened("tinput/rope")
    at = np.arange(len(IDS)) / 2 + 0.25
    moved = surgery.move(model, trace, at.tolist())
    half = trace.attention.q.shape[-1] // 2
    turn = np.exp(1j * at[:, None] * 10_000.0 ** (-np.arange(half) / half))
    z = trace.attention.q_before.double().numpy()
    turned = (z[..., :half] + 1j * z[..., half:]) * turn
    np.testing.assert_allclose(moved.q.numpy(), np.concatenate([turned.real, turned.imag], -1), atol=1e-5)
    model, trace = opened("tinput/alibi")
    moved = surgery.move(model, trace, at.tolist())
    slopes = 2.0 ** (-8 * np.arange(1, 5) / 4)
    np.testing.assert_allclose(moved.bias.tensor(), slopes[:, None, None] * (at[None, :] - at[:, None]), atol=1e-6)
    model, trace = opened("tinput/sinusoidal")
    q, _ = twin_qk("tinput/sinusoidal", embedded("tinput/sinusoidal") + waves(128, at))
    np.testing.assert_allclose(surgery.move(model, trace, at.tolist()).q.numpy(), q, atol=2e-5)


@pytest.mark.parametrize(
    ("name", "at", "said"),
    [
        ("tinput/learned", [0.5] * 10, "Position 0.5 has no row in the table of tinput/learned: give whole numbers."),
        ("tinput/relative_bias", [0.5] * 10, "Position 0.5 has no row"),
        ("tinput/learned", [-1, *range(9)], "Position -1 has no row in the table of tinput/learned"),
        ("tinput/learned", [*range(9), 256], "Position 256 is past the last one, 255, of a table of 256 rows"),
        ("tinput/rope", [1, 2, 3], "There are 10 tokens and 3 positions"),
        ("tinput/rope", [math.nan] * 10, "Positions are finite numbers"),
        ("tinput/rope", ["x"] * 10, "Positions are numbers, one a token"),
    ],
)
def test_positions_that_have_no_value_are_refused_in_a_sentence(opened, name, at, said):
    model, trace = opened(name)
    with pytest.raises(BadIds, match="^" + said.replace(".", r"\.")):
        surgery.move(model, trace, at)


def test_what_cannot_be_moved_says_why(opened):
    model, trace = opened("mamba")
    with pytest.raises(NotRecorded, match=r"There is no attention to change in .*: none of the 2 layers has attention"):
        surgery.move(model, trace, range(10))
    model, trace = opened("xlnet")
    with pytest.raises(NotRecorded, match="content and distance meet in the scores"):
        surgery.move(model, trace, range(10))
    model, trace = opened("tinput/rope")
    with pytest.raises(ValueError, match="unknown scheme 'elsewhere'"):
        surgery.swap(model, trace, "elsewhere")


# --- another scheme ----


def twin_qk(name: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """q and k of a bundled model's first layer for a block input x (seq, d_model), by numpy: (heads, seq, d_head)."""
    weights = {key: value.double().numpy() for key, value in load_file(folder(name) / "model.safetensors").items()}
    norm = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    norm = norm * weights["model.layers.0.input_norm.weight"] + weights["model.layers.0.input_norm.bias"]
    q, k = (norm @ weights[f"model.layers.0.self_attn.{z}_proj.weight"].T for z in "qk")
    return tuple(z.reshape(len(x), 4, -1).transpose(1, 0, 2) for z in (q, k))  # type: ignore[return-value]


def embedded(name: str) -> np.ndarray:
    """(seq, d_model): the rows of IDS times the root of the width, without positions."""
    table = load_file(folder(name) / "model.safetensors")["model.embed_tokens.weight"].double().numpy()
    return table[IDS] * math.sqrt(table.shape[1])


def turned(z: np.ndarray, theta: float = 10_000.0) -> np.ndarray:
    half = z.shape[-1] // 2
    both = (z[..., :half] + 1j * z[..., half:]) * np.exp(
        1j * np.arange(z.shape[-2])[:, None] * theta ** (-np.arange(half) / half)
    )
    return np.concatenate([both.real, both.imag], -1)


def waves(width: int, positions: np.ndarray | None = None) -> np.ndarray:
    places = np.arange(len(IDS)) if positions is None else positions
    at = places[:, None] / 10_000.0 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(at), np.cos(at)], -1).reshape(len(IDS), width)


@pytest.mark.parametrize("name", NAMES)
def test_each_bundled_model_takes_each_scheme_that_is_a_formula(opened, name):
    model, trace = opened(name)
    x = embedded(name)
    q, k = twin_qk(name, x)
    distance = np.arange(len(IDS))[None, :] - np.arange(len(IDS))[:, None]
    slopes = (2.0 ** (-8 * np.arange(1, 5) / 4))[:, None, None]
    scale = 1 / math.sqrt(q.shape[-1])
    moved_q, moved_k = twin_qk(name, x + waves(x.shape[1]))
    want = {
        "none": scale * q @ k.swapaxes(1, 2),
        "alibi": scale * q @ k.swapaxes(1, 2) + slopes * distance,
        "rope": scale * turned(q) @ turned(k).swapaxes(1, 2),
        "sinusoidal": scale * moved_q @ moved_k.swapaxes(1, 2),
    }
    past = np.tri(len(IDS)) > 0
    for scheme, expected in want.items():
        found = surgery.swap(model, trace, scheme)
        np.testing.assert_allclose(logits(found).numpy(), np.where(past, expected, 0), atol=2e-5, err_msg=scheme)
        weight = np.where(past, np.exp(expected - expected.max(-1, keepdims=True)), 0)
        weight /= weight.sum(-1, keepdims=True)
        np.testing.assert_allclose(found.weights.tensor().numpy(), weight, atol=1e-5, err_msg=scheme)


@pytest.mark.parametrize("name", NAMES)
def test_learned_tables_are_the_bundled_models_and_said_to_be(opened, name):
    model, trace = opened(name)
    found = {choice.scheme: choice for choice in surgery.choices(trace)}
    table = load_file(folder("learned") / "model.safetensors")["model.position_table.weight"].double().numpy()
    q, k = twin_qk(name, embedded(name) + table[: len(IDS)])
    want = np.where(np.tri(len(IDS)) > 0, q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1]), 0)
    np.testing.assert_allclose(logits(surgery.swap(model, trace, "learned")).numpy(), want, atol=2e-5)
    bias = open_model("tinput/relative_bias").trace(ids=IDS).effect.scores
    torch.testing.assert_close(surgery.swap(model, trace, "relative_bias").bias.tensor(), bias)
    for scheme in ("learned", "relative_bias"):
        assert found[scheme].table == ("" if trace.scheme == scheme else f"tinput/{scheme}")
        assert found[scheme].reason == ""
    assert "only a model with it has" in found["relative"].reason


@pytest.mark.parametrize("name", [*NAMES, "llama", "bert", "bloom", "gemma3_text"])
def test_the_own_scheme_put_back_is_what_was_recorded(opened, name):
    model, trace = opened(name)
    assert surgery.swap(model, trace, trace.scheme) is trace.attention
    again = surgery.swap(model, trace, trace.scheme, positions=own(trace))
    assert apart(again, trace.attention) <= 1e-6 * max(1.0, float(logits(trace.attention).abs().max()))


def test_another_theta_and_a_scaling_are_what_a_model_so_configured_does(opened, tmp_path):
    """Checkpoints whose config.json says so, recorded; one with partial pairs, one with grouped queries."""
    scaled = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaled |= {"original_max_position_embeddings": 32}
    for name, settings in (("gpt_neox", {}), ("llama", scaled)):
        model, trace = opened(name)
        shutil.copytree(model.folder, tmp_path / name)
        config = json.loads((tmp_path / name / "config.json").read_text())
        config["rope_parameters"] = (config.get("rope_parameters") or {}) | {"rope_theta": 200.0} | settings
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        recorded = open_model(tmp_path / name).trace(ids=IDS).attention
        asked = {"rope_parameters": {"rope_theta": 200.0, **settings}, "max_position_embeddings": 128}
        found = surgery.swap(model, trace, "rope", asked)
        assert apart(found, recorded) <= 1e-5
        assert apart(found, trace.attention) > 1e-2


@pytest.mark.parametrize("name", ["bert", "gpt2", "opt-narrow", "albert"])
def test_taking_added_vectors_away_is_a_model_whose_table_is_zero(opened, name, tmp_path):
    """transformers' own run of the same checkpoint with every position row set to 0, by tinput's recorder."""
    model, trace = opened(name)
    class_name, _ = tiny.CONFIGS[name]
    whole = getattr(__import__("transformers"), class_name).from_pretrained(model.folder)
    table = dict(whole.named_parameters())[trace.effects[0].table]
    with torch.no_grad():
        table.zero_()
    whole.save_pretrained(tmp_path)
    recorded = open_model(tmp_path).trace(ids=IDS).attention
    found = surgery.swap(model, trace, "none")
    torch.testing.assert_close(found.q, recorded.q, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(found.weights.tensor(), recorded.weights.tensor(), atol=1e-6, rtol=1e-5)
    assert apart(found, trace.attention) > 1e-2


def test_sizes_that_do_not_fit_are_refused(opened):
    found = {choice.scheme: choice for choice in surgery.choices(opened("llama")[1])}
    assert "made for 128 dimensions, not 64" in found["learned"].reason
    assert found["rope"] == surgery.Choice("rope")
    model, trace = opened("llama")
    with pytest.raises(BadIds, match="made for 128 dimensions"):
        surgery.swap(model, trace, "learned")


# --- another order ----


ORDER = [0, 9, 2, 5, 4, 3, 8, 1, 7, 6]


@pytest.mark.parametrize("name", ["tinput/none", "deberta-v2"])
def test_without_positions_a_shuffle_permutes_the_weights_and_nothing_else(opened, name):
    changes = {} if name.startswith("tinput/") else {"position_biased_input": False}
    model, trace = opened(name, **changes)
    assert trace.scheme == "none"
    other = model.trace(ids=[IDS[i] for i in ORDER]).attention
    bare, its = surgery.unmasked(trace.attention), surgery.unmasked(other)
    permuted = bare.weights.tensor()[:, ORDER][:, :, ORDER]
    torch.testing.assert_close(its.weights.tensor(), permuted, atol=2e-6, rtol=0)
    assert float((permuted - bare.weights.tensor()).abs().max()) > 1e-3  # a permutation that is not by chance none
    shuffled = surgery.shuffle(model, trace, ORDER)  # the same, in the tokens' old order
    assert weights_apart(surgery.unmasked(shuffled), bare) <= 2e-6
    causal = surgery.is_causal(trace.attention)
    assert causal == (name == "tinput/none")
    if causal:  # what the mask does: each token is shown other tokens
        assert weights_apart(shuffled, trace.attention) > 0.1
    else:
        assert weights_apart(shuffled, trace.attention) <= 2e-6


@pytest.mark.parametrize("name", ["tinput/rope", "tinput/learned", "bert", "llama"])
def test_with_positions_a_shuffle_changes_scores(opened, name):
    model, trace = opened(name)
    shuffled = surgery.shuffle(model, trace, ORDER)
    change = surgery.Change(trace.attention, shuffled)
    assert change.largest(0)[0] > 1e-2
    recorded = model.trace(ids=[IDS[i] for i in ORDER]).attention
    for place, token in enumerate(ORDER):
        for other, key in enumerate(ORDER):
            assert shuffled.weights.tensor()[1, token, key] == recorded.weights.tensor()[1, place, other]


def test_an_order_is_a_permutation(opened):
    model, trace = opened("tinput/rope")
    for wrong in ([0] * 10, list(range(9)), list(range(1, 11))):
        with pytest.raises(BadIds, match="An order names each of the 10 tokens once"):
            surgery.shuffle(model, trace, wrong)
    order = surgery.shuffled(50, 3, keep=[0, 49])
    assert order.sort().values.tolist() == list(range(50))
    assert (order[0], order[49]) == (0, 49)
    assert torch.equal(order, surgery.shuffled(50, 3, keep=[0, 49]))
    assert not torch.equal(order, surgery.shuffled(50, 4, keep=[0, 49]))


def test_a_norm_after_the_rotation_keeps_it_from_being_set_anew_but_not_from_being_taken_away(tmp_path):
    """HunYuan norms q and k once they are turned: transformers with all angles zero is the oracle."""
    import transformers

    torch.manual_seed(0)
    settings: dict[str, Any] = tiny.GQA | {"pad_token_id": 0, "eos_token_id": 1}
    whole = transformers.HunYuanDenseV1ForCausalLM(transformers.HunYuanDenseV1Config(**settings)).eval()
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    whole.save_pretrained(tmp_path)
    model = open_model(tmp_path)
    trace = model.trace(ids=IDS)
    with pytest.raises(NotRecorded, match="changes q or k after their rotation"):
        surgery.move(model, trace, range(10))
    still = model.trace(ids=IDS, positions=[0] * 10).attention  # at position 0 no angle is left
    found = surgery.swap(model, trace, "none")
    torch.testing.assert_close(found.scores.tensor(), still.scores.tensor(), atol=1e-5, rtol=1e-5)
    assert float((found.scores.tensor() - trace.attention.scores.tensor()).abs().max()) > 1e-2
