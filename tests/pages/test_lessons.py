"""Lessons: what the numbers answer, worked out here a second way; the guess, the reveal and the way through."""

from __future__ import annotations

import math

import pytest
import torch

import tinput
from tests import app
from tests.pages import code_shown
from tinput.ui.lessons import LESSONS

STEPS = [(title, number) for title, lesson in LESSONS.items() for number in range(len(lesson.steps))]
A, B = "The old man saw the young man", "The young man saw the old man"
# What is right, by those who wrote the lessons; the page works it out from the numbers.
RIGHT = {
    "Why position at all?": ["The same vectors in another order", "Just as much in both", "No"],
    "Adding or rotating?": [
        "No, as two",
        "Yes, number for number",
        "Its direction, and not its length",
        "Where a vector is added",
    ],
    "Why ALiBi goes on": ["ALiBi", "Next to nothing: less than a ten-thousandth", "Head 0"],
    "Why GPT-2 stops at 1,024": ["It cannot read the text", "Yes", "Both cost about the same"],
    "What YaRN changes": ["Some of them", "The fast ones, which tell neighbours apart"],
    "The usual mistakes": ["It turns red", "It turns red", "It stays green", "It stays green"],
}


def show(title: str, number: int, **more: str):
    return app.show("lessons", text=None, lesson=title, step=str(number + 1), **more)


@pytest.mark.parametrize(("title", "number"), STEPS)
def test_a_step_asks_first_and_shows_nothing(title, number):
    at = show(title, number)
    assert LESSONS[title].steps[number].ask in app.words(at)
    assert not app.figures(at)
    assert "The numbers say" not in app.words(at)


@pytest.mark.parametrize(("title", "number"), STEPS)
def test_the_numbers_give_the_right_answer_and_the_code_draws_the_picture(title, number):
    right = RIGHT[title][number]
    at = show(title, number, shown="true", guess=right)
    assert f"Right. The numbers say: {right}." in app.words(at)
    code_shown.assert_draws_the_same(at, all_of_it=True)


@pytest.mark.parametrize(("title", "number"), [STEPS[0], STEPS[-1]])
def test_a_wrong_guess_is_told_so(title, number):
    wrong = next(o for o in LESSONS[title].steps[number].options if o != RIGHT[title][number])
    assert f"Not so. The numbers say: {RIGHT[title][number]}." in app.words(
        show(title, number, shown="true", guess=wrong)
    )


def test_the_next_step_forgets_the_guess():
    at = show("Adding or rotating?", 0, guess="No, as two")
    at.button(key="lesson-on").click().run()
    assert len(app.figures(at)) == 1
    at.button(key="lesson-on").click().run()
    assert not app.figures(at)
    assert "2 of 4" in app.words(at)
    assert at.radio(key="guess").value is None
    at.button(key="lesson-back").click().run()
    assert "1 of 4" in app.words(at)
    assert len(app.figures(at)) == 1


def test_from_the_first_step_to_the_last_by_one_button():
    at = show(next(iter(LESSONS)), 0)
    seen = []
    for title, number in STEPS:
        assert f"{title} · {number + 1} of" in app.words(at)
        at.button(key="lesson-on").click().run()
        assert not at.exception
        seen.append(len(app.figures(at)))
        if (title, number) != STEPS[-1]:
            at.button(key="lesson-on").click().run()
    assert seen == [1] * len(STEPS)
    assert "lesson-on" not in [button.key for button in at.button]


def test_a_mistyped_link_opens_the_first_lesson():
    at = app.show("lessons", text=None, lesson="no such lesson", step="99", guess="nonsense")
    assert LESSONS[next(iter(LESSONS))].steps[0].ask in app.words(at)


def test_the_mistakes_are_as_large_as_they_say():
    model = tinput.open_model("tinput/sinusoidal")
    trace = model.trace(A)
    rows = model.embedding_rows(trace.ids)
    off = float((rows * (math.sqrt(128) - 1)).abs().max())  # the original's scale, from its paper
    assert f"off by up to {off:.2g}" in app.words(show("The usual mistakes", 2, shown="true"))
    attention = tinput.open_model("tinput/rope").trace(A).attention
    assert attention is not None
    assert attention.q_before is not None
    q, recorded = attention.q_before, attention.q
    angle = torch.arange(q.shape[1])[:, None] * 10_000.0 ** (-torch.arange(0, 32, 2) / 32)
    turned = torch.view_as_real(torch.view_as_complex(q.unflatten(-1, (-1, 2))) * torch.polar(torch.ones(()), angle))
    apart = float((turned.flatten(-2) - recorded).abs().max())
    assert f"max |Δ| = {apart:.2g}" in app.words(show("The usual mistakes", 0, shown="true"))


def test_every_step_leads_to_a_page_that_there_is():
    for lesson in LESSONS.values():
        for step in lesson.steps:
            assert step.page in app.PAGES
