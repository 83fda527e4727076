"""What all figures share: an axis of whole numbers has ticks at whole numbers."""

# pyright: reportAttributeAccessIssue=false
import numpy as np
import pytest

from tinput import figures
from tinput.figures.style import Axis


@pytest.mark.parametrize(
    "figure",
    [
        figures.heatmap(np.zeros((3, 4)), ["a", "b", "c"], column_title="pair"),
        figures.lines({"a": np.arange(4.0)}, x_title="pair"),
        figures.bars(np.arange(4.0), range(4), x_title="head"),
        figures.panels(np.zeros((2, 3, 4)), ["before", "after"], column_title="dimension"),
        figures.dials(np.zeros((3, 4)), ["a", "b", "c"]),
        figures.linked([np.zeros((3, 4))], ["a"], figures.Ruler(["x", "y", "z"])),
    ],
    ids=["heatmap", "lines", "bars", "panels", "dials", "linked"],
)
def test_four_pairs_have_no_half_ticks(figure):
    assert figure.layout.xaxis.dtick == 1


def test_rows_without_names_are_counted_whole_too():
    assert figures.heatmap(np.zeros((3, 40))).layout.yaxis.dtick == 1


@pytest.mark.parametrize(
    "axis",
    [
        Axis("dimension", np.arange(128)),  # ticks are 10 apart or more by themselves
        Axis("share", np.array([0.0, 0.5, 1.0])),
        Axis("distance", np.array([1, 10]), kind="log"),
        Axis("token", np.arange(3), ["a", "b", "c"]),
        Axis("value", np.zeros(0)),
    ],
)
def test_other_axes_choose_their_own(axis):
    assert axis.steps() == {}
