"""The Sinusoidal page: recorded vectors where the model has them, the formula's else, and every control counts."""

import math

import numpy as np
import pytest

import tinput
from tests import app, tiny
from tests.pages.code_shown import assert_draws_the_same
from tinput.twins import NAMES

PARTS = ["Vectors", "Wavelengths", "Similarity", "With the embedding"]


def formula(seq: int, width: int, base: float = 10_000.0) -> np.ndarray:
    """Vaswani et al. 2017, section 3.5, entry by entry."""
    table = np.empty((seq, width))
    for position in range(seq):
        for i in range(width):
            angle = position / base ** (2 * (i // 2) / width)
            table[position, i] = math.sin(angle) if i % 2 == 0 else math.cos(angle)
    return table


@pytest.mark.parametrize("name", NAMES)
def test_the_vectors_are_recorded_or_the_formula(name):
    trace = tinput.open_model(name).trace(app.TEXT)
    at = app.show("sinusoidal", model=name)
    (figure,) = app.figures(at)
    shown = app.heat(figure)
    if name == "tinput/sinusoidal":
        assert isinstance(trace.effect, tinput.Add)
        np.testing.assert_array_equal(shown, trace.effect.vectors.numpy())
        assert "recorded from the model" in figure["layout"]["meta"]["note"]
        assert "What if" not in app.words(at)
    else:
        np.testing.assert_allclose(shown, formula(*trace.block_input.shape), atol=1e-6)
        assert "what-if" in figure["layout"]["meta"]["note"]
        assert f"What if: {name} has" in app.words(at)
    assert app.badges(at)[-1][0] == trace.agreement.message


def test_width_base_and_layout_are_controls():
    figure = app.figures(app.show("sinusoidal", layout="halves", base="100", width="16"))[0]
    want = formula(app.heat(figure).shape[0], 16, 100.0)
    np.testing.assert_allclose(app.heat(figure), np.concatenate([want[:, 0::2], want[:, 1::2]], 1), atol=1e-6)


@pytest.mark.parametrize("part", PARTS[:3])
@pytest.mark.parametrize(
    ("layout", "base", "shown"),
    [
        ("own", "10,000", "10000^{2i/d}"),
        ("halves", "100", "100^{2i/d}"),
        ("MusicGen's", "1,000,000", "1000000^{i/(d/2-1)}"),
    ],
)
def test_the_formula_is_that_of_the_layout_and_base(part, layout, base, shown):
    (said,) = app.show("sinusoidal", waves=part, layout=layout, base=base).latex
    assert shown in said.value
    assert base == "10,000" or "10000^" not in said.value


@pytest.mark.parametrize(
    ("kind", "layout", "shown"),
    [
        ("distilbert-sinusoidal", "interleaved", r"\mathrm{PE}_{p,\,2i} = \sin"),
        ("marian", "halves", r"\mathrm{PE}_{p,\,d/2+i} = \cos(p\,\omega_i)"),
    ],
)
def test_the_model_s_layout_is_the_one_that_it_has(kind, layout, shown, tmp_path, monkeypatch):
    monkeypatch.setenv("TINPUT_MODELS", str(tmp_path))
    tiny.make(kind, tmp_path / kind, vocab_size=1024)
    tinput.open_model(NAMES[0]).tokenizer.save_pretrained(tmp_path / kind)
    trace = tinput.open_model(str(tmp_path / kind)).trace(app.TEXT)
    assert isinstance(trace.effect, tinput.Add)
    at = app.show("sinusoidal", model=str(tmp_path / kind))
    assert shown in at.latex[0].value
    assert f"Layout: {layout}" in app.words(at)
    values = app.heat(app.figures(at)[0])
    np.testing.assert_array_equal(values, trace.effect.vectors.numpy())
    # Another base, in the layout that the model has: the first pair turns by one radian a token whatever the base.
    moved = app.heat(app.figures(app.show("sinusoidal", model=str(tmp_path / kind), base="100"))[0])
    own = np.abs(moved - values).max(0) < 1e-4
    assert np.flatnonzero(own)[:2].tolist() == ([0, 1] if layout == "interleaved" else [0, values.shape[1] // 2])


def test_wavelengths_run_from_two_pi_to_the_last_pair():
    width = tinput.open_model(NAMES[0]).trace("x").block_input.shape[1]
    at = app.show("sinusoidal", waves="Wavelengths")
    (shown,) = app.series(app.figures(at)[0]).values()
    want = 2 * np.pi * 10_000 ** (np.arange(0, width, 2) / width)
    np.testing.assert_allclose(shown, want, rtol=1e-6)
    assert f"once in {want[-1]:,.0f}" in app.words(at)


def test_similarity_by_distance_follows_the_formula():
    shown = app.series(app.figures(app.show("sinusoidal", waves="Similarity"))[0])
    np.testing.assert_allclose(shown["these vectors"], shown["formula"], atol=1e-5)
    assert shown["formula"][0] == 1
    pairs = app.heat(app.figures(app.show("sinusoidal", waves="Similarity", alike="All pairs"))[0])
    np.testing.assert_allclose(pairs[0], shown["formula"], atol=1e-5)


def test_the_sum_is_the_block_input():
    trace = tinput.open_model("tinput/sinusoidal").trace(app.TEXT)
    token, position, total = app.heats(app.figures(app.show("sinusoidal", waves="With the embedding"))[0])
    np.testing.assert_allclose(total, trace.block_input.numpy(), atol=1e-5)
    np.testing.assert_allclose(token + position, total, atol=1e-6)
    at = app.show("sinusoidal", waves="With the embedding", width="16")
    assert "set the width to the model's" in app.words(at)


@pytest.mark.parametrize("text", app.HOSTILE)
@pytest.mark.parametrize("part", PARTS)
def test_any_text(part, text):
    at = app.show("sinusoidal", text, waves=part)
    assert app.chips(at) == list(tinput.open_model(NAMES[0]).tokenize(text).labels)
    assert len(app.figures(at)) == 1


@pytest.mark.parametrize("name", ["tinput/sinusoidal", "tinput/rope"])
@pytest.mark.parametrize("part", PARTS)
def test_the_python_runs_as_shown(part, name):
    assert_draws_the_same(app.show("sinusoidal", model=name, waves=part), all_of_it=True)
