"""Before, after and the difference: two on one colour scale, the third around no change, all zoomed together."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false
import csv
import io

import numpy as np
import pytest
import torch

from tinput import figures
from tinput.window import Field

LABELS = ["<s>", "the", "$x$", "the"]


def parts():
    rng = np.random.default_rng(0)
    before = np.where(np.tri(4) > 0, rng.random((4, 4)), -np.inf).astype(np.float32)
    after = np.where(np.tri(4) > 0, 3 * rng.random((4, 4)), -np.inf).astype(np.float32)
    with np.errstate(invalid="ignore"):
        difference = np.where(np.tri(4) > 0, after - before, -np.inf)
    return before, after, difference


def heats(fig) -> list:
    return [np.asarray(trace.z) for trace in fig.data if trace.type == "heatmap"]


def test_the_three_are_what_was_given_and_what_is_masked_is_blank():
    fig = figures.before_after(*parts(), LABELS, LABELS)
    for shown, given in zip(heats(fig), parts(), strict=True):
        np.testing.assert_array_equal(shown, np.where(np.isfinite(given), given, np.nan).astype(np.float32))


def test_before_and_after_share_their_colours_and_the_difference_is_centred():
    before, after, difference = parts()
    fig = figures.before_after(before, after, difference, LABELS, LABELS)
    largest = max(np.nanmax(np.where(np.isfinite(x), x, np.nan)) for x in (before, after))
    assert (fig.layout.coloraxis.cmin, fig.layout.coloraxis.cmax) == (0, pytest.approx(largest))
    bound = np.abs(difference[np.isfinite(difference)]).max()
    assert (fig.layout.coloraxis2.cmin, fig.layout.coloraxis2.cmax) == pytest.approx((-bound, bound))
    assert fig.layout.coloraxis2.colorscale[0][1] == figures.colour.DIVERGING[0]


def test_rounding_has_the_colour_of_no_change():
    before, _, _ = parts()
    noise = np.where(np.tri(4) > 0, 1e-7, -np.inf)
    fig = figures.before_after(before, before + 1e-7, noise)
    assert fig.layout.coloraxis2.cmax == pytest.approx(1e-3 * fig.layout.coloraxis.cmax)
    fig = figures.before_after(before, before, np.zeros_like(before))
    assert fig.layout.coloraxis2.cmax > 0


def test_axes_are_zoomed_together_and_cells_can_be_marked():
    fig = figures.before_after(*parts(), LABELS, LABELS)
    assert [fig.layout[f"xaxis{key}"].matches for key in ("", "2", "3")] == [None, "x", "x"]
    assert [fig.layout[f"yaxis{key}"].matches for key in ("", "2", "3")] == [None, "y", "y"]
    assert fig.layout.meta["edges"] == [-0.5, 0.5, 1.5, 2.5, 3.5]
    assert fig.layout.meta["square"]


def test_a_large_window_is_thinned_and_says_so():
    field = Field((600, 600), lambda rows, columns: (rows[:, None] - columns[None, :]).float())
    window = field.window(cells=256)
    fig = figures.before_after(window, window, window)
    assert sum(z.size for z in heats(fig)) <= figures.CELLS
    assert "1 query in" in fig.layout.meta["note"]
    first = next(trace for trace in fig.data if trace.type == "heatmap")
    assert float(np.asarray(first.z)[1, 0]) == float(first.dy)  # a cell stands at its own row
    edges = np.asarray(fig.layout.meta["edges"])
    np.testing.assert_allclose(np.diff(edges), first.dy)


def test_the_numbers_come_back_as_csv():
    fig = figures.before_after(*map(torch.tensor, parts()), rows=LABELS, columns=LABELS, names=("<a>", "b", "c"))
    rows = list(csv.reader(io.StringIO(figures.to_csv(fig, {"model": "m"}).split("\n", 2)[2])))
    assert [row[0] for row in rows[1:]] == ["<a>"] * 4 + ["b"] * 4 + ["c"] * 4
    assert np.float32(rows[2][3]) == parts()[0][1, 0]
