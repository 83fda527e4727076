"""Panels: several matrices of one shape side by side, and the parts of which every such picture is made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from tinput.figures import labels as text
from tinput.figures import matrix
from tinput.figures.matrix import CELLS, Drawn
from tinput.figures.style import INK, PLOT_WIDTH, Axis, Sketch, as_array, count, dtype_of, size
from tinput.window import Window

__all__ = ["panels"]

PLAIN: dict[str, Any] = {"showgrid": False, "zeroline": False, "ticks": ""}  # an axis of one panel among several
LINE = 1.3  # a line's height, in sizes of its font
_LABEL = 1.4  # the same of labels one below the other
_TOP = 34  # pixels above the plots, where there is no legend
_EACH = 20  # so many rows of a few panels each have their label


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
        matrix.drawn(_panel(values, i), (row_title, rows), (column_title, columns), masked=masked, limits=per_panel)
        for i in range(len(everything))
    ]
    first, row, column = drawn[0], drawn[0].row, drawn[0].column
    colours = matrix.colours_of(np.concatenate([shown.z.ravel() for shown in drawn]), scale, limits, quantile)
    notes = matrix.notes_of(dtype or dtype_of(values), first.left_out, note, colours.ends)
    across = min(across, len(drawn))
    down = -(-len(drawn) // across)
    font, room = size(large), 500 / across
    below = foot(notes, under(column, room, font), font)
    one = (300 if across < 3 else 215) + (35 if large else 0)  # two side by side have room to be taller
    height = down * one + 90 + (0 if column.labels is None else 40) + below.height
    top = 60 if any(shown.blank.any() for shown in drawn) else _TOP
    labelled = 0 if row.labels is None else len(row.labels)
    if down == 1 and across <= 3 and labelled <= _EACH:
        height = max(height, top + below.bottom + math.ceil(labelled * font * _LABEL))
    fig = Sketch(
        large=large,
        height=height,
        description=f"{count(len(drawn), 'panel')} ({', '.join(map(str, names[:12]))}), each: "
        + first.describe(value_title, notes),
        note=notes,
    )
    # A row of panels: its title, its plot, and (in the last) its labels.
    gap_x, gap_y = 0.03, min(0.28 / down, 46 * (font / 14) / height)
    width, tall = (1 - gap_x * (across - 1)) / across, (1 - gap_y * (down - 1)) / down
    for i, (shown, name) in enumerate(zip(drawn, names, strict=True)):
        line, place = divmod(i, across)
        left, top = place * (width + gap_x), 1 - line * (tall + gap_y)
        key, lowest = "" if i == 0 else str(i + 1), i + across >= len(drawn)
        draw_panel(fig, key, shown, name, value_title)
        x = panel_axis("x", key, column, room, font, ticks=lowest, title=lowest)
        y = panel_axis("y", key, row, (height - top - below.bottom) * tall, font, ticks=place == 0, title=place == 0)
        fig.set(**{
            f"xaxis{key}": {**x, "domain": (left, left + width)},
            f"yaxis{key}": {**y, "domain": (max(0.0, top - tall), top)},
        })  # fmt: skip
        panel_name(fig, text.literal(name), left + width / 2, top, font)
    below.write(fig)
    fig.set(margin={"b": below.bottom}, coloraxis=colours.axis(value_title, large, len=1, y=0.5))
    full_labels(fig, row, column)
    if top > _TOP:
        fig.set(margin={"t": top})
        legend_above(fig)
    return fig.figure()


def _panel(values: Any, i: int) -> Any:
    if isinstance(values, Window):
        return Window(values.values[i], values.rows, values.columns, values.row_step, values.column_step)
    return values[i]


# --- the parts, of these panels and of others ---


def draw_panel(fig: Sketch, key: str, shown: Drawn, name: str, value_title: str, coloraxis: str = "coloraxis") -> None:
    """The cells of a panel. key: its number in Plotly's names, "" for the first"""
    fig.trace(
        "heatmap",
        z=shown.z,
        **matrix.places("x", shown.column.at),
        **matrix.places("y", shown.row.at),
        coloraxis=coloraxis,
        xaxis=f"x{key}",
        yaxis=f"y{key}",
        hoverongaps=False,
        name=text.literal(name),
        hovertemplate=matrix.hover(shown.row.title, shown.column.title, value_title, name),
    )


