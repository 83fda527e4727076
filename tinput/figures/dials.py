"""Dials: each pair of dimensions as a clock hand that turns with the position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from tinput.figures import labels as text
from tinput.figures.colour import GREY, OKABE_ITO
from tinput.figures.style import Axis, Sketch, count, draw_axis, number

__all__ = ["dials"]

_DOWN, _ACROSS = 12, 8  # dials at most; more across would be too small beside the words
_RADIUS = 0.4


def dials(
    angles: Any,
    tokens: Sequence[str] | None = None,
    pairs: Sequence[int] | None = None,
    *,
    positions: Sequence[int] | None = None,
    colour: str = OKABE_ITO[2],
    column_title: str = "pair",
    note: str = "",
    large: bool = False,
) -> go.Figure:
    """A dial for each token (down) and pair (across); its hand points along (cos, sin) of the angle.

    angles: (seq, pair) radians, at most 12 down and 8 across are drawn: evenly chosen, the first and the last too
    tokens: a label a row; pairs: a number a column; positions: a number a row
    The path back to angle 0 is drawn too, so that a hand on its first turn can be told from one that stands still.
    """
    array = angles.detach().cpu().double().numpy() if hasattr(angles, "detach") else np.asarray(angles, np.float64)
    if array.ndim != 2 or not array.size:
        raise ValueError(f"dials wants (seq, pair) angles, not {array.shape}")
    rows, columns = _pick(array.shape[0], _DOWN), _pick(array.shape[1], _ACROSS)
    left_out = [
        f"{len(kept)} of {n:,} {word}s shown"
        for kept, n, word in ((rows, array.shape[0], "token"), (columns, array.shape[1], column_title))
        if len(kept) < n
    ]
    notes = ", ".join(part for part in (*left_out, note) if part)
    shown = array[np.ix_(rows, columns)]
    at = rows if positions is None else np.asarray(positions)[rows]
    names = [f"position {i}" for i in at] if tokens is None else [str(tokens[i]) for i in rows]
    numbers = [str(i) for i in (columns if pairs is None else np.asarray(pairs)[columns])]
    cell = 62 if large else 52
    height = int(len(rows) * cell + 110)
    told = sorted({0, len(columns) // 2, len(columns) - 1})
    description = (
        f"{count(len(rows), 'row')} of {count(len(columns), 'dial')}, one a {column_title}; at the last row "
        + ", ".join(
            f"{column_title} {numbers[i]} has made {number(float(shown[-1, i] / (2 * np.pi)))} turns" for i in told
        )
    )
    fig = Sketch(large=large, height=height, description=description + ".", note=notes, showlegend=False)
    draw_axis(
        fig, "y", Axis("token" if tokens is not None else "position", np.arange(len(rows)), names, at.tolist()),
        large=large, room=height, range=[len(rows) - 0.5, -0.5], scaleanchor="x", constrain="domain",
    )  # fmt: skip
    # Columns are numbers, but neighbours on the picture need not be neighbours in the model.
    draw_axis(fig, "x", Axis(column_title, np.arange(len(columns))), large=large, room=700, note=notes)
    fig.set(
        xaxis={
            "range": [-0.5, len(columns) - 0.5],
            "constrain": "domain",
            "tickmode": "array",
            "tickvals": np.arange(len(columns)),
            "ticktext": numbers,
            "side": "bottom",
        },
        yaxis={"showgrid": False, "constraintoward": "top"},
        yaxis2={"constrain": "domain", "constraintoward": "top"},
    )
    y, x = (grid.ravel() for grid in np.mgrid[0 : len(rows), 0 : len(columns)])
    turn = shown.ravel()
    circle = np.append(np.linspace(0, 2 * np.pi, 37), np.nan)
    _strokes(fig, "dial", x, y, np.broadcast_to(circle, (len(x), 38)), _RADIUS, {"color": GREY, "width": 1})
    # The last turn alone: from angle 0, or once around.
    swept = np.linspace(0, 1, 25)[None] * np.clip(turn, -2 * np.pi, 2 * np.pi)[:, None]
    swept = np.concatenate([swept, np.full((len(x), 1), np.nan)], 1)
    _strokes(fig, "turned", x, y, swept, 0.62 * _RADIUS, {"color": colour, "width": 3 if large else 2}, opacity=0.45)
    gap = np.full(len(x), np.nan)
    fig.trace(
        "scatter",
        x=np.stack([x, x + _RADIUS * np.cos(turn), gap], 1).astype(np.float32).ravel(),
        y=np.stack([y, y - _RADIUS * np.sin(turn), gap], 1).astype(np.float32).ravel(),
        mode="lines",
        line={"color": colour, "width": 4 if large else 3},
        hoverinfo="skip",
        name="hand",
    )
    fig.trace(
        "scatter",
        x=x.astype(np.float32),
        y=y.astype(np.float32),
        mode="markers",
        marker={"size": cell * 0.6, "color": "rgba(0,0,0,0)", "line": {"width": 0}},
        customdata=np.stack([turn, turn / (2 * np.pi)], 1).astype(np.float32),
        hovertemplate=f"{'token ' if tokens is not None else ''}%{{y}}<br>{text.literal(column_title)} %{{x}}<br>"
        "angle %{customdata[0]:.4~g} rad<br>%{customdata[1]:.3~g} turns<extra></extra>",
        name="angle",
        meta={"columns": ["angle (radians)", "turns"]},
    )
    return fig.figure()


def _pick(n: int, most: int) -> np.ndarray:
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int))


def _strokes(fig: Sketch, name: str, x, y, angles, radius: float, line: dict[str, Any], **more: Any) -> None:
    """Many arcs in one trace; NaN ends each. y runs down the page, so the sine is taken away."""
    fig.trace(
        "scatter",
        x=(x[:, None] + radius * np.cos(angles)).astype(np.float32).ravel(),
        y=(y[:, None] - radius * np.sin(angles)).astype(np.float32).ravel(),
        mode="lines",
        line=line,
        hoverinfo="skip",
        name=name,
        **more,
    )
