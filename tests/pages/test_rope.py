"""The RoPE page: recorded angles, q and k; what a shift changes; pairings and scalings against other formulas."""

import re

import numpy as np
import pytest

import tinput
from tests import app, tiny
from tests.pages.code_shown import assert_draws_the_same, run
from tinput.twins import NAMES

PARTS = ["Angles", "Dials", "Wavelengths", "q and k", "Scores", "By pair", "Pairing", "Scaling"]
OWN = "tinput/rope"


@pytest.mark.parametrize("name", NAMES)
def test_angles_are_recorded_or_the_paper_s(name):
    trace = tinput.open_model(name).trace(app.TEXT)
    assert trace.attention is not None
    d_head = trace.attention.q.shape[-1]
    want = np.arange(len(trace.ids))[:, None] * 10_000.0 ** (-np.arange(0, d_head, 2) / d_head)
    at = app.show("rope", model=name)
    figure = app.figures(at)[0]
    shown = app.heat(figure)
    np.testing.assert_allclose(np.cos(shown), np.cos(want), atol=1e-5)
    np.testing.assert_allclose(np.sin(shown), np.sin(want), atol=1e-5)
    assert ("recorded from the model" in figure["layout"]["meta"]["note"]) == (name == OWN)
    assert ("What if" in app.words(at)) == (name != OWN)
    if name == OWN:
        assert isinstance(trace.effect, tinput.Rotate)
        np.testing.assert_allclose(np.cos(shown), trace.effect.angles.cos().numpy(), atol=1e-6)


@pytest.mark.parametrize("name", [OWN, "tinput/alibi"])
@pytest.mark.parametrize("which", ["q", "k"])
def test_q_and_k_before_and_after(name, which):
    attention = tinput.open_model(name).trace(app.TEXT).attention
    assert attention is not None
    figure = app.figures(app.show("rope", model=name, turn="q and k", qk=which, head="1"))[0]
    before, after = app.heats(figure)
    if name == OWN:
        np.testing.assert_array_equal(before, getattr(attention, f"{which}_before")[1].numpy())
        np.testing.assert_array_equal(after, getattr(attention, which)[1].numpy())
    else:
        np.testing.assert_array_equal(before, getattr(attention, which)[1].numpy())
    half = before.shape[1] // 2
    turned = (before[:, :half] + 1j * before[:, half:]) * np.exp(
        1j * np.arange(len(before))[:, None] * 10_000.0 ** (-np.arange(half) / half)
    )
    np.testing.assert_allclose(after, np.concatenate([turned.real, turned.imag], 1), atol=1e-4)


@pytest.mark.parametrize("name", [OWN, "tinput/none"])
def test_a_shift_of_all_positions_changes_no_score(name):
    at = app.show("rope", model=name, turn="Scores", head="2", shift="50")
    shown = app.series(app.figures(at)[0])
    np.testing.assert_allclose(shown["as it is"], shown["shifted by 50"], atol=1e-3)
    most = float(re.search(r"by more than ([\d.e-]+),", app.words(at))[1])  # type: ignore[index]
    assert most < 1e-3
    made = run(app.code(at)[0])
    drawn = [[t["meta"] if "meta" in t else t["name"], t["y"]] for t in app.figures(at)[0]["data"] if "y" in t]
    ours = [[t.meta if t.meta is not None else t.name, t.y] for t in made.data if t.y is not None]
    assert [name for name, _ in ours] == [name for name, _ in drawn]  # the band too
    for (_, own), (_, other) in zip(ours, drawn, strict=True):
        np.testing.assert_allclose(np.asarray(own, float), np.asarray(other, float), atol=1e-5)


def test_scores_by_distance_are_the_recorded_ones():
    attention = tinput.open_model(OWN).trace(app.TEXT).attention
    assert attention is not None
    scores = (attention.q[2] @ attention.k[2].T * attention.scale).double()
    shown = app.series(app.figures(app.show("rope", model=OWN, turn="Scores", head="2"))[0])["as it is"]
    want = [float(scores.diagonal(-d).mean()) for d in range(len(scores) - 1, -1, -1)]  # causal: keys behind alone
    np.testing.assert_allclose(shown, want, atol=1e-5)


def test_dials_point_where_the_angles_do():
    trace = tinput.open_model(OWN).trace(app.TEXT)
    assert isinstance(trace.effect, tinput.Rotate)
    figure = app.figures(app.show("rope", model=OWN, turn="Dials"))[0]
    dots = next(t for t in figure["data"] if t.get("name") == "angle")
    turn = np.asarray(dots["customdata"]).reshape(-1, 2)
    assert turn[-1, 0] == pytest.approx(float(trace.effect.angles[-1, -1]), rel=1e-5)
    assert turn[:, 1] == pytest.approx(turn[:, 0] / (2 * np.pi), rel=1e-5)


