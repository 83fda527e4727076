"""Heatmaps: a matrix with a token, a dimension, a query or a key along each side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from tinput.figures import colour
from tinput.figures import labels as text
from tinput.figures.style import INK, PLOT_WIDTH, Axis, Sketch, as_array, count, draw_axis, dtype_of, number, size
from tinput.window import Window

__all__ = ["CELLS", "cells", "heatmap", "panels", "similarity", "weights"]

CELLS = 256 * 256  # that go to the browser: 0.26 MB as float32, 0.35 MB as base64
_SIDE = 1024  # cells along one side; a plot is seldom wider in pixels
_LINE = 1.3  # a line's height, in sizes of its font
_MARKS = 1000  # single NaN or infinite cells that are marked one by one


def cells(shape: Sequence[int], most: int = CELLS, side: int = _SIDE) -> tuple[int, int]:
    """How many rows and columns of (..., rows, columns) a heatmap can show: what to ask a window for.

    most: cells in all; side: along one side
    """
    rows, columns = min(shape[-2], side), min(shape[-1], side)
    if rows * columns <= most:
        return rows, columns
    square = int(most**0.5)
    if rows <= square:
        return rows, most // rows
    if columns <= square:
        return most // columns, columns
    return square, square


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
    shown, row, column, left_out = _window(values, rows, columns, row_title, column_title, positions, masked)
    scale = scale or colour.choose(np.where(shown.blank, 0, shown.values))
    low, high = limits or colour.limits(np.where(shown.blank, np.nan, shown.values), scale=scale)
    notes = _notes(dtype, left_out, note)
    z = np.where(np.isfinite(shown.values) & ~shown.blank, shown.values, np.nan).astype(np.float32)
    if scale == "cyclic":
        z = np.mod(z, np.float32(2 * np.pi))
    height = height or _height(len(row.at), row.labels is not None, large) + (0 if column.labels is None else 50)
    fig = Sketch(large=large, height=height, description=_describe(shown, row, column, value_title, notes), note=notes)
    draw_axis(fig, "y", row, large=large, room=height - 130, range=_range(row.at)[::-1], showgrid=False)
    draw_axis(fig, "x", column, large=large, room=620, note=notes, range=_range(column.at), showgrid=False)
    fig.trace(
        "heatmap",
        z=z,
        **_places("x", column.at),
        **_places("y", row.at),
        zmin=low,
        zmax=high,
        colorscale=_colorscale(scale),
        colorbar=_colorbar(value_title, scale, large),
        name="",
        hoverongaps=False,
        hovertemplate=f"{text.literal(row.title)} %{{y}}<br>{text.literal(column.title)} %{{x}}"
        f"<br>{text.literal(value_title)} %{{z:.3~g}}<extra></extra>",
    )
    _mark(fig, shown, row, column)
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


def panels(
    values: Any,
    names: Sequence[str],
    rows: Any = None,
    columns: Any = None,
    *,
    row_title: str = "query",
    column_title: str = "key",
    value_title: str = "value",
    scale: str | None = None,
    limits: tuple[float, float] | None = None,
    quantile: float = 1.0,
    masked: Any = None,
    across: int = 4,
    dtype: str | None = None,
    note: str = "",
    large: bool = False,
) -> go.Figure:
    """Several matrices of one shape side by side, such as the heads of a layer, on one colour scale.

    values: (panel, rows, columns), or a `Window` of that shape; names: of the panels. Else as `heatmap`.
    quantile: below 1, the colours end at that quantile of the cells shown, and the figure's note says where
    """
    everything = as_array(values)
    if everything.ndim != 3 or len(names) != len(everything):
        raise ValueError(
            f"panels wants (panel, rows, columns) and a name each, not {everything.shape}, {len(names)} names"
        )
    per_panel = CELLS // len(everything), 256  # a panel is some 200 pixels wide
    drawn = [
        _window(_panel(values, i), rows, columns, row_title, column_title, None, masked, per_panel)
        for i in range(len(everything))
    ]
    finite = np.concatenate([np.where(shown.blank, np.nan, shown.values).ravel() for shown, *_ in drawn])
    scale = scale or colour.choose(finite)
    low, high = limits or colour.limits(finite, scale=scale, quantile=quantile)
    left_out = drawn[0][3]
    ends = "" if limits or quantile >= 1 or not (finite[np.isfinite(finite)] > high).any() else (
        f"colours end at {number(high)} (the {100 * quantile:g} % quantile)"
    )  # fmt: skip
    notes = _notes(dtype or dtype_of(values), left_out, note, ends)
    across = min(across, len(drawn))
    down = -(-len(drawn) // across)
    font = size(large)
    first, row, column = drawn[0][:3]
    one = (300 if across < 3 else 215) + (35 if large else 0)  # two side by side have room to be taller
    lines = _lines(notes, font)
    height = down * one + 90 + (0 if column.labels is None else 40) + round(len(lines) * font * _LINE)
    # A row of panels: its title, its plot, and (in the last) its labels.
    gap_x, gap_y = 0.03, min(0.28 / down, 46 * (font / 14) / height)
    fig = Sketch(
        large=large,
        height=height,
        description=f"{count(len(drawn), 'panel')} ({', '.join(map(str, names[:12]))}), each: "
        + _describe(first, row, column, value_title, notes),
        note=notes,
    )
    width, tall = (1 - gap_x * (across - 1)) / across, (1 - gap_y * (down - 1)) / down
    for i, (shown, row, column, _) in enumerate(drawn):
        down_i, across_i = divmod(i, across)
        name = "" if i == 0 else str(i + 1)
        left, top = across_i * (width + gap_x), 1 - down_i * (tall + gap_y)
        last = i + across >= len(drawn)
        fig.trace(
            "heatmap",
            z=np.where(np.isfinite(shown.values) & ~shown.blank, shown.values, np.nan).astype(np.float32),
            **_places("x", column.at),
            **_places("y", row.at),
            coloraxis="coloraxis",
            xaxis=f"x{name}",
            yaxis=f"y{name}",
            hoverongaps=False,
            name=text.literal(names[i]),
            hovertemplate=f"{text.literal(names[i])}<br>{text.literal(row.title)} %{{y}}<br>"
            f"{text.literal(column.title)} %{{x}}<br>{text.literal(value_title)} %{{z:.3~g}}<extra></extra>",
        )
        common: dict[str, Any] = {"showgrid": False, "zeroline": False, "ticks": "", "automargin": True}
        fig.set(
            **{
                f"xaxis{name}": {
                    **common,
                    **_small_ticks(column, 500 / across, font, down_i == down - 1 or last, "x"),
                    "domain": (left, left + width),
                    "anchor": f"y{name}",
                    "range": _range(column.at),
                    "title": {
                        "text": text.literal(column.title) if last else "",
                        "font": {"size": font, "color": INK},
                        "standoff": 4,
                    },
                },
                f"yaxis{name}": {
                    **common,
                    **_small_ticks(row, height * tall * 0.8, font, across_i == 0, "y"),
                    "domain": (max(0.0, top - tall), top),
                    "anchor": f"x{name}",
                    "range": _range(row.at)[::-1],
                    "title": {
                        "text": text.literal(row.title) if across_i == 0 else "",
                        "font": {"size": font, "color": INK},
                        "standoff": 4,
                    },
                },
            }
        )
        fig.write(
            text=text.literal(names[i]), x=left + width / 2, y=top, xref="paper", yref="paper", xanchor="center",
            yanchor="bottom", font={"size": font},
        )  # fmt: skip
    # Under the lowest ticks and the axis' title, which make their own room: the note's place is below both.
    under = _under(column, 500 / across, font)
    fig.write(
        text="<br>".join(text.literal(line, 2 * len(line)) for line in lines), x=0.5, y=0, xref="paper", yref="paper",
        xanchor="center", yanchor="top", yshift=-under, font={"size": font, "color": INK}, name="note",
    )  # fmt: skip
    fig.set(margin={"b": round(under + len(lines) * font * _LINE + 6)})
    fig.set(
        coloraxis={
            "cmin": low,
            "cmax": high,
            "colorscale": _colorscale(scale),
            "colorbar": {**_colorbar(value_title, scale, large), "len": 1, "y": 0.5, "outlinewidth": 0},
        }
    )
    # The panels' ticks are cut short; an export wants the labels in full.
    for name, axis in (("rows", row), ("columns", column)):
        if axis.labels is not None:
            fig.layout["meta"][name] = [text.short(label, text.LONGEST) for label in axis.labels]
    if any(shown.blank.any() for shown, *_ in drawn):
        fig.set(margin={"t": 60})
        _legend(fig, "masked: left blank", "square-open")
        fig.set(legend={"y": 1, "yref": "container", "yanchor": "top"})
    return fig.figure()


def _wrapped(angles: Any) -> NDArray[np.float32]:
    """Angles modulo 2 pi, taken in the precision they come in: at 10^6 radians float32 has steps of 0.06."""
    angles = angles.detach().cpu().double().numpy() if hasattr(angles, "detach") else np.asarray(angles, np.float64)
    return np.mod(angles, 2 * np.pi).astype(np.float32)


def _notes(dtype: str, *parts: str) -> str:
    dtype = dtype if dtype.startswith("float32") else f"{dtype}, shown as float32"
    return ", ".join(part for part in (dtype, *parts) if part)


class _Shown:
    """The cells drawn: values (rows, columns) float32, blank (rows, columns) bool."""

    def __init__(self, values: NDArray[np.float32], blank: NDArray[np.bool_]):
        self.values, self.blank = values, blank


def _window(
    values, rows, columns, row_title, column_title, positions, masked, limits: tuple[int, int] = (CELLS, _SIDE)
):
    """-> what is drawn, the two axes, and a note of what was left out"""
    array = as_array(values)
    if array.ndim != 2 or not array.size:
        raise ValueError(f"a heatmap shows a matrix with some cells, not an array of shape {array.shape}")
    if isinstance(values, Window):
        at_rows, at_columns = values.rows.numpy(), values.columns.numpy()
        step = [values.row_step, values.column_step]
    else:
        at_rows, at_columns, step = np.arange(array.shape[0]), np.arange(array.shape[1]), [1, 1]
    most = cells(array.shape, *limits)
    thin = [-(-n // limit) for n, limit in zip(array.shape, most, strict=True)]
    blank = np.zeros(array.shape, bool) if masked is None else np.broadcast_to(np.asarray(masked, bool), array.shape)
    blank = blank | (array <= colour.MASKED)
    keep = np.s_[:: thin[0], :: thin[1]]
    shown = _Shown(np.ascontiguousarray(array[keep]), blank[keep])
    row = _axis(row_title, at_rows, rows, positions, thin[0])
    column = _axis(column_title, at_columns, columns, positions, thin[1])
    return shown, row, column, _left_out(row, column, step[0] * thin[0], step[1] * thin[1])


def _axis(title: str, at: NDArray, names: Sequence[Any] | None, positions: Sequence[int] | None, thin: int) -> Axis:
    kept = at[::thin]
    if names is None:
        return Axis(title, kept)
    # One name for each cell shown, or for each of the whole matrix.
    chosen = [names[i] for i in range(0, len(at), thin)] if len(names) == len(at) else [names[int(i)] for i in kept]
    if all(isinstance(name, str) for name in chosen):
        if positions is not None:
            positions = (
                [positions[i] for i in range(0, len(at), thin)]
                if len(positions) == len(at)
                else [positions[int(i)] for i in kept]
            )
        return Axis(title, kept, [str(name) for name in chosen], positions)
    return Axis(title, np.asarray([float(name) for name in chosen]))


def _left_out(row: Axis, column: Axis, row_step: int, column_step: int) -> str:
    parts = [
        f"1 {axis.title.split(' (')[0]} in {step} shown"
        for axis, step in ((row, row_step), (column, column_step))
        if step > 1
    ]
    return ", ".join(dict.fromkeys(parts))  # a square of tokens by tokens says it once


def _lines(notes: str, font: int) -> list[str]:
    """The note in as many lines as it needs below a plot, broken at its commas."""
    lines, longest = [""], int(PLOT_WIDTH / (font * 0.5))
    for part in notes.split(", "):
        joined = f"{lines[-1]}, {part}" if lines[-1] else part
        if lines[-1] and len(joined) > longest:
            lines[-1] += ","
            lines.append(part)
        else:
            lines[-1] = joined
    return lines


def _describe(shown: _Shown, row: Axis, column: Axis, value_title: str, notes: str) -> str:
    finite = shown.values[np.isfinite(shown.values) & ~shown.blank]
    words = [f"Heatmap of {count(len(row.at), row.title)} by {count(len(column.at), column.title)}"]
    if finite.size:
        words.append(f"{value_title} from {number(float(finite.min()))} to {number(float(finite.max()))}")
        if shown.values.size > 1:
            i, j = np.unravel_index(
                int(np.argmax(np.where(np.isfinite(shown.values) & ~shown.blank, shown.values, -np.inf))),
                shown.values.shape,
            )
            words.append(f"largest at {row.title} {_name(row, int(i))} and {column.title} {_name(column, int(j))}")
    if shown.blank.any():
        words.append(f"{int(shown.blank.sum()):,} cells masked")
    strange = ~np.isfinite(shown.values) & ~shown.blank
    if strange.any():
        words.append(f"{int(strange.sum()):,} cells not finite")
    return "; ".join([*words, notes] if notes else words) + "."


def _name(axis: Axis, i: int) -> str:
    place = f"{axis.at[i]:g}"
    return place if axis.labels is None else f"{text.short(axis.labels[i], text.LONGEST)} ({place})"


def _height(rows: int, labelled: bool, large: bool) -> int:
    row = (26 if large else 21) if labelled else 14
    return int(min(max(rows * row, 170), 620 if large else 520) + 130)


def _range(at: NDArray) -> list[float]:
    if len(at) == 1:
        return [float(at[0]) - 0.5, float(at[0]) + 0.5]
    return [float(at[0] - (at[1] - at[0]) / 2), float(at[-1] + (at[-1] - at[-2]) / 2)]


def _places(letter: str, at: NDArray) -> dict[str, Any]:
    """x0 and dx where the places are even: two numbers in place of an array."""
    if len(at) < 2:
        return {f"{letter}0": float(at[0]), f"d{letter}": 1}
    steps = np.diff(at)
    if np.all(steps == steps[0]):
        return {f"{letter}0": float(at[0]), f"d{letter}": float(steps[0])}
    return {letter: at}


def _colorscale(scale: str) -> list[list[Any]]:
    colours = colour.SCALES[scale]
    return [[i / (len(colours) - 1), value] for i, value in enumerate(colours)]


def _colorbar(title: str, scale: str, large: bool) -> dict[str, Any]:
    font = size(large)
    bar: dict[str, Any] = {
        "title": {"text": text.literal(title), "side": "right", "font": {"size": font, "color": INK}},
        "tickfont": {"size": font, "color": INK},
        "thickness": 16,
        "outlinewidth": 0,
        "len": 1,
        "xpad": 8,
        "nticks": 6,
    }
    if scale == "cyclic":
        bar |= {
            "tickmode": "array",
            "tickvals": [0, np.pi / 2, np.pi, 3 * np.pi / 2, 2 * np.pi],
            "ticktext": ["0", "π/2", "π", "3π/2", "2π"],
        }
    return bar


def _mark(fig: Sketch, shown: _Shown, row: Axis, column: Axis) -> None:
    """A legend for what has no colour: masked cells blank, NaN and infinities marked."""
    if shown.blank.any():
        _legend(fig, "masked: left blank", "square-open")
    for name, where, symbol in (
        ("NaN", np.isnan(shown.values), "x-thin"),
        ("+∞", np.isposinf(shown.values), "triangle-up"),
    ):
        i, j = np.nonzero(where & ~shown.blank)
        if not len(i):
            continue
        _legend(fig, f"{name} ({count(len(i), 'cell')})", symbol)
        fig.trace(
            "scatter",
            x=np.asarray(column.at[j[:_MARKS]], np.float32),
            y=np.asarray(row.at[i[:_MARKS]], np.float32),
            mode="markers",
            marker={"symbol": symbol, "color": colour.GREY, "size": 8, "line": {"width": 2, "color": colour.GREY}},
            showlegend=False,
            name=name,
            meta="NaN" if name == "NaN" else "inf",
            hovertemplate=f"{text.literal(row.title)} %{{y}}<br>{text.literal(column.title)} %{{x}}<br>{name}"
            "<extra></extra>",
        )


def _legend(fig: Sketch, name: str, symbol: str) -> None:
    fig.trace(
        "scatter",
        x=[None],
        y=[None],
        mode="markers",
        marker={"symbol": symbol, "color": colour.GREY, "size": 12, "line": {"width": 2, "color": colour.GREY}},
        name=name,
        showlegend=True,
        hoverinfo="skip",
    )
    fig.set(showlegend=True)


def _panel(values: Any, i: int) -> Any:
    if isinstance(values, Window):
        return Window(values.values[i], values.rows, values.columns, values.row_step, values.column_step)
    return values[i]


def _under(axis: Axis, room: float, font: int) -> float:
    """Pixels from the plot's lower edge to below its ticks and its title."""
    ticks = _small_ticks(axis, room, font, True, "x")
    upright = ticks.get("tickangle") == -90
    longest = text.longest([text.plain(label) for label in ticks["ticktext"]]) if upright else 0
    return max(longest * font * 0.65, font * _LINE) + font * _LINE + 14


def _small_ticks(axis: Axis, room: float, font: int, shown: bool, letter: str) -> dict[str, Any]:
    if axis.labels is None:
        return {"showticklabels": shown, "tickfont": {"size": font, "color": INK}, "nticks": 5, **axis.steps(5)}
    step = text.every(len(axis.labels), room / (font * 1.4))
    fits = step == 1
    texts = [text.literal(label, 8 if fits else 6) for label in axis.labels]
    return {
        "tickmode": "array",
        "tickvals": axis.at[::step],
        "ticktext": texts[::step],
        "showticklabels": shown,
        "tickfont": {"size": font, "color": INK},
        **({"tickangle": -90 if len(axis.labels) > 4 else 0} if letter == "x" else {}),
    }
