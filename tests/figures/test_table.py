"""What is exported is what is shown."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false
import csv
import io

import numpy as np
import pytest

from tinput import figures

TOKENS = ["<s>", "=1+1", 'a "b", c', "the\n"]


def read(text: str) -> tuple[list[str], list[list[str]]]:
    lines = text.splitlines()
    comments = [line for line in lines if line.startswith("# ")]
    return comments, list(csv.reader(io.StringIO("\n".join(lines[len(comments) :]))))


def test_a_heatmap_comes_back_exactly_with_labels_and_source():
    values = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32) * 1e-7
    fig = figures.heatmap(values, TOKENS, positions=[2, 3, 4, 5])
    comments, rows = read(figures.to_csv(fig, {"model": "m", "dtype": "float32\n# forged"}))
    assert comments == ["# model: m", "# dtype: float32 # forged", "# shown: float32"]
    assert rows[0] == ["token", "position", "0", "1", "2", "3", "4"]
    assert [row[:2] for row in rows[1:]] == [["<s>", "2"], ["=1+1", "3"], ['a "b", c', "4"], ["the⏎", "5"]]
    np.testing.assert_array_equal(np.array([row[2:] for row in rows[1:]], np.float32), values)


def test_masked_cells_are_empty_nan_and_infinity_are_written():
    values = np.arange(16, dtype=np.float32).reshape(4, 4)
    values[0, 1:], values[2, 2], values[3, 0] = -np.inf, np.nan, np.inf
    _, rows = read(figures.to_csv(figures.heatmap(values, TOKENS, TOKENS, row_title="query", column_title="key")))
    assert rows[0] == ["query", "position", "<s> (0)", "=1+1 (1)", 'a "b", c (2)', "the⏎ (3)"]
    assert rows[1][2:] == ["0", "", "", ""]
    assert rows[3][2:] == ["8", "9", "NaN", "11"]
    assert rows[4][2:] == ["inf", "13", "14", "15"]


def test_a_thinned_heatmap_says_which_indices():
    comments, rows = read(figures.to_csv(figures.heatmap(np.arange(600.0)[:, None] + np.zeros((600, 200)))))
    assert comments == ["# shown: float64, shown as float32, 1 token in 2 shown"]
    assert [row[:2] for row in rows[1:4]] == [["0", "0"], ["2", "2"], ["4", "4"]]


def test_panels_have_their_names_and_full_labels():
    values = np.arange(18.0).reshape(2, 3, 3)
    names = ["a very long token indeed", "b", "b"]
    _, rows = read(figures.to_csv(figures.panels(values, ["head 0", "head 1"], names, names)))
    assert rows[0] == ["panel", "query", "position", "a very long token indeed (0)", "b (1)", "b (2)"]
    assert rows[4] == ["head 1", "a very long token indeed", "0", "9", "10", "11"]


def test_lines_bars_points_and_dials():
    _, rows = read(figures.to_csv(figures.lines({"a": [1.5, 2.5], "b": [3.0, 4.0]}, [10, 20], x_title="distance")))
    assert rows == [
        ["series", "distance", "value"],
        ["a", "10", "1.5"],
        ["a", "20", "2.5"],
        ["b", "10", "3"],
        ["b", "20", "4"],
    ]
    _, rows = read(figures.to_csv(figures.lines({"a": [1.0]}, [7], log_x=True, bands={"a": ([0.0], [2.0])})))
    assert rows[1:] == [["a (low)", "7", "0"], ["a (high)", "7", "2"], ["a", "7", "1"]]
    _, rows = read(figures.to_csv(figures.bars([1.0, 2.0, 3.0, 4.0], TOKENS)))
    assert rows[0] == ["token", "position", "norm"]
    assert rows[2] == ["=1+1", "1", "2"]
    _, rows = read(figures.to_csv(figures.stacked({"x": [1.0], "y": [2.0]}, ["h 0"], x_title="head")))
    assert rows == [["series", "head", "share"], ["x", "h 0", "1"], ["y", "h 0", "2"]]
    _, rows = read(figures.to_csv(figures.scatter(np.array([[1.0, 2.0], [3.0, 4.0]]), ["<s>", "b"])))
    assert rows == [["token", "position", "component 1", "component 2"], ["<s>", "0", "1", "2"], ["b", "1", "3", "4"]]
    _, rows = read(figures.to_csv(figures.dials(np.array([[0.0, 0.0], [np.pi, 1.0]]), ["a", "b"], pairs=[3, 9])))
    assert rows[0] == ["pair", "token", "position", "angle (radians)", "turns"]
    assert rows[4] == ["9", "b", "1", "1", "0.159154937"]
    _, rows = read(figures.to_csv(figures.path(["embed", "norm"], 1)))
    assert rows == [["step", "position enters"], ["embed", ""], ["norm", "yes"]]


def test_a_figure_without_numbers_is_refused():
    import plotly.graph_objects as go

    with pytest.raises(ValueError, match="no numbers"):
        figures.to_csv(go.Figure())
