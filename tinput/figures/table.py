"""A figure's numbers as CSV, read back from the figure itself: what is exported is what is shown."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import plotly.graph_objects as go

from tinput.figures.labels import plain
from tinput.figures.style import meta

__all__ = ["to_csv"]


def to_csv(fig: go.Figure, header: Mapping[str, Any] | Sequence[str] = ()) -> str:
    """The values that a figure of this package shows, with their labels.

    header: where they are from (model, revision, dtype, versions), written first as `# name: value` lines
    A heatmap gives a matrix (and `panel` as its first column where there are several), other figures a row a point.
    A masked cell is empty; NaN and inf are written out. float32 values come back exactly.
    """
    out = io.StringIO()
    lines = [f"{name}: {value}" for name, value in header.items()] if isinstance(header, Mapping) else list(header)
    about = meta(fig)
    if about.get("note"):
        lines.append(f"shown: {about['note']}")
    for line in lines:
        out.write("# " + " ".join(str(line).split()) + "\n")
    writer = csv.writer(out, lineterminator="\n")
    heat = heatmaps(fig)
    if heat:
        writer.writerows(_matrix(fig, heat))
    elif "steps" in about:
        writer.writerow(["step", "position enters"])
        writer.writerows([step, "yes" if here else ""] for step, here in about["steps"])
    else:
        writer.writerows(_points(fig))
    return out.getvalue()


def _matrix(fig: go.Figure, traces: Sequence[Any]) -> Iterator[list[str]]:
    several, last = len(traces) > 1, None
    for trace in traces:
        z = np.asarray(trace.z)
        rows, columns = places(trace, "y", z.shape[0]), places(trace, "x", z.shape[1])
        cells = [[_number(value) if np.isfinite(value) else "" for value in line] for line in z]
        for i, j, mark in marks(fig, trace):
            cells[i][j] = mark
        row_names, column_names = names(fig, trace, "y", rows), names(fig, trace, "x", columns)
        head = _heads(fig, trace, "y", row_names)
        titles = head + [f"{name[0]} ({name[1]})" if len(name) == 2 else name[0] for name in column_names]
        if titles != last:  # panels over the same columns share them
            yield (["panel"] if several else []) + titles
            last = titles
        for name, line in zip(row_names, cells, strict=True):
            yield ([plain(trace.name)] if several else []) + name + line


def heatmaps(fig: go.Figure) -> list[Any]:
    """The figure's heatmaps, first to last."""
    return [trace for trace in _traces(fig) if trace.type == "heatmap"]


def marks(fig: go.Figure, trace: Any) -> Iterator[tuple[int, int, str]]:
    """(row, column, "NaN" or "inf") of each cell of a heatmap that is marked in place of a colour."""
    z = np.asarray(trace.z)
    rows, columns = places(trace, "y", z.shape[0]), places(trace, "x", z.shape[1])
    for mark in _traces(fig):
        if mark.meta in ("NaN", "inf"):
            at = np.searchsorted(rows, mark.y), np.searchsorted(columns, mark.x)
            yield from ((int(i), int(j), mark.meta) for i, j in zip(*at, strict=True))


def _points(fig: go.Figure) -> Iterator[list[str]]:
    shown = [t for t in _traces(fig) if t.type in ("scatter", "bar") and (t.hoverinfo != "skip" or t.meta == "band")]
    if not shown:
        raise ValueError("this figure shows no numbers")
    several = len(shown) > 1
    for number, trace in enumerate(shown):
        y = np.asarray(trace.y)
        columns = [(trace, letter, names(fig, trace, letter, places(trace, letter, len(y)))) for letter in "xy"]
        point = None if trace.hovertext is None else [_split(plain(words)) for words in trace.hovertext]
        extra = trace.meta["columns"] if isinstance(trace.meta, Mapping) else []
        if number == 0:
            head = ["series"] if several else []
            head += [] if point is None else ["token", "position"][-len(point[0]) :]
            yield head + [title for at in columns for title in _heads(fig, *at)] + list(extra)
        for i in range(len(y)):
            row = [plain(trace.name or "")] if several else []
            row += [] if point is None else point[i]
            row += [cell for *_, names in columns for cell in names[i]]
            yield row + ([_number(value) for value in trace.customdata[i]] if extra else [])


def _traces(fig: go.Figure) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", fig.data)


def _axis(fig: go.Figure, trace: Any, letter: str) -> Any:
    """The axis that the trace lies on; of a token axis the hidden one, which holds every label in full."""
    return fig.layout[f"{letter}axis" + (trace[f"{letter}axis"] or letter)[1:]]


def _heads(fig: go.Figure, trace: Any, letter: str, names: list[list[str]]) -> list[str]:
    """Headings for `names`: the words on the axis (on its visible twin, if a token axis), without the note below."""
    layout: Any = fig.layout
    twins = [layout[name] for name in (f"{letter}axis2", f"{letter}axis") if name in layout]
    title = next((axis.title.text for axis in (_axis(fig, trace, letter), *twins) if axis.title.text), letter)
    return [plain(title.split("<br>")[0]), "position"][: len(names[0])]


def names(fig: go.Figure, trace: Any, letter: str, places: Any) -> list[list[str]]:
    """What stands on the axis at each place: [token, position], [words], or [number]."""
    axis = _axis(fig, trace, letter)
    kept = meta(fig).get({"y": "rows", "x": "columns"}[letter])
    if kept:
        return [[words, _number(at)] for words, at in zip(kept, places, strict=True)]
    if not axis.ticktext or axis.type == "log":
        return [[_number(at)] for at in places]
    words = {float(at): plain(label) for at, label in zip(axis.tickvals, axis.ticktext, strict=True)}
    return [_split(words.get(float(at), _number(at))) for at in places]


def _split(words: str) -> list[str]:
    """ "the, position 3" -> ["the", "3"]; other words as they are"""
    found = re.fullmatch(r"(.*), position (-?\d+)", words, re.DOTALL)
    return [found[1], found[2]] if found else [words.removeprefix("position ")]


def places(trace: Any, letter: str, n: int) -> Any:
    """Where the n rows ("y") or columns ("x") of a trace lie on their axis, (n,)."""
    if trace[letter] is not None:
        found = np.asarray(trace[letter])
        return (found[:-1] + found[1:]) / 2 if len(found) == n + 1 else found  # edges of cells: their middles
    start, step = trace[f"{letter}0"], trace[f"d{letter}"]
    return (0 if start is None else start) + np.arange(n) * (1 if step is None else step)


def _number(value: Any) -> str:
    """Nine digits: a float32 comes back exactly."""
    return "NaN" if np.isnan(value) else f"{float(value):.9g}"
