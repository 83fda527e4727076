"""The atlas on the screen: what a search finds, its table, and the facts of the architectures that were chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from tinput import atlas
from tinput.errors import TinputError
from tinput.positions import SCHEMES, label
from tinput.ui import kit, literal, opening, sources, takeaway

__all__ = ["CHOSEN", "Atlas", "chosen", "facts", "links", "of_the_chosen", "table", "with_ticks"]

CHOSEN = "archs"  # the control that holds the rows side by side
_SCHEME = 215  # pixels: room for a scheme in some of the layers, or in an encoder and a decoder
_PAGES = Path(__file__).parents[2] / "pages"
Row = Mapping[str, Any]


class Atlas(kit.Shows):
    """The atlas, or what a search found in it: no model and no text of the side has a part in its numbers."""

    def __init__(self, find: str) -> None:
        self.find = find.strip()
        self.version, self.rows = atlas.load()
        self.found = atlas.matching(self.rows, self.find)
        takeaway.current().sources.append(self.source)

    @property
    def source(self) -> dict[str, object]:
        found = {"found by": self.find, "rows": f"{len(self.found)} of {len(self.rows)}"}
        return {
            "numbers from": "tinput's atlas of text architectures: each recorded once, at the default sizes of its "
            "configuration, without weights; no model and no text that was chosen has a part in them",
            "versions": f"transformers {self.version}",
            **(found if self.find else {}),
        }

    @property
    def preamble(self) -> str:
        found = f"atlas.matching(rows, {self.find!r})" if self.find else "rows"
        return f"from tinput import atlas, figures\n\nversion, rows = atlas.load()\nfound = {found}"


def of_the_chosen(page: Atlas) -> str:
    """In a sentence, which row is that of the model in use; empty where knowing it would take a network."""
    name = st.session_state.get("model") or sources.DEFAULT_MODEL
    try:
        asked = opening.asked(name, kit.may_type_paths())
        if asked.may_take_long and asked.typed not in asked.pinned:
            return ""
        kind = opening.opened(asked)[1].model_type
    except TinputError:
        return ""
    if any(row["model_type"] == kind for row in page.rows):
        return f"The model in use, {name}, is of type {kind}."
    return f"The model in use, {name}, is of no type of transformers: it is not in the table."


def table(page: Atlas, name: str) -> None:
    """All that was found; rows that are ticked go side by side."""
    kinds = [row["model_type"] for row in page.found]
    frame = atlas.table(page.found)
    key, before = f"table-{name}-{page.find}", []  # each search has ticks of its own: they are kept by row number

    def choose() -> None:
        now = [kinds[number] for number in st.session_state[key]["selection"]["rows"]]
        st.session_state[CHOSEN] = with_ticks(st.session_state.get(CHOSEN) or [], before, now)

    look: dict[str, Any] = {
        "hide_index": True,
        "height": 520 if len(frame) > 10 else "content",
        "row_height": 42 if kit.large() else None,
        "column_config": {"scheme": st.column_config.Column(width=_SCHEME)},
        "placeholder": "",
    }
    if kit.presenting():  # nothing to tick
        st.dataframe(frame, key=f"{key}-alone", **look)
    else:
        drawn: Any = st.dataframe(frame, key=key, on_select=choose, selection_mode="multi-row", **look)
        before += [kinds[number] for number in drawn["selection"]["rows"]]
    page.tools(name, "atlas.table(found)", lambda: page.csv(frame.to_dict("series")), frame=frame)


def with_ticks(chosen: Sequence[str], before: Sequence[str], now: Sequence[str]) -> list[str]:
    """What is side by side after ticks have changed: what was chosen in another way, or in another search, stays."""
    kept = [kind for kind in chosen if kind in now or kind not in before]
    return list(dict.fromkeys([*kept, *(kind for kind in now if kind not in before)]))


def chosen(rows: Sequence[Row]) -> list[Row]:
    """The rows to lay side by side, in the order in which they were chosen."""
    by_kind = {row["model_type"]: row for row in rows}
    kept = st.session_state.get(CHOSEN) or []
    if any(kind not in by_kind for kind in kept):
        st.session_state[CHOSEN] = [kind for kind in kept if kind in by_kind]
    found = st.multiselect(
        "Side by side",
        list(by_kind),
        key=CHOSEN,
        bind="query-params",
        placeholder="Tick rows in the table, or type names",
    )
    return [by_kind[kind] for kind in found]


def facts(rows: Sequence[Row]) -> str:
    """HTML of the facts of some rows, a column each; what differs is marked."""
    columns = [atlas.shown(row) for row in rows]
    names = list(dict.fromkeys(name for column in columns for name in column if name != "architecture"))
    lines = [(name, *(_cell(column.get(name)) for column in columns)) for name in names]
    lines = [line for line in lines if any(line[1:])]
    head = ("", *(column["architecture"] for column in columns))
    return literal.table(head, lines, [len(set(line[1:])) > 1 for line in lines])


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value or "")


def links(rows: Sequence[Row]) -> None:
    """A link to the page of each scheme that the rows have."""
    for name in dict.fromkeys(name for row in rows for name in row.get("schemes", ())):
        owners = ", ".join(row["model_type"] for row in rows if name in row.get("schemes", ()))
        if (_PAGES / f"{name}.py").is_file():
            st.page_link(f"../../pages/{name}.py", label=f"{label(name)}: {SCHEMES[name].INJECTION} ({owners})")
