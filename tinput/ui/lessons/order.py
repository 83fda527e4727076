"""Lesson: why position at all? The same words in another order, with no position scheme and with one."""

from __future__ import annotations

from tinput import figures, measure
from tinput.ui import kit
from tinput.ui.lessons.step import TEXT, Lesson, Step

SWAPPED = "The young man saw the old man"
WHERE = [0, 5, 2, 3, 4, 1, 6]  # where each token of TEXT stands in SWAPPED
HEAD = 1
SAME = 1e-6  # weights are shares of 1; float32 sums in another order part company at 1e-7


def _two(model: str) -> tuple[kit.Page, kit.Page]:
    return kit.open_page(model, TEXT), kit.open_page(model, SWAPPED)


def inputs() -> int:
    """Block inputs of both sentences, without positions."""
    page, other = _two("tinput/none")
    with kit.panel("What enters the first block, the one sentence against the other") as panel:
        alike = measure.cosine(page.trace.block_input, other.trace.block_input)
        figure = figures.heatmap(
            alike,
            page.labels,
            other.labels,
            row_title=TEXT,
            column_title=SWAPPED,
            value_title="cosine similarity",
            scale="diverging",
            limits=(-1.0, 1.0),
            large=kit.large(),
        )
        code = (
            f"other = model.trace({SWAPPED!r})\n"
            "alike = tinput.measure.cosine(trace.block_input, other.block_input)\n"
            "tinput.figures.heatmap(alike, labels, other.tokens.labels, limits=(-1.0, 1.0))"
        )
        page.show(figure, "lesson-order", code=code)
        apart = float((page.trace.block_input - other.trace.block_input[WHERE]).abs().max())
        panel.say(
            "Each word finds itself in the other sentence with similarity 1: the vectors are the same, only their "
            "order is not.",
            f"Largest difference between the two vectors of a word: {apart:.3g}.",
            "A block that treats its rows alike cannot tell who saw whom.",
        )
    return 0 if apart == 0 else 1


def _last(page: kit.Page, other: kit.Page, title: str, name: str) -> float:
    """The last token's attention weights in both sentences, word by word; the largest difference over all heads."""
    attention, second = page.trace.attention, other.trace.attention
    assert attention is not None
    assert second is not None
    weights = attention.weights.tensor()[:, -1]  # (heads, key)
    moved = second.weights.tensor()[:, -1][:, WHERE]
    apart = float((weights - moved).abs().max())
    with kit.panel(title) as panel:
        figure = figures.lines(
            {TEXT: weights[HEAD], SWAPPED: moved[HEAD]},
            labels=page.labels,
            x_title="token",
            y_title="attention weight",
            dashes=["solid", "dot"],
            points=True,
            note=f"head {HEAD}, the last token as the query",
            large=kit.large(),
        )
        code = (
            f"other = model.trace({SWAPPED!r})\n"
            f"weights, moved = (t.attention.weights[{HEAD}].tensor()[-1] for t in (trace, other))\n"
            f"tinput.figures.lines({{text: weights, {SWAPPED!r}: moved[{WHERE}]}}, labels=labels)"
        )
        page.show(figure, name, code=code)
        same = (
            "Each word keeps its weight to the last digit that float32 can tell: the shuffle moved the weights along "
            "with the words and did nothing else."
            if apart < SAME
            else "Old and young have changed places, and the weights of words that did not move changed too."
        )
        panel.say(
            same,
            f"Largest change of a weight, over all heads: {apart:.2g}.",
            "The last token sees all others, so the causal mask gives nothing away here; for tokens further left it "
            "does, and that is how a model without a scheme still knows a little of order."
            if apart < SAME
            else "",
        )
    return apart


def without() -> int:
    """Attention weights without positions."""
    apart = _last(*_two("tinput/none"), "How much the last token looks at each word, no scheme", "lesson-weights")
    return 0 if apart < SAME else 1


def rotated() -> int:
    """Attention weights with a rotation."""
    apart = _last(*_two("tinput/rope"), "How much the last token looks at each word, RoPE", "lesson-rope-weights")
    return 0 if apart < SAME else 1


LESSON = Lesson(
    "order",
    "Why position at all?",
    (
        Step(
            f"A model without positions reads “{TEXT}” and then “{SWAPPED}”. What enters its first block?",
            ("The same vectors in another order", "Other vectors"),
            inputs,
            "embeddings",
            {"model": "tinput/none", "text": TEXT},
        ),
        Step(
            "The same two sentences, still without positions. How much does the last token look at each word?",
            ("Just as much in both", "Differently, as the words moved"),
            without,
            "side_by_side",
            {"model": "tinput/none", "text": TEXT},
        ),
        Step(
            "Now a model that rotates q and k (RoPE). Does each word keep its weight?",
            ("Yes, just as before", "No"),
            rotated,
            "rope",
            {"model": "tinput/rope", "text": TEXT},
        ),
    ),
)
