"""The picture of what a scheme injects, whichever it is: chosen by the kind of effect, never by a scheme's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinput import figures
from tinput.positions import Add, Bias, Content, Rotate

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from tinput.record import LayerEffect
    from tinput.ui.kit import Page

__all__ = ["picture"]

HEADS = 8  # at most so many heads side by side


def picture(page: Page, item: LayerEffect, call: str, *, large: bool) -> tuple[Figure | None, str]:
    """(figure, the Python that makes it) for an effect; (None, a sentence) where there is no picture.

    call: how the code names the effect, such as "trace.effects[0].effect"
    """
    effect = item.effect
    common: dict[str, Any] = {"positions": page.place, "dtype": page.trace.dtype, "large": large}
    match effect:
        case Add():
            rows = page.labels if len(effect.vectors) == page.seq else None
            figure = figures.heatmap(effect.vectors.flatten(1), rows, **common)
            return figure, f"tinput.figures.heatmap({call}.vectors, trace.tokens.labels)"
        case Rotate():
            rows = page.labels if len(effect.angles) == page.seq else None
            options = {"column_title": "pair", "value_title": "angle (rad)", "scale": "cyclic"}
            figure = figures.heatmap(effect.angles % TURN, rows, **options, **common)
            return figure, (
                f"tinput.figures.heatmap({call}.angles % {TURN}, trace.tokens.labels,\n"
                "                       column_title='pair', value_title='angle (rad)', scale='cyclic')"
            )
        case Bias() | Content() if effect.scores is not None:
            scores = effect.scores[:HEADS]
            labels = page.labels if scores.shape[-1] == page.seq else None
            names = [f"head {head}" for head in range(len(scores))]
            figure = figures.panels(
                scores, names, labels, labels, value_title="bias", dtype=page.trace.dtype, large=large
            )
            return figure, (
                f"scores = {call}.scores[:{HEADS}]\n"
                "tinput.figures.panels(scores, [f'head {h}' for h in range(len(scores))],\n"
                "                      trace.tokens.labels, trace.tokens.labels, value_title='bias')"
            )
    if effect is None:
        return None, f"It could not be recorded: {item.reason}."
    return None, "Nothing enters from position: there is no tensor to show."


TURN = 6.283185307179586
