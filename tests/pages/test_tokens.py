"""The Tokens page: every token with its id, bytes and place, and the text printed once."""

import csv
import re
from html import unescape

import pytest

import tinput
from tests import app
from tests.pages.code_shown import run
from tinput import tokens as tokenizing
from tinput.twins import NAMES
from tinput.ui import kit


@pytest.mark.parametrize("text", [app.TEXT, *app.HOSTILE])
def test_the_table_is_the_tokens(text):
    tokens = tinput.open_model(NAMES[0]).tokenize(text)
    table = app.show("tokens", text).dataframe[0].value
    assert tuple(table["id"]) == tokens.ids
    assert tuple(table["piece"]) == tokens.pieces
    assert [bytes.fromhex(cell) for cell in table["bytes"]] == list(tokens.bytes)
    assert tuple(table["special"]) == tokens.special
    spans = [None if cell == "" else tuple(map(int, cell.split("–"))) for cell in table["span"]]
    assert spans == [span and tuple(span) for span in tokens.spans]


@pytest.mark.parametrize("text", ["the cat  sat\non the mat", "我喜欢猫 🐱 a ⭢", "<b>x</b> & $y$"])
def test_the_marked_text_is_the_text_once(text):
    marked = re.search(r'<div class="marked"[^>]*>(.*?)</div>', app.html(app.show("tokens", text)), re.DOTALL)
    assert marked is not None
    assert unescape(re.sub(r"<[^>]*>", "", marked[1])) == text


def test_only_characters_of_shown_tokens_are_counted():
    assert "1 character became 1 token: 1 character a token." in app.words(app.show("tokens", "x"))
    text = "the cat " * 12_500
    tokens = tinput.open_model(NAMES[0]).tokenize(text)
    last = tokens.spans[kit.LIMIT - 1]
    assert last is not None
    said = app.words(app.show("tokens", text))
    assert f"The first {last[1]:,} of 100,000 characters became {kit.LIMIT:,} tokens, " in said
    assert f": {last[1] / kit.LIMIT:.2g} characters a token." in said


def test_what_each_stage_of_the_tokenizer_did():
    at = app.show("tokens", token_view="Stages of the tokenizer")
    for stage in tokenizing.stages(tinput.open_model(NAMES[0]).tokenizer, app.TEXT):
        assert f"{stage.name} {stage.what}" in app.words(at)


def test_the_stages_are_a_table_to_take_along(monkeypatch):
    made = []
    monkeypatch.setattr(kit.Page, "tools", lambda *_, csv, **__: made.append(csv()))
    app.show("tokens", token_view="Stages of the tokenizer")
    header, *rows = csv.reader(line for line in made[-1].splitlines() if not line.startswith("#"))
    assert header == ["stage", "index", "piece"]
    found = tokenizing.stages(tinput.open_model(NAMES[0]).tokenizer, app.TEXT)
    assert [tuple(row) for row in rows] == [(s.name, str(i), piece) for s in found for i, piece in enumerate(s.pieces)]


def test_the_python_gives_the_table():
    at = app.show("tokens", token_view="Table")
    pieces, ids, spans = run(app.code(at)[0])
    table = at.dataframe[0].value
    assert (tuple(table["piece"]), tuple(table["id"])) == (pieces, ids)
    assert list(table["span"]) == ["" if span is None else f"{span[0]}–{span[1]}" for span in spans]


def test_the_python_prints_the_stages(capsys):
    at = app.show("tokens", token_view="Stages of the tokenizer")
    capsys.readouterr()
    exec(app.code(at)[0], {})
    found = tokenizing.stages(tinput.open_model(NAMES[0]).tokenizer, app.TEXT)
    assert capsys.readouterr().out.splitlines() == [f"{stage.name} {stage.pieces}" for stage in found]
