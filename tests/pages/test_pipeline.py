"""The Pipeline page shows what `trace` holds, and says which step is which."""

import numpy as np
import pytest

import tinput
from tests import app
from tinput.positions import SCHEMES
from tinput.twins import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_block_input_and_the_badges_are_the_traces(name):
    trace = tinput.open_model(name).trace(app.TEXT)
    at = app.show("pipeline", model=name)
    path, heatmap = app.figures(at)
    np.testing.assert_array_equal(app.heat(heatmap), trace.block_input.numpy())
    scheme = SCHEMES[trace.scheme]
    assert app.badges(at)[0] == (f"{scheme.LABEL}: {scheme.INJECTION}", scheme.COLOUR)
    assert app.badges(at)[1][0] == trace.agreement.message
    assert app.chips(at) == list(tinput.open_model(name).tokenize(app.TEXT).labels)
    filled = [shape for shape in path["layout"]["shapes"] if shape.get("fillcolor") == scheme.COLOUR]
    assert len(filled) == (0 if scheme.INJECTION == "nowhere" else 1)


@pytest.mark.parametrize("name", NAMES)
def test_each_step_can_be_looked_at(name):
    trace = tinput.open_model(name).trace(app.TEXT)
    for number, stage in enumerate(trace.stages):
        at = app.show("pipeline", model=name, stage=f"{number + 1} · {stage.name}")
        np.testing.assert_array_equal(app.heat(app.figures(at)[1]), stage.value.flatten(1).float().numpy())
        assert stage.op in app.words(at)


def test_norms_by_token():
    trace = tinput.open_model("tinput/learned").trace(app.TEXT)
    at = app.show("pipeline", model="tinput/learned", show="Norms")
    (norms,) = app.series(app.figures(at)[1]).values()
    np.testing.assert_allclose(norms, trace.block_input.double().norm(dim=-1).numpy(), rtol=1e-6)


def test_the_shares_add_up_to_the_whole():
    trace = tinput.open_model("tinput/learned").trace(app.TEXT)
    shares = app.series(app.figures(app.show("pipeline", model="tinput/learned", part="Token and position"))[1])
    assert isinstance(trace.effect, tinput.Add)
    position = trace.effect.vectors.double().square().sum(-1) / trace.block_input.double().square().sum(-1)
    np.testing.assert_allclose(shares["position"], position.numpy(), rtol=1e-5)
    np.testing.assert_allclose(sum(shares.values()), 1, atol=1e-5)


def test_a_model_that_adds_no_position_has_no_share():
    at = app.show("pipeline", model="tinput/rope", part="Token and position")
    assert "Nothing that depends on position is added" in app.words(at)
    assert len(app.figures(at)) == 1


def test_dropout_is_a_what_if_with_a_seed():
    trace = tinput.open_model("tinput/rope").trace(app.TEXT)
    first, again, other = (
        app.heat(app.figures(app.show("pipeline", model="tinput/rope", part="Dropout", p="0.5", seed=seed))[1])
        for seed in ("3", "3", "4")
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other, equal_nan=True)
    kept = np.isfinite(first)
    assert 0.4 < kept.mean() < 0.6
    np.testing.assert_allclose(first[kept], 2 * trace.block_input.numpy()[kept], rtol=1e-6)


@pytest.mark.parametrize("part", ["Stages", "Token and position", "Layer norm", "Dropout"])
def test_the_python_runs_as_shown(part):
    for block in app.code(app.show("pipeline", model="tinput/learned", part=part)):
        space: dict = {}
        *lines, last = block.rsplit("\ntinput.", 1)
        exec(f"{lines[0]}\nfigure = tinput.{last}", space)
        assert space["figure"].data


@pytest.mark.parametrize("text", app.HOSTILE)
def test_text_is_literal(text):
    at = app.show("pipeline", text)
    assert app.chips(at) == list(tinput.open_model(NAMES[0]).tokenize(text).labels)
    assert at.text_area(key="text").value == text
