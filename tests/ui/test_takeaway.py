"""What is taken along is what is on the screen: the one file, the notebook, the link, for every page."""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs

import nbformat
import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import tinput
from tests import app, makers, tiny
from tests.pages.code_shown import assert_same_numbers
from tinput.open import Model
from tinput.twins import NAMES
from tinput.ui import formula, kit, notebook, onefile, takeaway, tools

OVER = {"side_by_side": "compare"}  # the control whose choices are gone through, where it is not the first
TO_DO = re.compile(r"Tick a row|press “|Choose |Change the|at the (left|side)")  # what only a screen can be told
MORE = {"lessons": {"shown": "true"}}  # what a page must be told before it shows a picture


def model(page: str) -> str:
    """The bundled model that has what the page is about."""
    return next((name for name in NAMES if name.split("/")[-1] == page), "tinput/rope")


@cache
def views(page: str) -> list[AppTest]:
    """The page, once for each choice of its first control."""
    return list(_views(page))


def _views(page: str) -> Iterator[AppTest]:
    at = app.show(page, model=model(page), **MORE.get(page, {}))
    yield at
    groups = {str(group.key): list(group.options) for group in at.main.get("button_group")}  # type: ignore[attr-defined]
    key = OVER.get(page) or next(iter(groups), "")
    for option in groups.get(key, ())[1:]:
        yield app.show(page, model=model(page), **{key: option}, **MORE.get(page, {}))


def shown(at: AppTest) -> takeaway.Shown:
    return at.session_state[takeaway.KEY]


def flat(text: str) -> str:
    return " ".join(text.split())


class File(HTMLParser):
    """The one file, taken apart: its text, its scripts, its tags."""

    def __init__(self, file: bytes):
        super().__init__()
        self.text, self.scripts, self.data, self.policy = "", [], {}, ""
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._inside: dict[str, str | None] | None = None
        self._style = False
        self.feed(file.decode("utf-8"))
        self.close()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        self._style = tag == "style"
        if tag == "script":
            self._inside = attributes
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"] or ""

    def handle_endtag(self, tag):  # noqa: ARG002
        self._style, self._inside = False, None

    def handle_data(self, data):
        if self._inside is None:
            self.text += "" if self._style else data
        elif self._inside.get("type") == "application/json":
            self.data[self._inside["id"]] = json.loads(data)
        else:
            self.scripts.append(data)


@pytest.mark.parametrize("page", app.PAGES)
def test_all_that_is_on_the_screen_is_in_the_file(page):
    for at in views(page):
        whole = onefile.html(shown(at), "today")
        file, text = File(whole), flat(File(whole).text)
        for element in at.main.get("html"):
            body = element.proto.body
            assert body.startswith(("<style>", "<button")) or TO_DO.search(body) or body in whole.decode(), body
        assert not TO_DO.search(text), "paper has nothing to press"
        assert len(shown(at).pictures) == len(at.main.get("plotly_chart")) == len(file.data)
        assert sum(tag == "math" for tag, _ in file.tags) >= len(at.main.latex)
        for table in at.dataframe:
            assert all(flat(str(cell)) in text for cell in table.value.astype(object).fillna("").to_numpy().ravel())


@pytest.mark.parametrize("page", app.PAGES)
def test_a_figure_in_the_file_has_the_numbers_of_the_page(page):
    at = app.show(page, model=model(page), **MORE.get(page, {}))
    file = File(onefile.html(shown(at), "today"))
    assert len(file.data) == len(app.figures(at))
    for figure, spec in zip(app.figures(at), file.data.values(), strict=True):
        for ours, theirs in zip(app._unpacked(spec)["data"], figure["data"], strict=True):
            for letter in ("x", "y", "z"):
                np.testing.assert_array_equal(ours.get(letter), theirs.get(letter))


