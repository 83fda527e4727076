"""The whole app in a real browser: from its start to a picture, from a link, with text that looks like markup."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest

from tests import app

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser
HOSTILE = app.HOSTILE[0]
HOME = "pipeline"  # the page of the bare address
# Streamlit asks for these below a page's own path first, and then at the root: its way, and no fault.
_USUAL = ("_stcore/health", "_stcore/host-config")


@pytest.fixture
def page(browser):
    """A browser page that notes console errors, failed requests and requests to other hosts in `page.wrong`."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.wrong = []

    def answered(response):
        if response.status >= 400 and not response.url.endswith(_USUAL):
            page.wrong.append(f"{response.status} {response.url}")

    def said(message):
        if message.type == "error" and "404" not in message.text:
            page.wrong.append(message.text)

    page.on("response", answered)
    page.on("console", said)
    page.on("pageerror", lambda error: page.wrong.append(str(error)))

    def failed(request):
        if request.failure != "net::ERR_ABORTED":  # the page was left while it loaded
            page.wrong.append(f"{request.failure}: {request.url}")

    page.on("requestfailed", failed)
    yield page
    context.close()
    assert not page.wrong


def go(page, url: str, path: str = "", **query: str) -> None:
    path = "" if path == HOME else path
    page.goto(f"{url}/{path}{'?' + urlencode(query) if query else ''}")
    first = ".strip .tok, .empty, .trouble, .lesson, .st-key-figure-losses, .st-key-figure-schemes"
    page.wait_for_selector(first, timeout=60_000)
    page.wait_for_selector("textarea[aria-label='Text']", timeout=60_000)


def drawn(page, count: int = 1) -> None:
    """Wait until that many figures are there."""
    page.wait_for_function(f"document.querySelectorAll('.js-plotly-plot .main-svg').length >= {count}", timeout=60_000)


def tokens(page) -> list[str]:
    return page.locator(".strip .tok").all_text_contents()


@pytest.mark.parametrize("name", app.PAGES)
def test_a_pages_link_is_the_first_request(page, app_url, name):
    go(page, app_url, name, text="a cat", model="tinput/rope")
    expect(page.get_by_label("Text", exact=True)).to_have_value("a cat")
    assert "".join(tokens(page)).replace("␣", " ") == ("" if name in app.OWN_TEXT else "a cat")
    expect(page.get_by_role("combobox", name="Model").first).to_have_value("tinput/rope")
    assert page.locator(".stException").count() == 0


def test_a_link_as_the_first_request_of_a_fresh_server(page):
    from tests.serve import server

    with server() as url:
        go(page, url, "tokens", text="fresh")
        expect(page.get_by_label("Text", exact=True)).to_have_value("fresh")  # the frame is there
        page.wait_for_selector(".marked")
        page.wait_for_load_state("networkidle")  # before the server goes away
        page.goto("about:blank")


def test_from_the_start_to_a_picture(page, app_url):
    go(page, app_url)
    drawn(page, 2)
    assert page.locator(".badge").count() == 2


def test_the_address_holds_the_view(page, app_url):
    go(page, app_url)
    text = page.get_by_label("Text", exact=True)
    text.fill("two cats & <b>a dog</b>")
    text.press("Control+Enter")
    page.wait_for_url("**text=two+cats**")
    page.get_by_role("link", name="Embeddings").click()
    page.wait_for_selector("text=How alike each two tokens are")  # the first page has a "Norms" too
    page.get_by_role("radio", name="Norms").click()
    page.wait_for_url("**look=Norms**")
    link = page.url
    other = page.context.new_page()
    other.goto(link)
    other.wait_for_selector(".question")
    other.wait_for_selector("text=The length of each token's vector")
    expect(other.get_by_label("Text", exact=True)).to_have_value("two cats & <b>a dog</b>")
    other.close()


def test_markup_shows_as_typed(page, app_url):
    for name in ("", "tokens", "embeddings", "side_by_side"):
        go(page, app_url, name, text=HOSTILE)
        assert "".join(tokens(page)).replace("␣", " ").startswith(HOSTILE)
        assert page.locator(".strip img, .marked img, .katex-html .strip").count() == 0
    page.wait_for_selector(".facts")
    go(page, app_url, "tokens", text=HOSTILE)
    assert page.locator(".marked").inner_text() == HOSTILE


def test_tokens_on_a_figure_are_literal(page, app_url):
    go(page, app_url, "rope", text="<s> <b>x</b> &amp; $y$", model="tinput/rope")
    drawn(page)
    labels = "".join(page.locator(".js-plotly-plot .y2tick text").all_text_contents())
    shown = "".join(tokens(page))
    assert labels == shown
    for part in ("<", ">", "&", "$"):
        assert part in labels


