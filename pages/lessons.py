"""Lessons: a guess first, then the picture that settles it."""

from tinput.ui import kit
from tinput.ui.lessons import stage

place = kit.empty()
lesson, number = stage.chosen()
step = lesson.steps[number]
with place.container():
    stage.head(lesson, number)
answer, shown = stage.guess(step)
verdict = kit.empty()
if shown:
    verdict.html(stage.verdict(step, answer, step.show()))
stage.go_on(lesson, number, shown)
stage.try_it(step)
