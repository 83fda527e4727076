"""A matrix before, after, and the difference: three heatmaps of the same rows and columns, zoomed and marked together.

Before and after share one colour scale, the difference has a diverging one of its own, centred on no change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from tinput.figures import colour
from tinput.figures import labels as text
from tinput.figures.heat import (
    CELLS,
    _colorbar,
    _colorscale,
    _describe,
    _legend,
    _lines,
    _notes,
    _places,
    _range,
    _small_ticks,
    _under,
    _window,
)
from tinput.figures.style import INK, Sketch, dtype_of, number, size

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
    sides = [before, after, difference]
    drawn = [_window(side, rows, columns, row_title, column_title, None, None, (CELLS // 3, 256)) for side in sides]
    flat = [np.where(np.isfinite(shown.values) & ~shown.blank, shown.values, np.nan) for shown, *_ in drawn]
    both = np.concatenate([part.ravel() for part in flat[:2]])
    scale = scale or colour.choose(both)
    low, high = limits or colour.limits(both, scale=scale, quantile=quantile)
    # rounding is no change: what is a thousandth of the colours before and after has the colour of nothing
    bound = max(colour.limits(flat[2], scale="diverging", quantile=quantile)[1], _NO_CHANGE * (high - low))
    if not np.nanmax(np.abs(flat[2]), initial=0) > 0:
        bound = high - low
    beyond = quantile < 1 and bool((np.abs(both[np.isfinite(both)]) > max(high, -low)).any())
    ends = f"colours end at {number(high)} (the {100 * quantile:g} % quantile)" if beyond and not limits else ""
    notes = _notes(dtype or dtype_of(before), drawn[0][3], note, ends)
    font, (shown, row, column, _) = size(large), drawn[0]
    lines = _lines(notes, font)
    under = _under(column, _ROOM / 3, font)
    bottom = round(under + len(lines) * font * 1.3 + 6)
    tall = int(min(max(len(row.at) * font * 1.45, 240), 460 if large else 380))
    top = 28 + 2 * font  # a legend, and below it the names
    fig = Sketch(
        large=large,
        height=tall + bottom + top,
        description=f"3 panels ({', '.join(map(str, names))}), the first: "
        + _describe(shown, row, column, value_title, notes),
        note=notes,
    )
    for k, (name, place, (_, row, column, _)) in enumerate(zip(names, (_LEFT, _MIDDLE, _RIGHT), drawn, strict=True)):
        key = "" if k == 0 else str(k + 1)
        fig.trace(
            "heatmap",
            z=flat[k].astype(np.float32),
            **_places("x", column.at),
            **_places("y", row.at),
            coloraxis="coloraxis2" if k == 2 else "coloraxis",
            xaxis=f"x{key}",
            yaxis=f"y{key}",
            hoverongaps=False,
            name=text.literal(name),
            hovertemplate=f"{text.literal(name)}<br>{text.literal(row.title)} %{{y}}<br>"
            f"{text.literal(column.title)} %{{x}}<br>{text.literal(value_title)} %{{z:.3~g}}<extra></extra>",
        )
        common: dict[str, Any] = {"showgrid": False, "zeroline": False, "ticks": "", "automargin": True}
        heading = {"font": {"size": font, "color": INK}, "standoff": 4}
        fig.set(**{
            f"xaxis{key}": {
                **common, **_small_ticks(column, _ROOM / 3.6, font, True, "x"), "domain": place, "anchor": f"y{key}",
                "range": _range(column.at), "title": {"text": text.literal(column.title), **heading},
                **({"matches": "x"} if key else {}),
            },
            f"yaxis{key}": {
                **common, **_small_ticks(row, tall, font, k == 0, "y"), "domain": (0, 1), "anchor": f"x{key}",
                "range": _range(row.at)[::-1], "title": {"text": text.literal(row.title) if k == 0 else "", **heading},
                **({"matches": "y"} if key else {}),
            },
        })  # fmt: skip
        fig.write(
            text=text.literal(name), x=sum(place) / 2, y=1, xref="paper", yref="paper", xanchor="center",
            yanchor="bottom", font={"size": font},
        )  # fmt: skip
    fig.write(
        text="<br>".join(text.literal(line, 2 * len(line)) for line in lines), x=0.5, y=0, xref="paper", yref="paper",
        xanchor="center", yanchor="top", yshift=-under, font={"size": font, "color": INK}, name="note",
    )  # fmt: skip
    bar = {"len": 1, "y": 0.5, "outlinewidth": 0, "xpad": 4}
    fig.set(
        margin={"b": bottom, "t": top},
        coloraxis={
            "cmin": low,
            "cmax": high,
            "colorscale": _colorscale(scale),
            "colorbar": {**_colorbar(value_title, scale, large), **bar, "x": _MIDDLE[1], "xanchor": "left"},
        },
        coloraxis2={
            "cmin": -bound,
            "cmax": bound,
            "colorscale": _colorscale("diverging"),
            "colorbar": {**_colorbar("difference", "diverging", large), **bar, "x": _RIGHT[1], "xanchor": "left"},
        },
    )
    meta = fig.layout["meta"]
    step = float(row.at[1] - row.at[0]) if len(row.at) > 1 else 1.0
    meta |= {"edges": [*(row.at - step / 2).tolist(), float(row.at[-1] + step / 2)], "first": 0}
    meta["square"] = len(row.at) == len(column.at)  # what the page marks in all three when one is pointed at
    for name, axis in (("rows", row), ("columns", column)):
        if axis.labels is not None:
            meta[name] = [text.short(label, text.LONGEST) for label in axis.labels]
    if any(shown.blank.any() for shown, *_ in drawn):
        _legend(fig, "masked: left blank", "square-open")
        fig.set(legend={"y": 1, "yref": "container", "yanchor": "top"})
    return fig.figure()
