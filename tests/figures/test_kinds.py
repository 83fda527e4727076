"""What all figures promise."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false
import json

import plotly.graph_objects as go
import pytest

from tests.figures.kinds import KINDS, make
from tinput import figures


def walk(node, path=()):
    if isinstance(node, dict):
        for key, value in node.items():
            yield from walk(value, (*path, key))
    elif isinstance(node, list):
        for value in node:
            yield from walk(value, path)
    else:
        yield path, node


@pytest.mark.parametrize("kind", KINDS)
def test_plotly_knows_every_property(kind):
    go.Figure(make(kind).to_dict())  # raises for one that it does not know


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_go_as_typed_arrays(kind):
    for trace in json.loads(make(kind).to_json() or "")["data"]:
        for name in ("x", "y", "z", "customdata"):
            value = trace.get(name)
            assert value is None or isinstance(value, dict) or len(value) == 1, (trace["type"], name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("large", [False, True])
def test_the_look(kind, large):
    fig = make(kind, large=large)
    layout = json.loads(fig.to_json() or "")["layout"]
    sizes = [value for path, value in walk(layout) if path[-2:] in (("font", "size"), ("tickfont", "size"))]
    assert sizes
    assert min(sizes) >= (18 if large else 14)
    assert "title" not in layout
    assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == "rgba(0,0,0,0)"
    description = layout["meta"]["description"]
    assert description.endswith(".")
    assert len(description) > 30


@pytest.mark.parametrize("kind", KINDS)
def test_no_word_is_left_as_markup(kind):
    ours = ("<br>", "<b>", "</b>", "</span>", "<extra></extra>")
    for path, value in walk(json.loads(make(kind).to_json() or "")):
        if isinstance(value, str) and "meta" not in path and path[-1] not in ("bdata", "d"):
            for tag in ours:
                value = value.replace(tag, "")
            assert "<s" not in value.replace("<span style=", "")
            assert not {"<a>", "<0>", "<k>", "<mark>", "<level>", "<here>"} & {value}


@pytest.mark.parametrize("kind", KINDS)
def test_every_figure_exports(kind):
    text = figures.to_csv(make(kind), {"model": "m"})
    assert text.startswith("# model: m\n")
    assert len(text.splitlines()) > 3