def panel_axis(
    letter: str, key: str, axis: Axis, room: float, font: int, *, ticks: bool, title: bool
) -> dict[str, Any]:
    """An axis of a panel, x or y. key: the panel's number in Plotly's names; room: pixels along the axis"""
    low, high = matrix.span(axis.at)
    return {
        **PLAIN,
        "automargin": True,
        **_small_ticks(axis, room, font, ticks, letter),
        "anchor": f"{'y' if letter == 'x' else 'x'}{key}",
        "range": [low, high] if letter == "x" else [high, low],
        "title": {
            "text": text.literal(axis.title) if title else "",
            "font": {"size": font, "color": INK},
            "standoff": 4,
        },
    }


def panel_name(fig: Sketch, name: str, x: float, y: float, font: int) -> None:
    """A panel's name above it. name: escaped; x, y: the middle of its upper edge, as parts of the figure"""
    fig.write(text=name, x=x, y=y, xref="paper", yref="paper", xanchor="center", yanchor="bottom", font={"size": font})


def _small_ticks(axis: Axis, room: float, font: int, shown: bool, letter: str) -> dict[str, Any]:
    if axis.labels is None:
        return {"showticklabels": shown, "tickfont": {"size": font, "color": INK}, "nticks": 5, **axis.steps(5)}
    step = text.every(len(axis.labels), room / (font * _LABEL))
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


def legend_above(fig: Sketch) -> None:
    """The legend for masked cells, above the panels' names."""
    matrix.legend_of_blank(fig)
    fig.set(legend={"y": 1, "yref": "container", "yanchor": "top"})


def full_labels(fig: Sketch, row: Axis, column: Axis) -> None:
    """A panel's ticks are cut short; an export wants the labels in full."""
    for name, axis in (("rows", row), ("columns", column)):
        if axis.labels is not None:
            fig.layout["meta"][name] = [text.short(label, text.LONGEST) for label in axis.labels]


@dataclass(frozen=True)
class Foot:
    """The note below the panels, in as many lines as it needs. under: pixels from the plot's lower edge to it"""

    lines: Sequence[str]
    under: float
    font: int

    @property
    def height(self) -> int:
        """Pixels of the note alone."""
        return round(len(self.lines) * self.font * LINE)

    @property
    def bottom(self) -> int:
        """The margin that the note and what is above it need, in pixels."""
        return round(self.under + len(self.lines) * self.font * LINE + 6)

    def write(self, fig: Sketch) -> None:
        words = "<br>".join(text.literal(line, 2 * len(line)) for line in self.lines)
        fig.write(
            text=words, x=0.5, y=0, xref="paper", yref="paper", xanchor="center", yanchor="top", yshift=-self.under,
            font={"size": self.font, "color": INK}, name="note",
        )  # fmt: skip


def foot(notes: str, under: float, font: int) -> Foot:
    """The note broken at its commas."""
    lines, longest = [""], int(PLOT_WIDTH / (font * 0.5))
    for part in notes.split(", "):
        joined = f"{lines[-1]}, {part}" if lines[-1] else part
        if lines[-1] and len(joined) > longest:
            lines[-1] += ","
            lines.append(part)
        else:
            lines[-1] = joined
    return Foot(lines, under, font)


def under(axis: Axis, room: float, font: int) -> float:
    """Pixels from a panel's lower edge to below its ticks and its title."""
    ticks = _small_ticks(axis, room, font, True, "x")
    upright = ticks.get("tickangle") == -90
    longest = text.longest([text.plain(label) for label in ticks["ticktext"]]) if upright else 0
    return max(longest * font * 0.65, font * LINE) + font * LINE + 14
