"""What every picture of a matrix is made of: the cells that are drawn, where they lie, their colours, and words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinput.figures import colour
from tinput.figures import labels as text
from tinput.figures.style import INK, Axis, Sketch, as_array, count, number, size
from tinput.window import Window

CELLS = 256 * 256  # that go to the browser: 0.26 MB as float32, 0.35 MB as base64
SIDE = 1024  # cells along one side; a plot is seldom wider in pixels

Labels = Sequence[Any] | None  # a token for each row or column (strings), or its number; None: its index


def cells(shape: Sequence[int], most: int = CELLS, side: int = SIDE) -> tuple[int, int]:
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


# --- the cells that are drawn ---


@dataclass(frozen=True, eq=False)
class Drawn:
    """The cells drawn: values (rows, columns) float32, blank (rows, columns) bool, the two axes.

    left_out: in words, where a larger matrix was thinned
    """

    values: NDArray[np.float32]
    blank: NDArray[np.bool_]
    row: Axis
    column: Axis
    left_out: str

    @property
    def z(self) -> NDArray[np.float32]:
        """The values that have a colour; NaN for the others."""
        return np.where(np.isfinite(self.values) & ~self.blank, self.values, np.nan).astype(np.float32)

    def describe(self, value_title: str, notes: str) -> str:
        """The picture in a sentence: its alt text."""
        row, column, z = self.row, self.column, self.z
        words = [f"Heatmap of {count(len(row.at), row.title)} by {count(len(column.at), column.title)}"]
        finite = z[np.isfinite(z)]
        if finite.size:
            words.append(f"{value_title} from {number(float(finite.min()))} to {number(float(finite.max()))}")
            if z.size > 1:
                i, j = np.unravel_index(int(np.nanargmax(z)), z.shape)
                words.append(f"largest at {row.title} {_name(row, int(i))} and {column.title} {_name(column, int(j))}")
        if self.blank.any():
            words.append(f"{int(self.blank.sum()):,} cells masked")
        strange = ~np.isfinite(self.values) & ~self.blank
        if strange.any():
            words.append(f"{int(strange.sum()):,} cells not finite")
        return "; ".join([*words, notes] if notes else words) + "."


def drawn(
    values: Any,
    rows: tuple[str, Labels],
    columns: tuple[str, Labels],
    *,
    positions: Sequence[int] | None = None,
    masked: Any = None,
    limits: tuple[int, int] = (CELLS, SIDE),
) -> Drawn:
    """A matrix, or a `Window`, thinned to `limits`: cells in all, and along one side.

    rows, columns: title and labels, one for each cell shown or for each of the whole matrix
    """
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
    row = _axis(*rows, at_rows, positions, thin[0])
    column = _axis(*columns, at_columns, positions, thin[1])
    left_out = _left_out(row, column, step[0] * thin[0], step[1] * thin[1])
    return Drawn(np.ascontiguousarray(array[keep]), blank[keep], row, column, left_out)


def _axis(title: str, names: Labels, at: NDArray, positions: Sequence[int] | None, thin: int) -> Axis:
    kept = at[::thin]

    def shown(whole: Sequence[Any]) -> list[Any]:
        """One for each cell shown, out of as many as there are cells, or as the whole matrix has."""
        return list(whole[::thin]) if len(whole) == len(at) else [whole[int(i)] for i in kept]

    if names is None:
        return Axis(title, kept)
    chosen = shown(names)
    if all(isinstance(name, str) for name in chosen):
        return Axis(title, kept, chosen, None if positions is None else shown(positions))
    return Axis(title, np.asarray([float(name) for name in chosen]))


def _left_out(row: Axis, column: Axis, row_step: int, column_step: int) -> str:
    parts = [
        f"1 {axis.title.split(' (')[0]} in {step} shown"
        for axis, step in ((row, row_step), (column, column_step))
        if step > 1
    ]
    return ", ".join(dict.fromkeys(parts))  # a square of tokens by tokens says it once


def _name(axis: Axis, i: int) -> str:
    place = f"{axis.at[i]:g}"
    return place if axis.labels is None else f"{text.short(axis.labels[i], text.LONGEST)} ({place})"


# --- where they lie ---


def span(at: NDArray) -> list[float]:
    """An axis' range: half a cell more than its first and its last place."""
    if len(at) == 1:
        return [float(at[0]) - 0.5, float(at[0]) + 0.5]
    return [float(at[0] - (at[1] - at[0]) / 2), float(at[-1] + (at[-1] - at[-2]) / 2)]


