"""Literal text: what is typed is what is shown, whatever it looks like."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinput.tokens import Tokens
from tinput.ui import literal


class Seen(HTMLParser):
    """Tags met and text read, as a browser does."""

    def __init__(self, markup: str):
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag, attrs):  # noqa: ARG002 - html.parser's signature
        self.tags.append(tag)

    def handle_data(self, data):
        self.text += data


@given(st.text(max_size=60))
def test_inline_has_no_tags_and_reads_back(text):
    seen = Seen(f"<p>{literal.inline(text)}</p>")
    assert seen.tags == ["p"]
    assert seen.text == literal.visible(text)


@given(st.text(alphabet=st.characters(exclude_categories=("Cc", "Cs")), max_size=60))
def test_visible_leaves_all_but_control_characters(text):
    assert literal.visible(text) == text


def test_control_characters_have_pictures():
    assert literal.visible("\0\x1b\x7f\n") == "␀␛␡␊"
    assert literal.visible("\ud800") == "?"


def test_hover_text_cannot_leave_its_attribute():
    markup = literal.chip("x", title='" onmouseover="alert(1)')
    assert Seen(markup).tags == ["span"]
    assert re.findall(r'(\w+)="', markup) == ["class", "dir", "title"]


def test_a_long_strip_is_counted_not_drawn():
    markup = literal.strip(["x"] * 1000, [""] * 1000, limit=10)
    assert markup.count('class="tok"') == 10
    assert "and 990 more" in markup


def tokens_of(text: str, *spans: tuple[int, int]) -> Tokens:
    pieces = tuple(text[slice(*span)] for span in spans)
    raw = tuple(piece.encode() for piece in pieces)
    return Tokens(tuple(range(len(spans))), pieces, raw, spans, (False,) * len(spans), text)


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("a  b\n<i>", [(0, 1), (3, 4), (5, 8)]),  # blanks that belong to no token
        ("🦙x", [(0, 1), (0, 1), (0, 1), (1, 2)]),  # three byte tokens of one character
    ],
)
def test_the_marked_text_is_printed_once(text, spans):
    assert Seen(literal.marked(tokens_of(text, *spans))).text == text
