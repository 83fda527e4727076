"""The picture of what a scheme injects, whichever it is: chosen by the kind of effect, never by a scheme's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tinput import figures, measure
from tinput.positions import Add, Bias, Content, Rotate
from tinput.ui import given, kit

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from torch import Tensor

    from tinput.record import LayerEffect
    from tinput.ui.kit import Page

__all__ = ["common_limits", "picture", "show_weights"]

HEADS = 8  # at most so many heads side by side


def common_limits(first: Sequence[LayerEffect], second: Sequence[LayerEffect]) -> dict[type, tuple[float, float]]:
    """One pair of colour limits for each kind of effect that both of two models have."""
    found: dict[type, tuple[float, float]] = {}
    for item in first:
        other = next((o for o in second if type(o.effect) is type(item.effect)), None)
        if other is not None and (values := [_values(e.effect) for e in (item, other)])[0] is not None:
            found[type(item.effect)] = figures.limits(*(value for value in values if value is not None))
    return found


def _values(effect: Any) -> Tensor | None:
    """What a picture of an effect colours by size; angles have a scale of their own."""
    return effect.vectors if isinstance(effect, Add) else effect.scores if isinstance(effect, Bias | Content) else None


def picture(
    page: Page,
    item: LayerEffect,
    call: str,
    labels: str = "labels",
    *,
    limits: tuple[float, float] | None = None,
    large: bool,
) -> tuple[Figure | None, str]:
    """(figure, the Python that makes it) for an effect; (None, a sentence) where there is no picture.

    call: how the code names the effect, such as "trace.effects[0].effect"; labels: and the tokens' labels
    """
    effect = item.effect
    common: dict[str, Any] = {"positions": page.place, "dtype": page.trace.dtype, "large": large}
    match effect:
        case Add():
            vectors = page.matrix(effect.vectors)
            figure = figures.heatmap(vectors, page.rows(vectors), limits=limits, **common)
            return figure, f"tinput.figures.heatmap({call}.vectors, {labels})"
        case Rotate():
            options = {"column_title": "pair", "value_title": "angle (rad)", "scale": "cyclic"}
            figure = figures.heatmap(effect.angles % TURN, page.rows(effect.angles), **options, **common)
            return figure, (
                f"tinput.figures.heatmap({call}.angles % {TURN}, {labels},\n"
                "                       column_title='pair', value_title='angle (rad)', scale='cyclic')"
            )
        case Bias() | Content() if effect.scores is not None:
            scores = effect.scores[:HEADS]
            tokens = page.labels if scores.shape[-1] == page.seq else None
            names = [f"head {head}" for head in range(len(scores))]
            figure = figures.panels(
                scores,
                names,
                tokens,
                tokens,
                value_title="bias",
                limits=limits,
                masked=_hidden(page, scores),
                dtype=page.trace.dtype,
                large=large,
            )
            return figure, (
                f"scores = {call}.scores[:{HEADS}]\n"
                "tinput.figures.panels(scores, [f'head {h}' for h in range(len(scores))],\n"
                f"                      {labels}, {labels}, value_title='bias')"
            )
    if effect is None:
        return None, f"It could not be recorded: {item.reason}."
    return None, "Nothing enters from position: there is no tensor to show."


def _hidden(page: Page, scores: Tensor) -> Tensor | None:
    """(query, key) bool: which cells the model's mask hides anyway; None where it has no mask of that shape."""
    attention = page.trace.attention
    if attention is None or attention.mask.shape[-2:] != scores.shape[-2:]:
        return None
    return attention.mask[0].tensor() < 0


TURN = 6.283185307179586


def show_weights(page: Page, head: int, heads: given.Heads, lines: str, bias: str) -> str:
    """Attention weights of a head without and with a bias, side by side; the sentence that compares them.

    lines: what the code shown starts with; bias: the code of the bias, (heads, query, key), empty for no code
    The sentence is empty where q and k were not recorded: then the page says so.
    """
    both = given.weights(page, head, heads)
    if both is None:
        reason = page.trace.attention_reason or "this model has no attention"
        kit.sentences(f"q and k were not recorded: {reason}.")
        return ""
    without, with_bias, masked = both
    quantile = given.weights_quantile(page)
    figure = figures.panels(
        [without, with_bias],
        ["without the bias", "with the bias"],
        page.labels,
        page.labels,
        value_title="attention weight",
        scale="sequential",
        quantile=quantile,
        masked=masked,
        across=2,
        note="the model's own scores",
        large=kit.large(),
    )
    code = (
        f"{lines}attention = trace.attention\n"
        f"scores, mask = attention.scores[{head}].tensor(), attention.mask[{head}].tensor()\n"
        f"bias = {bias}[{head}].tensor()\n"
        "without = measure.attention_weights(scores, mask=mask)\n"
        "with_bias = measure.attention_weights(scores, bias, mask=mask)\n"
        "figures.panels([without, with_bias], ['without the bias', 'with the bias'],\n"
        f"               masked=mask < 0, scale='sequential', quantile={quantile:g}, across=2)"
    )
    page.show(figure, "weights", code=code if bias else "")
    far, near = (float(measure.mean_distance(weights)) for weights in (without, with_bias))
    return f"Head {head} looks {far:.2f} tokens away on average without the bias, {near:.2f} with it."
