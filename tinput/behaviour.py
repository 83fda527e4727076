"""How a model tells positions apart, by its behaviour alone: a second way to know, independent of the recorder's tape.

One id is repeated, so that content is the same everywhere and only positions can make a difference. What moves then
says where positions enter: the block input, q and k, or only the scores. The numbers come from traces; how they were
computed is not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tinput.errors import BadIds, NotRecorded
from tinput.positions import SCHEMES, Bias

if TYPE_CHECKING:
    from tinput.open import Model
    from tinput.record import Attention, Trace

__all__ = ["Fingerprint", "fingerprint"]

LENGTH = 12
_STRAIGHT = 0.02
_ADDED, _TURNED = "added to the embedding", "rotation of q and k"
_BIAS, _MIXED, _NOWHERE = "bias on the scores", "content and distance in the scores", "nowhere"


@dataclass(frozen=True)
class Fingerprint:
    """What was seen, and what follows.

    input_moves: how far the block input of one repeated id moves with position, relative to its size
    q_moves: how far q does, in the first attention layer with positions; None without attention
    scores_move: how far the scores do along a row; by_distance: how far they are from depending on the distance alone
    by_content: how much of that movement another id changes (0: the content does not matter)
    bend: how far the scores are from a straight line in the distance (0: twice the distance, twice the bias)
    injection: where positions enter: a scheme's INJECTION; schemes: those that could do this; reason: a sentence
    """

    input_moves: float
    q_moves: float | None
    scores_move: float | None
    by_distance: float | None
    by_content: float | None
    bend: float | None
    injection: str
    schemes: tuple[str, ...]
    reason: str


def fingerprint(model: Model, stack: str | None = None) -> Fingerprint:
    """The injection point of a model's stack, by what moves when one id is repeated.

    Where the block input moves already, what enters later cannot be told apart from it, and is not looked for.
    Raises what `Model.trace` raises; NotRecorded where a block input has no row for each token.
    """
    ids = _two_ids(model.vocab_size)
    first, second = (model.trace(ids=[number] * LENGTH, stack=stack) for number in ids)
    if len(first.block_input) != LENGTH:
        shape = tuple(first.block_input.shape)
        raise NotRecorded(f"The block input has the shape {shape}, no row for each of {LENGTH} tokens to compare.")
    moves = _spread(first.block_input.flatten(1))
    if moves > 1e-4:
        reason = "one id repeated enters the first block as a different vector at each position"
        return _said(_ADDED, reason, moves)
    if first.attention is None or second.attention is None:
        return _said(_NOWHERE, f"the block input stays, and {first.attention_reason}", moves)
    q_moves = _spread(first.attention.q.transpose(0, 1).flatten(1))
    scores, others = _scores(first.attention), _scores(second.attention)
    scores_move = float((scores.amax(-1) - scores.amin(-1)).max() / scores.abs().max().clamp_min(1e-9))
    if scores_move < 1e-4:
        return _said(_NOWHERE, "neither the block input nor the scores move", moves, q_moves, scores_move)
    size = (scores.amax((1, 2)) - scores.amin((1, 2))).max()
    shifted = float((scores[:, 1:, 1:] - scores[:, :-1, :-1]).abs().max() / size)
    content = float((_falls(scores) - _falls(others)).abs().max() / size)
    steps = scores[:, -1].diff(dim=-1)
    bend = float((steps - steps.mean(-1, keepdim=True)).abs().max() / steps.abs().max())
    seen = (moves, q_moves, scores_move, shifted, content, bend)
    if content < 1e-3:
        line = "in a straight line" if bend <= _STRAIGHT else "in steps of its own"
        return _said(_BIAS, f"the scores fall with the distance {line}, whatever the id is", *seen)
    if q_moves > 1e-4 and _carried(model, first, stack):
        return _said(_NOWHERE, "q and k move as the layers before carry them along, whatever the positions are", *seen)
    if q_moves > 1e-4:
        return _said(_TURNED, "the block input stays, q and k turn with position", *seen)
    return _said(_MIXED, "q and k stay, and the scores move by an amount that depends on the id", *seen)


def _carried(model: Model, trace: Trace, stack: str | None) -> bool:
    """Whether q changes its length along the text, which no rotation does, and stays when all positions are set anew.

    So it is after recurrent layers, which count by going on. Where positions cannot be set, the length alone decides.
    """
    assert trace.attention is not None
    if _spread(trace.attention.q.norm(dim=-1).T) < 1e-4:
        return False
    try:
        moved = model.trace(ids=trace.ids, positions=[3 * place + 7 for place in range(LENGTH)], stack=stack)
    except BadIds:
        return True
    return moved.attention is not None and torch.equal(moved.attention.q, trace.attention.q)


def _said(injection: str, reason: str, moves: float, *rest: float) -> Fingerprint:
    q_moves, scores_move, shifted, content, bend = (*rest, *[None] * 5)[:5]
    schemes = [name for name, scheme in SCHEMES.items() if injection == scheme.INJECTION]
    if injection == _BIAS and bend is not None:  # twice the distance, twice the bias: a formula; else a table
        schemes = [name for name in schemes if SCHEMES[name].recognise(Bias, bend > _STRAIGHT, bend)]
    reason = f"{reason[0].upper()}{reason[1:]}."
    return Fingerprint(moves, q_moves, scores_move, shifted, content, bend, injection, tuple(schemes), reason)


def _two_ids(vocabulary: int) -> tuple[int, int]:
    """Two ordinary ids, past the usual special ones."""
    low = min(20, max(0, vocabulary - 3))
    return low, min(low + 7, vocabulary - 1)


def _spread(rows: Tensor) -> float:
    """How far rows (seq, n) are from the first, relative to their size."""
    return float((rows - rows[:1]).abs().max() / rows.abs().max().clamp_min(1e-9))


def _scores(attention: Attention) -> Tensor:
    """(heads, query, key) float64: scores with their bias, without the mask."""
    return (attention.scores.tensor() + attention.bias.tensor()).double()


def _falls(scores: Tensor) -> Tensor:
    """The last query's scores relative to its own key: (heads, key)."""
    return scores[:, -1] - scores[:, -1, -1:]
