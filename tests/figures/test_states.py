"""The map of states: which colour stands where, what is left blank, what is thinned."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false
import numpy as np
import pytest

from tinput import figures

NAMES = {0: ("<met>", "#111111"), 1: ("new", "#222222"), 5: ("gone", "#333333")}


def make(values, columns=None, **more):
    values = np.asarray(values)
    columns = np.arange(values.shape[1]) if columns is None else columns
    return figures.states(values, columns, NAMES, row_title="pair", column_title="distance (tokens)", **more)


def heat(fig):
    return next(trace for trace in fig.data if trace.type == "heatmap")


def test_each_state_has_its_colour_and_what_is_unknown_is_blank():
    trace = heat(make([[0, 1, 5], [7, 0, -1]]))
    np.testing.assert_array_equal(trace.z, [[0, 1, 2], [np.nan, 0, np.nan]])
    assert (trace.zmin, trace.zmax) == (-0.5, 2.5)
    stops = [(round(at * 3), colour) for at, colour in trace.colorscale]
    assert stops == [(0, "#111111"), (1, "#111111"), (1, "#222222"), (2, "#222222"), (2, "#333333"), (3, "#333333")]
    assert trace.text[0][2] == "gone"
    assert trace.text[1][0] == ""


def test_only_states_that_are_there_are_in_the_legend_and_no_name_is_markup():
    fig = make([[0, 0, 5]])
    shown = [(trace.name, trace.marker.color) for trace in fig.data if trace.type == "scatter"]
    assert shown == [("&#60;met&#62;", "#111111"), ("gone", "#333333")]


def test_many_rows_are_thinned_and_the_figure_says_so():
    fig = make(np.arange(130)[:, None] % 2 * np.ones(4))
    trace = heat(fig)
    assert trace.z.shape == (44, 4)
    assert list(trace.y[:3]) == [0, 3, 6]
    assert "1 pair in 3 shown" in fig.layout.meta["note"]


def test_a_mark_stands_where_it_lies_on_the_map_alone():
    assert [shape.x0 for shape in make([[0, 1]], [0, 100], mark=(60, "trained on 60")).layout.shapes] == [60]
    assert not make([[0, 1]], [0, 100], mark=(101, "far")).layout.shapes


def test_csv_has_a_row_for_each_part():
    lines = figures.to_csv(make([[0, 1], [1, -1]], [0, 100])).splitlines()
    assert lines[-2:] == ["0,0,1", "1,1,"]


def test_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match="a place for each column"):
        make([[0, 1]], [0, 1, 2])
