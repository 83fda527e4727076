"""What the browser makes of what can be taken along: pictures, links, and the one file with no network."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ET
from pathlib import Path
from urllib.parse import urlencode

import nbformat
import numpy as np
import pytest

import tinput

pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser
TEXT = "<s> <b>x</b> &amp; $y$ saw"
MODEL = "tinput/alibi"
SVG = "{http://www.w3.org/2000/svg}"


def open_view(browser, url: str, name: str = "alibi", *, text: str = TEXT, init: str = "", **context):
    """A view in a context of its own, its figures drawn."""
    page = browser.new_context(viewport={"width": 1280, "height": 800}, **context).new_page()
    if init:
        page.add_init_script(init)
    page.goto(f"{url}/{name}?{urlencode({'text': text, 'model': MODEL})}")
    page.wait_for_selector(".js-plotly-plot .main-svg", timeout=60_000)
    page.wait_for_selector("[data-take=link]", timeout=60_000)
    page.wait_for_function("document.tinputListens")
    return page


def taken(page, button: str) -> Path:
    """The file that a button gives."""
    with page.expect_download() as waiting:
        page.get_by_role("button", name=button, exact=True).first.click()
    return waiting.value.path()


def pixels(file: Path) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(file).convert("RGBA"))


def words(root: ET.Element) -> list[str]:
    return ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_png_and_svg_are_for_a_white_page(browser, app_url, scheme):
    page = open_view(browser, app_url, "rope", color_scheme=scheme)
    svg = ET.fromstring(taken(page, "SVG").read_text(encoding="utf-8"))
    labels = list(tinput.open_model(MODEL).tokenize(TEXT).labels)
    ticks = [word for group in svg.iter(f"{SVG}g") if group.get("class") == "y2tick" for word in words(group)]
    assert ticks == labels
    paper = svg.find(f"{SVG}rect")
    assert paper is not None
    assert "rgb(255, 255, 255)" in paper.get("style", "")
    for element in svg.iter(f"{SVG}text"):  # dark ink
        style = dict(part.strip().split(": ", 1) for part in element.get("style", "").split(";") if ": " in part)
        assert style["fill"] in ("rgb(22, 32, 43)", "rgb(0, 0, 0)"), style
    png = pixels(taken(page, "PNG"))
    assert png.shape[1] == pytest.approx(2 * float(svg.get("width", "0")), abs=2)
    assert (png[[0, 0, -1, -1], [0, -1, 0, -1]] == 255).all()
    dark = (png[..., :3].max(-1) < 90).mean()
    assert 0.001 < dark < 0.2  # letters, and no black page
    assert not page.locator(".modebar-btn[data-title^='Download']").first.is_visible()  # one button for one thing
    ink = page.evaluate("document.querySelector('.js-plotly-plot')._fullLayout.font.color")
    assert page.evaluate("document.querySelector('.js-plotly-plot').layout.font.color") == ink  # the page is as it was
    page.context.close()


LENGTHS = "all => Object.fromEntries(all.map(text => [text.textContent, text.getComputedTextLength()]))"


def test_a_picture_brings_the_font_that_its_text_was_measured_in(browser, app_url, tmp_path):
    """Else a wider one takes its place, and letters are cut off: at a legend's end, at the right edge."""
    page = open_view(browser, app_url, "surgery", color_scheme="light")
    chart = page.locator(".js-plotly-plot").first
    here = chart.locator(".main-svg text").evaluate_all(LENGTHS)
    title = "after minus before"
    assert here[title] > 50
    file = tmp_path / "picture.svg"
    file.write_bytes(taken(page, "SVG").read_bytes())
    png = pixels(taken(page, "PNG"))
    assert page.locator(".notifier-note").count() == 0  # nothing is laid over the picture
    page.context.close()

    root = ET.parse(file).getroot()
    rules = "".join(style.text or "" for style in root.iter(f"{SVG}style"))
    assert '@font-face{font-family:"Source Sans";' in rules
    assert "url(data:font/woff2;base64," in rules
    assert all("font-family: 'Source Sans'," in text.get("style", "") for text in root.iter(f"{SVG}text"))
    assert file.stat().st_size < 400_000

    context = browser.new_context(viewport={"width": 1280, "height": 800}, offline=True)
    alone = context.new_page()  # the file by itself, with none of the page's fonts
    alone.goto(file.as_uri())
    alone.evaluate("document.fonts.ready")
    there = alone.locator("text").evaluate_all(LENGTHS)
    assert there == pytest.approx(here, abs=0.5)
    box = alone.locator("text", has_text=title).evaluate("e => e.getBoundingClientRect().toJSON()")
    context.close()

    left, right, top, bottom = (round(2 * box[side]) for side in ("left", "right", "top", "bottom"))
    inked = (png[top:bottom, left - 60 : right + 60, :3].max(-1) < 128).any(0).nonzero()[0]
    assert inked[-1] - inked[0] == pytest.approx(2 * here[title], abs=6)  # pixels, two to each of the page


