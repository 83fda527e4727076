"""Pictures and tables, each with what can be taken along: its numbers, where they are from, the Python that makes it.

`Shows` is what has something to show: a model's page (`kit.Page`), or numbers that no model at the side has a part in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from tinput import figures
from tinput.ui import literal, takeaway, tools

if TYPE_CHECKING:
    from pandas import DataFrame
    from plotly.graph_objects import Figure

__all__ = ["Shows", "draw", "large", "presenting"]


class Shows:
    """What shows pictures of numbers with one origin."""

    @property
    def source(self) -> dict[str, object]:
        """Where the numbers are from: the first lines of each export."""
        raise NotImplementedError

    @property
    def preamble(self) -> str:
        """The lines of Python that make what the lines of each picture start from, as they run in a notebook."""
        raise NotImplementedError

    @property
    def code(self) -> str:
        """The same as it is shown on the page, where that is shorter."""
        return self.preamble

    def show(self, figure: Figure, name: str, *, code: str = "", csv: Callable[[], str] | None = None) -> None:
        """Draw a figure with what can be taken along: CSV, NPZ, PNG, SVG, and the Python that makes it.

        name: of the files and of the element, unique on the page, ours (never user text)
        code: the lines after those of `code` that make the figure in a notebook; the last one is the figure
        csv: makes the file's text when asked; default: the numbers in the figure
        """
        draw(figure, name, self.preamble, code, self.source, self.code, csv)

    def table(self, columns: Mapping[str, Sequence[Any]], name: str, *, code: str = "") -> None:
        """A table with the same tools as a figure. columns: title -> one value a row; text in it shows as typed."""
        import pandas

        frame = pandas.DataFrame({title: list(values) for title, values in columns.items()})
        st.dataframe(frame, hide_index=True, key=f"table-{name}", row_height=42 if large() else None)
        self.tools(name, code, lambda: self.csv(columns), frame=frame)

    def csv(self, columns: Mapping[str, Sequence[Any]]) -> str:
        """A table as a CSV file, its first lines saying where the numbers are from. columns: title -> a value a row"""
        import pandas

        lines = [f"# {key}: {value}" for key, value in self.source.items()]
        frame = pandas.DataFrame({title: list(values) for title, values in columns.items()})
        return "\n".join(lines) + "\n" + frame.to_csv(index=False)

    def tools(
        self, name: str, code: str = "", csv: Callable[[], str] | None = None, *, frame: DataFrame | None = None
    ) -> None:
        """What can be taken along of a part that `show` does not draw: its numbers, and the Python that makes it.

        frame: what was drawn, where it is a table
        """
        part = (name, self.preamble, code)
        takeaway.current().add(takeaway.Code(*part) if frame is None else takeaway.Table(*part, frame))
        source = self.source
        arrays = (lambda: figures.csv_to_npz(csv(), source)) if csv else None
        tools.picture(name, code and f"{self.code}\n{code}", csv, arrays)


def draw(
    figure: Figure,
    name: str,
    preamble: str,
    code: str,
    source: Mapping[str, object],
    shown: str = "",
    csv: Callable[[], str] | None = None,
) -> None:
    """A figure and the row below it. shown: the preamble as the page shows it, where that is shorter."""
    meta: Any = figure.to_plotly_json()["layout"].get("meta") or {}
    description = meta.get("description") or name.replace("-", " ")
    st.plotly_chart(
        figure,
        key=f"figure-{name}",
        alt=literal.visible(description),
        config={
            "displaylogo": False,
            "displayModeBar": True,
            "modeBarButtons": [["toImage", "zoom2d", "resetScale2d"]],
            "toImageButtonOptions": {"format": "png", "filename": f"tinput-{name}", "scale": 2},
        },
    )
    takeaway.current().add(takeaway.Picture(name, preamble, code, figure))
    numbers = csv or (lambda: figures.to_csv(figure, source))
    arrays = (lambda: figures.csv_to_npz(csv(), source)) if csv else (lambda: figures.to_npz(figure, source))
    tools.picture(name, code and f"{shown or preamble}\n{code}", numbers, arrays, drawn=True)


def large() -> bool:
    """Whether type is large: the switch, or presenter mode."""
    return bool(st.session_state.get("large", False)) or presenting()


def presenting() -> bool:
    """Presenter mode: large type, and no controls to be seen."""
    return bool(st.session_state.get("present", False))
