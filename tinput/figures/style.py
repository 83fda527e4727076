"""What all figures share: fonts, margins, axes with tokens on them, and the text that stands in for the picture.

Text and grid take their colours from the page's theme (Streamlit writes them into the template), backgrounds are
transparent. A token axis is numeric, with tick text, so that equal tokens stay apart; it is drawn twice: once hidden,
with every label in full, which is what the hover box reads, and once with as many short labels as fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from tinput.figures import labels as text
from tinput.window import Window

__all__ = ["INK", "Axis", "Sketch", "as_array", "count", "dtype_of", "log_ticks", "meta", "number", "size"]

CLEAR = "rgba(0,0,0,0)"
GRID = "rgba(128,132,149,0.25)"
PLOT_WIDTH = 700  # pixels that a plot has at least beside the sidebar of a 1280 wide window
# Streamlit's page draws in its strongest text colour, dark or light, whatever a figure says is #000037 (GRAY_90 in its
# streamlit_plotly_theme.py); its theme's own choice for axes is a grey that a projector loses. A notebook shows navy.
INK = "#000037"
_FONT = {"color": INK, "family": "Source Sans, Source Sans Pro, sans-serif"}
_LINES = {"gridcolor": GRID, "zerolinecolor": GRID, "linecolor": GRID}
# Only what a notebook needs: Streamlit overrides these by the theme's own.
TEMPLATE = {
    "layout": {
        "font": _FONT,
        "xaxis": {**_LINES, "showgrid": False, "automargin": True},
        "yaxis": {**_LINES, "automargin": True},
    }
}


def size(large: bool) -> int:
    """The size of all text, in pixels."""
    return 19 if large else 14


def as_array(values: Any) -> NDArray[np.float32]:
    """A tensor (of any dtype), window, field, array or list as float32 on the CPU."""
    if isinstance(values, Window):
        values = values.values
    if hasattr(values, "detach"):
        values = values.detach().to("cpu").float().numpy()
    return np.ascontiguousarray(np.asarray(values), dtype=np.float32)


def dtype_of(values: Any) -> str:
    """The dtype that the values came in, as torch and numpy spell it."""
    if isinstance(values, Window):
        values = values.values
    return str(getattr(values, "dtype", "float32")).removeprefix("torch.")


@dataclass(frozen=True)
class Axis:
    """One axis of a figure.

    at: the place of each row, column or point on it, (n,)
    labels: the token at each place, or None where the places are numbers
    positions: what is called its position in the hover box; the place itself if None
    """

    title: str
    at: NDArray[Any]
    labels: Sequence[str] | None = None
    positions: Sequence[int] | None = None
    kind: str = "linear"

    def steps(self, most: int = 12) -> dict[str, Any]:
        """Plotly's setting for ticks at whole numbers, where all places are: there is no half a head. Where the axis is
        longer than `most`, its ticks are farther apart than 1 by themselves.
        """
        at = np.asarray(self.at, np.float64)
        whole = self.labels is None and self.kind == "linear" and at.size and np.array_equal(at, np.round(at))
        if not whole:
            return {}
        thousands = {"tickformat": ",~r"} if np.abs(at).max() >= 1000 else {}  # 1,000 as in the words beside it
        return {"dtick": 1} if at.max() - at.min() <= most else thousands

    def hover(self) -> list[str]:
        """Each label in full; a token's with its position."""
        assert self.labels is not None
        if self.title.split()[0] not in ("token", "query", "key"):
            return [text.literal(label) for label in self.labels]
        positions = self.at if self.positions is None else self.positions
        return [
            f"{text.literal(label)}, position {int(position)}"
            for label, position in zip(self.labels, positions, strict=True)
        ]


class Sketch:
    """A figure in the making, in plain dicts: Plotly checks every property that is set on its own objects, which for a
    page of heads takes longer than all else (a test checks them instead).
    """

    def __init__(self, *, large: bool, height: int, description: str, note: str = "", **layout: Any):
        """`description` is the figure's alt text, `note` what was left out and the dtype."""
        font = size(large)
        self.traces: list[dict[str, Any]] = []
        self.shapes: list[dict[str, Any]] = []
        self.words: list[dict[str, Any]] = []
        self.layout: dict[str, Any] = {
            "template": TEMPLATE,
            "paper_bgcolor": CLEAR,
            "plot_bgcolor": CLEAR,
            "font": {"size": font, "color": INK},
            "height": height,
            "margin": {"l": 8, "r": 8, "t": 34, "b": 8, "pad": 2},
            "hoverlabel": {"font": {"size": font}, "align": "left"},
            "hovermode": "closest",
            "legend": {
                "orientation": "h",
                "x": 0,
                "xanchor": "left",
                "y": 1.0,
                "yanchor": "bottom",
                "font": {"size": font},
                "title": {"font": {"size": font}},
                "itemsizing": "constant",
                "itemwidth": 40,
                "traceorder": "normal",
                "bgcolor": CLEAR,
            },
            "modebar": {"bgcolor": CLEAR, "color": "#808495", "activecolor": "#0072B2"},
            "meta": {"description": description, "note": note},
        }
        self.set(**layout)

    def set(self, **layout: Any) -> None:
        """Change the layout; a dict changes only what it names."""
        for name, value in layout.items():
            old = self.layout.get(name)
            self.layout[name] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value

    def trace(self, kind: str, **properties: Any) -> None:
        """Add a trace: "heatmap", "scatter", "bar"."""
        self.traces.append({"type": kind, **{name: value for name, value in properties.items() if value is not None}})

    def shape(self, kind: str, **properties: Any) -> None:
        self.shapes.append({"type": kind, **properties})

    def write(self, text: str, **properties: Any) -> None:
        """Write words, escaped already, somewhere on the figure."""
        self.words.append({"text": text, "showarrow": False, **properties})

    def figure(self) -> go.Figure:
        layout = {**self.layout, "shapes": self.shapes, "annotations": self.words}
        return go.Figure({"data": self.traces, "layout": layout}, _validate=False)


