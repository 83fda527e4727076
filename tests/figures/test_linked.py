"""Linked heatmaps: rows at the height of their text, one scale, zoom together, every number comes back."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false
import csv
import io

import numpy as np
import plotly.graph_objects as go
import pytest

from tinput import figures
from tinput.figures import Ruler, linked

LABELS = ("(start)", "<s>", "the", "␣")
RANGES = ([(0, 1), (1, 2), (2, 5), (5, 5)], [(0, 0), (0, 2), (2, 3), (3, 4)])
TOKENS = (["[CLS]", "<s>", "t", "h", "e"], ["<", "s>", "the", "$x$"])


def ruler() -> Ruler:
    return Ruler(LABELS, RANGES, TOKENS)


def values():
    rng = np.random.default_rng(0)
    return [rng.normal(size=(5, 6)).astype(np.float32), rng.normal(size=(4, 9)).astype(np.float32)]


def heats(fig: go.Figure) -> list:
    return [trace for trace in fig.data if trace.type == "heatmap"]


def test_a_part_is_as_high_as_the_most_tokens_that_any_panel_has():
    assert ruler().edges.tolist() == [0, 1, 3, 6, 7]
    one, two = heats(linked(values(), ["a", "b"], ruler()))
    assert np.allclose(one.y, [0, 1, 3, 4, 5, 6, 7])  # the token <s> is two high, and the last row is nobody's
    assert np.allclose(two.y, [0, 1, 2, 3, 6, 7])


def test_rows_are_the_values_and_a_part_without_a_token_is_blank():
    one, two = values()
    shown, other = (trace.z for trace in heats(linked([one, two], ["a", "b"], ruler())))
    np.testing.assert_array_equal(shown[:5], one)
    assert np.isnan(shown[5]).all()
    assert np.isnan(other[0]).all()
    np.testing.assert_array_equal(other[1:], two)


def test_one_scale_and_axes_that_match():
    one, two = values()
    fig = linked([one, 3 * two], ["a", "b"], ruler())
    assert {trace.coloraxis for trace in heats(fig)} == {"coloraxis"}
    assert fig.layout.coloraxis.cmax == pytest.approx(float(np.abs(3 * two).max()))
    assert fig.layout.coloraxis.cmin == -fig.layout.coloraxis.cmax
    second = heats(fig)[1].yaxis
    assert fig.layout[f"yaxis{second[1:]}"].matches == "y"
    assert fig.layout[f"xaxis{heats(fig)[1].xaxis[1:]}"].matches is None  # 6 dimensions and 9 are not the same
    same = linked([one, one], ["a", "b"], Ruler(LABELS, [RANGES[0]] * 2, [TOKENS[0]] * 2))
    assert same.layout[f"xaxis{heats(same)[1].xaxis[1:]}"].matches == "x"


def test_squares_have_the_parts_on_both_sides():
    square = np.arange(16, dtype=np.float32).reshape(4, 4)
    square[0, 3] = np.nan
    fig = linked(
        [square] * 6, list("abcdef"), Ruler(LABELS, first=7), Ruler(LABELS), row_title="query", column_title="key"
    )
    assert len(heats(fig)) == 6
    for trace in heats(fig):
        np.testing.assert_array_equal(trace.z, square)
    assert fig.layout.meta["edges"] == [0, 1, 2, 3, 4]
    assert fig.layout.meta["first"] == 7
    assert fig.layout.meta["square"]
    go.Figure(fig.to_dict())  # raises for a property that Plotly does not know


def test_many_columns_are_thinned_and_the_note_says_so():
    wide = np.random.default_rng(0).normal(size=(100, 4096)).astype(np.float32)
    fig = linked(
        [wide, wide], ["a", "b"], Ruler(["x"] * 100, [[(k, k + 1) for k in range(100)]] * 2, [["x"] * 100] * 2)
    )
    shown = heats(fig)[0]
    assert 100 * shown.z.shape[1] <= 65_536
    np.testing.assert_array_equal(shown.z, wide[:, :: int(shown.x[1])])
    assert f"1 dimension in {int(shown.x[1])} shown" in fig.layout.meta["note"]


def test_all_numbers_come_back_as_csv():
    one, two = values()
    lines = list(csv.reader(io.StringIO(figures.to_csv(linked([one, two], ["<a>", "b"], ruler())))))
    lines = [line for line in lines if line and not line[0].startswith("#")]
    heads = [k for k, line in enumerate(lines) if line[0] == "panel"]
    assert len(heads) == 2  # 6 columns, then 9
    first, second = lines[heads[0] + 1 : heads[1]], lines[heads[1] + 1 :]
    assert [line[:3] for line in first[:2]] == [["<a>", "[CLS]", "0"], ["<a>", "<s>", "1"]]
    np.testing.assert_array_equal(np.array([line[3:] for line in first[:5]], np.float32), one)
    assert second[0][1] == "(no token)"
    assert set(second[0][3:]) == {""}
    np.testing.assert_array_equal(np.array([line[3:] for line in second[1:]], np.float32), two)


def test_all_numbers_come_back_as_arrays():
    one, two = values()
    found = np.load(io.BytesIO(figures.to_npz(linked([one, two], ["<a>", "b"], ruler()))))
    assert found["panels"].tolist() == ["<a>", "b"]
    np.testing.assert_array_equal(found["values_0"][:5], one)
    np.testing.assert_array_equal(found["values_1"][1:], two)
    assert found["rows_1"].tolist() == ["(no token)", "<", "s>", "the", "$x$"]


def test_tokens_are_text_in_the_hover_box_and_beside_the_panel():
    fig = linked(values(), ["<b>", "b"], ruler())
    assert fig.layout.yaxis.ticktext[1] == "&#60;s&#62;, position 1"
    assert fig.layout.yaxis2.ticktext[1] == "&#60;s&#62;"
    assert "&#60;b&#62;" in heats(fig)[0].hovertemplate


def test_nothing_to_link_is_said():
    with pytest.raises(ValueError, match="a matrix and a name for each"):
        linked([], [], ruler())
