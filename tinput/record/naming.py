"""The words for what was found in a model: its schemes' names, and how they were seen."""

from __future__ import annotations

from tinput.positions import SCHEMES, Add, Bias, Content, Nothing, Rotate
from tinput.record.anatomy import Injection, Stack

__all__ = ["UNKNOWN", "reason_of", "scheme_of", "usable_length"]

UNKNOWN = "unknown"  # positions enter in a way that the textbook has no scheme for


def reason_of(stack: Stack) -> str:
    """One sentence: how the scheme was found."""
    if not stack.injections:
        if not stack.attention_layers:
            return f"None of the {stack.n_layers} layers has attention, and nothing computed from positions is added."
        return (
            "Nothing that is computed from positions alone meets the content, neither before the first block "
            f"({stack.block_class}) nor in its attention; the mask is no position."
        )
    parts = list(dict.fromkeys(_how(found, stack) for found in stack.injections))
    return "Seen in the data flow: " + "; ".join(parts) + "."


def scheme_of(injection: Injection | None) -> str:
    """The scheme's name for what was found in a model; "unknown" if the textbook has none like it."""
    effect = Nothing if injection is None else injection.effect
    looked_up = injection is not None and injection.learned
    bend = None if injection is None else injection.bend
    return next((name for name, scheme in SCHEMES.items() if scheme.recognise(effect, looked_up, bend)), UNKNOWN)


_VERBS = {
    Add: "is added to the embedding {where}",
    Rotate: "rotates q and k {where}",
    Bias: "is added to the scores {where}",
    Content: "meets q and k inside the scores {where}",
}


def _how(found: Injection, stack: Stack) -> str:
    where = f"before the first block ({stack.block_class})" if found.effect is Add else _layers(found.layers, stack)
    what = {Add: "a vector", Rotate: "an angle", Bias: "a number", Content: "a vector for each distance"}[found.effect]
    source = "looked up by position in a learned table" if found.learned else "computed from positions alone"
    return f"{what}, {source}, {_VERBS[found.effect].format(where=where)}"


def _layers(layers: tuple[int, ...], stack: Stack) -> str:
    if len(layers) == stack.n_layers:
        return f"in all {stack.n_layers} layers" if stack.n_layers > 1 else "in the one layer"
    shown = ", ".join(map(str, layers[:6])) + (", …" if len(layers) > 6 else "")
    return f"in {len(layers)} of {stack.n_layers} layers ({shown})"


def usable_length(stack: Stack) -> int | None:
    """How many tokens the table of positions has rows for; None where there is no table."""
    sizes = [i.n_rows - i.first_row for i in stack.injections if i.effect is Add and i.n_rows is not None]
    return min(sizes) if sizes else None
