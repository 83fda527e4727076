"""Heatmaps: a matrix with a token, a dimension, a query or a key along each side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from tinput.figures import colour, matrix
from tinput.figures import labels as text
from tinput.figures.matrix import Drawn
from tinput.figures.style import Sketch, count, draw_axis, dtype_of
from tinput.window import Window

__all__ = ["heatmap", "similarity", "weights"]

_MARKS = 1000  # single NaN or infinite cells that are marked one by one


def heatmap(
    values: Any,
    rows: Any = None,
    columns: Any = None,
    *,
    row_title: str = "token",
    column_title: str = "dimension",
    value_title: str = "value",
    scale: str | None = None,
    limits: tuple[float, float] | None = None,
    masked: Any = None,
    positions: Sequence[int] | None = None,
    dtype: str | None = None,
    note: str = "",
    large: bool = False,
    height: int | None = None,
) -> go.Figure:
    """A matrix as colours.

    values: (rows, columns), or a `Window`; a larger matrix than 256 x 256 cells is thinned, and the figure says so.
        -inf (or a mask's most negative number) is left blank, NaN and +inf are marked, colours come from the rest
    rows, columns: a token for each row or column of the whole matrix (strings), or its number; None: its index
    scale: "diverging", "sequential", "cyclic" (radians, shown modulo 2 pi); None chooses by sign
    limits: of the colours; None: from the values
    masked: (rows, columns) bool, true for cells that are left blank too
    positions: what the hover box calls the position of a token; its index if None
    dtype: of the values where they come from; their own if None
    """
    dtype = dtype or dtype_of(values)
    if scale == "cyclic" and not isinstance(values, Window):
        values = _wrapped(values)
    shown = matrix.drawn(values, (row_title, rows), (column_title, columns), positions=positions, masked=masked)
    row, column, z = shown.row, shown.column, shown.z
    colours = matrix.colours_of(z, scale, limits)
    notes = matrix.notes_of(dtype, shown.left_out, note)
    if scale == "cyclic":
        z = np.mod(z, np.float32(2 * np.pi))
    height = height or _height(len(row.at), row.labels is not None, large) + (0 if column.labels is None else 50)
    fig = Sketch(large=large, height=height, description=shown.describe(value_title, notes), note=notes)
    draw_axis(fig, "y", row, large=large, room=height - 130, range=matrix.span(row.at)[::-1], showgrid=False)
    draw_axis(fig, "x", column, large=large, room=620, note=notes, range=matrix.span(column.at), showgrid=False)
    fig.trace(
        "heatmap",
        z=z,
        **matrix.places("x", column.at),
        **matrix.places("y", row.at),
        zmin=colours.low,
        zmax=colours.high,
        colorscale=matrix.colorscale(colours.scale),
        colorbar=matrix.colorbar(value_title, colours.scale, large),
        name="",
        hoverongaps=False,
        hovertemplate=matrix.hover(row.title, column.title, value_title),
    )
    if shown.blank.any():
        matrix.legend_of_blank(fig)
    _mark(fig, shown)
    return fig.figure()


def similarity(
    matrix: Any, tokens: Sequence[str] | None = None, *, title: str = "cosine similarity", **more
) -> go.Figure:
    """Cosine similarity of each token with each, (seq, seq), colours from -1 to 1. `more`: heatmap's keywords."""
    more = {"row_title": "token", "column_title": "token", "limits": (-1.0, 1.0), "scale": "diverging", **more}
    return heatmap(matrix, tokens, tokens, value_title=title, **more)


def weights(
    matrix: Any,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    causal: bool = False,
    **more,
) -> go.Figure:
    """Attention weights, (query, key), colours from 0. causal: later keys are left blank. `more`: as heatmap."""
    if causal and not isinstance(matrix, Window):
        n_query, n_key = np.shape(matrix)[-2:]
        more.setdefault("masked", np.arange(n_key)[None, :] > np.arange(n_query)[:, None] + (n_key - n_query))
    elif causal:
        more.setdefault("masked", (matrix.columns[None, :] > matrix.rows[:, None]).numpy())
    more = {
        "row_title": "query",
        "column_title": "key",
        "value_title": "attention weight",
        "scale": "sequential",
        **more,
    }
    return heatmap(matrix, queries, queries if keys is None else keys, **more)


def _wrapped(angles: Any) -> NDArray[np.float32]:
    """Angles modulo 2 pi, taken in the precision they come in: at 10^6 radians float32 has steps of 0.06."""
    angles = angles.detach().cpu().double().numpy() if hasattr(angles, "detach") else np.asarray(angles, np.float64)
    return np.mod(angles, 2 * np.pi).astype(np.float32)


def _height(rows: int, labelled: bool, large: bool) -> int:
    row = (26 if large else 21) if labelled else 14
    return int(min(max(rows * row, 170), 620 if large else 520) + 130)


def _mark(fig: Sketch, shown: Drawn) -> None:
    """NaN and infinities, which have no colour, marked and in the legend."""
    for name, where, symbol in (
        ("NaN", np.isnan(shown.values), "x-thin"),
        ("+∞", np.isposinf(shown.values), "triangle-up"),
    ):
        i, j = np.nonzero(where & ~shown.blank)
        if not len(i):
            continue
        matrix.legend(fig, f"{name} ({count(len(i), 'cell')})", symbol)
        fig.trace(
            "scatter",
            x=np.asarray(shown.column.at[j[:_MARKS]], np.float32),
            y=np.asarray(shown.row.at[i[:_MARKS]], np.float32),
            mode="markers",
            marker={"symbol": symbol, "color": colour.GREY, "size": 8, "line": {"width": 2, "color": colour.GREY}},
            showlegend=False,
            name=name,
            meta="NaN" if name == "NaN" else "inf",
            hovertemplate=f"{text.literal(shown.row.title)} %{{y}}<br>{text.literal(shown.column.title)} %{{x}}<br>"
            f"{name}<extra></extra>",
        )
