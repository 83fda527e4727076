"""What of its positions a model never met in training: each scheme's own rule, at the sizes of the model at hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tinput import figures
from tinput.positions import SCHEMES
from tinput.positions.coverage import MISSING, NEW, SEEN, Coverage, coarse
from tinput.positions.spelling import trained_length
from tinput.ui import kit, words

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from torch import Tensor

    from tinput.ui.kit import Page

__all__ = ["STATES", "code", "compared", "coverage", "formula", "no_rule", "picture", "trained"]

STATES = {  # words and colour
    SEEN: ("met in training", "#8FA3B8"),
    NEW: ("never met in training", "#E69F00"),
    MISSING: ("does not exist", "#D55E00"),
}


def trained(page: Page) -> int:
    """How many tokens the model was trained on, as its configuration says; 0 where it does not."""
    return trained_length(page.model.config)


def _sizes(page: Page) -> dict[str, Any]:
    attention = page.trace.attention
    return {
        "width": int(page.trace.block_input.shape[-1]),
        "heads": attention.heads if attention is not None else None,
        "usable": page.model.usable_length,
        "stack": page.trace.stack,
    }


def coverage(page: Page, at: Tensor, length: int) -> dict[str, tuple[str, dict[str, Coverage]]]:
    """For each scheme of the page's model, by label: its name, and way -> what training on `length` tokens has met."""
    found = {}
    for name in page.model.schemes:
        scheme = SCHEMES.get(name)
        if not hasattr(scheme, "coverage"):
            continue
        try:
            ways = scheme.coverage(page.model.config, at, length, **_sizes(page))  # type: ignore[union-attr]
        except (ValueError, KeyError):  # the formula cannot do with this configuration
            continue
        if ways:
            found[words.label(name)] = (name, ways)
    return found


def picture(found: Coverage, at: Tensor, length: int) -> tuple[Figure, str]:
    """The map of one way, and the words and colours that the call for it takes, as Python."""
    state, middles = coarse(found.state, at)
    step = int(at[-1] + 1) / len(middles)
    titles: dict[str, Any] = {"row_title": found.parts, "column_title": f"{found.place} (tokens)"}
    figure = figures.states(
        state,
        middles,
        STATES,
        mark=(length, f"trained on {length:,}"),
        note="by the formula, at this model's sizes" + (f"; a cell is {step:,.3g} tokens" if step > 1 else ""),
        large=kit.large(),
        **titles,
    )
    return figure, ", ".join(f"{key}={value!r}" for key, value in titles.items())


def code(page: Page, at: Tensor, length: int, name: str, way: str, titles: str) -> str:
    """The Python that makes the picture of one way."""
    sizes = ", ".join(f"{key}={value!r}" for key, value in _sizes(page).items())
    return (
        "from tinput import SCHEMES, figures\nfrom tinput.positions.coverage import coarse, spread\n\n"
        f"places = spread({int(at[-1]) + 1})\n"
        f"ways = SCHEMES[{name!r}].coverage(model.config, places, {length}, {sizes})\n"
        f"state, places = coarse(ways[{way!r}].state, places)\n"
        f"figures.states(state, places, {STATES!r},\n               {titles})"
    )


def compared(ways: Mapping[str, Coverage]) -> list[str]:
    """How much is new with each way to read, where there are several."""
    if len(ways) < 2:
        return []
    listed = ", ".join(f"{name} {found.new}" for name, found in ways.items())
    some = next(iter(ways.values()))
    return [f"Of {len(some.state)} {some.parts}s, somewhere new: {listed}."]


def formula(name: str) -> str:
    """A scheme's formula: where its parts come from."""
    return SCHEMES[name].FORMULA


def no_rule(page: Page) -> str:
    """That nothing can be said of a model's schemes."""
    names = " and ".join(words.label(name) for name in page.model.schemes)
    return f"For {names} there is no rule here of what is new in a longer text."
