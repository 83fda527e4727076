"""Surgery: laws of the schemes, held against the model's own runs, against numpy, and against transformers.

Whatever is computed here was computed another way: by the model itself at those positions, by a checkpoint changed on
the disk, or by the paper's formula written out in numpy.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import tinput
from tests import tiny
from tinput import surgery
from tinput.errors import BadIds, NotRecorded
from tinput.twins import NAMES, folder
from tinput.window import Field

IDS = [20, 33, 41, 20, 57, 60, 71, 33, 41, 25]
TEXT = "The old man saw the young man, and the young man saw the old man."
TURNING = ("llama", "gptj", "gpt_neox", "gemma", "deepseek_v3", "modernbert", "gpt_oss", "qwen3")
ADDING = ("gpt2", "bert", "roberta", "opt", "albert", "distilbert-sinusoidal")


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """name -> (model, trace of IDS), of a bundled model or of tests/tiny.py."""
    made = {}

    def get(name: str, **changes):
        key = (name, *sorted(changes.items()))
        if key not in made:
            where: str | Path = name
            if not name.startswith("tinput/"):
                where = tmp_path_factory.mktemp("model")
                tiny.make(name, where, **changes)
            model = tinput.open_model(where)
            made[key] = (model, model.trace(ids=IDS))
        return made[key]

    return get


def logits(attention) -> torch.Tensor:
    """Scores with their bias where a key is seen, 0 elsewhere: (heads, query, key)."""
    found = attention.scores.tensor() + attention.bias.tensor()
    return found.masked_fill(attention.mask.tensor() < 0, 0.0)


def apart(one, other) -> float:
    return float((logits(one) - logits(other)).abs().max())


def weights_apart(one, other) -> float:
    return float((one.weights.tensor() - other.weights.tensor()).abs().max())


def own(trace) -> torch.Tensor:
    return torch.arange(len(trace.ids)) if trace.positions is None else trace.positions


# --- other positions --------------------------------------------------------------------------------------------------


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


# --- another scheme ---------------------------------------------------------------------------------------------------


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


def waves(width: int) -> np.ndarray:
    at = np.arange(len(IDS))[:, None] / 10_000.0 ** (np.arange(0, width, 2) / width)
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
    bias = tinput.open_model("tinput/relative_bias").trace(ids=IDS).effect.scores
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
        recorded = tinput.open_model(tmp_path / name).trace(ids=IDS).attention
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
    recorded = tinput.open_model(tmp_path).trace(ids=IDS).attention
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


# --- another order ----------------------------------------------------------------------------------------------------

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


# --- what changed -----------------------------------------------------------------------------------------------------


def test_a_change_is_after_minus_before(opened):
    model, trace = opened("tinput/learned")
    change = surgery.Change(trace.attention, surgery.move(model, trace, own(trace) + 30))
    for head in range(4):
        one, other = logits(change.before)[head], logits(change.after)[head]
        before, after, difference = change.scores(head)
        past = torch.ones(10, 10).tril() > 0
        torch.testing.assert_close(difference.values[past], (other - one)[past])
        assert bool((difference.values[~past] == -torch.inf).all())
        torch.testing.assert_close(after.values[past] - before.values[past], difference.values[past])
        weights = change.after.weights.tensor()[head] - change.before.weights.tensor()[head]
        torch.testing.assert_close(change.weights(head)[2].values[past], weights[past])
        assert change.largest(head) == pytest.approx((float((other - one).abs().max()), float(weights.abs().max())))
        assert change.size(head) == pytest.approx(float(one.abs().max()))
        assert float(change.moved()[head]) == pytest.approx(float(weights.abs().sum(-1).mean() / 2), rel=1e-5)


def test_at_2048_tokens_nothing_is_made_for_all_heads_and_cells(monkeypatch):
    model = tinput.open_model("tinput/none")
    trace = model.trace(ids=torch.arange(2048) % 900 + 20)
    monkeypatch.setattr(Field, "tensor", lambda *_: pytest.fail("a whole field was asked for"))
    biggest = 0
    softmax = torch.softmax

    def watched(values, dim):
        nonlocal biggest
        biggest = max(biggest, values.numel())
        return softmax(values, dim=dim)

    monkeypatch.setattr(torch, "softmax", watched)
    change = surgery.Change(trace.attention, surgery.swap(model, trace, "rope"))
    before, _, difference = change.weights(3)
    assert before.values.shape == difference.values.shape == (256, 256)
    assert change.step == 4
    assert max(change.largest(3)) > 0.1
    assert 0 < float(change.moved().max()) <= 1
    assert biggest <= 256 * 2048


# --- frequency pairs --------------------------------------------------------------------------------------------------

PAIRED = {  # name: (pairs, dimensions that are not turned, d of theta^(-2i/d), theta)
    "tinput/rope": (16, 0, 32, 10_000.0),
    "llama": (8, 0, 16, 10_000.0),  # grouped queries
    "gptj": (4, 8, 8, 10_000.0),  # neighbours are paired, half of the head
    "gpt_neox": (2, 12, 4, 10_000.0),  # a quarter of the head
    "deepseek_v3": (4, 16, 8, 10_000.0),  # the last dimensions
    "falcon": (8, 0, 16, 10_000.0),  # one head of k
    "smollm3": (8, 0, 16, 2e6),
}


@pytest.mark.parametrize("name", PAIRED)
def test_the_parts_sum_to_the_score(opened, name):
    model, trace = opened(name)
    pairs, rest, width, theta = PAIRED[name]
    found, scores = surgery.split(model, trace), trace.attention.scores.tensor()
    assert (len(found.wavelengths), len(found.rest)) == (pairs, rest)
    np.testing.assert_allclose(
        found.wavelengths, 2 * np.pi * theta ** (2 * np.arange(pairs) / width), rtol=1e-6
    )  # Su et al. 2021
    for head in range(trace.attention.heads):
        for query in range(len(IDS)):
            for key in range(len(IDS)):
                parts = found.parts(head, query, key)
                assert float(parts.sum()) == pytest.approx(float(scores[head, query, key]), abs=1e-5)
    fields = [found.field(1, pair) for pair in (*range(pairs), None)]
    torch.testing.assert_close(sum(f.tensor() for f in fields), scores[1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["tinput/rope", "gptj", "llama"])
def test_a_part_is_what_its_pair_alone_gives(opened, name):
    """Each pair's part of a score is Re(z_q conj(z_k)) of q and k before the rotation, turned by the distance."""
    model, trace = opened(name)
    found, attention = surgery.split(model, trace), trace.attention
    group = attention.heads // attention.kv_heads
    q, k = attention.q_before.double().numpy(), attention.k_before.double().numpy()
    a, b = found.first.numpy(), found.second.numpy()
    for head, query, key in ((0, 9, 2), (1, 5, 5), (3, 8, 0)):
        zq = q[head, query, a] + 1j * q[head, query, b]
        zk = k[head // group, key, a] + 1j * k[head // group, key, b]
        turn = np.exp(1j * (query - key) * 2 * np.pi / found.wavelengths.numpy())
        want = attention.scale * (zq * turn * zk.conj()).real
        np.testing.assert_allclose(found.parts(head, query, key)[:-1].numpy(), want, atol=1e-5)


@pytest.mark.parametrize("name", ["tinput/rope", "gptj", "modernbert"])
def test_shares_are_covariances_over_the_variance(opened, name):
    model, trace = opened(name)
    found, attention = surgery.split(model, trace), trace.attention
    shares = found.shares().numpy()
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-5)
    seen = (attention.mask.tensor() == 0).numpy()
    for head in range(attention.heads):
        parts = np.stack([found.field(head, pair).tensor().double().numpy() for pair in range(len(found.first))])
        score = attention.scores.tensor()[head].double().numpy()

        def around(values, head=head):
            """What is left of each row once its mean over the keys that are seen is gone."""
            rows = [row[see] - row[see].mean() for row, see in zip(values, seen[head], strict=True)]
            return np.concatenate(rows)

        want = [around(part) @ around(score) / (around(score) @ around(score)) for part in parts]
        np.testing.assert_allclose(shares[head, :-1], want, atol=1e-5)


def test_without_a_rotation_there_is_nothing_to_split(opened):
    model, trace = opened("tinput/alibi")
    with pytest.raises(NotRecorded, match="tinput/alibi does not rotate q and k in layer 0"):
        surgery.split(model, trace)
