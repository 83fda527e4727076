"""Lines, bars and stacked shares: a number for each position, distance, head or token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from tinput.figures import labels as text
from tinput.figures.colour import GREY, OKABE_ITO
from tinput.figures.style import Axis, Sketch, as_array, count, draw_axis, log_ticks, number, size

__all__ = ["bars", "lines", "stacked"]

_POINTS = 2048  # of one line; more than a screen has pixels
_ROOM = 520  # pixels that a legend has in the picture's column of a 1280 wide window
_BUTTONS = 90, 33  # what Plotly's buttons take of it, across and down
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def lines(
    series: Mapping[str, Any],
    x: Any = None,
    *,
    x_title: str = "position",
    y_title: str = "value",
    colours: Sequence[str] | None = None,
    dashes: Sequence[str] | None = None,
    bands: Mapping[str, tuple[Any, Any]] | None = None,
    marks: Sequence[tuple[float, str]] = (),
    levels: Sequence[tuple[float, str]] = (),
    log_x: bool = False,
    log_y: bool = False,
    points: bool | None = None,
    labels: Sequence[str] | None = None,
    ticks: Sequence[float] | None = None,
    note: str = "",
    large: bool = False,
    height: int | None = None,
) -> go.Figure:
    """A line for each name.

    series: name -> (n,) values; NaN and infinities leave a gap. x: (n,), or a mapping name -> (n,); None: 0, 1, ...
    bands: name -> (low (n,), high (n,)), drawn faint behind the line of that name
    marks: (x, words): upright lines, such as a context length; levels: (y, words): level lines, such as 1 %
    points: a dot at each value; None: where there are few. labels: a token for each x
    ticks: of the x axis, in place of round numbers
    dashes: "solid", "dash", "dot" for each line; None: other dashes once the colours are used up
    A line of more than 2,048 points is thinned evenly, and the figure says so.
    """
    if not series:
        raise ValueError("lines wants at least one series")
    colours = colours or OKABE_ITO
    values = {name: as_array(line).ravel() for name, line in series.items()}
    places = {name: _x(x, name, len(line)) for name, line in values.items()}
    for name, line in values.items():
        if len(places[name]) != len(line):
            raise ValueError(f"series {name!r} has {len(line)} values for {len(places[name])} places")
    step = max(max(1, -(-len(line) // _POINTS)) for line in values.values())
    left_out = f"1 point in {step} shown" if step > 1 else ""
    notes = ", ".join(part for part in (left_out, note) if part)
    height = height or (480 if large else 400)
    few = max(map(len, values.values())) <= 64 if points is None else points
    fig = Sketch(
        large=large,
        height=height,
        description=_describe_lines(values, places, x_title, y_title, marks, notes),
        note=notes,
        showlegend=len(values) > 1,
        hovermode="closest",
    )
    first = next(iter(places.values()))
    axis = (
        Axis(x_title, first, labels) if labels is not None else Axis(x_title, first, kind="log" if log_x else "linear")
    )
    draw_axis(
        fig, "x", axis, large=large, room=700, note=notes, **({"range": _ends(first)} if labels is not None else {})
    )
    draw_axis(fig, "y", Axis(y_title, np.zeros(0), kind="log" if log_y else "linear"), large=large, room=height - 130)
    if log_x and labels is None:
        fig.set(xaxis=log_ticks(*places.values(), [place for place, _ in marks]))
    if ticks is not None:
        fig.set(xaxis={"tickmode": "array", "tickvals": list(ticks), "ticktext": [f"{tick:,.10g}" for tick in ticks]})
    if log_y:
        fig.set(yaxis=log_ticks(*values.values(), [place for place, _ in levels]))
    for i, (name, line) in enumerate(values.items()):
        colour = colours[i % len(colours)]
        dash = dashes[i % len(dashes)] if dashes else _DASHES[i // len(colours) % len(_DASHES)]
        if bands and name in bands:
            low, high = (as_array(edge).ravel()[::step] for edge in bands[name])
            for edge, fill in ((low, None), (high, "tonexty")):
                fig.trace(
                    "scatter",
                    x=places[name][::step],
                    y=edge,
                    mode="lines",
                    line={"width": 0},
                    fill=fill,
                    fillcolor=_faint(colour),
                    hoverinfo="skip",
                    showlegend=False,
                    meta="band",
                    name=text.literal(name) + (" (low)" if fill is None else " (high)"),
                )
        fig.trace(
            "scatter",
            x=places[name][::step],
            y=np.where(np.isfinite(line), line, np.nan)[::step],
            mode="lines+markers" if few else "lines",
            line={"color": colour, "width": 3 if large else 2, "dash": dash},
            marker={"size": 7},
            name=text.literal(name),
            hovertemplate=(f"{text.literal(name)}<br>" if len(values) > 1 else "")
            + f"{text.literal(x_title)} %{{x}}<br>{text.literal(y_title)} %{{y:.4~g}}<extra></extra>",
        )
    _rulers(fig, marks, levels, log_x, log_y, large)
    if len(values) > 1:
        _clear_buttons(fig, list(values), large)
    return fig.figure()


def bars(
    values: Any,
    labels: Sequence[Any] | None = None,
    *,
    x_title: str = "token",
    y_title: str = "norm",
    colour: str | Sequence[str] = OKABE_ITO[0],
    levels: Sequence[tuple[float, str]] = (),
    log_y: bool = False,
    positions: Sequence[int] | None = None,
    note: str = "",
    large: bool = False,
    height: int | None = None,
) -> go.Figure:
    """A bar for each token, head or pair.

    values: (n,), at most 1,024 are drawn. labels: a token each (strings), or a number each; None: 0, 1, ...
    colour: of all, or one a bar; levels: (y, words): level lines, such as a context length
    """
    return _bars({"": values}, labels, x_title, y_title, [colour], levels, log_y, positions, note, large, height)


def stacked(
    parts: Mapping[str, Any],
    labels: Sequence[Any] | None = None,
    *,
    x_title: str = "token",
    y_title: str = "share",
    colours: Sequence[str] | None = None,
    positions: Sequence[int] | None = None,
    note: str = "",
    large: bool = False,
    height: int | None = None,
) -> go.Figure:
    """Parts of a whole, one bar a token: how much of the sum is token and how much is position.

    parts: name -> (n,); a negative part (a cross term that takes away) hangs below zero
    """
    return _bars(parts, labels, x_title, y_title, colours or OKABE_ITO, (), False, positions, note, large, height)


def _bars(parts, labels, x_title, y_title, colours, levels, log_y, positions, note, large, height) -> go.Figure:
    values = {name: as_array(part).ravel() for name, part in parts.items()}
    lengths = {len(part) for part in values.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(f"bars want parts of one length, at least one bar, not {sorted(lengths)}")
    n = lengths.pop()
    step = -(-n // 1024)
    notes = ", ".join(part for part in (f"1 {x_title} in {step} shown" if step > 1 else "", note) if part)
    height = height or (420 if large else 340)
    at = np.arange(n)
    axis = Axis(x_title, at[::step])
    if labels is not None and isinstance(labels[0], str):
        axis = Axis(x_title, at[::step], list(labels)[::step], None if positions is None else list(positions)[::step])
    elif labels is not None:
        axis = Axis(x_title, np.asarray(labels, np.float64)[::step])
    whole = np.concatenate(list(values.values()))
    whole = whole[np.isfinite(whole)]
    span = f" from {number(float(whole.min()))} to {number(float(whole.max()))}" if whole.size else ""
    words = f"Bar chart of {y_title} for {count(n, x_title)}{span}"
    if len(values) > 1:
        words += "; parts: " + ", ".join(f"{name}, mean {number(_mean(part))}" for name, part in values.items())
    fig = Sketch(
        large=large,
        height=height,
        description=f"{words}{'; ' + notes if notes else ''}.",
        note=notes,
        showlegend=len(values) > 1,
        barmode="relative",
        bargap=0.15,
    )
    draw_axis(fig, "x", axis, large=large, room=700, note=notes, range=_ends(axis.at))
    draw_axis(fig, "y", Axis(y_title, np.zeros(0), kind="log" if log_y else "linear"), large=large, room=height - 130)
    if log_y:
        fig.set(yaxis=log_ticks(whole, [place for place, _ in levels]))
    else:
        fig.set(yaxis={"zeroline": True, "zerolinewidth": 1, "zerolinecolor": GREY})
        if whole.size and np.abs(whole).max() < 5 and not np.any(whole % 1):  # few and whole: no ticks between
            fig.set(yaxis={"dtick": 1})
    for (name, part), colour in zip(values.items(), colours, strict=False):
        fig.trace(
            "bar",
            x=axis.at,
            y=np.where(np.isfinite(part), part, np.nan)[::step],
            marker={"color": colour if isinstance(colour, str) else list(colour)[::step], "line": {"width": 0}},
            name=text.literal(name),
            hovertemplate=(f"{text.literal(name)}<br>" if name else "")
            + f"{text.literal(x_title)} %{{x}}<br>{text.literal(y_title)} %{{y:.4~g}}<extra></extra>",
        )
    _rulers(fig, (), levels, False, log_y, large, next(iter(values.values())))
    if len(values) > 1:
        _clear_buttons(fig, list(values), large)
    return fig.figure()


def _clear_buttons(fig: Sketch, names: Sequence[str], large: bool) -> None:
    """Room above a legend that reaches as far as Plotly's buttons at the upper right, so that neither covers the other.

    Plotly sets the entries of a legend of several rows in columns, each as wide as the longest.
    """
    font = size(large)
    wide = [60 + 0.5 * font * text.width(text.short(name, text.LONGEST)) for name in names]
    if sum(wide) > _ROOM - _BUTTONS[0]:
        across = len(names) if sum(wide) <= _ROOM else max(1, int(_ROOM // max(wide)))
        top = _BUTTONS[1] + round(font * (0.8 + 1.5 * -(-len(names) // across)))
        fig.set(height=fig.layout["height"] + top - fig.layout["margin"]["t"], margin={"t": top})


def _rulers(fig: Sketch, marks, levels, log_x: bool, log_y: bool, large: bool, bars: Any = None) -> None:
    """Upright and level lines with their words; Plotly takes shapes on a log axis by value, words by its logarithm.

    bars: the heights of what is drawn as bars: words stand at the right, or at the left where only these are lower
    """
    dashed = {"color": GREY, "width": 2, "dash": "dash"}
    font = {"size": size(large)}
    for place, words in marks:
        fig.shape("line", x0=place, x1=place, y0=0, y1=1, yref="paper", line=dashed)
        at = float(np.log10(place)) if log_x else place
        fig.write(text.literal(words), x=at, y=1, yref="paper", yanchor="top", xanchor="left", xshift=4, font=font)
    for place, words in levels:
        fig.shape("line", x0=0, x1=1, xref="paper", y0=place, y1=place, line=dashed)
        at = float(np.log10(place)) if log_y else place
        left = False
        if bars is not None:
            part = -(-len(bars) // 4)
            left = np.nanmax(bars[:part]) < np.nanmax(bars[-part:]) and place <= np.nanmax(bars[-part:])
        x, side = (0, "left") if left else (1, "right")
        fig.write(text.literal(words), y=at, x=x, xref="paper", xanchor=side, yanchor="bottom", font=font)


def _x(x: Any, name: str, n: int) -> NDArray[Any]:
    if isinstance(x, Mapping):
        x = x[name]
    if x is None:
        return np.arange(n, dtype=np.int32)
    x = x.detach().cpu().numpy() if hasattr(x, "detach") else np.asarray(x)
    return x if x.dtype.kind in "iu" else x.astype(np.float64)


def _describe_lines(values, places, x_title, y_title, marks, notes) -> str:
    words = [f"{count(len(values), 'line')}: {y_title} against {x_title}"]
    for name, line in list(values.items())[:8]:
        finite = np.flatnonzero(np.isfinite(line))
        if len(finite):
            first, last = finite[0], finite[-1]
            words.append(
                f"{name} goes from {number(float(line[first]))} at {number(float(places[name][first]))} to "
                f"{number(float(line[last]))} at {number(float(places[name][last]))}"
            )
    words += [f"{mark} at {number(float(place))}" for place, mark in marks]
    return "; ".join([*words, notes] if notes else words) + "."


def _ends(at: NDArray[Any]) -> list[float]:
    if len(at) == 1:
        return [float(at[0]) - 0.6, float(at[0]) + 0.6]
    half = float(np.min(np.diff(np.sort(at)))) * 0.6
    return [float(at.min()) - half, float(at.max()) + half]


def _mean(part: NDArray[np.float32]) -> float:
    finite = part[np.isfinite(part)]
    return float(finite.mean()) if finite.size else float("nan")


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.2)"
