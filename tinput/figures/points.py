"""Points on a plane: a projection of vectors, with the tokens beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from tinput.figures import labels as text
from tinput.figures.colour import GREY, OKABE_ITO, SEQUENTIAL
from tinput.figures.style import INK, Axis, Sketch, as_array, count, draw_axis, number, size

__all__ = ["scatter"]

_TRIED = 256  # tokens for which a place is looked for, evenly chosen
_LABELS = 60  # tokens written beside their points; more cannot be told apart
_PLACES = ("top center", "bottom center", "middle right", "middle left", "top right", "top left", "bottom right",
           "bottom left")  # fmt: skip
# Where the middle of a label lies from its point, in label sizes (half widths, heights).
_OFFSETS = ((0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1))


def scatter(
    points: Any,
    labels: Sequence[str] | None = None,
    *,
    x_title: str = "component 1",
    y_title: str = "component 2",
    colour: str = OKABE_ITO[0],
    values: Any = None,
    value_title: str = "position",
    path: bool = False,
    positions: Sequence[int] | None = None,
    equal: bool = True,
    note: str = "",
    large: bool = False,
    height: int | None = None,
) -> go.Figure:
    """A point for each token or position.

    points: (n, 2). labels: a token each, written where they do not cover one another, always in the hover box
    values: (n,) colours the points by a magnitude, such as their position; path: joins them in order
    equal: one unit is as long on both axes, so that distances can be read
    """
    array = as_array(points)
    if array.ndim != 2 or array.shape[1] != 2 or not len(array):
        raise ValueError(f"scatter wants (n, 2) points, not {array.shape}")
    n = len(array)
    step = -(-n // 2048)
    array = array[::step]
    notes = ", ".join(part for part in (f"1 point in {step} shown" if step > 1 else "", note) if part)
    height = height or (600 if large else 500)
    names = None if labels is None else [str(label) for label in labels][::step]
    at = np.arange(0, n, step) if positions is None else np.asarray(positions)[::step]
    fig = Sketch(
        large=large,
        height=height,
        description=_describe(array, names, n, x_title, y_title, notes),
        note=notes,
        showlegend=False,
    )
    draw_axis(fig, "x", Axis(x_title, array[:, 0]), large=large, room=700, note=notes, showgrid=True)
    draw_axis(fig, "y", Axis(y_title, array[:, 1]), large=large, room=height - 130, showgrid=True)
    low, high = _span(array)
    fig.set(xaxis={"range": [low[0], high[0]]}, yaxis={"range": [low[1], high[1]]})
    if equal:
        fig.set(yaxis={"scaleanchor": "x", "scaleratio": 1})
    if path:
        fig.trace("scatter",
                x=array[:, 0], y=array[:, 1], mode="lines", line={"color": GREY, "width": 1}, hoverinfo="skip",
                showlegend=False, name="in order")  # fmt: skip
    marker: dict[str, Any] = {"size": 10 if n <= 200 else 6, "color": colour, "line": {"width": 0}}
    if values is not None:
        font = size(large)
        marker |= {
            "color": as_array(values).ravel()[::step],
            "colorscale": [[i / (len(SEQUENTIAL) - 1), shade] for i, shade in enumerate(SEQUENTIAL)],
            "colorbar": {
                "title": {"text": text.literal(value_title), "side": "right", "font": {"size": font, "color": INK}},
                "tickfont": {"size": font, "color": INK},
                "thickness": 16,
                "outlinewidth": 0,
                "len": 1,
            },
        }
    hover = f"{text.literal(x_title)} %{{x:.3~g}}<br>{text.literal(y_title)} %{{y:.3~g}}<extra></extra>"
    common = {"x": array[:, 0], "y": array[:, 1], "marker": marker, "showlegend": False, "name": "points"}
    if names is None:
        fig.trace("scatter", **common, mode="markers", hovertext=[f"position {i}" for i in at.tolist()],
                       hovertemplate=f"%{{hovertext}}<br>{hover}")  # fmt: skip
        return fig.figure()
    placed = place(array, names, size(large), 850, height - 130, equal=equal)
    fig.trace(
        "scatter",
        **common,
        mode="markers+text",
        text=["" if where is None else text.literal(name, 16) for name, where in zip(names, placed, strict=True)],
        textposition=[where or "top center" for where in placed],
        textfont={"size": size(large)},
        cliponaxis=False,
        hovertext=[f"{text.literal(name)}, position {i}" for name, i in zip(names, at.tolist(), strict=True)],
        hovertemplate=f"%{{hovertext}}<br>{hover}",
    )
    return fig.figure()


def place(
    points: NDArray[np.float32], names: Sequence[str], font: int, width: float, height: float, *, equal: bool
) -> list[str | None]:
    """Where each label goes, so that none covers another label or point; None where there is no room.

    Greedy, in reading order. width, height: of the plot, in pixels
    """
    low, high = _span(points)
    scale = np.array([width, height]) / (high - low)
    if equal:
        scale = np.full(2, scale.min())
    pixels = np.nan_to_num((points - low) * scale)
    taken = np.concatenate([pixels - 6, pixels + 6], axis=1)  # (n, 4): left, low, right, high; labels are added below
    result: list[str | None] = [None] * len(names)
    right, up = np.array(_OFFSETS, float).T
    for i in range(0, len(names), -(-len(names) // _TRIED)):
        if len(taken) == len(pixels) + _LABELS:
            break
        half_width, half_height = text.width(text.short(names[i], 16)) * font * 0.31 + 1, font * 0.62
        x = pixels[i, 0] + right * (half_width + 7)
        y = pixels[i, 1] + up * np.where(right == 0, half_height + 7, half_height)
        half = np.array([half_width, half_height])
        low_corner, high_corner = np.stack([x, y], 1) - half, np.stack([x, y], 1) + half  # (places, 2)
        cross = (low_corner[:, None] < taken[:, 2:]) & (taken[:, :2] < high_corner[:, None])
        free = ~np.delete(cross.all(axis=2), i, axis=1).any(axis=1)  # its own point may be touched
        if free.any():
            k = int(free.argmax())
            result[i] = _PLACES[k]
            taken = np.vstack([taken, [*low_corner[k], *high_corner[k]]])
    return result


def _span(points: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ranges of the two axes: all finite points, and room around them for their labels."""
    finite = points[np.isfinite(points).all(1)].astype(np.float64)
    if not len(finite):
        return np.array([-1.0, -1.0]), np.array([1.0, 1.0])
    low, high = finite.min(0), finite.max(0)
    room = np.where(high > low, (high - low) * [0.1, 0.1], np.maximum(np.abs(high), 1.0) * 0.5)
    return low - room, high + room


def _describe(points, names, n: int, x_title: str, y_title: str, notes: str) -> str:
    words = [f"{count(n, 'point')} on a plane of {x_title} and {y_title}"]
    finite = points[np.isfinite(points).all(1)]
    if len(finite):
        words.append(
            f"{x_title} from {number(float(finite[:, 0].min()))} to {number(float(finite[:, 0].max()))}, "
            f"{y_title} from {number(float(finite[:, 1].min()))} to {number(float(finite[:, 1].max()))}"
        )
    if names is not None and 1 < len(points) <= 512:
        apart = np.linalg.norm(points[:, None] - points[None], axis=-1)
        apart = np.where(np.eye(len(apart), dtype=bool), np.inf, apart)
        i, j = np.unravel_index(int(np.nanargmin(apart)), apart.shape) if np.isfinite(apart).any() else (0, 0)
        if i != j:
            words.append(f"closest are {text.short(names[int(i)], 40)} ({i}) and {text.short(names[int(j)], 40)} ({j})")
    return "; ".join([*words, notes] if notes else words) + "."
