"""What of its positions a model never met in training: each scheme's own rule, at the sizes of the model at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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

__all__ = ["STATES", "Unseen", "code", "compared", "coverage", "formula", "no_rule", "picture", "trained"]

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


@dataclass(frozen=True, eq=False)
class Unseen:
    """One scheme of a model, in one kind of its layers. ways: name of a way to read -> what training has met"""

    name: str
    ways: Mapping[str, Coverage]
    sizes: Mapping[str, Any]


def coverage(page: Page, at: Tensor, length: int) -> dict[str, Unseen]:
    """For each scheme of the page's model, by what it is called: what training on `length` tokens has met at `at`.

    Layers of two kinds, such as Gemma's local and global ones with a theta each, stand one beside the other.
    """
    found: dict[str, Unseen] = {}
    for name in page.model.schemes:
        scheme: Any = SCHEMES.get(name)
        if not hasattr(scheme, "coverage"):
            continue
        types = getattr(scheme, "layer_types", lambda _: ())(page.model.config)
        alike: list[Any] = []
        for kind in dict.fromkeys(types) or [None]:
            sizes = _sizes(page) | ({"layer_type": kind} if kind else {})
            try:
                ways = scheme.coverage(page.model.config, at, length, **sizes)
            except (ValueError, KeyError):  # the formula cannot do with this configuration, or with such layers
                continue
            if ways and not any(_same(ways, other) for other in alike):
                alike.append(ways)
                label = words.label(name) + (f", {kind.replace('_', ' ')}" if kind else "")
                found[label] = Unseen(name, ways, sizes)
    if len(found) == 1:  # layers of one kind need not be told apart
        found = {words.label(one.name): one for one in found.values()}
    return found


def _same(ways: Mapping[str, Coverage], other: Mapping[str, Coverage]) -> bool:
    return ways.keys() == other.keys() and all(ways[name].state.equal(other[name].state) for name in ways)


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


def code(found: Unseen, at: Tensor, length: int, way: str, titles: str) -> str:
    """The Python that makes the picture of one way."""
    sizes = ", ".join(f"{key}={value!r}" for key, value in found.sizes.items())
    return (
        "from tinput import SCHEMES, figures\nfrom tinput.positions.coverage import coarse, spread\n\n"
        f"places = spread({int(at[-1]) + 1})\n"
        f"ways = SCHEMES[{found.name!r}].coverage(model.config, places, {length}, {sizes})\n"
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


def formula(found: Unseen) -> str:
    """The scheme's formula: where its parts come from."""
    return SCHEMES[found.name].FORMULA


def no_rule(page: Page) -> str:
    """That nothing can be said of a model's schemes."""
    names = " and ".join(words.label(name) for name in page.model.schemes)
    return f"For {names} there is no rule here of what is new in a longer text."
