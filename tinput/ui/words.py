"""Words for what the recorder found: what an operation does, where position enters, what a text became."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tinput.positions import label
from tinput.ui import literal

if TYPE_CHECKING:
    from tinput.record import Stage
    from tinput.tokens import Tokens
    from tinput.ui.kit import Page

__all__ = [
    "alike",
    "became",
    "does",
    "extremes",
    "label",
    "path_of",
    "shape",
    "signs",
    "steps_table",
]

# By the role that the recorder gives a stage.
_ROLES = {
    "token": "Looks up one row of the embedding table for each token id: equal tokens get equal rows.",
    "position": "One vector for each position, the same whatever the token is.",
    "segment": "One vector for each segment (sentence A or B), the same for all tokens of a text of one segment.",
    "sum": "Adds the two, dimension by dimension: the sum has the same width as each part.",
    "scale": "Multiplies every value by one number, so that the embedding is not drowned by what is added later.",
    "norm": "Brings each token's vector to one size (layer norm: mean 0 too), then scales each dimension as learned.",
    "dropout": "In training, sets some values to zero by chance. In eval mode, as here, it changes nothing.",
    "projection": "Multiplies each vector by a matrix, here to bring it to the width of the blocks.",
}
_OTHER = "An operation of this model's own on the way to the first block."


def does(stage: Stage) -> str:
    """What a stage does, in a sentence."""
    return _ROLES.get(getattr(stage, "role", ""), _OTHER)


def shape(values: Any) -> str:
    """A shape as it is read: 12 × 128."""
    return " × ".join(f"{size:,}" for size in values.shape)


BEFORE = ("tokenize", "embed", "+ position")
INSIDE = ("q, k, v", "rotate q, k", "q · k", "+ bias", "softmax")
# Where on BEFORE + INSIDE an injection point is, by the words that a scheme's file uses for it.
_PLACE = {
    "added to the embedding": 2,
    "rotation of q and k": 4,
    "content and distance in the scores": 5,
    "bias on the scores": 6,
}


def path_of(schemes: Sequence[Any], *, norm: bool) -> tuple[list[str], list[str], set[int], set[int]]:
    """The path of a text for the picture: (steps before block 1, steps inside, marked, possible elsewhere).

    schemes: the modules of the schemes that the model uses; norm: whether it normalises before the first block
    """
    before = [*BEFORE, *(["norm"] if norm else [])]
    shift = len(before) - len(BEFORE)
    moved = {words: place + shift * (place >= len(BEFORE)) for words, place in _PLACE.items()}
    marked = {moved[scheme.INJECTION] for scheme in schemes if scheme.INJECTION in moved}
    return before, list(INSIDE), marked, set(moved.values()) - marked - {moved["content and distance in the scores"]}


def became(tokens: Tokens) -> str:
    """How many characters became how many tokens; of a text that was cut, only those of the tokens that are shown."""
    every, seq, ids = len(tokens.text), len(tokens), len(set(tokens.ids))
    shown = max((span[1] for span in tokens.spans if span), default=0)
    if not tokens.text[shown:].strip():  # blanks that the tokenizer drops at the end are no cut
        shown = every
    ratio = shown / seq
    said = f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.2g}"
    first = f"The first {shown:,} of {every:,}" if shown < every else f"{shown:,}"
    return (
        f"{first} {'character' if every == 1 else 'characters'} became {seq:,} {'token' if seq == 1 else 'tokens'}"
        f"{f', {ids:,} of them different' if seq > 1 else ''}: "
        f"{said} {'character' if said == '1' else 'characters'} a token."
    )


_SIGNS = {  # by which vocabularies say where a word begins or goes on
    "Ġ": "Ġ in a piece is a blank: this vocabulary writes every byte as a visible sign.",
    "▁": "▁ in a piece is a blank.",
    "##": "## at the start of a piece: it goes on with a word.",
}


def signs(pieces: Sequence[str]) -> str:
    """What a sign that a vocabulary puts before its pieces says, in a sentence; empty where there is none."""
    found = [sign for sign in _SIGNS if any(piece.startswith(sign) and piece != sign for piece in pieces)]
    return " ".join(_SIGNS[sign] for sign in found)


def extremes(labels: Sequence[str], sizes: Tensor) -> str:
    """Which vector is shortest and which longest, by their norms (n,)."""
    if len(labels) != len(sizes) or len(sizes) < 2:
        return f"The norm is {float(sizes[0]):.3g}."
    low, high = int(sizes.argmin()), int(sizes.argmax())
    return f"The shortest is {labels[low]} (norm {sizes[low]:.3g}), the longest {labels[high]} ({sizes[high]:.3g})."


def steps_table(stages: Sequence[Stage]) -> str:
    """HTML of all recorded steps: number, name, operation, module, shape, note."""
    head = ("", "step", "operation", "module", "shape", "note")
    rows = [(str(i + 1), s.name, s.op, s.module, shape(s.value), s.note) for i, s in enumerate(stages)]
    return literal.table(head, rows, [False] * len(rows))


def alike(page: Page, raw: Tensor, entering: Tensor) -> list[str]:
    """What to see in two similarity matrices of one text, with its own tokens and numbers."""
    said = []
    first: dict[int, int] = {}
    again = next(((first[i], n) for n, i in enumerate(page.tokens.ids) if first.setdefault(i, n) != n), None)
    if again:
        a, b = again
        said.append(
            f"{page.labels[a]} stands at {a} and at {b}: its raw rows have cosine {float(raw[a, b]):.2f}, "
            f"and as they enter the block {float(entering[a, b]):.2f}."
        )
    if len(raw) > 1:
        apart = ~torch.eye(len(raw), dtype=torch.bool)
        said.append(
            f"Two different places have cosine {float(raw[apart].nanmean()):.2f} on average raw, "
            f"{float(entering[apart].nanmean()):.2f} as they enter."
        )
    return said or ["One token alone is like itself and nothing else: type more of a sentence."]
