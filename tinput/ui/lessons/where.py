"""Lesson: adding against rotating. Where position enters, and what a shift of all positions does."""

from __future__ import annotations

import torch

from tinput import atlas, figures, measure
from tinput.positions import SCHEMES
from tinput.twins import NAMES
from tinput.ui import kit
from tinput.ui.lessons.step import TEXT, Lesson, Step

FIRST, SECOND = 2, 6  # where " man" stands
SHIFT = 100
MOVED = 1e-3  # of scores that go up to 3 or more; what float32 leaves is below 1e-5


def _twice(model: str, name: str) -> int:
    """The two rows of one word in the block input, and their difference."""
    page = kit.open_page(model, TEXT)
    rows = page.trace.block_input[[FIRST, SECOND]]
    both = torch.cat([rows, rows[1:] - rows[:1]])
    apart = float(both[2].abs().max())
    word = page.labels[FIRST]
    with kit.panel(f"The two {word} as they enter the first block") as panel:
        names = [f"{word} at {FIRST}", f"{word} at {SECOND}", "difference"]
        figure = figures.heatmap(
            both,
            names,
            row_title="vector",
            height=300,
            large=kit.large(),
        )
        code = (
            f"rows = trace.block_input[[{FIRST}, {SECOND}]]\n"
            "both = [*rows.tolist(), (rows[1] - rows[0]).tolist()]\n"
            f"tinput.figures.heatmap(both, {names!r}, row_title='vector')"
        )
        page.show(figure, name, code=code)
        panel.say(
            f"Largest difference: {apart:.3g}.",
            "A vector of its own was added at each position, so one word enters as two different vectors."
            if apart
            else "Nothing was added: the word enters as one vector, wherever it stands. Position comes later, inside "
            "attention.",
        )
    return 0 if apart == 0 else 1


def added() -> int:
    """One word at two positions, where a sinusoid is added."""
    return _twice("tinput/sinusoidal", "lesson-twice-added")


def rotated() -> int:
    """One word at two positions, where q and k are rotated."""
    return _twice("tinput/rope", "lesson-twice-rotated")


def turned() -> int:
    """q of the two words before and after the rotation."""
    page = kit.open_page("tinput/rope", TEXT)
    attention = page.trace.attention
    assert attention is not None
    assert attention.q_before is not None
    before, after = attention.q_before[0][[FIRST, SECOND]], attention.q[0][[FIRST, SECOND]]  # (2, d_head)
    word = page.labels[FIRST]
    with kit.panel(f"q of the two {word}, before and after the rotation") as panel:
        names = [f"{when}, at {at}" for when in ("before", "after") for at in (FIRST, SECOND)]
        figure = figures.heatmap(
            torch.cat([before, after]), names, row_title="vector", height=320, note="head 0", large=kit.large()
        )
        code = (
            f"q, turned = (x[0][[{FIRST}, {SECOND}]] for x in (trace.attention.q_before, trace.attention.q))\n"
            f"tinput.figures.heatmap([*q.tolist(), *turned.tolist()], {names!r})"
        )
        page.show(figure, "lesson-turned", code=code)
        longer = float((measure.norms(after) - measure.norms(before)).abs().max())
        angles = measure.cosine(after).clamp(-1, 1)[0, 1].acos().rad2deg()
        panel.say(
            "Before the rotation both are the same vector, for the same vector entered the block.",
            f"After it they point {float(angles):.0f}° apart, and their lengths have changed by {longer:.2g}.",
        )
    changed_length, changed_direction = longer > 1e-4, float(angles) > 0.1
    return 0 if changed_length else 1 if changed_direction else 2


def shifted() -> int:
    """The largest change of a score when all positions move."""
    pages = {name: kit.open_page(name, TEXT) for name in NAMES}
    change = {name: _change(page) for name, page in pages.items()}
    page = pages[NAMES[0]]
    schemes = [SCHEMES[p.model.scheme] for p in pages.values()]
    with kit.panel(f"How much a score changes when every token moves on by {SHIFT} positions") as panel:
        figure = figures.bars(
            torch.tensor(list(change.values())),
            [atlas.short(scheme.LABEL) for scheme in schemes],
            x_title="scheme",
            y_title="largest change of a score",
            colour=[scheme.COLOUR for scheme in schemes],
            large=kit.large(),
        )
        code = (
            "from tinput import atlas\n\n"
            "def scores(model, start):\n"
            "    positions = range(start, start + len(model.tokenize(text).ids))\n"
            "    found = model.trace(text, positions=positions).attention\n"
            "    return found.scores.tensor() + found.bias.tensor()\n\n"
            f"models = [tinput.open_model(name) for name in {list(NAMES)!r}]\n"
            f"change = [float((scores(m, {SHIFT}) - scores(m, 0)).abs().max()) for m in models]\n"
            "tinput.figures.bars(change, [atlas.short(tinput.SCHEMES[m.scheme].LABEL) for m in models],\n"
            "                    x_title='scheme', y_title='largest change of a score')"
        )
        page.show(figure, "lesson-shift", code=code)
        moved = [name for name in NAMES if change[name] > MOVED]
        still = max(change[name] for name in NAMES if name not in moved)
        panel.say(
            "What is added to the embedding says where a token is; q and k are made of it, so scores change when "
            "everything moves.",
            "A rotation or a bias says how far apart two tokens are; a shift leaves that as it is. Their scores change "
            f"by {still:.1g} at most, which is what float32 leaves.",
        )
    adding = [name for name, scheme in zip(NAMES, schemes, strict=True) if "added" in scheme.INJECTION]
    return 0 if moved == adding else 1 if not set(moved) & set(adding) else 2


def _change(page: kit.Page) -> float:
    moved = page.retrace(positions=range(SHIFT, SHIFT + page.seq))
    before, after = page.trace.attention, moved.attention
    assert before is not None
    assert after is not None
    scores = [found.scores.tensor() + found.bias.tensor() for found in (before, after)]
    return float((scores[1] - scores[0]).abs().max())


LESSON = Lesson(
    "where",
    "Adding or rotating?",
    (
        Step(
            f"“{TEXT}” has “man” twice. In a model that adds a sinusoid, do both enter the first block as one vector?",
            ("Yes, number for number", "No, as two"),
            added,
            "sinusoidal",
            {"model": "tinput/sinusoidal", "text": TEXT},
        ),
        Step(
            "And in a model with RoPE?",
            ("Yes, number for number", "No, as two"),
            rotated,
            "embeddings",
            {"model": "tinput/rope", "text": TEXT},
        ),
        Step(
            "RoPE rotates the q of each token by its position. What changes?",
            ("Its length", "Its direction, and not its length", "Nothing"),
            turned,
            "rope",
            {"model": "tinput/rope", "text": TEXT},
        ),
        Step(
            f"Every token moves on by {SHIFT} positions. In which models do the attention scores change?",
            ("Where a vector is added", "Where q and k are rotated or a bias is added", "In all of them"),
            shifted,
            "rope",
            {"model": "tinput/rope", "text": TEXT},
        ),
    ),
)
