"""The buttons of what can be taken along: a quiet row under each picture, and one at the side for the whole page.

Nothing is made before it is asked for. Pictures and links are made by the browser (`takeaway.js`), the rest here.
"""

from __future__ import annotations

import io
import re
import tempfile
import zipfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st
from streamlit.components.v2 import component

from tinput.ui import literal

if TYPE_CHECKING:
    from tinput.record import Trace
    from tinput.ui.takeaway import Shown

__all__ = ["page", "picture"]

_listen = component("tinput.takeaway", js=Path(__file__).with_name("takeaway.js").read_text(encoding="utf-8"))


def picture(
    name: str, code: str = "", csv: Callable[[], str] | None = None, npz: Callable[[], bytes] | None = None,
    *, drawn: bool = False,
) -> None:  # fmt: skip
    """The row under a picture or a table.

    code: the Python that makes it; csv, npz: make the files when asked; drawn: whether the browser has a picture of it
    """
    with st.container(horizontal=True, gap="small", key=f"tools-{name}"):
        if csv:
            _file("CSV", csv, f"tinput-{name}.csv", "text/csv", "The numbers of this picture, as a table")
        if npz:
            _file("NPZ", npz, f"tinput-{name}.npz", "application/zip", "The numbers of this picture, for numpy.load")
        if drawn:
            st.html(
                _button("PNG", "png", "This picture as pixels", name)
                + _button("SVG", "svg", "This picture as lines and text, for print", name),
                width="content",
            )
        if code:
            with st.popover("Python", icon=":material/code:", type="tertiary", help="Make it in a notebook"):
                st.code(code, language="python")


def page(shown: Shown, fits: bool) -> None:
    """The row for the whole page. fits: whether its text fits into a link"""
    st.html('<p class="along">Take this page along</p>')
    stem = f"tinput-{shown.name}"
    with st.container(horizontal=True, gap="small", key="tools-page"):
        if shown.traces or shown.pictures:  # else there is a question, or what went wrong, and nothing to take
            _file("HTML", lambda: _html(shown), f"{stem}.html", "text/html", "One file that opens without a network")
            _file(
                "Notebook",
                lambda: _notebook(shown),
                f"{stem}.ipynb",
                "application/x-ipynb+json",
                "The Python of each picture on this page",
            )
        if shown.traces:
            several = len(shown.traces) > 1
            name, help = (
                (f"{stem}-traces.zip", "All that was recorded, an NPZ for each model")
                if several
                else (f"{stem}-trace.npz", "All that was recorded, NPZ")
            )
            make = lambda: _traces(shown) if several else _npz(shown.traces[0]())  # noqa: E731
            _file("Traces" if several else "Trace", make, name, "application/zip", help)
        done = "Copied" if fits else "Copied, without the text"
        what = "A link to this view" if fits else "A link to this view, without its text: it is too long for a link"
        st.html(_button("Copy link", "link", what, done=done), width="content")
        _listen(key="listen", height=1)


def _file(label: str, make: Callable[[], str | bytes], file_name: str, mime: str, help: str) -> None:
    st.download_button(
        label, make, file_name=file_name, mime=mime, key=f"file-{file_name}", on_click="ignore", type="tertiary",
        help=help,
    )  # fmt: skip


def _button(label: str, take: str, title: str, name: str = "", done: str = "") -> str:
    """HTML of a button that the browser answers."""
    marks = {"take": take, "name": name, "done": done}
    data = " ".join(f'data-{key}="{literal.inline(value)}"' for key, value in marks.items() if value)
    return f'<button type="button" class="take" {data} title="{literal.inline(title)}">{literal.inline(label)}</button>'


def _now() -> str:
    return datetime.now().astimezone().isoformat(sep=" ", timespec="minutes")


def _html(shown: Shown) -> bytes:
    from tinput.ui import onefile

    return onefile.html(shown, _now())


def _notebook(shown: Shown) -> str:
    from tinput.ui import notebook

    return notebook.make(shown, _now())


def _npz(trace: Trace) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return trace.save(Path(folder) / "trace.npz").read_bytes()


def _traces(shown: Shown) -> bytes:
    """An archive of an NPZ for each model of the page, numbered in order: two may have one name."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:  # an NPZ is compressed already
        for number, again in enumerate(shown.traces, 1):
            trace = again()
            words = re.sub(r"[^\w.-]+", "-", f"{trace.model}".strip("/"))[-60:]
            archive.writestr(f"{number}-{words}.npz", _npz(trace))
    return out.getvalue()
