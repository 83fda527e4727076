"""The Side by side page: two models, one sentence, one colour scale."""

import re

import numpy as np
import pytest

import tinput
from tests import app
from tinput.twins import NAMES


def test_facts_that_differ_are_marked():
    at = app.show("side_by_side", model="tinput/sinusoidal", other="tinput/rope")
    rows = re.findall(r"<tr class=differs>(.*?)</tr>", app.html(at))
    assert any("Sinusoidal" in row and "RoPE" in row for row in rows)
    assert len(rows) == len(re.findall(r"<tr", app.html(at))) - 1  # the head; what is equal is folded away
    everything = app.show("side_by_side", model="tinput/sinusoidal", other="tinput/rope", equal="true")
    assert len(re.findall(r"<tr>", app.html(everything))) > 1


def test_the_same_model_twice_does_not_differ():
    at = app.show("side_by_side", model="tinput/rope", other="tinput/rope")
    assert "All facts are equal" in app.words(at)


def test_block_inputs_have_one_colour_scale():
    at = app.show("side_by_side", model="tinput/learned", other="tinput/alibi", compare="Block inputs")
    first, second = app.figures(at)
    for figure, name in ((first, "tinput/learned"), (second, "tinput/alibi")):
        np.testing.assert_array_equal(app.heat(figure), tinput.open_model(name).trace(app.TEXT).block_input.numpy())
    scales = [(figure["data"][i]["zmin"], figure["data"][i]["zmax"]) for figure in (first, second)
              for i in range(len(figure["data"])) if figure["data"][i]["type"] == "heatmap"]  # fmt: skip
    assert scales[0] == scales[1]


@pytest.mark.parametrize("name", NAMES)
def test_what_each_injects(name):
    effect = tinput.open_model(name).trace(app.TEXT).effect
    at = app.show("side_by_side", model=name, other=name, compare="What each injects")
    shown = app.figures(at)
    match effect:
        case tinput.Add():
            np.testing.assert_array_equal(app.heat(shown[0]), effect.vectors.numpy())
        case tinput.Rotate():
            turned = np.exp(1j * app.heat(shown[0]).astype(float))
            np.testing.assert_allclose(turned, np.exp(1j * effect.angles.double().numpy()), atol=1e-5)
        case tinput.Bias():
            for head, values in enumerate(app.heats(shown[0])):
                seen = np.isfinite(values)
                assert seen.any()
                np.testing.assert_array_equal(values[seen], effect.scores[head].numpy()[seen])
        case _:
            assert not shown
            assert "Nothing enters from position" in app.words(at)


def test_effects_of_one_kind_have_one_colour_scale():
    at = app.show("side_by_side", model="tinput/alibi", other="tinput/relative_bias", compare="What each injects")
    first, second = (figure["layout"]["coloraxis"] for figure in app.figures(at))
    assert (first["cmin"], first["cmax"]) == (second["cmin"], second["cmax"])


@pytest.mark.parametrize("compare", ["Facts", "Block inputs", "What each injects"])
def test_any_text_and_the_python(compare):
    at = app.show("side_by_side", app.HOSTILE[0], other="tinput/learned", compare=compare)
    assert app.chips(at) == list(tinput.open_model(NAMES[0]).tokenize(app.HOSTILE[0]).labels)
    for block in app.code(at):
        exec(block, {})