def test_a_text_too_long_for_a_link_stays_in_the_session(page, app_url):
    go(page, app_url, model="tinput/alibi")
    text = page.get_by_label("Text", exact=True)
    text.fill("word " * 1_000)
    text.press("Control+Enter")
    page.wait_for_selector("text=too long for a link")
    page.get_by_role("link", name="Tokens").click()
    page.wait_for_selector("text=The text, token by token")
    assert text.input_value() == "word " * 1_000
    assert "text=" not in page.url
    text.fill("short again")
    text.press("Control+Enter")
    page.wait_for_url("**text=short+again**")
    page.reload()
    expect(text).to_have_value("short again", timeout=60_000)
    text.fill("and on")
    text.press("Control+Enter")
    page.wait_for_url("**text=and+on**")


def test_the_first_page_answers_by_its_name_too(page, app_url):
    page.goto(f"{app_url}/{HOME}?text=a+cat")
    drawn(page, 2)
    assert page.get_by_text("Page not found").count() == 0
    expect(page.get_by_label("Text", exact=True)).to_have_value("a cat")


@pytest.mark.parametrize("large", ["false", "true"])
def test_formulas_fit_their_column(page, app_url, large):
    for name, more in ((HOME, {}), ("side_by_side", {"compare": "What each injects", "other": "tinput/sinusoidal"})):
        go(page, app_url, name, model="tinput/rope", large=large, **more)
        page.wait_for_selector(".katex-display", timeout=60_000)
        page.wait_for_function(
            "[...document.querySelectorAll('.katex-display')].every(e => e.scrollWidth <= e.clientWidth + 3)"
        )


def test_a_typed_path_that_is_no_folder(page, app_url):
    go(page, app_url)
    box = page.get_by_role("combobox", name="Model")
    box.click()
    box.fill("/no/such/folder")
    box.press("Enter")
    page.wait_for_selector(".trouble")
    assert "/no/such/folder" in page.locator(".trouble").inner_text()


def test_csv_and_python_of_a_figure(page, app_url):
    go(page, app_url, text="a cat", model="tinput/learned", part="Token and position")
    drawn(page, 2)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="CSV").last.click()
    lines = waiting.value.path().read_text(encoding="utf-8").splitlines()
    assert "# model: tinput/learned" in lines
    assert any(line.startswith("# dtype: float32") for line in lines)
    page.get_by_role("button", name="Python").last.click()
    assert "tinput.open_model('tinput/learned')" in page.locator(".stCode").last.inner_text()


def test_a_picture_can_be_downloaded(page, app_url):
    go(page, app_url)
    drawn(page, 2)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="PNG", exact=True).first.click()
    assert waiting.value.path().read_bytes().startswith(b"\x89PNG")


def test_first_sight_is_under_a_megabyte(page, app_url):
    """What the server sends over the websocket; the scripts of Streamlit itself are kept by the browser."""
    sizes: list[int] = []
    page.on("websocket", lambda ws: ws.on("framereceived", lambda data: sizes.append(len(data))))
    go(page, app_url, text="the cat sat on the mat and the dog sat on the cat. " * 20)
    drawn(page, 2)
    assert 10_000 < sum(sizes) < 1_000_000


def test_a_lesson_is_led_by_the_arrow_keys_without_controls(browser, app_url):
    page = browser.new_page(viewport={"width": 1920, "height": 1080})
    page.goto(f"{app_url}/lessons?present=true")
    page.wait_for_selector(".options")
    assert not page.locator('[data-testid="stSidebar"]').is_visible()
    assert not any(box and box["x"] >= 0 for box in (b.bounding_box() for b in page.locator("button").all()))
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".verdict")
    page.wait_for_selector(".stPlotlyChart .heatmaplayer image")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("text=2 of 3")
    page.wait_for_selector(".verdict", state="detached")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector(".verdict")
    page.wait_for_selector("text=1 of 3")
    page.keyboard.press("Escape")
    page.wait_for_selector('[data-testid="stSidebar"]', state="visible")
    assert "shown=true" in page.url
    page.close()


LONG = " ".join([app.TEXT] * 18)
_ROWS = """(strip) => {
    const box = strip.getBoundingClientRect(), rows = {};
    for (const chip of strip.querySelectorAll('.tok')) {
        const at = chip.getBoundingClientRect();
        if (at.bottom > box.top + 1 && at.top < box.bottom - 1)
            rows[Math.round(at.top - box.top)] = at.top >= box.top - 1 && at.bottom <= box.bottom + 1;
    }
    return Object.values(rows);
}"""