def test_numbers_notebook_and_trace(browser, app_url):
    page = open_view(browser, app_url)
    with np.load(taken(page, "NPZ"), allow_pickle=False) as file:
        found = dict(file)
    rows = [line for line in taken(page, "CSV").read_text(encoding="utf-8").splitlines() if not line.startswith("# ")]
    table = list(csv.DictReader(io.StringIO("\n".join(rows))))
    width = found["values"].shape[-1]
    cells = [[float(cell or "nan") for cell in list(row.values())[-width:]] for row in table]
    np.testing.assert_array_equal(found["values"].reshape(-1, width), np.array(cells, np.float32))
    trace = tinput.open_model(MODEL).trace(TEXT)
    assert trace.attention is not None
    bias = trace.attention.bias.tensor().numpy()
    np.testing.assert_array_equal(np.where(found["masked"], 0, found["values"]), np.where(found["masked"], 0, bias))
    with np.load(taken(page, "Trace"), allow_pickle=False) as file:
        np.testing.assert_array_equal(file["block_input"], trace.block_input.numpy())
    nbformat.validate(nbformat.read(taken(page, "Notebook"), as_version=4))
    page.context.close()


def test_the_one_file_opens_without_a_network(browser, app_url, tmp_path):
    page = open_view(browser, app_url)
    page.get_by_role("radio", name="Attention weights").click()
    page.wait_for_selector(".st-key-figure-weights .main-svg")
    file = tmp_path / "page.html"
    file.write_bytes(taken(page, "HTML").read_bytes())
    sentences = page.locator(".notice p").all_text_contents()
    page.context.close()

    context = browser.new_context(viewport={"width": 1280, "height": 800}, offline=True)
    page = context.new_page()
    asked, wrong = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(file.as_uri())
    page.wait_for_selector(".js-plotly-plot .main-svg")
    assert asked == [file.as_uri()]
    assert page.locator(".notice p").all_text_contents() == sentences
    assert page.locator(".strip .tok").all_text_contents() == list(tinput.open_model(MODEL).tokenize(TEXT).labels)
    formula = page.locator("math").first.bounding_box()
    assert formula is not None
    assert formula["height"] > 20
    box = page.locator(".js-plotly-plot .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 4, box["y"] + box["height"] - 4)
    page.wait_for_selector(".hovertext")
    assert "attention weight" in page.locator(".hovertext").first.text_content()
    svg = ET.fromstring(taken(page, "SVG").read_text(encoding="utf-8"))
    assert words(svg)[:3] == ["<", ">", "<"]  # every other token of TEXT has a label
    assert (pixels(taken(page, "PNG"))[0, 0] == 255).all()
    assert not wrong
    assert all(url.startswith(("file:", "blob:", "data:")) for url in asked)
    # Its own policy keeps it from the network even where there is one.
    refused = page.evaluate(
        """() => new Promise(resolve => {
            document.addEventListener("securitypolicyviolation", event => resolve(event.effectiveDirective));
            document.body.append(Object.assign(document.createElement("script"), {textContent: "window.ran = 1"}));
        })"""
    )
    assert refused == "script-src-elem"
    assert page.evaluate("window.ran") is None
    with pytest.raises(Exception, match="Failed to fetch"):
        page.evaluate("fetch('http://127.0.0.1:9')")
    assert any("http://127.0.0.1:9" in message and "default-src 'none'" in message for message in wrong)
    context.close()


@pytest.mark.parametrize("api", ["clipboard", "none"])
def test_the_link_is_copied(browser, app_url, api):
    """Also where the page is served to others without https: there is no clipboard API then."""
    init = "" if api == "clipboard" else "Object.defineProperty(navigator, 'clipboard', {value: undefined})"
    page = open_view(browser, app_url, init=init, permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    page.get_by_role("button", name="Copied").wait_for()
    address = page.url
    text = page.get_by_label("Text", exact=True)
    text.fill("")
    text.press("Control+V")
    assert text.input_value() == address
    page.get_by_role("button", name="Copy link").wait_for()
    text.fill("word " * 1_000)
    text.press("Control+Enter")
    page.wait_for_selector("[data-done*='without the text']")
    page.context.close()


def test_buttons_fit_beside_each_other(browser, app_url):
    page = open_view(browser, app_url)
    for row in ("tools-bias", "tools-page"):
        tops = page.evaluate(
            f"[...document.querySelectorAll('.st-key-{row} button')].map(b => b.getBoundingClientRect())"
            ".filter(r => r.height).map(r => r.top + r.height / 2)"
        )
        assert len(tops) >= 4
        assert max(tops) - min(tops) < 6
    page.context.close()
