"""The ALiBi page: slopes, biases, weights and reach are the model's, or the paper's on its scores."""

import math

import numpy as np
import pytest
import torch

import tinput
from tests import app, tiny
from tests.pages.code_shown import assert_draws_the_same
from tinput.twins import NAMES

PARTS = ["Bias", "Slopes", "Attention weights", "Reach"]
OWN = "tinput/alibi"
LONG = " ".join([app.TEXT] * 20)


def drawn(figure: dict) -> str:
    """All words written on a figure, lines joined."""
    return " ".join(app.unescape(a["text"]).replace("<br>", " ") for a in figure["layout"]["annotations"])


def slopes(heads: int) -> np.ndarray:
    """Press et al. 2022, section 3, for a power of two."""
    return 2.0 ** (-8 * np.arange(1, heads + 1) / heads)


@pytest.mark.parametrize("name", NAMES)
def test_the_bias_of_each_head(name):
    trace = tinput.open_model(name).trace(app.TEXT)
    assert trace.attention is not None
    heads, seq = trace.attention.heads, len(trace.ids)
    at = app.show("alibi", model=name)
    figure = app.figures(at)[0]
    want = -slopes(heads)[:, None, None] * (np.arange(seq)[:, None] - np.arange(seq)[None, :])
    want[:, ~np.tri(seq, dtype=bool)] = np.nan
    np.testing.assert_allclose(app.heats(figure), want, atol=1e-6)
    if name == OWN:
        assert isinstance(trace.effect, tinput.Bias)
        recorded = np.where(np.tri(seq) > 0, trace.effect.scores.numpy(), np.nan)
        np.testing.assert_array_equal(app.heats(figure), recorded)
    assert ("recorded from the model" in figure["layout"]["meta"]["note"]) == (name == OWN)
    assert ("What if" in app.words(at)) == (name != OWN)
    assert "All heads share one scale of colours" in app.words(at)


def test_symmetric_looks_both_ways():
    figure = app.figures(app.show("alibi", model=OWN, form="Symmetric"))[0]
    values = np.array(app.heats(figure))
    assert not np.isnan(values).any()
    np.testing.assert_array_equal(values, values.transpose(0, 2, 1))
    assert "what-if" in figure["layout"]["meta"]["note"]


def test_the_two_conventions_are_one_by_distance(tmp_path, monkeypatch):
    """BLOOM adds slope times key, MPT slope times (key - last): equal under softmax."""
    monkeypatch.setenv("TINPUT_MODELS", str(tmp_path))
    tokenizer = tinput.open_model(OWN).tokenizer
    shown = {}
    for kind in ("bloom", "mpt"):
        tiny.make(kind, tmp_path / kind, vocab_size=1024)
        tokenizer.save_pretrained(tmp_path / kind)
        for form in ("As it is added", "By distance"):
            at = app.show("alibi", model=str(tmp_path / kind), form=form)
            shown[kind, form] = np.array(app.heats(app.figures(at)[0]))
    seq = shown["mpt", "By distance"].shape[-1]
    masked = ~np.tri(seq, dtype=bool)
    np.testing.assert_allclose(shown["bloom", "By distance"], shown["mpt", "By distance"], atol=1e-6)
    key = np.where(masked, np.nan, 0.25 * np.arange(seq)[None, :])
    np.testing.assert_allclose(shown["bloom", "As it is added"][0], key, atol=1e-6)
    np.testing.assert_allclose(shown["mpt", "As it is added"][0], key - 0.25 * (seq - 1), atol=1e-6)


def test_slopes_and_reach():
    at = app.show("alibi", model=OWN, slope="Slopes")
    (shown,) = app.series(app.figures(at)[0]).values()
    np.testing.assert_allclose(shown, slopes(len(shown)), rtol=1e-6)
    at = app.show("alibi", model=OWN, slope="Reach")
    (reach,) = app.series(app.figures(at)[0]).values()
    np.testing.assert_allclose(np.exp(-reach * shown), 0.01, rtol=1e-5)
    assert f"after {math.log(100) / shown[0]:,.1f} tokens in the steepest head" in app.words(at)


@pytest.mark.parametrize("name", [OWN, "tinput/rope"])
def test_weights_without_and_with(name):
    trace = tinput.open_model(name).trace(app.TEXT)
    attention = trace.attention
    assert attention is not None
    seq, head = len(trace.ids), 1
    at = app.show("alibi", model=name, slope="Attention weights", head=str(head))
    without, with_bias = app.heats(app.figures(at)[0])
    scores = (attention.q[head] @ attention.k[head].T * attention.scale).double()
    later = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    distance = torch.arange(seq)[:, None] - torch.arange(seq)[None, :]
    for shown, bias in ((without, 0.0 * distance), (with_bias, -slopes(attention.heads)[head] * distance)):
        want = (scores + bias).masked_fill(later, -math.inf).softmax(-1).masked_fill(later, math.nan)
        np.testing.assert_allclose(shown, want.numpy(), atol=1e-5)
    recorded = attention.weights[head].tensor().masked_fill(later, math.nan)
    np.testing.assert_array_equal(with_bias if name == OWN else without, recorded.numpy())


@pytest.mark.parametrize("name", [OWN, "tinput/none"])
@pytest.mark.parametrize("form", ["As it is added", "By distance"])
def test_a_long_text_has_the_same_slopes(name, form):
    """Sentences are of the whole bias: the picture's leaves out tokens, and would make slopes steeper."""
    steep, flat = slopes(4)[[0, -1]]
    for text in (app.TEXT, LONG):
        at = app.show("alibi", text, model=name, form=form)
        said = app.words(at)
        assert f"from {steep:.3g} (head 0) to {flat:.3g} (head 3)" in said
        assert f"after {math.log(100) / steep:,.1f} tokens, in head 3 after {math.log(100) / flat:,.0f};" in said
    note = app.figures(at)[0]["layout"]["meta"]["note"]
    assert "1 query in" in note
    assert note in drawn(app.figures(at)[0])


def test_the_weights_of_a_long_text_have_colours():
    figure = app.figures(app.show("alibi", LONG, model=OWN, slope="Attention weights"))[0]
    shown = np.stack(app.heats(figure))
    top = figure["layout"]["coloraxis"]["cmax"]
    assert top == pytest.approx(np.nanquantile(shown, 0.995), rel=1e-5)
    assert top < 0.5
    assert f"colours end at {top:.3g} (the 99.5 % quantile)" in drawn(figure)
    short = app.figures(app.show("alibi", model=OWN, slope="Attention weights"))[0]
    assert short["layout"]["coloraxis"]["cmax"] == 1
    assert "colours end" not in drawn(short)


@pytest.mark.parametrize("text", app.HOSTILE)
@pytest.mark.parametrize("part", PARTS)
def test_any_text(part, text):
    at = app.show("alibi", text, model=OWN, slope=part)
    assert app.chips(at) == list(tinput.open_model(OWN).tokenize(text).labels)
    assert len(app.figures(at)) == 1


@pytest.mark.parametrize("name", [OWN, "tinput/none"])
@pytest.mark.parametrize("part", PARTS)
def test_the_python_runs_as_shown(part, name):
    assert_draws_the_same(app.show("alibi", model=name, slope=part))
