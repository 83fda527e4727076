"""The atlas in words: its table, its counts, and the facts of the architectures that were chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from tinput.positions import SCHEMES
from tinput.ui import kit, literal, words

if TYPE_CHECKING:
    from tinput.ui.kit import Page

__all__ = ["CHOSEN", "chosen", "counts", "facts", "links", "matching", "shown", "table"]

CHOSEN = "archs"  # the control that holds the rows side by side
_PAIRING = {"half": "half-split", "interleaved": "interleaved"}
_PAGES = Path(__file__).parents[2] / "pages"
_NOT_HAD = "not recorded"

Row = Mapping[str, Any]


def shown(row: Row) -> dict[str, Any]:
    """A row of the atlas as it is read: column -> a word or a number, None where there is nothing to say."""
    if "reason" in row:
        return {"architecture": row["model_type"], "scheme": _NOT_HAD, "why not": row["reason"]}
    ways = row["injections"]
    turned = [way for way in ways if "layout" in way]
    tables = [way for way in ways if way.get("rows")]
    return {
        "architecture": row["model_type"],
        "scheme": " | ".join(map(_named, row["stacks"])),
        "pairing": _each(turned, lambda way: _PAIRING.get(way["layout"])),
        "turned": _each(turned, lambda way: _part(way, row["d_head"])),
        "theta": _each(turned, lambda way: f"{way['theta']:,.10g}" if way["theta"] else None),
        "in layers": _each(turned, lambda way: way["layers"]) if len(turned) > 1 else None,
        "scaling": row["scaling"],
        "table rows": _each(tables, lambda way: f"{way['rows']:,}"),
        "first row": _each(tables, lambda way: str(way["first_row"])),
        "embedding scale": row["scale"],
        "norm before block 1": row["norm"],
        "projection": row["projection"],
        "layers": row["layers"],
        "layers with attention": row["attention_layers"],
        "width": row["width"],
        "heads": row["heads"],
        "heads of k and v": row["kv_heads"],
        "d_head": row["d_head"],
        "context": row["context"],
        "class": row["class"],
        "why not": row["note"] or None,
    }


def _named(stack: str) -> str:
    """ "rope in 24 of 32 layers" -> "RoPE in 24 of 32 layers"."""
    parts = (part.partition(" ") for part in stack.split(" + "))
    return " + ".join(f"{words.label(name)}{blank}{rest}" for name, blank, rest in parts)


def _part(way: Row, d_head: int | None) -> str | None:
    if way["rotated"] is None:
        return None
    start = f" from {way['start']}" if way["start"] else ""
    return f"{way['rotated']} of {d_head}{start}" if d_head and d_head >= way["rotated"] else str(way["rotated"])


def _each(ways: Sequence[Row], of: Callable[[Row], str | None]) -> str | None:
    """What is said of each way in; once where all are the same."""
    said = [of(way) or "?" for way in ways]
    return "; ".join(said if len(set(said)) > 1 else said[:1]) or None


def matching(rows: Sequence[Row], find: str) -> list[Row]:
    """The rows in which every word of `find` stands somewhere."""
    wanted = find.casefold().split()
    return [row for row in rows if all(word in _text(row) for word in wanted)]


def _text(row: Row) -> str:
    said = " ".join(f"{name} {value}" for name, value in shown(row).items() if value is not None)
    return f"{said} {' '.join(row.get('schemes', ()))}".casefold()


def short(label: str) -> str:
    """A scheme's label as it fits under a bar: "Relative bias" for "Relative bias (T5)"."""
    return label.split(" (")[0].removesuffix(" table")


def counts(rows: Sequence[Row]) -> tuple[list[str], list[int], list[str]]:
    """Short label, number and colour of each scheme that a row is named by, most first; what is not had comes last."""
    number = Counter(row["schemes"][0] for row in rows if "reason" not in row)
    ranked = [name for name, _ in number.most_common()]
    labels, values = [short(words.label(name)) for name in ranked], [number[name] for name in ranked]
    colours = [SCHEMES[name].COLOUR if name in SCHEMES else kit.GREY for name in ranked]
    if missing := sum("reason" in row for row in rows):
        labels, values, colours = [*labels, _NOT_HAD], [*values, missing], [*colours, kit.GREY]
    return labels, values, colours


def table(page: Page, rows: Sequence[Row], name: str, code: str) -> None:
    """All rows; those that are ticked go side by side."""
    import pandas

    kinds = [row["model_type"] for row in rows]
    frame = pandas.DataFrame([shown(row) for row in rows])

    def choose() -> None:
        ticked = st.session_state[f"table-{name}"]["selection"]["rows"]
        st.session_state[CHOSEN] = [kinds[number] for number in ticked]

    whole = frame.select_dtypes("number").columns
    frame[whole] = frame[whole].astype("Int64")  # a missing number would make the others 12.0
    st.dataframe(
        frame,
        hide_index=True,
        key=f"table-{name}",
        height=520,
        row_height=42 if kit.large() else None,
        on_select=choose,
        selection_mode="multi-row",
        placeholder="",
    )
    page.tools(name, code, lambda: frame.to_csv(index=False), frame=frame)


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
    columns = [shown(row) for row in rows]
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
            st.page_link(f"../../pages/{name}.py", label=f"{words.label(name)}: {SCHEMES[name].INJECTION} ({owners})")
