"""How a lesson is played: which step, the guess, the reveal, and the arrow keys. State lies in the address bar.

Right reveals, then goes on; Left goes back. In presenter mode the controls are out of sight and the keys still work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.components.v2 import component

from tinput.ui import kit, literal
from tinput.ui.lessons import LESSONS, Lesson, Step

__all__ = ["chosen", "go_on", "guess", "head", "try_it", "verdict"]

_keys = component("tinput.lesson", js=Path(__file__).with_name("keys.js").read_text(encoding="utf-8"))
_AT = "lesson_at"  # where this session was at its last run: a guess belongs to one step


def chosen() -> tuple[Lesson, int]:
    """The lesson and the step's number, from 0. The guess of another step is forgotten."""
    with st.container(horizontal=True, gap="medium", key="lesson-menu"):
        lesson = LESSONS[kit.choose("Lesson", list(LESSONS), key="lesson")]
        numbers = [str(n + 1) for n in range(len(lesson.steps))]
        step = int(kit.choose("Step", numbers, key="step")) - 1
    here = f"{lesson.key} {step}"
    if st.session_state.get(_AT, here) != here:
        st.session_state["guess"], st.session_state["shown"] = None, False
    st.session_state[_AT] = here
    return lesson, step


def head(lesson: Lesson, step: int) -> None:
    """The lesson's title and the question of the step."""
    kit.html(
        f'<p class="lesson">{literal.inline(lesson.title)} · {step + 1} of {len(lesson.steps)}</p>'
        f'<h1 class="question">{literal.inline(lesson.steps[step].ask)}</h1>'
    )


def guess(step: Step) -> tuple[str | None, bool]:
    """The answer that was chosen, None as long as there is none, and whether the picture is to be shown."""
    if kit.presenting():
        letters = "".join(f"<li>{literal.inline(option)}</li>" for option in step.options)
        kit.html(f'<ol class="options" type="A">{letters}</ol>')
    if st.session_state.get("guess") not in (None, *step.options):
        st.session_state["guess"] = None
    with st.container(key="lesson-guess"):
        answer = st.radio("What do you think?", step.options, index=None, key="guess", bind="query-params")
        shown = kit.toggle("Show the answer", key="shown")  # for the link: out of sight, the button says the same
    return answer, shown


def verdict(step: Step, answer: str | None, right: int) -> str:
    """HTML: the answer that the numbers give, and whether it was guessed."""
    words = f"The numbers say: {step.options[right]}."
    if answer is not None:
        words = ("Right. " if answer == step.options[right] else "Not so. ") + words
    kind = "right" if answer == step.options[right] else "wrong" if answer is not None else ""
    return f'<div class="verdict {kind}">{literal.inline(words)}</div>'


def go_on(lesson: Lesson, step: int, shown: bool) -> None:
    """Back and on, by button or arrow key."""
    titles = list(LESSONS)
    place = titles.index(lesson.title)
    last = step + 1 == len(lesson.steps)
    on = "Show the answer" if not shown else "Next step" if not last else "Next lesson"
    with st.container(horizontal=True, key="lesson-go"):
        if place or step or shown:
            st.button("Back", on_click=_back, args=(lesson, step, shown), shortcut="Left", key="lesson-back")
        if not (shown and last and place + 1 == len(titles)):
            st.button(on, on_click=_on, args=(lesson, step, shown), shortcut="Right", type="primary", key="lesson-on")
    _keys(key="lesson-keys", height=1)


def try_it(step: Step) -> None:
    """A link to the page where the same can be tried on one's own text."""
    with st.container(key="lesson-link"):
        st.page_link(
            f"../../pages/{step.page}.py",
            label="Try it on your own text",
            icon=":material/arrow_forward:",
            query_params=step.link,
        )


def _set(lesson: Lesson, step: int, shown: bool) -> None:
    state: dict[str, Any] = {"lesson": lesson.title, "step": str(step + 1), "shown": shown, "guess": None}
    st.session_state.update(state)
    st.session_state[_AT] = f"{lesson.key} {step}"


def _on(lesson: Lesson, step: int, shown: bool) -> None:
    if not shown:
        st.session_state["shown"] = True
    elif step + 1 < len(lesson.steps):
        _set(lesson, step + 1, False)
    else:
        titles = list(LESSONS)
        _set(LESSONS[titles[titles.index(lesson.title) + 1]], 0, False)


def _back(lesson: Lesson, step: int, shown: bool) -> None:
    if shown:
        st.session_state["shown"] = False
    elif step:
        _set(lesson, step - 1, True)
    else:
        titles = list(LESSONS)
        before = LESSONS[titles[titles.index(lesson.title) - 1]]
        _set(before, len(before.steps) - 1, True)
