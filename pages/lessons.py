"""Lessons: a guess first, then the picture that settles it."""

from tinput.ui import kit
from tinput.ui.lessons import stage

lesson, number = stage.chosen()
step = lesson.steps[number]
stage.head(lesson, number)
answer, shown = stage.guess(step)
verdict = kit.empty()
if shown:
    verdict.html(stage.verdict(step, answer, step.show()))
stage.go_on(lesson, number, shown)
stage.try_it(step)
kit.note("Lessons bring their own sentences and bundled models; the text at the side is left alone.", paper="")