@pytest.mark.parametrize("text", app.HOSTILE)
def test_text_in_the_file_is_no_markup(text):
    at = app.show("tokens", text)
    file = File(onefile.html(shown(at), "today"))
    assert onefile.literal.visible(text).replace("␊", "\n") in file.text
    assert {tag for tag, _ in file.tags} <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "div", "span", "b", "i",
        "bdi", "section", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "pre", "footer", "small",
    }  # fmt: skip
    assert not [name for _, attributes in file.tags for name in attributes if name.startswith("on")]
    at = app.show("embeddings", text)
    file = File(onefile.html(shown(at), "today"))
    assert len(file.scripts) == 2
    assert len(file.data) == 1


def test_the_file_allows_its_own_two_scripts_and_nothing_else():
    at = app.show("pipeline")
    file = File(onefile.html(shown(at), "today"))
    rules = dict(rule.strip().split(" ", 1) for rule in file.policy.split(";"))
    assert rules["default-src"] == "'none'"
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in file.scripts]
    assert rules["script-src"].split() == [f"'sha256-{digest}'" for digest in digests]
    assert sum("plotly.js v" in script for script in file.scripts) == 1
    loads = [name for _, attributes in file.tags for name in attributes if name in ("src", "href", "srcset", "action")]
    assert not loads


def test_the_file_says_where_it_is_from():
    at = app.show("rope", "two cats", model="tinput/rope")
    text = flat(File(onefile.html(shown(at), "2026-12-01 12:00")).text)
    for value in (*shown(at).sources[0].values(), "2026-12-01 12:00", "rope?text=two+cats&model=tinput%2Frope"):
        assert flat(str(value)) in text
    assert {"model", "revision", "dtype", "versions"} <= shown(at).sources[0].keys()


def test_a_what_if_stays_one():
    at = app.show("alibi", model="tinput/rope")
    assert "What if: tinput/rope has RoPE" in flat(File(onefile.html(shown(at), "today")).text)


def test_a_formula_without_mathml_stays_as_it_is():
    assert formula.mathml(r"a = b, \quad c").count("<math") == 2
    odd = r"\left( a"
    assert f"<code>{odd}</code>" in formula.mathml(odd)


# --- notebooks --------------------------------------------------------------------------------------------------------


def cells(at: AppTest) -> list[Any]:
    made = nbformat.reads(notebook.make(shown(at), "today"), as_version=4)
    nbformat.validate(made)
    return made.cells


def run(block: str, space: dict[str, Any]) -> Any:
    """What a notebook shows under a cell: the value of its last line, where that is an expression."""
    tree = ast.parse(block)
    last = tree.body[-1]
    value = last.value if isinstance(last, ast.Expr) else None
    exec(compile(ast.Module(tree.body[:-1] if value else tree.body, []), "<cell>", "exec"), space)
    return value and eval(compile(ast.Expression(value), "<cell>", "eval"), space)


@pytest.mark.parametrize("page", app.PAGES)
def test_the_notebook_runs_and_shows_the_pages_values(page):
    ran = 0
    for at in views(page):
        figures = {picture.name: picture.figure for picture in shown(at).pictures}
        space: dict[str, Any] = {"__name__": "__main__"}
        for cell in cells(at):
            if cell.cell_type != "code":
                continue
            value = run(cell.source, space)
            name = cell.metadata.get("tinput", {}).get("picture")
            if name in figures:
                assert_same_numbers(value, figures[name])
                ran += 1
    assert ran or page == "tokens"


def test_a_notebook_runs_in_a_fresh_python():
    at = app.show("side_by_side", model="tinput/rope")
    code = "\n\n".join(cell.source for cell in cells(at) if cell.cell_type == "code")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=app.ROOT, capture_output=True)


def test_a_notebook_holds_the_whole_text_however_long():
    at = app.show("tokens", "a b " * 2_000)
    space: dict[str, Any] = {}
    run(next(cell.source for cell in cells(at) if cell.cell_type == "code"), space)
    assert space["text"] == "a b " * 2_000