def test_wavelengths_and_the_pairs_that_never_come_round():
    at = app.show("rope", model=OWN, turn="Wavelengths")
    (shown,) = app.series(app.figures(at)[0]).values()
    pairs = len(shown)
    np.testing.assert_allclose(shown, 2 * np.pi * 10_000 ** (np.arange(pairs) / pairs), rtol=1e-5)
    context = tinput.open_model(OWN).config["max_position_embeddings"]
    assert f"{int((shown > context).sum())} of {pairs} pairs never come full circle" in app.words(at)


def test_pairing():
    at = app.show("rope", model=OWN, turn="Pairing")
    half, interleaved = app.heat(app.figures(at)[0])
    pairs = len(half) // 2
    assert half.tolist() == [*range(pairs), *range(pairs)]
    assert interleaved.tolist() == [i // 2 for i in range(2 * pairs)]
    assert f"dimension 0 turns with {pairs}" in app.words(at)


def test_scaling_methods_on_this_model():
    shown = app.series(app.figures(app.show("rope", model=OWN, turn="Scaling", stretch="8"))[0])
    np.testing.assert_allclose(shown["linear"], 8 * shown["default"], rtol=1e-6)
    assert "this model" not in shown, "it is the default: one line, not two that cover each other"
    pairs = len(shown["default"])
    theta = 10_000 * 8 ** (2 * pairs / (2 * pairs - 2))  # NTK-aware, at 8 times the context
    for name in ("ntk", "dynamic"):
        np.testing.assert_allclose(shown[name], 2 * np.pi * theta ** (np.arange(pairs) / pairs), rtol=1e-5)
    for name in ("yarn", "llama3"):
        times = shown[name] / shown["default"]
        assert times[0] == pytest.approx(1, rel=1e-5)
        assert times[-1] == pytest.approx(8, rel=1e-5)


@pytest.mark.parametrize("text", app.HOSTILE)
@pytest.mark.parametrize("part", PARTS)
def test_any_text(part, text):
    at = app.show("rope", text, model=OWN, turn=part)
    assert app.chips(at) == list(tinput.open_model(OWN).tokenize(text).labels)
    assert len(app.figures(at)) == 1


@pytest.mark.parametrize("name", [OWN, "tinput/learned"])
@pytest.mark.parametrize("part", PARTS)
def test_the_python_runs_as_shown(part, name):
    assert_draws_the_same(app.show("rope", model=name, turn=part), atol=1e-3, all_of_it=True)


@pytest.mark.parametrize("name", [OWN, "tinput/none"])
def test_the_parts_of_a_score_sum_to_it(name):
    """The bars are Re(z_q conj(z_k)) of each pair of dimensions, turned by the distance; their sum is the score."""
    attention = tinput.open_model(name).trace(app.TEXT).attention
    assert attention is not None
    query, key, head = 9, 4, 1
    at = app.show("rope", model=name, turn="By pair", looks=str(query), seen=str(key), head=str(head))
    (bars,) = app.series(app.figures(at)[0]).values()
    assert attention.q_before is not None
    assert attention.k_before is not None
    q, k = attention.q_before[head, query].double().numpy(), attention.k_before[head, key].double().numpy()
    half = len(q) // 2
    turn = np.exp(1j * (query - key) * 10_000.0 ** (-np.arange(half) / half))
    want = attention.scale * ((q[:half] + 1j * q[half:]) * turn * (k[:half] - 1j * k[half:])).real
    np.testing.assert_allclose(bars, want, atol=1e-5)
    assert f"is {want.sum():.4g}: the sum of the bars" in app.words(at)
    if name == OWN:
        assert bars.sum() == pytest.approx(float(attention.scores[head].tensor()[query, key]), abs=1e-5)


def test_shares_of_all_heads_sum_to_one():
    at = app.show("rope", model=OWN, turn="By pair", pairs="All heads")
    shares = app.heat(app.figures(at)[0])
    assert shares.shape == (4, 16)
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-5)
    fast = shares[:, 2 * np.pi * 10_000.0 ** (np.arange(16) / 16) <= 17].sum(1)
    assert f"{fast.max():.0%} of what tells keys apart in head {fast.argmax()}" in app.words(at)
    assert_draws_the_same(at)


def test_a_part_that_is_not_turned_has_a_bar_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("TINPUT_MODELS", str(tmp_path))
    tiny.make("gpt_neox", tmp_path / "neox", vocab_size=1024)
    tinput.open_model(OWN).tokenizer.save_pretrained(tmp_path / "neox")
    trace = tinput.open_model(tmp_path / "neox").trace(app.TEXT)
    at = app.show("rope", model=str(tmp_path / "neox"), turn="By pair", looks="5", seen="2", head="0")
    (bars,) = app.series(app.figures(at)[0]).values()
    attention = trace.attention
    assert attention is not None
    q, k = attention.q[0, 5].double(), attention.k[0, 2].double()
    assert len(bars) == 3  # two pairs of four dimensions, and the other twelve
    assert bars[-1] == pytest.approx(float(attention.scale * (q[4:] @ k[4:])), abs=1e-5)
    assert bars.sum() == pytest.approx(float(attention.scores[0].tensor()[5, 2]), abs=1e-5)
    assert "what is not turned adds" in app.words(at)
