"""Lines, bars, shares and points: their values, labels and ticks."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false
import json

import numpy as np
import pytest
import torch

from tinput import figures
from tinput.figures.labels import plain
from tinput.figures.points import _OFFSETS, _PLACES, place


def test_lines_draw_their_values_and_leave_gaps():
    fig = figures.lines(
        {"a": torch.tensor([1.0, float("nan"), 3.0, float("-inf")]), "b": [0.0, 1.0, 2.0, 3.0]}, [0, 1, 2, 5]
    )
    a, b = fig.data
    np.testing.assert_array_equal(a.y, np.array([1, np.nan, 3, np.nan], np.float32))
    assert a.x.tolist() == b.x.tolist() == [0, 1, 2, 5]
    assert (a.name, b.name) == ("a", "b")


def test_a_long_line_is_thinned_evenly_and_says_so():
    fig = figures.lines({"a": np.arange(10_000.0)})
    assert len(fig.data[0].y) <= 2048
    np.testing.assert_array_equal(fig.data[0].x, fig.data[0].y)
    assert fig.layout.meta["note"] == "1 point in 5 shown"
    assert len(fig.to_json() or "") < 40_000


def test_lines_refuse_places_of_another_length():
    with pytest.raises(ValueError, match="3 values for 2 places"):
        figures.lines({"a": [1, 2, 3]}, [0, 1])
    with pytest.raises(ValueError, match="at least one"):
        figures.lines({})


def test_bands_lie_behind_their_line():
    fig = figures.lines({"mean": [1.0, 2.0]}, bands={"mean": ([0.0, 1.0], [2.0, 3.0])})
    low, high, line = fig.data
    assert (low.y.tolist(), high.y.tolist(), line.y.tolist()) == ([0, 1], [2, 3], [1, 2])
    assert high.fill == "tonexty"


def test_more_lines_than_colours_differ_in_their_dashes():
    fig = figures.lines({f"head {i}": [i, i] for i in range(16)})
    looks = {(t.line.color, t.line.dash) for t in fig.data}
    assert len(looks) == 16


@pytest.mark.parametrize("values", [[6.28, 54_000], [0.001, 0.5], [1e-12, 1e12], [3.0, 3.0]])
def test_log_ticks_lie_in_the_range_and_are_readable(values):
    axis = figures.lines({"a": values}, log_y=True).layout.yaxis
    low, high = axis.range
    assert low < np.log10(min(values))
    assert high > np.log10(max(values))
    inside = [t for v, t in zip(axis.tickvals, axis.ticktext, strict=True) if low <= np.log10(v) <= high]
    assert inside
    assert len(axis.tickvals) <= 14
    assert all(len(t) <= 7 for t in axis.ticktext)


def test_marks_stand_at_their_place_on_a_log_axis():
    fig = figures.lines({"a": [1, 10]}, [1, 1000], log_x=True, marks=[(100, "here")], levels=[(5, "there")])
    here, there = fig.layout.annotations
    assert here.x == pytest.approx(2)
    assert there.y == 5
    assert [s.x0 for s in fig.layout.shapes if s.x0 == s.x1] == [100]


def test_bars_of_equal_tokens_stay_apart():
    fig = figures.bars([3.0, 1.0, 2.0], ["the", "<s>", "the"])
    bar = next(t for t in fig.data if t.type == "bar")
    assert bar.y.tolist() == [3, 1, 2]
    assert bar.x.tolist() == [0, 1, 2]
    assert [plain(t) for t in fig.layout.xaxis2.ticktext] == ["the", "<s>", "the"]
    assert [plain(t) for t in fig.layout.xaxis.ticktext] == ["the, position 0", "<s>, position 1", "the, position 2"]


def test_stacked_parts_keep_their_signs_and_colours():
    fig = figures.stacked({"token": [0.5, 1.2], "position": [0.5, 0.3], "cross": [0.0, -0.5]}, ["a", "b"])
    token, position, cross = (t for t in fig.data if t.type == "bar")
    assert fig.layout.barmode == "relative"
    assert cross.y.tolist() == [0, -0.5]
    assert len({t.marker.color for t in (token, position, cross)}) == 3
    with pytest.raises(ValueError, match="one length"):
        figures.stacked({"a": [1.0], "b": [1.0, 2.0]})


def test_scatter_writes_every_label_of_a_few_tokens_apart():
    points = np.stack([np.arange(8) % 3, np.arange(8) // 3], 1).astype(float)
    fig = figures.scatter(points, [f"<t{i}>" for i in range(8)])
    dots = next(t for t in fig.data if t.mode == "markers+text")
    assert [plain(t) for t in dots.text] == [f"<t{i}>" for i in range(8)]
    assert plain(dots.hovertext[3]) == "<t3>, position 3"


def test_labels_never_cover_one_another():
    """The boxes anew, from the places alone."""
    rng = np.random.default_rng(1)
    points = rng.normal(size=(50, 2)).astype(np.float32)
    names = [f"token{i}" for i in range(50)]
    where = place(points, names, 14, 850, 370, equal=False)
    low, high = points.min(0), points.max(0)
    room = (high - low) * 0.1
    pixels = (points - low + room) / (high - low + 2 * room) * [850, 370]
    half = np.array([7 * 14 * 0.31, 14 * 0.62])
    boxes = []
    for (x, y), name in zip(pixels, where, strict=True):
        if name is None:
            continue
        right, up = _OFFSETS[_PLACES.index(name)]
        centre = np.array([x + right * (half[0] + 8), y + up * (half[1] + (7 if right == 0 else 0))])
        for other in boxes:
            assert (np.abs(centre - other) >= 2 * half - 2).any()
        boxes.append(centre)
    assert len(boxes) >= 20


def test_scatter_of_one_point_of_equal_points_and_of_nan():
    for points in ([[1.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]], [[np.nan, 1.0], [1.0, 1.0]]):
        fig = figures.scatter(np.array(points), [str(i) for i in range(len(points))])
        json.loads(fig.to_json() or "")
        assert fig.layout.xaxis.range[0] < fig.layout.xaxis.range[1]
    with pytest.raises(ValueError, match=r"\(n, 2\)"):
        figures.scatter(np.ones((3, 3)))


def test_scatter_colours_by_a_magnitude_and_joins_in_order():
    fig = figures.scatter(np.random.default_rng(0).normal(size=(5000, 2)), values=np.arange(5000), path=True)
    line, dots = (t for t in fig.data)
    assert line.mode == "lines"
    assert len(dots.x) <= 2048
    assert dots.marker.color[1] - dots.marker.color[0] == 3
    assert dots.hovertext[1] == "position 3"


def test_a_level_s_words_stand_where_the_bars_are_lower():
    """Written over the tallest bars they could not be read."""
    rising = figures.bars([1.0, 2.0, 9.0], levels=[(5, "context")])
    falling = figures.bars([9.0, 2.0, 1.0], levels=[(5, "context")])
    assert [word.x for word in rising.layout.annotations if "context" in word.text] == [0]
    assert [word.x for word in falling.layout.annotations if "context" in word.text] == [1]
