"""The same picture for several models of one text, linked: one colour scale, and what stands for one stretch of the
text stands at one height, however many tokens a model made of it. Zoom one, and all are zoomed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from tinput.figures import colour, matrix
from tinput.figures import labels as text
from tinput.figures.matrix import CELLS
from tinput.figures.panels import PLAIN, foot, panel_name
from tinput.figures.style import INK, PLOT_WIDTH, Axis, Sketch, as_array, count, dtype_of, number, size

__all__ = ["Ruler", "linked"]

_CELLS = 2 * CELLS  # of all panels together: 0.5 MB as float32, 0.7 MB as base64
NOTHING = "(no token)"
_SHORT = 10  # columns of a label below a panel


@dataclass(frozen=True)
class Ruler:
    """A common axis of several panels: the parts of a text, and the tokens that each panel has for them.

    labels: of the parts; ranges: for each panel, (first, stop) of its tokens for each part; None: values are one a part
    tokens, positions: for each panel, a label and a position for each of its tokens; positions: 0, 1, ... if left out
    first: the number of the first part, where only some are shown
    """

    labels: Sequence[str]
    ranges: Sequence[Sequence[tuple[int, int]]] | None = None
    tokens: Sequence[Sequence[str]] = ()
    positions: Sequence[Sequence[int]] = ()
    first: int = 0

    @property
    def edges(self) -> NDArray[np.float64]:
        """Where each part begins, and the last ends: a part is as high as the most tokens that a panel has for it."""
        if self.ranges is None:
            return np.arange(len(self.labels) + 1.0)
        most = [max(1, *(b - a for a, b in part)) for part in zip(*self.ranges, strict=True)]
        return np.concatenate(([0.0], np.cumsum(most)))

    def panel(self, number: int, title: str) -> _Side:
        """Where one panel's tokens lie."""
        edges = self.edges
        if self.ranges is None:
            return _side(Axis(title, np.zeros(0), list(self.labels)), edges, np.arange(len(self.labels)))
        places, index = [edges[0]], []
        for part, (first, stop) in enumerate(self.ranges[number]):
            here = max(1, stop - first)
            places += (edges[part] + (edges[part + 1] - edges[part]) * np.arange(1, here + 1) / here).tolist()
            index += range(first, stop) if stop > first else [-1]
        own = list(self.tokens[number])
        at = self.positions[number] if self.positions else range(len(own))
        labels = [NOTHING if i < 0 else own[i] for i in index]
        axis = Axis(title, np.zeros(0), labels, [0 if i < 0 else at[i] for i in index])
        return _side(axis, np.asarray(places), np.asarray(index))


@dataclass(frozen=True)
class _Side:
    """One side of a panel. edges: (n + 1,); index: (n,) which row of the values is drawn there, -1 for none."""

    axis: Axis
    edges: NDArray[np.float64]
    index: NDArray[np.int64]


def _side(axis: Axis, edges: NDArray[np.float64], index: NDArray[np.int64]) -> _Side:
    return _Side(Axis(axis.title, (edges[:-1] + edges[1:]) / 2, axis.labels, axis.positions), edges, index)