def places(letter: str, at: NDArray) -> dict[str, Any]:
    """x0 and dx where the places are even: two numbers in place of an array."""
    if len(at) < 2:
        return {f"{letter}0": float(at[0]), f"d{letter}": 1}
    steps = np.diff(at)
    if np.all(steps == steps[0]):
        return {f"{letter}0": float(at[0]), f"d{letter}": float(steps[0])}
    return {letter: at}


# --- their colours ---


@dataclass(frozen=True)
class Colours:
    """One scale for all panels. ends: in words, where the colours end below the largest value"""

    scale: str
    low: float
    high: float
    ends: str = ""

    def axis(self, title: str, large: bool, **bar: Any) -> dict[str, Any]:
        """The colour axis that panels share, with its bar."""
        return {
            "cmin": self.low,
            "cmax": self.high,
            "colorscale": colorscale(self.scale),
            "colorbar": {**colorbar(title, self.scale, large), **bar},
        }


def colours_of(
    values: NDArray[np.float32], scale: str | None, limits: tuple[float, float] | None, quantile: float = 1.0
) -> Colours:
    """The colours for some values, of which those that are not finite have none.

    scale, limits: as they are asked for, or None; quantile: below 1, the share of the magnitudes that sets the limits
    """
    scale = scale or colour.choose(values)
    low, high = limits or colour.limits(values, scale=scale, quantile=quantile)
    beyond = quantile < 1 and not limits and ((values > high) | (values < low)).any()
    ends = f"colours end at {number(high)} (the {100 * quantile:g} % quantile)" if beyond else ""
    return Colours(scale, low, high, ends)


def colorscale(scale: str) -> list[list[Any]]:
    colours = colour.SCALES[scale]
    return [[i / (len(colours) - 1), value] for i, value in enumerate(colours)]


def colorbar(title: str, scale: str, large: bool) -> dict[str, Any]:
    font = size(large)
    bar: dict[str, Any] = {
        "title": {"text": text.literal(title), "side": "right", "font": {"size": font, "color": INK}},
        "tickfont": {"size": font, "color": INK},
        "thickness": 16,
        "outlinewidth": 0,
        "len": 1,
        "xpad": 8,
        "nticks": 6,
        "exponentformat": "power",  # 5×10⁻⁵, not 50µ
    }
    if scale == "cyclic":
        bar |= {
            "tickmode": "array",
            "tickvals": [0, np.pi / 2, np.pi, 3 * np.pi / 2, 2 * np.pi],
            "ticktext": ["0", "π/2", "π", "3π/2", "2π"],
        }
    return bar


def legend(fig: Sketch, name: str, symbol: str) -> None:
    """A line of the legend for cells that have no colour. symbol: Plotly's name of the mark"""
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


def legend_of_blank(fig: Sketch) -> None:
    """A line of the legend for cells that are left blank."""
    legend(fig, "masked: left blank", "square-open")


# --- what is said of them ---


def hover(row: str, column: str, value: str, name: str | None = None) -> str:
    """The box that says what a cell is; all escaped here."""
    above = "" if name is None else f"{text.literal(name)}<br>"
    return (
        f"{above}{text.literal(row)} %{{y}}<br>{text.literal(column)} %{{x}}<br>"
        f"{text.literal(value)} %{{z:.3~g}}<extra></extra>"
    )


def notes_of(dtype: str, *parts: str) -> str:
    """The dtype and what else there is to say, in one line."""
    dtype = dtype if dtype.startswith("float32") else f"{dtype}, shown as float32"
    return ", ".join(part for part in (dtype, *parts) if part)
