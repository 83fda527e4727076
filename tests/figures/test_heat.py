"""Heatmaps: cells, masks, windows and the labels beside them."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false
import json
from typing import Any

import numpy as np
import pytest
import torch

from tinput import figures
from tinput.figures.labels import plain
from tinput.window import Field

TOKENS = ["the", "cat", "the", "cat"]


def trace(fig) -> Any:
    return next(t for t in fig.data if t.type == "heatmap")


def meta(fig) -> dict:
    return fig.layout.meta


@pytest.fixture
def values():
    return np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)


def test_equal_tokens_stay_rows_of_their_own(values):
    fig = figures.heatmap(values, TOKENS)
    assert list(fig.layout.yaxis2.ticktext) == TOKENS
    assert list(fig.layout.yaxis2.tickvals) == [0, 1, 2, 3]
    assert [plain(text) for text in fig.layout.yaxis.ticktext] == [f"{t}, position {i}" for i, t in enumerate(TOKENS)]
    np.testing.assert_array_equal(trace(fig).z, values)


def test_positions_in_the_hover_box_are_the_model_s(values):
    fig = figures.heatmap(values, TOKENS, positions=[2, 3, 1, 4])
    assert list(fig.layout.yaxis.ticktext) == [
        "the, position 2",
        "cat, position 3",
        "the, position 1",
        "cat, position 4",
    ]


def test_first_row_is_on_top(values):
    low, high = figures.heatmap(values, TOKENS).layout.yaxis.range
    assert (low, high) == (3.5, -0.5)


def test_signed_values_are_centred_magnitudes_are_not(values):
    signed = trace(figures.heatmap(values))
    assert signed.zmin == -signed.zmax == -np.abs(values).max()
    assert signed.colorscale[5][1] == "#f2ebe6"
    size = trace(figures.heatmap(np.abs(values)))
    assert (size.zmin, size.zmax) == (0, np.abs(values).max())
    assert size.colorscale[0][1] == "#00224e"


def test_masked_cells_are_blank_with_a_legend_and_colours_ignore_them(values):
    for mask in (-np.inf, np.finfo(np.float32).min):
        scores = np.where(np.tri(4, 6, 2) > 0, values, mask)
        fig = figures.heatmap(scores)
        np.testing.assert_array_equal(np.isnan(trace(fig).z), scores < -1e30)
        assert trace(fig).zmax == np.abs(scores[scores > -1e30]).max()
        assert "masked: left blank" in [t.name for t in fig.data]
        assert "6 cells masked" in meta(fig)["description"]


def test_nan_and_infinity_are_marked_each_by_its_sign(values):
    values[1, 2], values[3, 5], values[0, 0] = np.nan, np.inf, -np.inf
    fig = figures.heatmap(values, TOKENS)
    marks = {t.name: t for t in fig.data if t.type == "scatter" and t.mode == "markers" and t.showlegend is False}
    assert (marks["NaN"].x.tolist(), marks["NaN"].y.tolist()) == ([2], [1])
    assert (marks["+∞"].x.tolist(), marks["+∞"].y.tolist()) == ([5], [3])
    assert {"NaN (1 cell)", "+∞ (1 cell)", "masked: left blank"} <= {t.name for t in fig.data}
    assert trace(fig).zmax == np.abs(values[np.isfinite(values)]).max()


def test_at_most_65536_cells_as_base64_float32():
    for shape in ((2000, 3000), (12, 16_384), (300, 300), (65_536, 1), (5000, 20)):
        fig = figures.heatmap(np.random.default_rng(0).random(shape, np.float32))
        z = trace(fig).z
        assert z.dtype == np.float32
        assert z.size <= 256 * 256
        text = fig.to_json() or ""
        assert len(text) < 65_536 * 4 * 4 / 3 * 1.25 + 12_000  # Plotly spells each / of base64 in six characters
        assert isinstance(json.loads(text)["data"][-1]["z"], dict)
        assert "shown" in meta(fig)["note"]


def test_a_text_of_few_tokens_shows_every_dimension():
    fig = figures.heatmap(np.ones((12, 768), np.float32))
    assert trace(fig).z.shape == (12, 768)
    assert meta(fig)["note"] == "float32"


def test_a_thinned_cell_keeps_its_index():
    fig = figures.heatmap(np.arange(600.0)[:, None] + np.zeros((600, 600)))
    z = trace(fig)
    np.testing.assert_array_equal(z.z[:, 0], z.y0 + z.dy * np.arange(len(z.z)))
    assert z.dy == 3


@pytest.mark.parametrize("shape", [(1, 1), (12, 5000), (100_000, 8), (70_000, 90_000), (256, 257), (1024, 64)])
def test_cells_is_what_fits(shape):
    rows, columns = figures.cells(shape)
    assert 1 <= rows <= shape[0]
    assert 1 <= columns <= shape[1]
    assert rows * columns <= figures.CELLS


def test_a_window_of_a_million_positions_shows_its_own_indices():
    field = Field((10**6, 10**6), lambda rows, columns: -(rows[:, None] - columns[None, :]).abs().float())
    window = field.window((500_000, 500_512), (0, 10**6), cells=(128, 100))
    fig = figures.heatmap(window, row_title="query", column_title="key")
    z = trace(fig)
    assert (z.y0, z.dy, z.x0, z.dx) == (500_000, 4, 0, 10_000)
    assert z.z[3, 7] == -(500_012 - 70_000)
    assert meta(fig)["note"] == "float32, 1 query in 4 shown, 1 key in 10000 shown"


def test_labels_of_the_whole_text_serve_a_window():
    labels = [f"t{i}" for i in range(100)]
    window = Field.of(torch.arange(100.0)[:, None] + torch.zeros(100, 4)).window((40, 60), cells=10)
    fig = figures.heatmap(window, labels)
    assert [plain(t) for t in fig.layout.yaxis.ticktext] == [f"t{i}, position {i}" for i in range(40, 60, 2)]


def test_tick_labels_thin_out_but_the_hover_box_knows_all():
    labels = [f"token{i}" for i in range(200)]
    fig = figures.heatmap(np.ones((200, 200)), labels, labels)
    assert len(fig.layout.yaxis2.ticktext) <= 40
    assert len(fig.layout.xaxis2.ticktext) <= 40
    assert len(fig.layout.yaxis.ticktext) == len(fig.layout.xaxis.ticktext) == 200


def test_bfloat16_is_shown_as_float32_and_named(values):
    fig = figures.heatmap(torch.from_numpy(values).bfloat16())
    assert trace(fig).z.dtype == np.float32
    np.testing.assert_array_equal(trace(fig).z, torch.from_numpy(values).bfloat16().float())
    assert meta(fig)["note"] == "bfloat16, shown as float32"


def test_angles_wrap_in_the_precision_they_come_in():
    angle = np.array([[0.5, 2 * np.pi + 0.5, 1e6 * 2 * np.pi + 0.5, -0.5]])
    z = trace(figures.heatmap(angle, scale="cyclic"))
    np.testing.assert_allclose(z.z[0], [0.5, 0.5, 0.5, 2 * np.pi - 0.5], atol=1e-5)
    assert (z.zmin, z.zmax) == (0, 2 * np.pi)


def test_weights_leave_the_future_blank():
    w = torch.full((3, 5), 0.2)
    z = trace(figures.weights(w, causal=True)).z
    np.testing.assert_array_equal(~np.isnan(z), np.tri(3, 5, 2) > 0)
    window = Field.of(torch.full((40, 40), 0.1)).window((20, 30), cells=(5, 20))
    z = trace(figures.weights(window, causal=True)).z
    np.testing.assert_array_equal(np.isnan(z), np.arange(0, 40, 2)[None] > np.arange(20, 30, 2)[:, None])


def test_description_names_what_is_seen(values):
    values[:] = 0
    values[2, 4] = 3.25
    description = meta(figures.heatmap(values, TOKENS))["description"]
    assert description.startswith("Heatmap of 4 tokens by 6 dimensions; value from 0 to 3.25")
    assert "largest at token the (2) and dimension 4" in description


def test_text_is_fourteen_pixels_or_more_and_larger_on_request(values):
    def sizes(node):
        if isinstance(node, dict):
            for key, value in node.items():
                if key == "size" and "color" not in str(node.get("symbol", "")):
                    yield value
                else:
                    yield from sizes(value)
        elif isinstance(node, list):
            for item in node:
                yield from sizes(item)

    for large, least in ((False, 14), (True, 18)):
        fig = figures.heatmap(values, TOKENS, large=large)
        found = [size for size in sizes(json.loads(fig.to_json() or "")["layout"]) if isinstance(size, int)]
        assert found
        assert min(found) >= least
        assert not fig.layout.title.text
        assert fig.layout.paper_bgcolor == fig.layout.plot_bgcolor == "rgba(0,0,0,0)"


def test_what_is_no_matrix_is_refused():
    for bad in (np.ones(3), np.ones((2, 2, 2)), np.ones((0, 4))):
        with pytest.raises(ValueError, match="matrix"):
            figures.heatmap(bad)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(("count", "rows"), [(2, 12), (2, 17), (3, 20), (4, 14), (4, 40), (8, 30)])
@pytest.mark.parametrize("masked", [False, True])
def test_the_labels_of_panels_have_room(count, rows, masked, large):
    """No more labels than the plot is high, once its margins are taken away."""
    labels = [f"token {i}" for i in range(rows)]
    hidden = np.triu(np.ones((rows, rows), bool), 1) if masked else None
    panels = figures.panels(np.ones((count, rows, rows)), labels[:count], labels, labels, masked=hidden, large=large)
    layout: Any = panels.to_plotly_json()["layout"]
    low, high = layout["yaxis"]["domain"]
    plot = (layout["height"] - layout["margin"]["t"] - layout["margin"]["b"]) * (high - low)
    drawn = len(layout["yaxis"]["ticktext"])
    assert drawn * layout["yaxis"]["tickfont"]["size"] <= plot
    if count <= 3 and rows <= 20:
        assert drawn == rows
