"""Attention weights of a head without and with a bias, whichever scheme the bias is of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinput import figures, measure
from tinput.ui import given, kit

if TYPE_CHECKING:
    from tinput.ui.kit import Page

__all__ = ["show_weights"]


def show_weights(page: Page, head: int, heads: given.Heads, lines: str, bias: str) -> str:
    """Attention weights of a head without and with a bias, side by side; the sentence that compares them.

    lines: what the code shown starts with; bias: the code of the bias, (heads, query, key)
    The sentence is empty where q and k were not recorded: then the page says so.
    """
    both = given.weights(page, head, heads)
    if both is None:
        if not page.offers_attention():
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
    own = "" if heads.own else f"attention.bias[{head}].tensor()"  # what the model adds itself, under a what-if
    code = (
        f"{lines}attention = trace.attention\n"
        f"bias, mask = {bias}[{head % heads.field.shape[0]}].tensor(), attention.mask[{head}].tensor()\n"
        f"without = attention.weights_with({head}{', ' * bool(own)}{own})\n"
        f"with_bias = attention.weights_with({head}, {own}{' + ' * bool(own)}bias)\n"
        "figures.panels([without, with_bias], ['without the bias', 'with the bias'],\n"
        f"               masked=mask < 0, scale='sequential', quantile={quantile:g}, across=2)"
    )
    page.show(figure, "weights", code=code)
    far, near = (float(measure.mean_distance(weights)) for weights in (without, with_bias))
    return f"Head {head} looks {far:.2f} tokens away on average without the bias, {near:.2f} with it."
