"""Lesson: four usual mistakes, each made on purpose, and what the agreement badge then says."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from tinput import figures
from tinput.agree import Agreement, effects
from tinput.positions import Add, Rotate, rope
from tinput.ui import badges, kit
from tinput.ui.lessons.step import TEXT, Lesson, Step

OFFSET = 2  # RoBERTa's first position
START = "<|start|>"  # the bundled tokenizer's special token
PAIRED = {"half": "each dimension with the one half a head further", "interleaved": "neighbouring dimensions"}
ANSWERS = ("It stays green", "It turns red")


def _badge(agreement: Agreement, mistake: str) -> None:
    kit.html(badges.row(badges.agreement(agreement)))
    kit.note(f"Made on purpose, and not what the app does: {mistake}.")


def _red(agreement: Agreement) -> int:
    return 0 if agreement.ok else 1


def _rows(page: kit.Page, recorded: Tensor, wrong: Tensor, token: int, name: str, code: str) -> None:
    """One token's vector as it is, as the mistake has it, and the difference."""
    figure = figures.heatmap(
        torch.stack([recorded[token], wrong[token], wrong[token] - recorded[token]]),
        ["recorded", "with the mistake", "difference"],
        row_title="vector",
        note=f"token {token}, {page.labels[token]}",
        height=300,
        large=kit.large(),
    )
    page.show(figure, name, code=code)


def halves() -> int:
    """The rotation in the other pairing."""
    page = kit.open_page("tinput/rope", TEXT)
    effect, attention = page.trace.effect, page.trace.attention
    assert isinstance(effect, Rotate)
    assert attention is not None
    assert attention.q_before is not None
    right = page.trace.textbook
    assert right is not None
    assert isinstance(right[0], Rotate)
    mistaken = replace(right[0], layout="interleaved" if effect.layout == "half" else "half")
    agreement = effects(effect, mistaken, page.positions, attention)
    wrong = rope.rotate_by(attention.q_before, mistaken.cos, mistaken.sin, mistaken.layout)
    with kit.panel("q of the last token, rotated in the model's pairs and in the others") as panel:
        code = (
            "from tinput.positions import rope\n\n"
            "q, effect = trace.attention.q_before[0], trace.textbook[0]\n"
            f"wrong = rope.rotate_by(q, effect.cos, effect.sin, {mistaken.layout!r})\n"
            "rows = [trace.attention.q[0][-1], wrong[-1], wrong[-1] - trace.attention.q[0][-1]]\n"
            "tinput.figures.heatmap([row.tolist() for row in rows], ['recorded', 'with the mistake', 'difference'])"
        )
        _rows(page, attention.q[0], wrong[0], page.seq - 1, "lesson-halves", code)
        _badge(agreement, f"the textbook pairs {PAIRED[mistaken.layout]}, the model {PAIRED[effect.layout]}")
        panel.say(
            "The angles are the same number for number. Only which two dimensions turn together is not: cos and sin "
            "alone would not show it, so the badge looks at the rotated q as well.",
            "A checkpoint converted from the one layout to the other needs its q and k weights sorted anew; forgotten, "
            "the model talks nonsense without an error.",
        )
    return _red(agreement)


def offset() -> int:
    """The table read two rows further on."""
    page = kit.open_page("tinput/learned", TEXT)
    effect = page.trace.effect
    assert isinstance(effect, Add)
    table = page.trace.effects[0].table or ""
    wrong = page.model.table_rows(table, page.positions + OFFSET)
    agreement = effects(effect, Add(wrong), page.positions)
    with kit.panel("The position vector of the last token, and the one that the mistake adds") as panel:
        code = (
            f"wrong = model.table_rows(trace.effects[0].table, trace.positions + {OFFSET})\n"
            "rows = [trace.effect.vectors[-1], wrong[-1], wrong[-1] - trace.effect.vectors[-1]]\n"
            "tinput.figures.heatmap([row.tolist() for row in rows], ['recorded', 'with the mistake', 'difference'])"
        )
        _rows(page, effect.vectors, wrong, page.seq - 1, "lesson-offset", code)
        _badge(agreement, f"positions are counted from {OFFSET}, as RoBERTa does, in a model that counts from 0")
        panel.say(
            f"RoBERTa's first token has position {OFFSET}: the rows before it belong to padding. Read such a table "
            "from 0, or this one from 2, and every token stands where another one should.",
            "Nothing fails: there is a row for each position. Only the numbers tell.",
        )
    return _red(agreement)


