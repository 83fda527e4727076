"""Lesson: what YaRN changes. Wavelengths that training never saw whole, and two ways to stretch them."""

from __future__ import annotations

import torch

from tinput import figures, measure
from tinput.positions import rope
from tinput.twins.extrapolate import context
from tinput.ui import given, kit
from tinput.ui.lessons.step import TEXT, Lesson, Step

MODEL = "tinput/rope"
TRAINED = context()  # tokens
FACTOR = 4
PLAIN, EVEN, SPARING = "default", "linear", "yarn"
CODE = (
    "from tinput import figures, measure\n"
    "from tinput.positions import rope\n\n"
    "def waves(name):\n"
    f"    sizes = {{'head_dim': trace.attention.q.shape[-1], 'max_position_embeddings': {TRAINED}}}\n"
    f"    scaling = {{'rope_type': name, 'rope_theta': 10000.0, 'factor': {FACTOR}.0,\n"
    f"               'original_max_position_embeddings': {TRAINED}}}\n"
    "    return measure.wavelengths(rope.frequencies({**sizes, 'rope_parameters': scaling}).inv_freq)\n\n"
)


def _waves() -> tuple[kit.Page, dict[str, torch.Tensor]]:
    page = kit.open_page(MODEL, TEXT)
    found = given.scalings(page, rope, FACTOR)
    return page, {name: measure.wavelengths(found[name]) for name in (PLAIN, EVEN, SPARING)}


def too_slow() -> int:
    """Which pairs never turned once in training."""
    page, waves = _waves()
    own = waves[PLAIN]
    never = int((own > TRAINED).sum())
    with kit.panel("How many tokens each pair of dimensions needs for one turn") as panel:
        figure = figures.lines(
            {"wavelength": own},
            x_title="pair",
            y_title="wavelength (tokens)",
            levels=[(TRAINED, f"trained on {TRAINED} tokens")],
            colours=[rope.COLOUR],
            log_y=True,
            points=True,
            large=kit.large(),
        )
        page.show(
            figure,
            "lesson-waves",
            code=f"{CODE}figures.lines({{'wavelength': waves({PLAIN!r})}}, x_title='pair', log_y=True)",
        )
        panel.say(
            f"{never} of {len(own)} pairs are above the line: in {TRAINED} tokens they never turned once, so training "
            "showed the model only a part of their angles.",
            "Further on, these pairs come to angles that the model has never seen.",
            formula=rope.FORMULA,
        )
    share = never / len(own)
    return 0 if never == 0 else 1 if share < 0.9 else 2


def stretched() -> int:
    """Interpolation against YaRN, for a context four times as long."""
    page, waves = _waves()
    ratio = {name: waves[name] / waves[PLAIN] for name in (EVEN, SPARING)}
    with kit.panel(f"How many times slower each pair turns, for a context {FACTOR} times as long") as panel:
        figure = figures.lines(
            ratio, x_title="pair (fast to slow)", y_title="times slower", points=True, large=kit.large()
        )
        page.show(
            figure,
            "lesson-yarn",
            code=f"{CODE}figures.lines({{name: waves(name) / waves({PLAIN!r}) for name in {[EVEN, SPARING]!r}}})",
        )
        fast, slow = float(ratio[SPARING][0]), float(ratio[SPARING][-1])
        panel.say(
            f"Position interpolation (linear) slows every pair {FACTOR} times: no angle leaves what training showed, "
            "but neighbours are now a quarter of a step apart.",
            f"YaRN slows the fastest pair {fast:.3g}-fold, so it leaves it alone, and the slowest {slow:.3g}-fold; "
            "those in between lie in between.",
            note="A what-if: the bundled model was trained without scaling.",
        )
    apart = float((ratio[SPARING] - 1).abs().max())
    if abs(fast - 1) < 0.01 and slow > 1.5:
        return 0
    return 1 if apart > 0.01 and abs(slow - 1) < 0.01 else 2


LESSON = Lesson(
    "stretching",
    "What YaRN changes",
    (
        Step(
            f"A RoPE model was trained on {TRAINED} tokens. How many of its pairs never turned once in that length?",
            ("None", "Some of them", "Nearly all"),
            too_slow,
            "rope",
            {"model": MODEL, "text": TEXT},
        ),
        Step(
            f"To reach {FACTOR} times the context, YaRN slows some pairs down. Which ones does it leave alone?",
            ("The fast ones, which tell neighbours apart", "The slow ones, which tell far from near", "None"),
            stretched,
            "rope",
            {"model": MODEL, "text": TEXT},
        ),
    ),
)