def meta(fig: go.Figure) -> dict[str, Any]:
    """What the figure says about itself: "description", "note" and more."""
    layout: Any = fig.layout
    return layout.meta or {}


def draw_axis(fig: Sketch, letter: str, axis: Axis, *, large: bool, room: float, note: str = "", **more: Any) -> None:
    """Set the x or y axis of a figure with one plot.

    room: pixels along the axis
    """
    font = size(large)
    title = text.literal(axis.title) + (
        f"<br><span style='font-size:{font}px'>{text.literal(note)}</span>" if note else ""
    )
    style = {
        "title": {"text": title, "font": {"size": font + 1, "color": INK}, "standoff": 8},
        "tickfont": {"size": font, "color": INK},
        "type": axis.kind,
        "automargin": True,
        "zeroline": False,
        **more,
    }
    if axis.labels is None:
        style = {**axis.steps(), **style}
        if letter == "x":
            style.setdefault("nticks", 12)
        fig.set(**{f"{letter}axis": style})
        return
    cut = 16 if letter == "y" else 13
    shown = [text.literal(label, cut) for label in axis.labels]
    step = text.every(len(shown), room / (font * 1.3))
    if letter == "x":
        style["tickangle"] = tilt([text.short(label, cut) for label in axis.labels][::step], room, font)
    hidden = {
        "tickmode": "array",
        "tickvals": axis.at,
        "ticktext": axis.hover(),
        "showticklabels": False,
        "ticks": "",
        "showgrid": False,
        "zeroline": False,
        "type": axis.kind,
        **more,
    }
    visible = {
        **style,
        "overlaying": letter,
        "matches": letter,
        "side": "left" if letter == "y" else "bottom",
        "tickmode": "array",
        "tickvals": axis.at[::step],
        "ticktext": shown[::step],
        "ticks": "",
        "showgrid": False,
    }
    fig.set(**{f"{letter}axis": hidden, f"{letter}axis2": visible})
    # An axis without a trace is not drawn.
    fig.trace(
        "scatter", x=[None], y=[None], hoverinfo="skip", showlegend=False, name="", **{f"{letter}axis": f"{letter}2"}
    )


def tilt(labels: Sequence[str], room: float, font: int) -> int:
    """The angle at which these labels, side by side, do not run into each other."""
    if len(labels) * (text.longest(labels) + 1) * font * 0.6 <= room:
        return 0
    return -45 if len(labels) * font * 1.9 <= room else -90


def log_ticks(*arrays: Any) -> dict[str, Any]:
    """Ticks of a logarithmic axis in one size of type: powers of ten, or 1, 2, 5 where there are few of these."""
    flat = np.concatenate([np.asarray(array, np.float64).ravel() for array in arrays])
    flat = flat[np.isfinite(flat) & (flat > 0)]
    if not flat.size:
        return {}
    low, high = float(np.log10(flat.min())), float(np.log10(flat.max()))
    room = max(0.04 * (high - low), 0.05 if high - low > 0.5 else 0.2)  # 1, 2 or 5 is always in sight
    first, last = int(np.floor(low - room)), int(np.ceil(high + room))
    if high - low < 2.6:
        values = [m * 10.0**p for p in range(first, last + 1) for m in (1, 2, 5)]
    else:
        step = max(1, -(-(last - first) // 8))
        values = [10.0**p for p in range(first, last + 1, step)]
    return {
        "tickmode": "array",
        "tickvals": values,
        "ticktext": [_power(value) for value in values],
        "range": [low - room, high + room],
    }


def _power(value: float) -> str:
    exponent = round(float(np.log10(value)))
    if not np.isclose(value, 10.0**exponent) or -4 < exponent < 6:
        return f"{value:,.10g}"
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def number(value: float) -> str:
    """A number as it is read: three digits, no exponent where none is needed."""
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.3g}"


def count(n: int, word: str) -> str:
    return f"{n:,} {word if n == 1 else _plural(word)}"


def _plural(word: str) -> str:
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return word[:-1] + "ies"
    return word if word.endswith("s") else word + "s"
