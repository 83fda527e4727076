"""A matrix before, after, and the difference: three heatmaps of the same rows and columns, zoomed and marked together.

Before and after share one colour scale, the difference has a diverging one of its own, centred on no change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from tinput.figures import colour, matrix
from tinput.figures import labels as text
from tinput.figures.matrix import CELLS, Colours
from tinput.figures.panels import draw_panel, foot, full_labels, legend_above, panel_axis, panel_name, under
from tinput.figures.style import Sketch, dtype_of, size

__all__ = ["before_after"]

_LEFT, _MIDDLE, _RIGHT = (0.0, 0.285), (0.31, 0.595), (0.70, 0.985)  # where the panels lie along the figure
_NO_CHANGE = 1e-3
_ROOM = 1100  # pixels that the three have at least beside the sidebar of a 1280 wide window, in a wide panel


def before_after(
    before: Any,
    after: Any,
    difference: Any,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    names: Sequence[str] = ("before", "after", "after minus before"),
    row_title: str = "query",
    column_title: str = "key",
    value_title: str = "score",
    scale: str | None = None,
    quantile: float = 1.0,
    limits: tuple[float, float] | None = None,
    dtype: str | None = None,
    note: str = "",
    large: bool = False,
) -> go.Figure:
    """Three matrices of one shape, (rows, columns) each, or a `Window` of it; -inf is left blank.

    rows, columns: a label for each row and column of the whole, or None; names: of the three
    scale, limits, quantile: of before and after, as in `heatmap` and `panels`; the difference is always diverging, and
        its colours end at its largest magnitude (at the same quantile), at the least at a thousandth of the range of
        the other two: rounding looks like no change
    """
    drawn = [
        matrix.drawn(side, (row_title, rows), (column_title, columns), limits=(CELLS // 3, 256))
        for side in (before, after, difference)
    ]
    both = np.concatenate([shown.z.ravel() for shown in drawn[:2]])
    colours = matrix.colours_of(both, scale, limits, quantile)
    # rounding is no change: what is a thousandth of the colours before and after has the colour of nothing
    change, extent = drawn[2].z, colours.high - colours.low
    bound = max(colour.limits(change, scale="diverging", quantile=quantile)[1], _NO_CHANGE * extent)
    if not np.nanmax(np.abs(change), initial=0) > 0:
        bound = extent
    row, column, font = drawn[0].row, drawn[0].column, size(large)
    notes = matrix.notes_of(dtype or dtype_of(before), drawn[0].left_out, note, colours.ends)
    below = foot(notes, under(column, _ROOM / 3, font), font)
    tall = int(min(max(len(row.at) * font * 1.45, 240), 460 if large else 380))
    top = 28 + 2 * font  # a legend, and below it the names
    fig = Sketch(
        large=large,
        height=tall + below.bottom + top,
        description=f"3 panels ({', '.join(map(str, names))}), the first: {drawn[0].describe(value_title, notes)}",
        note=notes,
    )
    for k, (name, place, shown) in enumerate(zip(names, (_LEFT, _MIDDLE, _RIGHT), drawn, strict=True)):
        key = "" if k == 0 else str(k + 1)
        draw_panel(fig, key, shown, name, value_title, "coloraxis2" if k == 2 else "coloraxis")
        x = panel_axis("x", key, shown.column, _ROOM / 3.6, font, ticks=True, title=True)
        y = panel_axis("y", key, shown.row, tall, font, ticks=k == 0, title=k == 0)
        fig.set(**{
            f"xaxis{key}": {**x, "domain": place, **({"matches": "x"} if key else {})},
            f"yaxis{key}": {**y, "domain": (0, 1), **({"matches": "y"} if key else {})},
        })  # fmt: skip
        panel_name(fig, text.literal(name), sum(place) / 2, 1, font)
    below.write(fig)
    bar = {"len": 1, "y": 0.5, "outlinewidth": 0, "xpad": 4, "xanchor": "left"}
    changes = Colours("diverging", -bound, bound)
    fig.set(
        margin={"b": below.bottom, "t": top},
        coloraxis=colours.axis(value_title, large, **bar, x=_MIDDLE[1]),
        coloraxis2=changes.axis("difference", large, **bar, x=_RIGHT[1]),
    )
    step = float(row.at[1] - row.at[0]) if len(row.at) > 1 else 1.0
    fig.layout["meta"] |= {  # what the page marks in all three when one is pointed at
        "edges": [*(row.at - step / 2).tolist(), float(row.at[-1] + step / 2)],
        "first": 0,
        "square": len(row.at) == len(column.at),
    }
    full_labels(fig, row, column)
    if any(shown.blank.any() for shown in drawn):
        legend_above(fig)
    return fig.figure()
