"""Labels are text: markup, formulas and blanks of a token, as strings here and as pixels in test_browser."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false
import html
import json

from hypothesis import given
from hypothesis import strategies as st

from tinput.figures.labels import every, literal, plain, short, width

NASTY = (
    "<s>",
    "<b>x</b>",
    "<unk>",
    "&amp;",
    "<script>alert(1)</script>",
    "$a$",
    "%{x}",
    "#000001",
    "a&b",
    "&#60;",
    "<br>",
)


def test_nothing_that_plotly_or_streamlit_reads_is_left():
    for label in NASTY:
        shown = literal(label)
        assert not set("<>$%") & set(shown)
        assert "#0000" not in shown
        assert html.unescape(shown) == label


@given(st.text(st.characters(blacklist_categories=("Cc", "Cs")), max_size=60))
def test_a_label_comes_back_as_it_was(label):
    if label.strip() and width(label) <= 80:
        assert plain(literal(label)) == label


@given(st.text(max_size=200), st.integers(1, 40))
def test_a_label_is_cut_to_its_room_and_is_json(label, room):
    cut = short(label, room)
    assert width(cut) <= room
    assert cut.endswith("…") or width(cut) == width(short(label, 10_000))
    json.dumps(cut).encode("utf-8")  # a lone surrogate would raise
    cut.encode("utf-8")


def test_what_cannot_be_seen_is_made_visible():
    assert short("\n", 5) == "⏎"
    assert short("\t", 5) == "⇥"
    assert short("\x00", 5) == "␀"
    assert short("  ", 5) == "␣␣"
    assert short(" the", 9) == " the"
    assert short("\ud800", 9) == "\\ud800"


def test_width_counts_columns():
    assert width("你好") == 4
    assert width("e\u0301") == 1  # a combining mark takes no room
    assert short("你好世界", 5) == "你好…"


def test_every_keeps_to_the_room_and_to_forty():
    for count in (1, 7, 40, 41, 500):
        for room in (0.5, 3, 30, 1000):
            step = every(count, room)
            assert len(range(0, count, step)) <= max(1, min(40, int(room)))
    assert every(30, 100) == 1