def unscaled() -> int:
    """Embedding rows that were not multiplied by the root of the width."""
    page = kit.open_page("tinput/sinusoidal", TEXT)
    effect = page.trace.effect
    right = page.trace.textbook
    assert isinstance(effect, Add)
    assert right is not None
    assert isinstance(right[0], Add)
    rows = page.model.embedding_rows(page.trace.ids)
    wrong = rows + effect.vectors
    agreement = effects(effect, right[0], page.positions)
    inside = effects(Add(page.trace.block_input), Add(wrong), page.positions)
    with kit.panel("What enters the first block, and what enters it unscaled") as panel:
        code = (
            "wrong = model.embedding_rows(trace.ids) + trace.effect.vectors\n"
            "rows = [trace.block_input[-1], wrong[-1], wrong[-1] - trace.block_input[-1]]\n"
            "tinput.figures.heatmap([row.tolist() for row in rows], ['recorded', 'with the mistake', 'difference'])"
        )
        _rows(page, page.trace.block_input, wrong, page.seq - 1, "lesson-unscaled", code)
        _badge(agreement, "the embedding is not multiplied by the root of the width, as the original and Gemma do")
        token, position = float(rows.norm(dim=1).mean()), float(effect.vectors.norm(dim=1).mean())
        panel.say(
            "The badge compares what positions inject, and that is right to the last digit: it cannot see this "
            f"mistake. The block input is off by up to {inside.max_abs_diff:.2g}.",
            f"A row's mean length is {token:.2f}, a position vector's {position:.2f}: unscaled, the word nearly "
            "drowns in its position. So tinput shows the stages too, the raw row and the scaled one.",
        )
    return _red(agreement)


def two_starts() -> int:
    """A text that begins with the start token, and gets another one."""
    page = kit.open_page("tinput/sinusoidal", f"{START}{TEXT}")
    twice = kit.open_page("tinput/sinusoidal", f"{START}{START}{TEXT}")
    effect, right = twice.trace.effect, twice.trace.textbook
    assert isinstance(effect, Add)
    assert right is not None
    assert isinstance(right[0], Add)
    agreement = effects(effect, right[0], twice.positions)
    token = page.seq - 1
    wrong = twice.trace.block_input[1:]  # the same words, each one place further on
    apart = float((wrong - page.trace.block_input).abs().max())
    with kit.panel("The last word, after one start token and after two") as panel:
        code = (
            f"twice = model.trace({twice.text!r}).block_input[1:]\n"
            "rows = [trace.block_input[-1], twice[-1], twice[-1] - trace.block_input[-1]]\n"
            "tinput.figures.heatmap([row.tolist() for row in rows], ['recorded', 'with the mistake', 'difference'])"
        )
        _rows(page, page.trace.block_input, wrong, token, "lesson-starts", code)
        _badge(agreement, "a chat template wrote the start token, and the tokenizer wrote another one")
        panel.say(
            "Every word has moved on by one place, and the formula is right for the place where it now stands: the "
            "badge has nothing to object to.",
            f"What enters the block differs by up to {apart:.2g}. The page's strip of tokens shows both start tokens, "
            "and where the tokenizer adds the second one a note says so.",
        )
    return _red(agreement)


LESSON = Lesson(
    "mistakes",
    "The usual mistakes",
    (
        Step(
            "Dimensions are paired as halves in one model and as neighbours in another. Take the wrong one: what does "
            "the badge say?",
            ANSWERS,
            halves,
            "rope",
            {"model": "tinput/rope", "text": TEXT},
        ),
        Step(
            "Count positions from 2 in a model that counts from 0. What does the badge say?",
            ANSWERS,
            offset,
            "learned",
            {"model": "tinput/learned", "text": TEXT},
        ),
        Step(
            "Forget to multiply the embedding by the root of its width. What does the badge say?",
            ANSWERS,
            unscaled,
            "pipeline",
            {"model": "tinput/sinusoidal", "text": TEXT},
        ),
        Step(
            "Begin the text with two start tokens. What does the badge say?",
            ANSWERS,
            two_starts,
            "tokens",
            {"model": "tinput/sinusoidal", "text": f"{START}{START}{TEXT}"},
        ),
    ),
)
