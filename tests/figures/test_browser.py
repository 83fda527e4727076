"""The pixels: each label as the browser shows it, on the axis and in the hover box."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false
from itertools import pairwise
from pathlib import Path

import pytest

from tests.figures.kinds import NASTY, make
from tinput import figures

CHROMIUM = Path("/usr/bin/chromium")
SEEN = ("<s>", "<b>x</b>", "&amp;", "the", "$a$", "%{x}", "#000001", "the", "<script>", "你好", "⏎", "🦙")

pytestmark = [pytest.mark.browser, pytest.mark.skipif(not CHROMIUM.exists(), reason="no chromium")]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    playwright = pytest.importorskip("playwright.sync_api")
    folder = tmp_path_factory.mktemp("figures")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1000, "height": 760})

        def show(fig, **config):
            fig.write_html(folder / "figure.html", include_plotlyjs="directory", config=config)
            tab.goto((folder / "figure.html").as_uri())
            tab.wait_for_selector(".main-svg")
            return tab

        yield show
        browser.close()


def texts(tab, selector: str) -> list[str]:
    return [element.text_content() or "" for element in tab.query_selector_all(selector)]


def test_ticks_show_every_token_as_typed_and_in_order(page):
    tab = page(make("masked"))
    assert texts(tab, ".y2tick text") == list(SEEN)
    assert len(SEEN) == len(NASTY)
    along = tab.query_selector_all(".x2tick text")
    assert [t.text_content() for t in along if (t.text_content() or "").startswith("<s")] == ["<s>", "<script>"]


@pytest.mark.parametrize("row", [0, 1, 2, 4, 6])
def test_the_hover_box_names_token_position_dimension_and_value(page, row):
    fig = make("heatmap")
    tab = page(fig)
    box = tab.query_selector(".nsewdrag").bounding_box()
    tab.mouse.move(box["x"] + box["width"] * 4.5 / 40, box["y"] + box["height"] * (row + 0.5) / 12)
    tab.wait_for_selector(".hovertext")
    lines = texts(tab, ".hovertext tspan.line")
    value = next(t for t in fig.data if t.type == "heatmap").z[row, 4]
    assert lines[:2] == [f"token {SEEN[row]}, position {row}", "dimension 4"]
    shown = float(lines[2].removeprefix("value ").replace("−", "-"))
    assert shown == pytest.approx(float(value), rel=5e-3)


@pytest.mark.parametrize("kind", ["heatmap", "bars", "similarity", "panels", "dials", "stacked"])
def test_tick_labels_do_not_overlap_or_leave_the_picture(page, kind):
    tab = page(make(kind))
    boxes = tab.evaluate(
        """() => [...document.querySelectorAll('.ytick, .y2tick')].filter(t => t.textContent.trim())
        .map(t => t.getBoundingClientRect()).map(r => [r.left, r.top, r.right, r.bottom])"""
    )
    rows = sorted((box for box in boxes if box[0] < 480), key=lambda box: box[1])
    assert rows
    assert min(box[0] for box in boxes) >= 0
    for above, below in pairwise(rows):
        assert below[1] >= above[3] - 3  # line boxes are taller than letters
    legend = tab.query_selector(".legend")
    titles = tab.query_selector_all(".g-xtitle, .g-ytitle, .g-x2title, .g-y2title")
    for title in titles:
        box = title.bounding_box()
        assert box is None or (box["x"] >= 0 and box["y"] >= 0)
    if legend:
        plot = tab.query_selector(".nsewdrag").bounding_box()
        area = legend.bounding_box()
        assert area["y"] + area["height"] <= plot["y"] + 3 or kind == "panels"


def test_legend_and_marks_show_as_typed(page):
    tab = page(make("lines"))
    assert texts(tab, ".legendtext") == ["<a>", "b"]
    assert "<mark>" in texts(tab, ".annotation-text")


@pytest.mark.parametrize(
    "names",
    [
        [f"component {i}" for i in range(1, 5)],
        [f"component {i}" for i in range(1, 7)],
        ["The old man saw the young man", "The young man saw the old man"],
        ["Sinusoidal", "Learned table", "RoPE", "ALiBi", "Relative bias (T5)", "None (NoPE)"],
        ["raw embedding", "block input"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("large", [False, True])
def test_a_legend_and_plotlys_buttons_do_not_cover_each_other(page, names, large):
    fig = figures.lines({name: [1.0, 2.0] for name in names}, large=large)
    fig.layout.width = 568  # as on the page
    tab = page(fig, displaylogo=False, displayModeBar=True, modeBarButtons=[["toImage", "zoom2d", "resetScale2d"]])
    buttons, legend = (tab.query_selector(css).bounding_box() for css in (".modebar-group", ".legend"))
    beside = legend["x"] + legend["width"] <= buttons["x"]
    assert beside or legend["y"] >= buttons["y"] + buttons["height"] - 1
