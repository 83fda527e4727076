"""The Surgery page: before and after are the public surface's, laws are said with the measured number, code runs."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import tinput
from tests import app, tiny
from tests.pages.code_shown import assert_draws_the_same, run
from tinput import surgery
from tinput.twins import NAMES

SHIFT, SCHEME, STRETCH, REPEAT, SHUFFLE, HAND = (
    "Shift", "Another scheme", "Stretch", "Repeat", "Shuffle the tokens", "By hand",
)  # fmt: skip
FOLLOW = "Where a value came from"


def band(at) -> str:
    """What the what-if band says."""
    (found,) = re.findall(r'<div class="whatif">(.*?)</div>', app.html(at), re.DOTALL)
    return " ".join(app.plain(found).split())


def numbers(at) -> tuple[float, float]:
    """By how much scores and weights change, as the band says."""
    said = band(at)
    scores = re.search(r"(?:no score changes by more than|scores change by up to) (\d[\d.,e+-]*)", said)
    weights = re.search(r"(?:no weight by more than|weights by up to) (\d[\d.e+-]*)", said)
    assert scores is not None
    assert weights is not None
    return float(scores[1].rstrip(",")), float(weights[1].rstrip("."))


@pytest.mark.parametrize("name", NAMES)
def test_before_is_recorded_and_after_is_the_model_s_own_run_elsewhere(name):
    model = tinput.open_model(name)
    trace = model.trace(app.TEXT)
    moved = model.trace(app.TEXT, positions=torch.arange(len(trace.ids)) + 60)
    assert trace.attention is not None
    assert moved.attention is not None
    sides = (trace.attention, moved.attention)
    at = app.show("surgery", model=name, shift="60", head="1")
    before, after, difference = app.heats(app.figures(at)[0])
    hidden = ~np.tri(len(trace.ids), dtype=bool)
    want = [np.where(hidden, np.nan, side.weights[1].tensor().numpy()) for side in sides]
    np.testing.assert_array_equal(before, want[0].astype(np.float32))
    np.testing.assert_allclose(after, want[1], atol=1e-6)
    np.testing.assert_allclose(difference, want[1] - want[0], atol=2e-6)
    scores, weights = numbers(at)
    assert weights == pytest.approx(np.nanmax(np.abs(want[1] - want[0])), rel=0.06, abs=1e-6)
    unchanged = trace.scheme not in ("sinusoidal", "learned")
    assert (scores < 1e-5) == (weights < 1e-5) == unchanged
    law = {
        "rope": "RoPE sees distances alone",
        "alibi": "ALiBi sees distances alone",
        "relative_bias": "Relative bias (T5) sees distances alone",
        "sinusoidal": "Sinusoidal: each position has numbers of its own",
        "learned": "Learned table: each position has numbers of its own",
        "none": "tinput/none has no positions",
    }
    assert law[trace.scheme] in band(at)
    assert "all tokens stood 60 positions further on" in band(at)
    assert "it was not trained so" in band(at)


def test_one_colour_scale_for_before_and_after_and_no_colour_for_rounding():
    figure = app.figures(app.show("surgery", model="tinput/rope", of="Scores"))[0]
    axes = [trace["coloraxis"] for trace in figure["data"] if trace["type"] == "heatmap"]
    assert axes == ["coloraxis", "coloraxis", "coloraxis2"]
    both, apart = figure["layout"]["coloraxis"], figure["layout"]["coloraxis2"]
    assert both["cmin"] == -both["cmax"]
    assert apart["cmin"] == -apart["cmax"]
    assert float(np.nanmax(np.abs(app.heats(figure)[2]))) < 0.01 * apart["cmax"]  # 1e-6 does not look like a change
    for axis in ("xaxis", "yaxis"):  # zoomed together
        assert figure["layout"][f"{axis}2"]["matches"] == figure["layout"][f"{axis}3"]["matches"] == axis[0]
    assert len(figure["layout"]["meta"]["edges"]) == len(app.heat(figure)) + 1  # marked together, by link.js


@pytest.mark.parametrize("name", ["tinput/rope", "tinput/learned"])
@pytest.mark.parametrize("label", ["None (NoPE)", "ALiBi", "RoPE", "Sinusoidal", "Relative bias (T5)", "Learned table"])
def test_another_scheme(name, label):
    model = tinput.open_model(name)
    trace = model.trace(app.TEXT)
    scheme = next(key for key, module in tinput.SCHEMES.items() if label == module.LABEL)
    at = app.show("surgery", model=name, cut=SCHEME, into=label, of="Scores", head="2")
    after = surgery.swap(model, trace, scheme)
    want = (after.scores[2].tensor() + after.bias[2].tensor()).numpy()
    shown = app.heats(app.figures(at)[0])[1]
    np.testing.assert_allclose(shown[np.tri(len(shown)) > 0], want[np.tri(len(shown)) > 0], atol=1e-6)
    assert ("the model's own." in band(at)) == (trace.scheme == scheme)
    assert ("it was learned with other weights" in band(at)) == (
        scheme in ("learned", "relative_bias") and trace.scheme != scheme
    )


def test_a_scheme_that_cannot_be_put_in_says_why():
    at = app.show("surgery", model="tinput/rope", cut=SCHEME, into="Relative (content and distance)")
    assert "only a model with it has" in app.trouble(at)
    assert not app.figures(at)


def test_theta_and_scaling_of_a_rotation():
    """The pair that turns slowest, by the formula of linear scaling with theta 100: the whole picture by numpy."""
    trace = tinput.open_model("tinput/none").trace(app.TEXT)
    assert trace.attention is not None
    controls = {"cut": SCHEME, "into": "RoPE", "theta": "100", "scaled": "linear", "stretch": "8", "of": "Scores"}
    at = app.show("surgery", model="tinput/none", **controls)
    q, k = trace.attention.q[0].double().numpy(), trace.attention.k[0].double().numpy()
    half, seq = q.shape[1] // 2, len(q)
    turn = np.exp(1j * np.arange(seq)[:, None] / 8 * 100.0 ** (-np.arange(half) / half))
    z = [(x[:, :half] + 1j * x[:, half:]) * turn for x in (q, k)]
    want = trace.attention.scale * (z[0] @ z[1].conj().T).real
    past = np.tri(seq) > 0
    np.testing.assert_allclose(app.heats(app.figures(at)[0])[1][past], want[past], atol=1e-5)
    assert "theta 100, linear scaling, 8 times longer" in band(at)


def test_a_shuffle_without_positions_and_without_the_mask_moves_weights_and_changes_none():
    bare = app.show("surgery", model="tinput/none", cut=SHUFFLE, order="5", bare="true")
    scores, weights = numbers(bare)
    assert scores < 1e-5
    assert weights < 1e-5
    assert "each weight is the same number, only its place has changed" in band(bare)
    masked = app.show("surgery", model="tinput/none", cut=SHUFFLE, order="5")
    scores, weights = numbers(masked)
    assert scores < 1e-5 < 0.1 < weights
    assert "the mask now shows each token other tokens" in band(masked)
    assert "recorded from the model's own run in that order" in band(masked)
    turned = app.show("surgery", model="tinput/rope", cut=SHUFFLE, order="5", bare="true")
    assert min(numbers(turned)) > 1e-2
    assert "they stand elsewhere" in band(turned)


@pytest.mark.parametrize(
    ("controls", "at"),
    [
        ({"cut": STRETCH, "times": "0.5"}, lambda p: p * 0.5),
        ({"cut": STRETCH, "times": "4"}, lambda p: p * 4),
        ({"cut": REPEAT, "again": "3"}, lambda p: p % 3),
        ({"cut": HAND, "token": "2", "at": "40"}, lambda p: torch.where(p == 2, 40, p)),
        ({"cut": HAND, "set": "All, as a list", "places": " ".join(str(i / 2) for i in range(17))}, lambda p: p / 2),
    ],
)
def test_positions_set_otherwise(controls, at):
    model = tinput.open_model("tinput/alibi")
    trace = model.trace(app.TEXT)
    page = app.show("surgery", model="tinput/alibi", of="Scores", head="0", **controls)
    assert trace.attention is not None
    p = at(torch.arange(17)).double().numpy()
    want = trace.attention.scores[0].tensor().numpy() + 2.0**-2 * (p[None, :] - p[:, None])
    shown = app.heats(app.figures(page)[0])[1]
    past = np.tri(17) > 0
    np.testing.assert_allclose(shown[past], want[past], atol=1e-5)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("1 2 3", "There are 17 tokens and 3 positions: type one for each token."),
        ("1, two, 3", "“two” is no number: type 17 numbers, with blanks or commas between them."),
        (" ".join(["1e99"] * 17), "1e99 is too far: type positions up to 1,000,000,000."),
        (" ".join(["nan"] * 17), "“nan” is no position: type 17 numbers."),
        ("<b>$x$</b>", "“<b>$x$</b>” is no number: type 17 numbers, with blanks or commas between them."),
    ],
)
def test_a_list_that_cannot_be_read_is_kept_and_says_what_to_do(typed, said):
    at = app.show("surgery", cut=HAND, set="All, as a list", places=typed)
    assert app.trouble(at) == said
    assert at.text_input(key="places").value == typed
    assert not app.figures(at)


def test_a_table_has_no_row_between_two_or_past_the_last():
    half = app.show("surgery", model="tinput/learned", cut=STRETCH, times="0.5")
    assert app.trouble(half) == "Position 0.5 has no row in the table of tinput/learned: give whole numbers."
    far = app.show("surgery", model="tinput/learned", shift="300")
    assert app.trouble(far).startswith("Position 316 is past the last one, 255, of a table of 256 rows")


def test_a_model_without_attention_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("TINPUT_MODELS", str(tmp_path))
    tiny.make("mamba", tmp_path / "mamba", vocab_size=1024)
    tinput.open_model("tinput/none").tokenizer.save_pretrained(tmp_path / "mamba")
    at = app.show("surgery", model=str(tmp_path / "mamba"))
    assert "none of the 2 layers has attention of the usual kind" in app.trouble(at)
    followed = app.show("surgery", model=str(tmp_path / "mamba"), look=FOLLOW)
    assert followed.dataframe[0].value["step"].tolist()[-1] == "block input"


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_other_architectures(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("TINPUT_MODELS", str(tmp_path))
    tiny.make(kind, tmp_path / kind, vocab_size=1024)
    tinput.open_model("tinput/none").tokenizer.save_pretrained(tmp_path / kind)
    at = app.show("surgery", model=str(tmp_path / kind), shift="30")
    assert (numbers(at)[0] < 1e-5) == (kind == "llama")
    assert_draws_the_same(at)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ["Block input", "Attention weight"])
def test_a_value_is_followed_and_its_python_gives_it(name, value):
    trace = tinput.open_model(name).trace(app.TEXT)
    assert trace.attention is not None
    at = app.show(
        "surgery",
        model=name,
        look=FOLLOW,
        value=value,
        **({"looks": "9"} if value == "Attention weight" else {"token": "9"}),
        seen="4",
        dim="7",
        head="2",
    )
    table = at.dataframe[0].value
    (block,) = app.code(at)
    block_input, weight = trace.block_input[9, 7], trace.attention.weights[2].tensor()[9, 4]
    want = float(block_input if value == "Block input" else weight)
    assert run(block) == pytest.approx(want, abs=1e-6)
    assert float(table["value"].tolist()[-1]) == pytest.approx(want, rel=1e-4)
    assert f"The value is {table['value'].tolist()[-1]}." in app.words(at)
    model = tinput.open_model(name)
    chain = surgery.input_chain(model, trace, 9, 7)
    links = chain if value == "Block input" else surgery.weight_chain(model, trace, 2, 9, 4)
    assert table["step"].tolist() == [link.name for link in links]
    assert all(line in block for link in links for line in link.code.splitlines())


@pytest.mark.parametrize("name", ["tinput/rope", "tinput/learned"])
@pytest.mark.parametrize(
    "controls",
    [
        {"cut": SHIFT},
        {"cut": SCHEME, "into": "ALiBi", "of": "Scores"},
        {"cut": SCHEME, "into": "RoPE", "theta": "100", "scaled": "yarn"},
        {"cut": REPEAT},
        {"cut": SHUFFLE, "bare": "true"},
        {"cut": HAND, "token": "3"},
    ],
)
def test_the_python_runs_as_shown(name, controls):
    assert_draws_the_same(app.show("surgery", model=name, **controls))


@pytest.mark.parametrize("text", app.HOSTILE)
@pytest.mark.parametrize("controls", [{"cut": SHUFFLE}, {"cut": HAND, "token": "0"}, {"look": FOLLOW}])
def test_any_text(text, controls):
    at = app.show("surgery", text, **controls)
    assert app.chips(at) == list(tinput.open_model("tinput/sinusoidal").tokenize(text).labels)
    assert len(app.figures(at)) + len(at.dataframe) == 1
    assert not at.exception


def test_a_long_text_is_thinned_and_says_so():
    at = app.show("surgery", " ".join([app.TEXT] * 40), model="tinput/alibi", cut=STRETCH)
    figure = app.figures(at)[0]
    assert all(matrix.size <= 256 * 256 // 3 for matrix in app.heats(figure))
    assert "1 query in" in figure["layout"]["meta"]["note"]
    assert "over 1 query in 2" in band(at)


def test_it_says_how_large_the_scores_are_that_change():
    attention = tinput.open_model("tinput/sinusoidal").trace(app.TEXT).attention
    assert attention is not None
    scores = attention.scores[1].tensor().numpy()
    largest = np.abs(scores[np.tri(len(scores)) > 0]).max()
    at = app.show("surgery", model="tinput/sinusoidal", shift="60", head="1")
    assert f"(the largest score is {largest:.2g} in size)" in band(at)
