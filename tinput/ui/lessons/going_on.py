"""Lesson: why ALiBi goes on where others stop."""

from __future__ import annotations

import torch

from tinput import figures, measure
from tinput.positions import SCHEMES, alibi
from tinput.twins import NAMES, reader
from tinput.twins.extrapolate import TIMES, context
from tinput.ui import extrapolate, given, kit
from tinput.ui.lessons.step import TEXT, Lesson, Step

MODEL = "tinput/alibi"
TRAINED, READ = context(), TIMES * context()  # tokens
FARTHEST = 4 * TRAINED
BACK = 100
GUESSES = tuple(SCHEMES[name].LABEL for name in ("sinusoidal", "rope", "alibi"))


def losses() -> int:
    """How well the six predict a text that is longer than their training's."""
    page = extrapolate.of_the_twins(kit.open_page(MODEL, TEXT))
    found = extrapolate.source(extrapolate.NOVEL, TEXT)
    known, _ = extrapolate.curves(found, [reader.Variant(name) for name in NAMES])
    figure, code = extrapolate.picture(found, known, by_length=True, bits=False)
    assert figure is not None
    assert found.plan is not None
    trained = found.plan.lengths.index(found.plan.context)
    rise = {}
    for variant, curve in known.items():
        first, last = curve.by_length[trained], curve.by_length[-1]
        if first is not None and last is not None:
            rise[SCHEMES[variant.name.split("/")[1]].LABEL] = last - first
    with kit.panel("How well the six bundled models predict a novel, by how much of it they read") as panel:
        page.show(figure, "lesson-losses", code=code)
        least = min(rise, key=lambda label: rise[label])
        panel.say(
            f"From {found.plan.context} to {found.plan.longest:,} tokens the loss changes by "
            + ", ".join(f"{value:+z.2f} ({label})" for label, value in sorted(rise.items(), key=lambda one: one[1]))
            + " nats a byte.",
            f"{least} goes on as if nothing had happened. The learned table has no line past its end: it cannot read "
            "on at all.",
            note="The bundled models differ in their scheme alone; a larger model may go on otherwise.",
        )
    return GUESSES.index(least) if least in GUESSES else len(GUESSES)


def penalty() -> int:
    """What a bias leaves of a token's weight, by distance."""
    page = kit.open_page(MODEL, TEXT)
    slopes = given.slopes(page, alibi)
    distance = torch.arange(FARTHEST + 1)
    left = torch.exp(-slopes[:, None] * distance)  # (heads, distance): e^-bias, of equal scores
    with kit.panel("What the bias leaves of a token's weight, by its distance") as panel:
        figure = figures.lines(
            {f"head {head}": values for head, values in enumerate(left)},
            distance,
            x_title="tokens back",
            y_title="share of the weight that is left",
            marks=[(TRAINED, f"trained on {TRAINED} tokens")],
            points=False,
            large=kit.large(),
        )
        code = (
            "from tinput.positions import alibi\nimport torch\n\n"
            f"distance = torch.arange({FARTHEST + 1})\n"
            "left = torch.exp(-alibi.slopes(len(trace.effect.scores))[:, None].float() * distance)\n"
            "tinput.figures.lines({f'head {h}': line for h, line in enumerate(left)}, distance)"
        )
        page.show(figure, "lesson-left", code=code)
        share = float(left[0, BACK])
        panel.say(
            f"Head 0 leaves a token {BACK} back {share:.1g} of the weight that it would have as the next one; head "
            f"{len(slopes) - 1} leaves it {float(left[-1, BACK]):.2f}.",
            "The line has no end: past the training length the same rule goes on, and tokens out there count for less "
            "and less, so a longer text looks to most heads like one that they know.",
            formula=alibi.FORMULA,
        )
    return 0 if share > 0.25 else 1 if share > 1e-4 else 2


def seen() -> int:
    """Where the weight of attention goes with and without the bias, on a text as long as the training."""
    page = kit.open_page(MODEL, f"{TEXT}. " * 30)
    attention = page.trace.attention
    assert attention is not None
    reach = {}
    for head in range(attention.heads):
        scores, bias, mask = (part[head].tensor() for part in (attention.scores, attention.bias, attention.mask))
        without, within = (measure.attention_weights(scores, b, mask=mask) for b in (torch.zeros_like(bias), bias))
        reach[head] = (float(measure.mean_distance(without)), float(measure.mean_distance(within)))
    with kit.panel("How far back each head looks on average") as panel:
        pairs = torch.tensor([reach[head] for head in reach])  # (heads, 2)
        figure = figures.lines(
            {"without the bias": pairs[:, 0], "with the bias": pairs[:, 1]},
            x_title="head",
            y_title="mean distance (tokens)",
            points=True,
            note=f"{page.seq} tokens",
            large=kit.large(),
        )
        code = (
            "found, measure = trace.attention, tinput.measure\n"
            "def reach(bias):\n"
            "    parts = [(found.scores[h].tensor(), bias * found.bias[h].tensor(), found.mask[h].tensor())\n"
            "             for h in range(found.heads)]\n"
            "    weights = [measure.attention_weights(s, b, mask=m) for s, b, m in parts]\n"
            "    return [float(measure.mean_distance(w)) for w in weights]\n\n"
            "tinput.figures.lines({'without the bias': reach(0), 'with the bias': reach(1)}, x_title='head')"
        )
        page.show(figure, "lesson-reach", code=code)
        nearest = int(pairs[:, 1].argmin())
        panel.say(
            f"With the bias head {nearest} looks {float(pairs[nearest, 1]):.1f} tokens back on average, without it "
            f"{float(pairs[nearest, 0]):.1f}. The text has {page.seq}.",
            "Nearly all that a steep head looks at is near. Make the text four times as long, and it sees the same.",
        )
    return 0 if nearest == 0 else 1 if nearest == len(reach) - 1 else 2


LESSON = Lesson(
    "going-on",
    "Why ALiBi goes on",
    (
        Step(
            f"Six models were trained on {TRAINED} tokens and read {READ:,}. Which one predicts as well as before?",
            (*GUESSES, "Another one"),
            losses,
            "extrapolate",
            {"model": MODEL},
        ),
        Step(
            f"ALiBi takes a score down by slope times distance. How much of its weight is left to a token {BACK} back "
            "in the steepest head, against the token next to it?",
            ("More than a quarter", "About a hundredth", "Next to nothing: less than a ten-thousandth"),
            penalty,
            "alibi",
            {"model": MODEL, "text": TEXT},
        ),
        Step(
            "Head 0 has the steepest slope, the last head the gentlest. Which one looks at the nearest tokens?",
            ("Head 0", "The last one", "One in between"),
            seen,
            "alibi",
            {"model": MODEL, "text": TEXT},
        ),
    ),
)
