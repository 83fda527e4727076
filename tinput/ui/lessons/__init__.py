"""Short guided lessons: first a prediction, then the picture that settles it.

A lesson is a tuple of steps. A step asks a question and offers answers; its `show` draws the picture, says what to see,
and returns the number of the answer that the numbers give. No answer is written down beside its question, so none can
be wrong about the models. `LESSONS` are all, by title, in the order of the menu.

step.py   what a lesson is made of
stage.py  how one is played
"""

from tinput.ui.lessons import going_on, mistakes, order, stretching, table_end, where
from tinput.ui.lessons.step import Lesson, Step

__all__ = ["LESSONS", "Lesson", "Step"]

LESSONS: dict[str, Lesson] = {
    lesson.title: lesson
    for lesson in (order.LESSON, where.LESSON, going_on.LESSON, table_end.LESSON, stretching.LESSON, mistakes.LESSON)
}
