"""A map of states: which part of a thing is in which of a few named states, place by place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from tinput.figures import labels as text
from tinput.figures.colour import GREY
from tinput.figures.style import Axis, Sketch, as_array, count, draw_axis, size

__all__ = ["states"]

_ROWS = 64  # more than a picture of this height can show apart


def states(
    values: Any,
    columns: Any,
    names: Mapping[int, tuple[str, str]],
    *,
    row_title: str,
    column_title: str,
    mark: tuple[float, str] | None = None,
    note: str = "",
    large: bool = False,
    height: int | None = None,
) -> go.Figure:
    """A map in a colour for each state, with a legend.

    values: (rows, columns) whole numbers; one that is not in `names` is left blank
    columns: (columns,) the place of each; names: state -> (words, colour); mark: (place, words), an upright line
    Of more than 64 rows every n-th is drawn, and the figure says so.
    """
    whole, places = as_array(values), as_array(columns).astype(np.float64)
    if whole.ndim != 2 or whole.shape[1] != len(places):
        raise ValueError(f"states wants (rows, columns) and a place for each column, not {whole.shape}, {len(places)}")
    step = -(-len(whole) // _ROWS)
    shown, rows = whole[::step], np.arange(0, len(whole), step)
    notes = ", ".join(part for part in (f"1 {row_title} in {step} shown" if step > 1 else "", note) if part)
    known = np.isin(shown, list(names))
    height = height or (470 if large else 400) - (180 if len(whole) == 1 else 0)
    found = [(state, *names[state], (shown == state).any(axis=1)) for state in names]
    said = "; ".join(f"{words}: somewhere in {count(int(rows.sum()), row_title)}" for _, words, _, rows in found)
    fig = Sketch(
        large=large,
        height=height,
        description=f"Map of {count(len(whole), row_title)} by {column_title}, "
        f"{places[0]:,.0f} to {places[-1]:,.0f}; {said}{'; ' + notes if notes else ''}.",
        note=notes,
        showlegend=True,
    )
    few: dict[str, Any] = {"showticklabels": False} if len(whole) == 1 else {}
    draw_axis(
        fig, "y", Axis(row_title, rows), large=large, room=height - 130, showgrid=False,
        range=[rows[-1] + step / 2, -step / 2], **few,
    )  # fmt: skip
    draw_axis(fig, "x", Axis(column_title, places), large=large, room=700, note=notes, showgrid=False)
    order = list(names)
    z = np.full(shown.shape, np.nan, np.float32)
    for number, state in enumerate(order):
        z[shown == state] = number
    edges = [(i / len(order), (i + 1) / len(order), names[state][1]) for i, state in enumerate(order)]
    fig.trace(
        "heatmap",
        z=z,
        x=places,
        y=rows,
        zmin=-0.5,
        zmax=len(order) - 0.5,
        colorscale=[stop for low, high, colour in edges for stop in ([low, colour], [high, colour])],
        showscale=False,
        showlegend=False,
        name="",
        hoverongaps=False,
        text=_words(z, [names[state][0] for state in order]),
        hovertemplate=f"{text.literal(row_title)} %{{y}}<br>{text.literal(column_title)} %{{x:,}}<br>%{{text}}"
        "<extra></extra>",
    )
    for _, words, colour, present in found:
        if present.any():  # a heatmap has no legend: a square that stands nowhere has
            fig.trace(
                "scatter", x=[None], y=[None], mode="markers", marker={"size": 14, "symbol": "square", "color": colour},
                name=text.literal(words), hoverinfo="skip",
            )  # fmt: skip
    if mark and known.any() and mark[0] <= places[-1]:
        fig.shape(
            "line", x0=mark[0], x1=mark[0], y0=0, y1=1, yref="paper", line={"color": GREY, "width": 2, "dash": "dash"}
        )
        fig.write(
            text.literal(mark[1]), x=mark[0], y=1, yref="paper", yanchor="top", xanchor="left", xshift=4,
            font={"size": size(large)},
        )  # fmt: skip
    return fig.figure()


def _words(z: Any, names: Sequence[str]) -> list[list[str]]:
    plain = [text.literal(name) for name in names]
    return [[plain[int(cell)] if np.isfinite(cell) else "" for cell in line] for line in z]