def linked(
    values: Sequence[Any],
    names: Sequence[str],
    rows: Ruler,
    columns: Ruler | None = None,
    *,
    row_title: str = "token",
    column_title: str = "dimension",
    value_title: str = "value",
    scale: str | None = None,
    limits: tuple[float, float] | None = None,
    quantile: float = 1.0,
    dtype: str | None = None,
    note: str = "",
    large: bool = False,
) -> go.Figure:
    """Matrices of several models beside each other, their rows aligned by the text.

    values: for each model, (tokens, columns), or (parts, ...) where `rows` has no ranges; a row is drawn as high as its
        part lets it be. Cells that are not finite are left blank
    names: of the models; columns: a ruler too where a column is a token, else columns are numbered, and thinned beyond
        131,072 cells in all, which the figure says
    quantile: below 1, the colours end at that quantile, and the note says where; else as `heatmap`
    """
    if not values or len(values) != len(names):
        raise ValueError(f"linked wants a matrix and a name for each model, not {len(values)} and {len(names)}")
    arrays = [as_array(matrix) for matrix in values]
    font, across = size(large), len(values) if len(values) <= 4 else -(-len(values) // 2)
    down = -(-len(values) // across)
    sides = [rows.panel(k, row_title) for k in range(len(arrays))]
    tops = [_numbers(a, s, len(arrays)) if columns is None else columns.panel(k, column_title)
            for k, (a, s) in enumerate(zip(arrays, sides, strict=True))]  # fmt: skip
    drawn = [_cells(a, s.index, t.index) for a, s, t in zip(arrays, sides, tops, strict=True)]
    colours = matrix.colours_of(np.concatenate([z.ravel() for z in drawn]), scale, limits, quantile)
    steps = {int(t.index[1] - t.index[0]) for t in tops if columns is None and len(t.index) > 1} - {1}
    thinned = f"1 {column_title} in {' or '.join(map(str, sorted(steps)))} shown" if steps else ""
    notes = matrix.notes_of(dtype or dtype_of(values[0]), thinned, note, colours.ends)
    extent = float(rows.edges[-1])
    one = int(min(max(extent * font * 1.5, 190 if columns is None else 250), 460 if down == 1 else 340))
    upright = text.longest([text.short(label, _SHORT) for label in columns.labels]) if columns else 0
    under = font * (3.2 + 0.65 * upright)  # of the panels: their ticks, upright where they are words, and a title
    below = foot(notes, under, font)
    height = down * (one + 34) + below.bottom
    fig = Sketch(
        large=large,
        height=height,
        description=_describe(drawn, names, rows, row_title, value_title, notes),
        note=notes,
        showlegend=False,
    )
    fig.layout["meta"] |= {"edges": rows.edges.tolist(), "first": rows.first, "square": columns is not None}
    # The left panels' labels need room: the first axis' automargin makes it, since panels share the paper's left edge.
    gap_x, gap_y = 0.02, 34 / (height - below.bottom)
    width, tall = (1 - gap_x * (across - 1)) / across, 1 / down - gap_y
    first_of: dict[int, str] = {}
    for k, (z, side, top, name) in enumerate(zip(drawn, sides, tops, names, strict=True)):
        line, place = divmod(k, across)
        left, roof = place * (width + gap_x), 1 - line * (tall + gap_y) - gap_y
        key = "" if k == 0 else str(k + 2)  # 2 is the first panel's visible twin
        fig.trace(
            "heatmap",
            z=z,
            x=top.edges if columns else top.axis.at,
            y=side.edges,
            coloraxis="coloraxis",
            xaxis=f"x{key}",
            yaxis=f"y{key}",
            hoverongaps=False,
            name=text.literal(name),
            hovertemplate=matrix.hover(row_title, column_title, value_title, name),
        )
        lowest = k + across >= len(values)
        fig.set(**{
            f"yaxis{key}": _hidden(side, "y", key, (max(0.0, roof - tall), roof), f"x{key}", extent),
            f"xaxis{key}": (_hidden(top, "x", key, (left, left + width), f"y{key}", float(columns.edges[-1]))
                            if columns else _numbered(top, key, (left, left + width), first_of, column_title, font,
                                                      shown=lowest)),
        })  # fmt: skip
        if place == 0:
            _visible(fig, "y", key, k, rows, one, font, row_title)
        if columns and lowest:
            _visible(fig, "x", key, k, columns, PLOT_WIDTH * 1.2 / across, font, column_title)
        room = int(PLOT_WIDTH * 1.25 * width / (font * 0.52))
        panel_name(fig, text.literal(name, room), left + width / 2, roof, font)
    below.write(fig)
    # As high as the panels without their names: beside these stand the chart's own buttons.
    bar = {"len": 1 - gap_y, "y": (1 - gap_y) / 2}
    fig.set(margin={"b": below.bottom, "t": 6}, coloraxis=colours.axis(value_title, large, **bar))
    return fig.figure()


def _cells(array: NDArray[np.float32], rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float32]:
    """The values drawn, blanks as NaN."""
    z = array[np.ix_(rows, columns)]
    z[rows < 0] = np.nan
    z[:, columns < 0] = np.nan
    return np.where(np.isfinite(z) & (z > colour.MASKED), z, np.nan).astype(np.float32)


def _numbers(array: NDArray[np.float32], rows: _Side, panels: int) -> _Side:
    """Numbered columns, as many as there is room for."""
    step = -(-array.shape[1] // max(1, _CELLS // panels // max(1, len(rows.index))))
    index = np.arange(0, array.shape[1], step)
    half = step / 2
    return _Side(Axis("", index), np.concatenate((index - half, [index[-1] + half])), index)


def _hidden(side: _Side, letter: str, key: str, domain, anchor: str, extent: float) -> dict[str, Any]:
    """An axis that nobody sees, with every token in full: what the hover box reads. Linked to the first panel's."""
    return {
        **PLAIN,
        "domain": domain,
        "anchor": anchor,
        "tickmode": "array",
        "tickvals": side.axis.at,
        "ticktext": side.axis.hover(),
        "showticklabels": False,
        "range": [extent, 0] if letter == "y" else [0, extent],
        **({"matches": letter} if key else {}),
    }


def _numbered(top: _Side, key: str, domain, first_of: dict[int, str], title: str, font: int, *, shown: bool):
    """An axis of numbers, linked to that of the first panel of the same width."""
    width = int(top.index[-1])
    linked_to = first_of.setdefault(width, f"x{key}")
    return {
        **PLAIN,
        "domain": domain,
        "anchor": f"y{key}",
        "range": [float(top.edges[0]), float(top.edges[-1])],
        "nticks": 4,
        **top.axis.steps(4),
        "tickfont": {"size": font, "color": INK},
        "showticklabels": shown,
        "title": {"text": text.literal(title) if shown else "", "font": {"size": font, "color": INK}, "standoff": 4},
        **({"matches": linked_to} if linked_to != f"x{key}" else {}),
    }


def _visible(fig: Sketch, letter: str, key: str, k: int, ruler: Ruler, room: float, font: int, title: str) -> None:
    """The parts' labels beside a panel, as many as there is room for; Plotly draws no axis without a trace."""
    twin = "2" if k == 0 else str(100 + k)
    edges = ruler.edges
    middle = (edges[:-1] + edges[1:]) / 2
    wanted = font * (1.3 if letter == "y" else 1.4)
    shown, last = [], -1e9
    for i, at in enumerate(middle * room / edges[-1]):
        if at - last >= wanted:
            shown.append(i)
            last = at
    fig.set(**{
        f"{letter}axis{twin}": {
            **PLAIN,
            "overlaying": f"{letter}{key}",
            "matches": letter,
            "anchor": f"{'x' if letter == 'y' else 'y'}{key}",
            "side": "left" if letter == "y" else "bottom",
            "tickmode": "array",
            "tickvals": middle[shown],
            "ticktext": [text.literal(ruler.labels[i], 14 if letter == "y" else _SHORT) for i in shown],
            "tickfont": {"size": font, "color": INK},
            "automargin": True,
            "title": {"text": text.literal(title), "font": {"size": font, "color": INK}, "standoff": 6},
            **({"tickangle": -90} if letter == "x" else {}),
        }
    })  # fmt: skip
    other = "x" if letter == "y" else "y"
    fig.trace(
        "scatter", x=[None], y=[None], hoverinfo="skip", showlegend=False, name="",
        **{f"{letter}axis": f"{letter}{twin}", f"{other}axis": f"{other}{key}"},
    )  # fmt: skip


def _describe(drawn, names, rows: Ruler, row_title: str, value_title: str, notes: str) -> str:
    words = [f"{count(len(drawn), 'heatmap')} of {value_title} over {count(len(rows.labels), 'part')} of one text"]
    for name, z in zip(names, drawn, strict=True):
        finite = z[np.isfinite(z)]
        size_ = f"{text.short(str(name), text.LONGEST)}: {z.shape[0]:,} by {z.shape[1]:,}"
        span = f" from {number(float(finite.min()))} to {number(float(finite.max()))}" if finite.size else " all blank"
        words.append(f"{size_},{span}")
    return "; ".join([*words, f"a row is a {row_title}", *([notes] if notes else [])]) + "."
