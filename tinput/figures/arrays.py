"""A figure's numbers as NPZ: arrays with names, and where they are from. What is exported is what is shown."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from itertools import dropwhile
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from tinput.figures.labels import plain
from tinput.figures.style import meta
from tinput.figures.table import heatmaps, marks, names, places, to_csv

__all__ = ["arrays", "columns", "csv_to_npz", "to_npz"]


def to_npz(fig: go.Figure, about: Mapping[str, Any] | None = None) -> bytes:
    """The values that a figure of this package shows, compressed; `np.load` reads it without pickle.

    about: where they are from (model, revision, dtype, versions): kept as JSON text under `provenance`, with the
    figure's own words on what it shows
    Raises ValueError for a figure without numbers.
    """
    said = meta(fig)
    shown = {name: said[name] for name in ("description", "note") if said.get(name)}
    return _pack(arrays(fig), {**(about or {}), **shown})


def csv_to_npz(table: str, about: Mapping[str, Any]) -> bytes:
    """The same of a CSV of this package: one array for each column."""
    return _pack(columns(table), about)


def _pack(named: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> bytes:
    """Arrays and their provenance as the bytes of an .npz."""
    out = io.BytesIO()
    everything: dict[str, Any] = {"provenance": np.array(json.dumps(dict(about), default=str)), **named}
    np.savez_compressed(out, **everything)
    return out.getvalue()


def arrays(fig: go.Figure) -> dict[str, NDArray[Any]]:
    """The figure's numbers by name.

    A figure of heatmaps: `values` (rows, columns) or (panel, rows, columns) float32, `rows` and `columns` with a label
    or a number each, `row_positions` and `column_positions` where these are tokens, `panels` with their names, and
    `masked`, bool like `values`, where cells are left blank. Panels that differ in shape: `values_0`, `rows_0` and so
    on, a blank cell NaN. Any other figure: one array for each column of its CSV.
    """
    heat = heatmaps(fig)
    if not heat:
        return columns(to_csv(fig))
    if "edges" in meta(fig):  # each panel has rows and columns of its own
        return _apart(fig, heat)
    values = np.stack([np.array(trace.z, np.float32) for trace in heat])  # (panel, rows, columns)
    masked = ~np.isfinite(values)
    for number, trace in enumerate(heat):
        for i, j, mark in marks(fig, trace):
            values[number, i, j] = np.inf if mark == "inf" else np.nan
            masked[number, i, j] = False
    found: dict[str, NDArray[Any]] = {"values": values if len(heat) > 1 else values[0]}
    if masked.any():
        found["masked"] = masked if len(heat) > 1 else masked[0]
    if len(heat) > 1:
        found["panels"] = np.array([plain(trace.name) for trace in heat])
    for word, letter, size in (("row", "y", values.shape[1]), ("column", "x", values.shape[2])):
        each = names(fig, heat[0], letter, places(heat[0], letter, size))
        found[f"{word}s"] = _column([name[0] for name in each], text=len(each[0]) > 1)
        if len(each[0]) > 1:
            found[f"{word}_positions"] = _column([name[1] for name in each])
    return found


def _apart(fig: go.Figure, heat: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """Panels of different shapes: `values_0` (rows, columns), `rows_0`, `columns_0` and so on, and `panels`."""
    found: dict[str, NDArray[Any]] = {"panels": np.array([plain(trace.name) for trace in heat])}
    for number, trace in enumerate(heat):
        found[f"values_{number}"] = values = np.array(trace.z, np.float32)
        for word, letter, size in (("row", "y", len(values)), ("column", "x", values.shape[1])):
            each = names(fig, trace, letter, places(trace, letter, size))
            found[f"{word}s_{number}"] = _column([name[0] for name in each], text=len(each[0]) > 1)
            if len(each[0]) > 1:
                found[f"{word}_positions_{number}"] = _column([name[1] for name in each])
    return found


def columns(table: str) -> dict[str, NDArray[Any]]:
    """The columns of a CSV of this package, each under its heading with _ for what is no letter or digit.

    Whole numbers become int64, other numbers float32 (exact for values that were), all else text, and so do tokens:
    what stands before a `position`. An empty cell among numbers is NaN.
    """
    head, *rows = csv.reader(dropwhile(lambda line: line.startswith("# "), io.StringIO(table)))
    found: dict[str, NDArray[Any]] = {}
    for number, title in enumerate(head):
        stem = re.sub(r"\W+", "_", title).strip("_") or "column"
        name, again = stem, 1
        while name in found or name in ("file", "provenance"):  # "file" is an argument of savez
            again += 1
            name = f"{stem}_{again}"
        found[name] = _column([row[number] for row in rows], text=head[number + 1 : number + 2] == ["position"])
    return found


def _column(cells: Sequence[str], *, text: bool = False) -> NDArray[Any]:
    try:
        if text:
            return np.array(list(cells), np.str_)
        if all(re.fullmatch(r"-?\d{1,18}", cell) for cell in cells):
            return np.array([int(cell) for cell in cells], np.int64)
        if any(cells):
            return np.array([float(cell) if cell else np.nan for cell in cells], np.float32)
    except ValueError:
        pass
    return np.array(list(cells), np.str_)
