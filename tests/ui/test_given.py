"""What a scheme's page starts from, for models of other makers: partial and paired rotations, none, two thetas."""

import numpy as np
import pytest
import torch

import tinput
from tests import app, tiny
from tinput.positions import alibi, rope
from tinput.twins import NAMES
from tinput.ui import given


@pytest.fixture
def made(tmp_path, monkeypatch):
    """name -> the folder of a tiny model of that kind, with a tokenizer."""
    monkeypatch.setenv("TINPUT_MODELS", str(tmp_path))

    def make(kind: str) -> str:
        tiny.make(kind, tmp_path / kind, vocab_size=1024)
        tinput.open_model(NAMES[0]).tokenizer.save_pretrained(tmp_path / kind)
        return str(tmp_path / kind)

    return make


def test_an_interleaved_pairing_is_named(made):
    at = app.show("rope", model=made("gptj"), turn="Pairing")
    assert "pairs interleaved: dimension 0 turns with 1" in app.words(at)
    assert "8 of 16 dimensions turn" in app.words(at)
    shown = app.heat(app.figures(at)[0])
    assert np.isnan(shown[:, 8:]).all(), "what is not turned is blank"
    assert shown[1, :8].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_wavelengths_are_of_the_layer_that_was_recorded(made):
    """Gemma 3: layer 0 is local, with a theta of its own and no scaling."""
    folder = made("gemma3_text")
    trace = tinput.open_model(folder).trace(app.TEXT)
    assert isinstance(trace.effect, tinput.Rotate)
    (shown,) = app.series(app.figures(app.show("rope", model=folder, turn="Wavelengths"))[0]).values()
    last = len(trace.ids) - 1
    np.testing.assert_allclose(shown, 2 * np.pi * last / trace.effect.angles[-1].numpy(), rtol=1e-4)


def test_heads_of_k_are_shared_by_neighbours():
    """Four heads of q and two of k: 0 and 1 look at the first, 2 and 3 at the second (Ainslie et al. 2023)."""
    q, k, angles = torch.zeros(4, 3, 8), torch.zeros(2, 3, 8), torch.zeros(3, 4)
    turned = given.Rotation(False, angles, angles[0], "half", 0, 1.0, 1.0, q, q, k, k, "", rope.rotate)
    assert [turned.key_head(head) for head in range(4)] == [0, 0, 1, 1]


def test_a_bias_by_key_is_the_paper_s_once_each_row_begins_at_its_own_key():
    slopes = alibi.slopes(2)
    heads = given.Heads(True, alibi.field(slopes, 5, 5, "by_key"), True)
    shown, masked = heads.window(0, 2, relative=True)
    back = torch.arange(5)[:, None] - torch.arange(5)
    torch.testing.assert_close(shown.values, -slopes[:, None, None] * back)
    assert masked is not None
    assert masked.tolist() == (back < 0).tolist()


def test_a_slice_of_each_head_that_turns(made):
    folder = made("deepseek_v3")
    for part in ("Angles", "Dials", "q and k", "Scores", "Pairing", "Scaling"):
        app.show("rope", model=folder, turn=part)  # asserts that nothing was raised
    assert "dimension 16 turns with" in app.words(app.show("rope", model=folder, turn="Pairing"))


@pytest.mark.parametrize(
    ("page", "control"), [("rope", {"turn": "q and k"}), ("alibi", {"slope": "Attention weights"})]
)
def test_without_attention_it_says_so(made, page, control):
    at = app.show(page, model=made("mamba"), **control)
    assert "none of the 2 layers has attention" in app.words(at)
    assert not app.figures(at)


def test_what_if_keeps_the_model_s_own_bias_apart(made):
    """XLNet's scores mix content and distance: the page still draws what the paper's bias would add."""
    figure = app.figures(app.show("alibi", model=made("xlnet")))[0]
    assert "what-if" in figure["layout"]["meta"]["note"]
    assert len(app.heats(figure)) == 4
