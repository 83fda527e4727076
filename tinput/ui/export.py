"""A figure's numbers as CSV, with where they are from in the first lines."""

from __future__ import annotations

import csv
import io
from base64 import b64decode
from collections.abc import Iterable, Mapping
from html import unescape
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["figure_csv"]


def figure_csv(figure: Figure, source: Mapping[str, object]) -> str:
    """The values of each trace of `figure`, after `# key: value` lines from `source`.

    A heatmap is one line a cell (row, column, value), as its axes count them; other traces one line a point. Text that
    a figure keeps for hover goes along. Lines that begin as a spreadsheet's formula are quoted by a leading blank.
    """
    out = io.StringIO()
    for key, value in source.items():
        out.write(f"# {key}: {' '.join(str(value).split())}\n")
    writer = csv.writer(out, lineterminator="\n")
    traces: Any = figure.data
    drawn = [(trace, trace.to_plotly_json()) for trace in traces]
    drawn = [(trace, plain) for trace, plain in drawn if plain.get("z") is not None or _has_points(plain)]
    for number, (trace, plain) in enumerate(drawn):
        name = unescape(str(plain.get("name") or ""))
        if len(drawn) > 1:
            out.write(f"# series {number + 1}{': ' + ' '.join(name.split()) if name else ''}\n")
        if plain.get("z") is not None:
            _write_cells(writer, figure, trace, plain)
        else:
            _write_points(writer, figure, trace, plain)
    return out.getvalue()


def _write_cells(writer: Any, figure: Figure, trace: Any, plain: Mapping[str, Any]) -> None:
    values = np.asarray(trace.z)
    rows = _along(plain, trace, "y", values.shape[0])
    columns = _along(plain, trace, "x", values.shape[1])
    row_label, column_label = _label(figure, trace, "y") or "row", _label(figure, trace, "x") or "column"
    row_ticks, column_ticks = _ticks(figure, trace, "y"), _ticks(figure, trace, "x")
    writer.writerow([row_label, f"{row_label} label", column_label, f"{column_label} label", "value"])
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            value = values[i, j]
            cell = "" if value is None else f"{float(value):.7g}"
            writer.writerow([row, row_ticks.get(row, ""), column, column_ticks.get(column, ""), cell])


def _write_points(writer: Any, figure: Figure, trace: Any, plain: Mapping[str, Any]) -> None:
    axes = {axis: getattr(trace, axis) for axis in ("x", "y", "r", "theta") if plain.get(axis) is not None}
    texts = plain.get("hovertext") if plain.get("hovertext") is not None else plain.get("text")
    writer.writerow([*((_label(figure, trace, axis) or axis) if axis in "xy" else axis for axis in axes), "label"])
    columns = [list(values) for values in axes.values()]
    for i, point in enumerate(zip(*columns, strict=False)):
        text = texts[i] if isinstance(texts, list | tuple | np.ndarray) and i < len(texts) else ""
        writer.writerow([*(_cell(value) for value in point), _cell(unescape(str(text or "")))])


def _along(plain: Mapping[str, Any], trace: Any, letter: str, size: int) -> list[Any]:
    """Where each row or column stands on its axis: given one by one, or by start and step."""
    if plain.get(letter) is not None:
        return [_cell(value) for value in trace[letter]]
    start, step = plain.get(f"{letter}0") or 0, plain.get(f"d{letter}") or 1
    return [_cell(start + step * i) for i in range(size)]


def _has_points(plain: Mapping[str, Any]) -> bool:
    """Whether a trace holds a value; one without is there for its legend entry or to draw an axis."""
    values = plain.get("y") if plain.get("y") is not None else plain.get("r")
    return values is not None and any(value is not None for value in _iterate(values))


def _cell(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        value = unescape(value)
        return f" {value}" if value[:1] in ("=", "+", "-", "@") else value
    return value


def _axis(figure: Figure, trace: Any, letter: str) -> Any:
    number = (getattr(trace, f"{letter}axis", None) or letter)[1:]
    return getattr(figure.layout, f"{letter}axis{number}")


def _label(figure: Figure, trace: Any, letter: str) -> str:
    return unescape(str(_axis(figure, trace, letter).title.text or ""))


def _ticks(figure: Figure, trace: Any, letter: str) -> dict[Any, str]:
    axis = _axis(figure, trace, letter)
    if axis.tickvals is None or axis.ticktext is None:
        return {}
    return {_cell(at): _cell(text) for at, text in zip(_iterate(axis.tickvals), _iterate(axis.ticktext), strict=False)}


def _iterate(values: Any) -> Iterable[Any]:
    """The items of a list or array; plotly may keep an array packed ({"bdata": ...})."""
    if isinstance(values, Mapping):
        return np.frombuffer(b64decode(values["bdata"]), dtype=np.dtype(values["dtype"])).tolist()
    return list(values)
