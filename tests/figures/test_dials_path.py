"""Dials and the path: hands, marks and words."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false
from itertools import pairwise

import numpy as np
import pytest

from tinput import figures
from tinput.figures.labels import plain


def named(fig, name):
    return next(t for t in fig.data if t.name == name)


def test_a_hand_points_along_the_angle():
    angles = np.array([[0.0, 0.0], [np.pi / 2, 0.01], [np.pi, 0.02]])
    fig = figures.dials(angles, ["a", "<s>", "a"], pairs=[0, 7])
    hand = named(fig, "hand")
    x, y = hand.x.reshape(6, 3), hand.y.reshape(6, 3)
    centre = np.array([(c, r) for r in range(3) for c in range(2)])
    turn = angles.ravel()
    np.testing.assert_allclose(x[:, 1] - centre[:, 0], 0.4 * np.cos(turn), atol=1e-6)
    np.testing.assert_allclose(y[:, 1] - centre[:, 1], -0.4 * np.sin(turn), atol=1e-6)  # rows run down the page
    assert list(fig.layout.xaxis.ticktext) == ["0", "7"]
    assert [plain(t) for t in fig.layout.yaxis2.ticktext] == ["a", "<s>", "a"]
    assert fig.layout.yaxis.scaleanchor == "x"


def test_a_hand_past_a_full_turn_says_how_many():
    fig = figures.dials(np.array([[20 * np.pi + 1.0]]))
    assert named(fig, "angle").customdata[0].tolist() == pytest.approx([20 * np.pi + 1, 10 + 0.5 / np.pi])
    swept = named(fig, "turned")
    assert np.nanmax(np.hypot(swept.x, swept.y)) < 0.4


def test_many_dials_are_thinned_with_both_ends_kept():
    fig = figures.dials(np.ones((300, 64)))
    assert len(named(fig, "angle").x) == 12 * 8
    assert list(fig.layout.xaxis.ticktext)[::7] == ["0", "63"]
    assert fig.layout.meta["note"] == "12 of 300 tokens shown, 8 of 64 pairs shown"


STEPS = ("tokenize", "embed", "+ position", "norm")
INSIDE = ("q, k", "rotate", "q · k", "+ bias", "softmax")


def test_the_marked_step_alone_has_the_scheme_s_colour():
    fig = figures.path(STEPS, 5, "#CC79A7", inside=INSIDE, possible=(2, 5, 7), label="here")
    boxes = [s for s in fig.layout.shapes if s.fillcolor]
    assert len(boxes) == 9
    assert [i for i, s in enumerate(boxes) if s.fillcolor == "#CC79A7"] == [5]
    assert [i for i, s in enumerate(boxes) if s.line.dash == "dot"] == [2, 7]
    assert fig.layout.meta["description"].endswith("Position enters at: rotate.")
    words = [plain(a.text).replace("<b>", "").replace("</b>", "") for a in fig.layout.annotations if a.text]
    assert set(STEPS + INSIDE + ("here", "block 1")) == set(words)
    assert min(a.font.size for a in fig.layout.annotations if a.text) >= 16


@pytest.mark.parametrize("large", [False, True])
def test_each_box_holds_its_label(large):
    """In 546 pixels, which is what a 1280 wide window leaves; letters measured in the browser, in sizes of the font."""
    measured = {"tokenize": 3.65, "embed": 2.9, "+ position": 4.15, "rotate q, k": 4.55, "+ bias": 2.4, "softmax": 3.4}
    fig = figures.path(["tokenize", "embed", "+ position"], 4, inside=["q, k, v", *list(measured)[3:]], large=large)
    low, high = fig.layout.xaxis.range
    boxes = [s for s in fig.layout.shapes if s.fillcolor]
    words = [a for a in fig.layout.annotations if a.text and a.text != "block 1"]
    for box, label in zip(boxes, words, strict=True):
        name = plain(label.text).replace("<b>", "").replace("</b>", "")
        assert box.x0 < label.x < box.x1
        if name in measured:
            assert (box.x1 - box.x0) / (high - low) * 538 > measured[name] * label.font.size + 8
    for box, after in pairwise(boxes[3:]):
        assert box.x1 < after.x0


def test_a_path_without_position_marks_nothing():
    fig = figures.path(STEPS, None, "#999999")
    assert not [s for s in fig.layout.shapes if s.fillcolor == "#999999"]
    assert fig.layout.meta["description"].endswith("Position enters nowhere.")
    both = figures.path(STEPS, (2, 3), "#D55E00")
    assert both.layout.meta["description"].endswith("Position enters at: + position and norm.")
