"""The Relative bias page: buckets and the learned table, of the model or of the bundled one that has it."""

import numpy as np
import pytest
import torch
from transformers.models.t5.modeling_t5 import T5Attention

import tinput
from tests import app, tiny
from tests.pages.code_shown import assert_draws_the_same
from tinput.twins import NAMES

PARTS = ["Bias by distance", "Buckets", "Bias of this text", "Attention weights"]
OWN = "tinput/relative_bias"
LONG = " ".join([app.TEXT] * 20)


def table(name: str = OWN) -> torch.Tensor:
    model = tinput.open_model(name)
    found = next(effect.table for effect in model.trace("x").effects if effect.table)
    return model.table_rows(found, torch.arange(model.table_size(found)))


@pytest.mark.parametrize("name", NAMES)
def test_the_bias_by_distance_is_the_table_through_t5_s_buckets(name):
    at = app.show("relative_bias", model=name)
    shown = app.series(app.figures(at)[0])
    rows = table()
    n = len(next(iter(shown.values())))
    distance = torch.arange(-(n - 1), 1)
    index = T5Attention._relative_position_bucket(distance, bidirectional=False, num_buckets=len(rows))
    for head in range(rows.shape[1]):
        np.testing.assert_allclose(shown[f"head {head}"], rows[index, head].numpy(), atol=1e-6)
    assert ("What if" in app.words(at)) == (name != OWN)
    assert (f"The pictures show what {OWN} learned" in app.words(at)) == (name != OWN)


def test_an_encoder_s_buckets_look_both_ways(tmp_path, monkeypatch):
    monkeypatch.setenv("TINPUT_MODELS", str(tmp_path))
    tiny.make("t5", tmp_path / "t5", vocab_size=1024)
    tinput.open_model(OWN).tokenizer.save_pretrained(tmp_path / "t5")
    at = app.show("relative_bias", model=str(tmp_path / "t5"), bucket="Buckets", reach="near")
    (shown,) = app.series(app.figures(at)[0]).values()
    want = T5Attention._relative_position_bucket(torch.arange(-32, 33), bidirectional=True)
    assert shown.tolist() == want.tolist()
    assert "half for keys behind, half for keys ahead" in app.words(at)


def test_buckets_of_a_decoder():
    at = app.show("relative_bias", model=OWN, bucket="Buckets", reach="beyond")
    (shown,) = app.series(app.figures(at)[0]).values()
    want = T5Attention._relative_position_bucket(torch.arange(-len(shown) + 1, 1), bidirectional=False)
    assert shown.tolist() == want.tolist()


def test_the_bias_of_the_text_is_the_recorded_one():
    trace = tinput.open_model(OWN).trace(app.TEXT)
    assert isinstance(trace.effect, tinput.Bias)
    seq = len(trace.ids)
    shown = app.heats(app.figures(app.show("relative_bias", model=OWN, bucket="Bias of this text"))[0])
    want = np.where(np.tri(seq) > 0, trace.effect.scores.numpy(), np.nan)
    np.testing.assert_array_equal(shown, want)


def test_weights_with_the_bias_are_the_recorded_ones():
    attention = tinput.open_model(OWN).trace(app.TEXT).attention
    assert attention is not None
    at = app.show("relative_bias", model=OWN, bucket="Attention weights", head="1")
    without, with_bias = app.heats(app.figures(at)[0])
    seq = len(without)
    later = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    recorded = attention.weights[1].tensor().masked_fill(later, float("nan"))
    np.testing.assert_array_equal(with_bias, recorded.numpy())
    scores = (attention.q[1] @ attention.k[1].T * attention.scale).masked_fill(later, -torch.inf)
    np.testing.assert_allclose(without, scores.softmax(-1).masked_fill(later, float("nan")).numpy(), atol=1e-6)


def test_the_sentences_about_a_long_text_are_of_its_last_token():
    """The picture leaves out tokens: the favourite of the row that it shows last is not the last token's."""
    trace = tinput.open_model(OWN).trace(LONG)
    assert isinstance(trace.effect, tinput.Bias)
    last = trace.effect.scores[:, -1].float()
    head = int((last.amax(1) - last.amin(1)).argmax())
    back = last.shape[1] - 1 - int(last[head].argmax())
    assert last.shape[1] > 256
    favourite = {0: "itself", 1: "the token before it"}.get(back, f"{back} tokens back")
    at = app.show("relative_bias", LONG, model=OWN, bucket="Bias of this text")
    assert f"{float(last[head].min()):.2f} to {float(last[head].max()):.2f}; the last token's favourite is " + (
        f"{favourite}."
    ) in app.words(at)


def test_the_weights_of_a_long_text_have_colours():
    figure = app.figures(app.show("relative_bias", LONG, model=OWN, bucket="Attention weights"))[0]
    top = figure["layout"]["coloraxis"]["cmax"]
    assert top == pytest.approx(np.nanquantile(np.stack(app.heats(figure)), 0.995), rel=1e-5)
    assert top < 0.5
    assert f"colours end at {top:.3g} (the 99.5 % quantile)" in figure["layout"]["meta"]["note"]


@pytest.mark.parametrize("text", app.HOSTILE)
@pytest.mark.parametrize("part", PARTS)
def test_any_text(part, text):
    at = app.show("relative_bias", text, model=OWN, bucket=part)
    assert app.chips(at) == list(tinput.open_model(OWN).tokenize(text).labels)
    assert len(app.figures(at)) == 1


@pytest.mark.parametrize("name", [OWN, "tinput/rope", "tinput/alibi"])
@pytest.mark.parametrize("part", PARTS)
def test_the_python_runs_as_shown(part, name):
    """Of the model's own bias, of a what-if, and of a what-if beside a bias of the model's own."""
    assert_draws_the_same(app.show("relative_bias", model=name, bucket=part))
