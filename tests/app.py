"""The app in this process (Streamlit's AppTest), and what it shows, read back: badges, sentences, tables, figures."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
from streamlit.testing.v1 import AppTest

ROOT = Path(__file__).resolve().parents[1]
TEXT = "The old man saw the young man, and the young man saw the old man."
HOSTILE = [
    "$a$ __b__ *c* <img src=x> `d`",
    "<script>alert(1)</script> </div><h1>x</h1> &amp; &lt;",
    "nul \0 bell \a tab \t line \n end",
    "مرحبا بالعالم é 깰 🥱🥱 👩‍👩‍👧 a ⭢",
    "[CLS] <s> <unk> ##x ▁ \u202e back",
    "x",
]


PAGES = sorted(path.stem for path in (ROOT / "pages").glob("*.py"))
OWN_TEXT = {"lessons", "extrapolate", "architectures"}  # pages that open without the visitor's text
TEXT_PAGES = [name for name in PAGES if name not in OWN_TEXT]


def start() -> AppTest:
    """The app as it opens."""
    at = AppTest.from_file(str(ROOT / "tinput/ui/frame.py"), default_timeout=60).run()
    assert not at.exception, at.exception[0].stack_trace
    return at


@cache
def _page_hash(page: str) -> str:
    return start().switch_page(f"../../pages/{page}.py")._page_hash


def show(page: str, text: str | None = TEXT, model: str | None = None, **controls: str | list[str]) -> AppTest:
    """A page as a link shows it: the address bar holds the text, the model and the page's controls."""
    at = AppTest.from_file(str(ROOT / "tinput/ui/frame.py"), default_timeout=60)
    at._page_hash = _page_hash(page)
    given = {"text": text, "model": model, **controls}
    at.query_params.update({key: value for key, value in given.items() if value is not None})
    at.run()
    assert not at.exception, at.exception[0].stack_trace
    return at


def html(at: AppTest) -> str:
    """All HTML of the main part of the page, without the style sheet."""
    return "\n".join(body for element in at.main.get("html") if not (body := element.proto.body).startswith("<style>"))


def plain(markup: str) -> str:
    """What a reader sees of HTML: no tags, entities read."""
    return unescape(re.sub(r"<[^>]*>", " ", markup))


def words(at: AppTest) -> str:
    """What the page says, blanks and line ends made one."""
    return " ".join(plain(html(at)).split())


def badges(at: AppTest) -> list[tuple[str, str]]:
    """(label, colour) of each badge, first to last."""
    found = re.findall(r'<span class="badge"[^>]*><i style="background:([^"]*)"></i>(.*?)</span>', html(at))
    return [(unescape(label), colour) for colour, label in found]


def chips(at: AppTest) -> list[str]:
    """The tokens of the strip on top of the page."""
    strip = re.search(r'<div class="strip".*?</div>', html(at), re.DOTALL)
    found = re.findall(r'<span class="tok[^>]*>(.*?)</span>', strip[0], re.DOTALL) if strip else []
    return [unescape(label) for label in found]


def trouble(at: AppTest) -> str:
    """The first sentence of the box that says what is wrong; empty if there is none."""
    found = re.search(r'<div class="trouble"[^>]*><p>(.*?)</p>', html(at), re.DOTALL)
    return unescape(found[1]) if found else ""


def figures(at: AppTest) -> list[dict[str, Any]]:
    """The figures as they go to the browser, arrays unpacked."""
    return [_unpacked(json.loads(element.proto.spec)) for element in at.main.get("plotly_chart")]


def heat(figure: dict[str, Any]) -> np.ndarray:
    """The values of a figure's first heatmap."""
    return next(np.asarray(trace["z"]) for trace in figure["data"] if trace["type"] == "heatmap")


def heats(figure: dict[str, Any]) -> list[np.ndarray]:
    """The values of all of a figure's heatmaps."""
    return [np.asarray(trace["z"]) for trace in figure["data"] if trace["type"] == "heatmap"]


def series(figure: dict[str, Any]) -> dict[str, np.ndarray]:
    """name -> values of each bar or line of a figure."""
    return {
        trace.get("name") or "": np.asarray(trace["y"], float)
        for trace in figure["data"]
        if trace["type"] in ("bar", "scatter") and trace.get("y") is not None and trace["y"][0] is not None
    }


def code(at: AppTest) -> list[str]:
    """The Python offered on the page."""
    return [block.value for block in at.main.code]


def _unpacked(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) <= {"bdata", "dtype", "shape"} and "bdata" in value:
            array = np.frombuffer(b64decode(value["bdata"]), np.dtype(value["dtype"]))
            shape = value.get("shape")
            return array if shape is None else array.reshape([int(n) for n in str(shape).split(",")])
        return {key: _unpacked(item) for key, item in value.items()}
    return [_unpacked(item) for item in value] if isinstance(value, list) else value
