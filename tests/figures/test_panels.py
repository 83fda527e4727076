"""Panels: one scale, a note that is drawn, and a size that fits a page."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false
import numpy as np
import pytest
import torch

from tinput import figures
from tinput.figures.labels import plain
from tinput.figures.style import meta

TOKENS = ["the", "cat", "the", "cat"]


def test_panels_share_one_scale_and_keep_their_names():
    values = np.stack([np.full((4, 4), -1.0), np.full((4, 4), 3.0), np.tri(4)])
    fig = figures.panels(values, ["head <0>", "head 1", "head 2"], TOKENS, TOKENS)
    maps = [t for t in fig.data if t.type == "heatmap"]
    assert len(maps) == 3
    assert all(t.coloraxis == "coloraxis" for t in maps)
    assert (fig.layout.coloraxis.cmin, fig.layout.coloraxis.cmax) == (-3, 3)
    assert [plain(a.text) for a in fig.layout.annotations if a.name != "note"] == ["head <0>", "head 1", "head 2"]
    with pytest.raises(ValueError, match="name"):
        figures.panels(values, ["a"])


def drawn_note(fig) -> str:
    """The note of panels as it is drawn, its lines joined."""
    (found,) = [a for a in fig.layout.annotations if a.name == "note"]
    assert found.y == 0
    assert found.yanchor == "top"
    assert fig.layout.margin.b > -found.yshift  # there is room for it
    return plain(found.text).replace("<br>", " ")


def test_panels_draw_their_note():
    values = torch.ones(2, 512, 512, dtype=torch.bfloat16)
    tokens = ["a"] * 512
    fig = figures.panels(values, ["a", "b"], tokens, tokens, note="recorded from the model: <b>")
    assert drawn_note(fig) == meta(fig)["note"]
    assert drawn_note(fig) == (
        "bfloat16, shown as float32, 1 query in 3 shown, 1 key in 3 shown, recorded from the model: <b>"
    )
    long = figures.panels(values, ["a", "b"], note=", ".join(["many words"] * 30), large=True)
    assert drawn_note(long) == meta(long)["note"]
    assert long.layout.margin.b > fig.layout.margin.b
    plot = long.layout.height - long.layout.margin.b
    short = figures.panels(values, ["a", "b"], large=True)
    assert plot == pytest.approx(short.layout.height - short.layout.margin.b, abs=2)  # a note takes nothing from it


def test_a_square_of_tokens_says_once_what_it_leaves_out():
    square = np.ones((2, 2048, 2048), np.float32)
    fig = figures.panels(square, ["a", "b"], row_title="token", column_title="token")
    assert meta(fig)["note"].count("1 token in") == 1
    z = next(t for t in fig.data if t.type == "heatmap").z
    assert z.shape[0] == z.shape[1]
    assert meta(figures.similarity(square[0]))["note"] == "float32, 1 token in 8 shown"


def test_the_colours_of_panels_may_end_at_a_quantile():
    values = np.linspace(0, 0.01, 2 * 50 * 50, dtype=np.float32).reshape(2, 50, 50)
    values[0, 0, 0] = 1
    fig = figures.panels(values, ["a", "b"], quantile=0.995)
    high = float(np.quantile(values, 0.995))
    assert (fig.layout.coloraxis.cmin, fig.layout.coloraxis.cmax) == (0, pytest.approx(high))
    assert f"colours end at {high:.3g} (the 99.5 % quantile)" in drawn_note(fig)
    masked = np.zeros((50, 50), bool)
    masked[25:] = True
    half = figures.panels(values, ["a", "b"], quantile=0.995, masked=masked)
    assert half.layout.coloraxis.cmax == pytest.approx(float(np.quantile(values[:, :25], 0.995)))
    below = figures.panels(-values - 0.001, ["a", "b"], quantile=0.995)  # the outlier is the smallest
    assert f"colours end at {below.layout.coloraxis.cmax:.3g} (the 99.5 % quantile)" in drawn_note(below)
    deep = figures.panels(values - 2, ["a", "b"], scale="sequential", quantile=0.995)  # and all are below 0
    assert "colours end at -1.99 (" in drawn_note(deep)
    flat = figures.panels(np.ones((2, 4, 4)), ["a", "b"], quantile=0.995)
    assert "colours end" not in drawn_note(flat)


def test_panels_stay_within_the_cells_and_on_the_page():
    fig = figures.panels(np.ones((16, 300, 300), np.float32), [str(i) for i in range(16)])
    maps = [t for t in fig.data if t.type == "heatmap"]
    assert sum(t.z.size for t in maps) <= figures.CELLS
    for name, axis in fig.layout.to_plotly_json().items():
        if name.startswith(("xaxis", "yaxis")):
            assert 0 <= axis["domain"][0] < axis["domain"][1] <= 1
