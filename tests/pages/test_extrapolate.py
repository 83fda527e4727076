"""The Extrapolate page: bundled curves, curves computed here, what training never met, continuations."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch

import tinput
from tests import app
from tests.pages.code_shown import assert_draws_the_same, run
from tinput.positions import SCHEMES
from tinput.positions.coverage import coarse, spread
from tinput.twins import NAMES, extrapolate, reader
from tinput.twins.reader import Reader, Variant
from tinput.ui import extrapolate as read

LABELS = {name: SCHEMES[name.removeprefix("tinput/")].LABEL for name in NAMES}
LONG = app.TEXT * 5  # 85 tokens: a curve from 16 to 64


def lines(at):
    (figure,) = app.figures(at)
    return figure, {
        trace["name"]: np.array([math.nan if one is None else one for one in trace["y"]], float)
        for trace in figure["data"]
        if trace["type"] == "scatter" and trace.get("meta") != "band"
    }


def floats(values):
    return np.array([math.nan if one is None else one for one in values], float)


# --- the curves


def test_the_default_is_the_bundled_curves_of_all_six():
    figure, shown = lines(app.show("extrapolate"))
    assert list(shown) == list(LABELS.values())
    for name, label in LABELS.items():
        kept = extrapolate.load()[Variant(name)]
        np.testing.assert_allclose(shown[label], floats(kept.by_length), rtol=1e-6)
        bands = [trace for trace in figure["data"] if str(trace.get("name")).startswith(f"{label} (")]
        low, high = (np.asarray(band["y"], float) for band in bands)
        np.testing.assert_allclose((high - low) / 2, floats([one or math.nan for one in kept.error]), rtol=1e-4)
    assert "16 windows, band: 1 standard error" in figure["layout"]["meta"]["note"]


def test_in_bits_by_position():
    figure, shown = lines(app.show("extrapolate", far="Loss by position", unit="bits a byte"))
    for name, label in LABELS.items():
        kept = extrapolate.load()[Variant(name)].by_position
        np.testing.assert_allclose(shown[label] * math.log(2), kept, rtol=1e-6)
    assert len(shown[LABELS["tinput/learned"]]) == 4
    assert "bits" in str(figure["layout"]["yaxis"]["title"])


def test_the_words_hold_the_curves_own_differences():
    said = app.words(app.show("extrapolate"))
    for name in ("tinput/alibi", "tinput/rope"):
        kept = floats(extrapolate.load()[Variant(name)].by_length)
        assert f"{LABELS[name]} {kept[8] - kept[4]:+.2f}".replace("-0.00", "0.00") in said
    assert "Learned table as trained ends at 256" in said


@pytest.mark.parametrize("factor", extrapolate.FACTORS)
def test_what_if_another_scaling(factor):
    at = app.show("extrapolate", far="What if", longer=str(factor))
    _, shown = lines(at)
    assert list(shown) == ["as trained", *reader.CHANGES["tinput/rope"]]
    for variant in reader.variants("tinput/rope", factor):
        np.testing.assert_allclose(shown[variant.change], floats(extrapolate.load()[variant].by_length), rtol=1e-6)
    assert "What if: tinput/rope" in app.words(at)
    assert not app.trouble(at)


def test_what_if_another_theta():
    at = app.show("extrapolate", far="What if", basis="500000")
    figure, shown = lines(at)
    assert np.isnan(shown["theta 500,000"]).all(), "not bundled, and not computed yet"
    looks = [(trace["line"]["color"], trace["line"]["dash"]) for trace in figure["data"] if trace["mode"] != "markers"]
    assert len(set(looks)) == len(looks) == 8, "no two lines look alike"
    assert np.isfinite(shown["yarn"]).all()
    assert at.button(key="go-changed").label == "Compute"
    text = LONG + "Once again."  # a text of its own: what is computed is kept
    at = app.show("extrapolate", text, far="What if", basis="500000", read=read.OWN)
    at.button(key="go-changed").click().run(timeout=120)
    _, shown = lines(at)
    plan = extrapolate.plan(reader.encode(text), windows=8)
    measured = extrapolate.measure(Variant("tinput/rope", reader.THETA, 500_000), plan)
    np.testing.assert_allclose(shown["theta 500,000"], floats(measured.by_length), rtol=1e-5)
    assert_draws_the_same(at, all_of_it=True)


def test_what_if_a_table_did_not_end():
    at = app.show("extrapolate", far="What if", changed="Learned table")
    _, shown = lines(at)
    assert np.isnan(shown["as trained"][5:]).all()
    for change in ("clamped", "wrapped"):
        kept = extrapolate.load()[Variant("tinput/learned", change)].by_length
        np.testing.assert_allclose(shown[change], floats(kept), rtol=1e-6)
    with pytest.raises(tinput.errors.TooLong) as error:
        reader.twin("tinput/learned")(torch.zeros(1, 512, dtype=torch.long))
    assert str(error.value) in app.trouble(at)


# --- computed here


def test_a_short_text_says_how_long_it_must_be():
    at = app.show("extrapolate", read=read.OWN)
    assert f"The text has {len(reader.encode(app.TEXT))} tokens, and a curve needs 64" in app.words(at)
    assert not app.figures(at)
    assert not [button for button in at.button if button.key == "go-losses"]


def test_nothing_is_computed_before_it_is_asked_for_and_then_it_is_the_real_thing():
    at = app.show("extrapolate", LONG, read=read.OWN)
    assert not app.figures(at)
    at.button(key="go-losses").click().run(timeout=120)
    assert not at.exception
    _, shown = lines(at)
    plan = extrapolate.plan(reader.encode(LONG), windows=8)
    for name, label in LABELS.items():
        np.testing.assert_allclose(shown[label], floats(extrapolate.measure(Variant(name), plan).by_length), rtol=1e-5)
    assert not [button for button in at.button if button.key == "go-losses"], "nothing is left to compute"
    assert_draws_the_same(at, all_of_it=True)


def test_computed_here_it_is_what_is_bundled():
    _, left = read.curves(read.source(read.AGAIN, ""), [Variant("tinput/rope")])
    for _ in range(16):  # the shortest length of all windows
        left[0].advance()
    at = app.show("extrapolate", read=read.AGAIN)
    apart = re.search(r"Computed here and bundled are at most (\S+) nats a byte apart", app.words(at))
    assert apart is not None
    assert float(apart[1]) < 1e-4
    _, shown = lines(at)
    assert np.isfinite(shown["RoPE"]).tolist() == [True] + [False] * 8


def test_what_was_stopped_goes_on_where_it_was():
    text = LONG + "Once more."
    found = read.source(read.OWN, text)
    _, left = read.curves(found, [Variant(name) for name in NAMES])
    for _ in range(3):
        left[0].advance()
    at = app.show("extrapolate", text, read=read.OWN)
    steps = sum(job.steps for job in left)
    assert at.button(key="go-losses").label == f"Go on ({300 // steps} % is done)"
    at.button(key="go-losses").click().run(timeout=120)
    assert all(job.finished for job in left)


# --- never seen


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("times", [1, 8])
def test_what_training_never_met(name, times):
    at = app.show("extrapolate", far="Never seen", model=name, long=str(times))
    model, places = tinput.open_model(name), spread(256 * times)
    scheme = SCHEMES[model.scheme]
    sizes = {"heads": 4, "width": 128, "usable": 256, "stack": "decoder"}
    found = next(iter(scheme.coverage(model.config, places, 256, **sizes).values()))
    state = coarse(found.state, places)[0].float().numpy()
    shown = app.heat(app.figures(at)[0])
    np.testing.assert_array_equal(shown, np.where(state < 0, np.nan, state))
    assert (times > 1) or not (state > 0).any()
    for sentence in found.said:
        assert sentence in app.words(at)
    assert app.badges(at)[0][0].startswith(scheme.LABEL)


def test_a_way_to_stretch_is_in_the_link():
    at = app.show("extrapolate", far="Never seen", model="tinput/rope", way="linear", long="16")
    assert (app.heat(app.figures(at)[0]) == 0).all()
    at = app.show("extrapolate", far="Never seen", model="tinput/rope", way="ntk", long="16")
    new = int((app.heat(app.figures(at)[0]) == 1).any(axis=1).sum())
    assert 0 < new < 9
    assert f"ntk {new}" in app.words(at)


def test_a_training_length_that_is_typed():
    at = app.show("extrapolate", far="Never seen", model="tinput/learned", trained="64", long="8")
    state = app.heat(app.figures(at)[0])[0]
    assert set(state) == {0, 1, 2}  # used in training, there but never used, not there
    assert "Rows from 64 on are there" in app.words(at)


# --- continuations


def test_continuations_are_what_the_models_write():
    at = app.show("extrapolate", far="Continuations", given="384", warm="0.5", seed="7")
    assert "has no row: the position table has 256" not in app.words(at)
    at.button(key="go-write").click().run(timeout=120)
    start = extrapolate.novel()[:384]
    shown = re.findall(r"<b>(.*?)</b>", app.html(at), re.DOTALL)
    texts = [app.unescape(text) for text in shown]
    for name in ("tinput/alibi", "tinput/sinusoidal"):
        own = list(reader.continuation(Reader.of(Variant(name), 384 + 64), start, 64, 0.5, 7))
        assert reader.decode(torch.tensor(own)) in texts
    assert reader.decode(extrapolate.novel()[384:448]) in texts  # the novel's own
    assert "position 447 has no row: the position table has 256. Shorten the text." in app.trouble(at)
    written = run(app.code(at)[0])
    assert written["tinput/rope"] in texts
    assert set(written) == set(NAMES) - {"tinput/learned"}


def test_a_text_too_short_to_go_on_from():
    for text, said in (("The", "has 1 token, and"), ("The old", "has 2 tokens, and")):
        at = app.show("extrapolate", text, far="Continuations", goes="your text")
        assert f"{said} 192 are to be given: type more" in app.words(at)


# --- all parts


@pytest.mark.parametrize(
    "link",
    [
        {},
        {"far": "Loss by position"},
        {"unit": "bits a byte"},
        {"far": "What if"},
        {"far": "What if", "changed": "Learned table", "by": "position"},
        {"far": "Never seen"},
        {"far": "Never seen", "model": "tinput/relative_bias"},
        {"far": "Never seen", "model": "tinput/rope", "way": "yarn", "long": "3"},
    ],
    ids=str,
)
def test_the_python_runs_as_shown(link):
    assert_draws_the_same(app.show("extrapolate", **link), all_of_it=True)


@pytest.mark.parametrize("text", app.HOSTILE)
def test_any_text(text):
    for link in ({"read": read.OWN}, {"far": "Continuations", "goes": "your text"}):
        at = app.show("extrapolate", text, **link)
        assert "What happens past the length" in app.words(at)


@pytest.mark.browser
def test_a_computation_stops_when_it_is_told_to_and_goes_on(browser, app_url):
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = context.new_page()
        page.goto(f"{app_url}/extrapolate?read=the+novel%2C+live")
        page.get_by_role("button", name="Compute").click(timeout=60_000)
        page.get_by_text("tinput/sinusoidal, 16 tokens").wait_for(timeout=60_000)
        page.get_by_role("button", name="Stop").click()
        go_on = page.get_by_role("button", name="Go on (")
        go_on.wait_for(timeout=60_000)
        assert page.get_by_role("button", name="Stop").count() == 0
        done = int(re.search(r"\d+", go_on.text_content() or "")[0])  # type: ignore[index]
        assert done < 50
        go_on.click()  # and nobody is kept waiting by what was stopped
        page.get_by_text(re.compile(r"tinput/sinusoidal, \d+ tokens")).wait_for(timeout=60_000)
        page.get_by_role("button", name="Stop").click()
        go_on.wait_for(timeout=60_000)
