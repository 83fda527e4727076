"""The path of a text into the first block, with the place marked where position enters."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import plotly.graph_objects as go

from tinput.figures import labels as text
from tinput.figures.colour import GREY, on
from tinput.figures.style import Sketch

__all__ = ["path"]

_ROOM = 530  # pixels that the picture has beside the sidebar and the words of a 1280 wide window
_AROUND, _ARROW = 0.75, 0.95  # what a box has around its label, and the arrow between two, in sizes of the font
_TALL, _GAP = 1.0, 1.05  # a box, and what is between two rows of them
_NARROW, _WIDE = frozenset(" ,.·ilIjtfr"), frozenset("mwMW")


def path(
    steps: Sequence[str],
    marked: int | Collection[int] | None = None,
    colour: str = GREY,
    *,
    inside: Sequence[str] = (),
    block: str = "block 1",
    possible: Collection[int] = (),
    label: str = "",
    large: bool = False,
) -> go.Figure:
    """Boxes joined by arrows; the injection point filled with the scheme's colour.

    steps: what happens before the block, such as ("tokenize", "embed", "+ position", "norm")
    inside: what happens in it, drawn in a frame named `block`, such as ("q, k", "rotate", "q · k", "+ bias", "softmax")
    marked: index (or some) into steps + inside; None: position enters nowhere
    possible: indices of steps that other schemes use, drawn dashed
    label: words beside the marked box, such as "position enters here"
    """
    every = [*steps, *inside]
    chosen = set() if marked is None else {marked} if isinstance(marked, int) else set(marked)
    rows = [list(range(len(steps))), list(range(len(steps), len(every)))] if inside else [list(range(len(steps)))]
    halves = [(max(1.4, _breadth(step)) + _AROUND) / 2 for step in every]
    centres: list[float] = []
    for row in rows:
        edge = 0.0
        for i in row:
            centres.append(edge + halves[i])
            edge += 2 * halves[i] + _ARROW
    ends = [centres[row[-1]] + halves[row[-1]] for row in rows if row]
    side = 0.45  # between the boxes and the frame, and a little outside of it
    widest = max(ends) + 2 * side
    font = max(14, min(26 if large else 20, int(_ROOM / widest)))
    height = (len(rows) * (118 if large else 92)) + (100 if large else 80) - (0 if inside else 30)
    where = " and ".join(every[i] for i in sorted(chosen))
    fig = Sketch(
        large=large,
        height=height,
        description=f"The path: {', then '.join(steps)}"
        + (f", then {block}: {', then '.join(inside)}" if inside else "")
        + (f". Position enters at: {where}." if chosen else ". Position enters nowhere."),
        showlegend=False,
        margin={"l": 4, "r": 4, "t": 4, "b": 4, "pad": 0},
        hovermode=False,
        dragmode=False,
    )
    fig.layout["meta"]["steps"] = [[step, i in chosen] for i, step in enumerate(every)]
    frame = len(rows) > 1
    low = -(len(rows) - 1) * (_TALL + _GAP) - _TALL / 2 - (0.45 if frame else 0.15)
    fig.set(
        xaxis={"visible": False, "range": [-side, widest - side], "fixedrange": True},
        yaxis={"visible": False, "range": [low, _TALL / 2 + 0.75], "fixedrange": True},
    )
    fig.trace("scatter", x=[0], y=[0], mode="markers", marker={"opacity": 0}, hoverinfo="skip", name="path")
    for r, row in enumerate(rows):
        y = -r * (_TALL + _GAP)
        for i in row:
            x, half = centres[i], halves[i]
            _box(fig, every[i], (x, y), half, font, colour if i in chosen else "", dashed=i in possible)
            if i in chosen and label:
                fig.write(
                    x=x, y=y + _TALL / 2, yanchor="bottom", yshift=2, text=text.literal(label),
                    font={"size": max(16, font - 4)},
                )  # fmt: skip
            if i != row[0]:
                _arrow(fig, (x - half - _ARROW, y), (x - half, y))
    if frame:
        _frame(fig, block, (0.1 - side, ends[-1] + side - 0.1), max(16, font - 4))
        # From the end of the first row, down and back to the block's first box.
        first, last, turn = centres[len(steps)], centres[len(steps) - 1], -(_TALL / 2 + 0.25)
        way = f"M {last},{-_TALL / 2} L {last},{turn} L {first},{turn}"
        fig.shape("path", path=way, line={"color": GREY, "width": 2})
        _arrow(fig, (first, turn), (first, -(_TALL + _GAP) + _TALL / 2))
    return fig.figure()


def _box(
    fig: Sketch, label: str, centre: tuple[float, float], half: float, font: int, filled: str, *, dashed: bool
) -> None:
    """A step. half: of its width; filled: with the scheme's colour where position enters, "" elsewhere"""
    (x, y), faint = centre, dashed and not filled
    fig.shape(
        "rect", x0=x - half, x1=x + half, y0=y - _TALL / 2, y1=y + _TALL / 2, layer="below",
        fillcolor=filled or "rgba(128,132,149,0.10)",
        line={"color": filled or GREY, "width": 3 if filled else 2, "dash": "dot" if faint else "solid"},
    )  # fmt: skip
    words = text.literal(label, 24)
    fig.write(
        x=x, y=y, text=f"<b>{words}</b>" if filled else words,
        font={"size": font, "color": on(filled)} if filled else {"size": font}, opacity=0.65 if faint else 1,
    )  # fmt: skip


def _frame(fig: Sketch, name: str, sides: tuple[float, float], font: int) -> None:
    """The frame around the second row, with its name in the corner."""
    y, (left, right) = -(_TALL + _GAP), sides
    top = y + _TALL / 2 + 0.62
    fig.shape(
        "rect", x0=left, x1=right, y0=y - _TALL / 2 - 0.35, y1=top, line={"color": GREY, "width": 2}, layer="below"
    )
    fig.write(x=right, y=top, xanchor="right", yanchor="top", xshift=-4, text=text.literal(name), font={"size": font})


def _breadth(label: str) -> float:
    """How wide a label is, bold or not, in sizes of the font."""
    label = text.short(label, 24)
    extra = sum(0.36 if c in _WIDE else -0.24 if c in _NARROW else 0.0 for c in label)
    return 0.56 * text.width(label) + extra


def _arrow(fig: Sketch, start: tuple[float, float], end: tuple[float, float]) -> None:
    fig.write(
        x=end[0], y=end[1], ax=start[0], ay=start[1], xref="x", yref="y", axref="x", ayref="y", text="", showarrow=True,
        arrowhead=2, arrowsize=1.2, arrowwidth=2, arrowcolor=GREY,
    )  # fmt: skip