@pytest.mark.parametrize("text", app.HOSTILE)
def test_text_in_a_notebook_is_no_markup(text):
    markdown = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable(["table", "strikethrough"])
    at = app.show("tokens", text)
    source = [cell.source for cell in cells(at) if cell.cell_type == "markdown"]
    made = "".join(markdown.render(cell) for cell in source)
    assert set(re.findall(r"<(\w+)", made)) <= {"h1", "h2", "p", "span"}
    assert flat(" ".join(app.chips(at))) in flat(unescape(re.sub(r"<[^>]*>", "", made)))
    assert "$" not in "".join(source)


# --- traces -----------------------------------------------------------------------------------------------------------


def test_the_traces_of_a_page_with_several_models():
    names = ["tinput/rope", "tinput/alibi"]
    at = app.show("side_by_side", model=names[0], other=names[1])
    with zipfile.ZipFile(io.BytesIO(tools._traces(shown(at)))) as archive:
        assert archive.namelist() == ["1-tinput-rope.npz", "2-tinput-alibi.npz"]
        for name, member in zip(names, archive.namelist(), strict=True):
            with np.load(io.BytesIO(archive.read(member)), allow_pickle=False) as file:
                assert json.loads(str(file["provenance"]))["model"] == name
                np.testing.assert_array_equal(file["block_input"], tinput.open_model(name).trace(app.TEXT).block_input)


@pytest.mark.parametrize("text", [app.TEXT, "word " * 3_000])
def test_a_trace_is_had_again_from_the_cache(text, monkeypatch):
    (again,) = shown(app.show("tokens", text, model="tinput/rope")).traces

    def never(*_, **__):
        raise AssertionError("traced anew")

    monkeypatch.setattr(Model, "trace", never)
    assert len(again().ids) == min(kit.LIMIT, len(tinput.open_model("tinput/rope").tokenize(text).ids))


# --- links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", app.PAGES)
def test_the_link_of_a_view_gives_the_same_view(page):
    *_, at = views(page)
    name, _, query = shown(at).link.partition("?")
    assert name == page
    values = {key: found if len(found) > 1 else found[0] for key, found in parse_qs(query).items()}
    again = app.show(page, **{"text": None, **values})
    assert app.words(again) == app.words(at)
    assert [p.name for p in shown(again).pictures] == [p.name for p in shown(at).pictures]
    for one, two in zip(app.figures(at), app.figures(again), strict=True):
        assert_same_numbers(one, two, atol=0)


def test_a_text_too_long_for_a_link_is_not_promised():
    at = app.show("tokens")
    for text, said in (("short", "A link to this view"), ("long " * 1_000, "without its text: it is too long")):
        at.text_area(key="text").set_value(text).run()
        (button,) = [e.proto.body for e in at.sidebar.get("html") if "data-take" in e.proto.body]
        assert said in button
        assert ("without" in button) is (text != "short")


def test_a_page_that_ends_early_can_be_taken_along_too(tmp_path):
    tiny.make("mamba", tmp_path)
    makers.byte_level().save_pretrained(tmp_path)
    at = app.show("surgery", model=str(tmp_path))
    assert "There is no attention to change" in app.trouble(at)
    labels = [button.proto.label for button in at.sidebar.get("download_button")]  # type: ignore[attr-defined]
    assert labels == ["HTML", "Notebook", "Trace"]
    assert "There is no attention to change" in File(onefile.html(shown(at), "today")).text
    assert "There is no attention to change" in " ".join(cell.source for cell in cells(at))


@pytest.mark.parametrize("link", [{"text": "  "}, {"model": "no/such/folder"}])
def test_where_nothing_is_shown_there_is_a_link_and_no_file(link):
    at = app.show("rope", **link)
    assert not at.sidebar.get("download_button")
    assert 'data-take="link"' in "".join(element.proto.body for element in at.sidebar.get("html"))