@pytest.mark.parametrize("large", ["false", "true"])
def test_the_strip_shows_two_whole_rows_and_that_there_are_more(page, app_url, large):
    go(page, app_url, "tokens", text=LONG, large=large)
    strip = page.locator(".strip[role=group]")
    expect(strip).to_be_visible()
    page.wait_for_function("document.querySelector('.strip[role=group]').scrollHeight > 200")
    assert strip.evaluate(_ROWS) == [True, True]
    assert "linear-gradient" in strip.evaluate("strip => getComputedStyle(strip).maskImage")
    strip.evaluate("strip => strip.scrollBy(0, 41)")
    page.wait_for_timeout(600)
    assert strip.evaluate("strip => strip.scrollTop") > 0
    assert strip.evaluate(_ROWS) == [True, True]
    strip.evaluate("strip => strip.scrollTo(0, strip.scrollHeight)")
    page.wait_for_function("getComputedStyle(document.querySelector('.strip[role=group]')).maskImage == 'none'")
    go(page, app_url, "tokens", text="the cat", large=large)
    page.wait_for_function("getComputedStyle(document.querySelector('.strip[role=group]')).maskImage == 'none'")


def test_the_marked_text_runs_in_the_direction_of_its_script(page, app_url):
    go(page, app_url, "tokens", text="مرحبا بالعالم hello world\nThe word שלום")
    page.wait_for_selector(".marked span")
    left = page.locator(".marked span").evaluate_all(
        "marks => marks.map(mark => [mark.textContent.trim(), mark.getBoundingClientRect().left])"
    )
    arabic = [at for text, at in left if text and "\u0600" <= text < "\u0700"]
    assert len(arabic) > 10
    assert arabic == sorted(arabic, reverse=True), "Arabic from right to left"
    latin = [(text, at) for text, at in left if text in ("he", "ll", "o", "wor", "ld")]
    assert [text for text, _ in sorted(latin, key=lambda item: item[1])] == ["he", "ll", "o", "wor", "ld"]
    (start,) = [at for text, at in left if text == "The"]
    assert start == min(at for _, at in left), "a line of English begins at the left"


_SEEN = """() => [...document.querySelectorAll('button, input, textarea, summary, [role=slider]')].filter(one => {
    const at = one.getBoundingClientRect();
    return at.width > 0 && at.right > 0 && at.left < innerWidth && getComputedStyle(one).visibility != 'hidden';
}).map(one => one.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize(
    ("path", "controls"),
    [(HOME, {}), ("embeddings", {"look": "Nearest tokens"}), ("rope", {"turn": "By pair"}), ("sinusoidal", {})],
)
def test_a_presenter_s_page_shows_no_controls(page, app_url, path, controls):
    page.goto(f"{app_url}/{'' if path == HOME else path}?{urlencode({'present': 'true', **controls})}")
    drawn(page)
    page.wait_for_function("document.querySelectorAll('.stPlotlyChart').length > 0")
    assert page.evaluate(_SEEN) == []
    if path == "embeddings":  # the token's name takes the place of the slider beside it
        chosen = page.locator(".tok.chosen").bounding_box()
        title = page.locator(".panel-title").bounding_box()
        assert abs(chosen["x"] - title["x"]) < 30


def test_the_arrow_keys_play_a_lesson_after_a_guess_was_clicked(browser, app_url):
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(f"{app_url}/lessons")
    page.get_by_text("The same vectors in another order").click(timeout=60_000)
    page.wait_for_url("**guess=**")
    page.wait_for_load_state("networkidle")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".verdict.right")  # shown, and the guess is what it was
    page.get_by_role("radio", name="2", exact=True).click()
    page.wait_for_selector("text=2 of 3")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".verdict")
    page.close()


def test_rows_that_are_ticked_stay_through_a_search(page, app_url):
    def tick(row: int) -> None:
        page.wait_for_timeout(500)  # the table is a canvas: there is nothing in it to wait for
        box = page.get_by_test_id("stDataFrame").bounding_box()
        page.mouse.click(box["x"] + 18, box["y"] + 35 * row + 53)

    page.set_viewport_size({"width": 1280, "height": 1100})
    go(page, app_url, "architectures")
    drawn(page)
    tick(0)
    expect(page).to_have_url(re.compile("archs=afmoe"))
    page.get_by_label("Find").fill("alibi")
    page.get_by_label("Find").press("Enter")
    expect(page).to_have_url(re.compile("find=alibi"))
    expect(page.locator("main, .stMain").get_by_text("2 of 254").first).to_be_visible()
    tick(1)
    expect(page).to_have_url(re.compile("archs=afmoe&archs=mpt"))
