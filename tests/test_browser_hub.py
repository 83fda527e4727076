"""The app and the Hub in a real browser: a model of 405 billion parameters, and what goes wrong on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

import pytest

from tests import hub_repos
from tests.hub import TOKEN, Hub
from tests.serve import server

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser
LLAMA, MINILM = "meta-llama/Llama-3.1-405B", "me/minilm"


@dataclass
class World:
    hub: Hub
    url: str


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    """A Hub on loopback, and the app that reads from it."""
    folder = tmp_path_factory.mktemp("hub")
    minilm = hub_repos.minilm()
    with Hub() as hub:
        hub.add(LLAMA, hub_repos.llama_405b(folder / "llama"))
        hub.add(MINILM, minilm)
        hub.add("me/slow", minilm)
        hub.add("me/gated", minilm, gated=True)
        hub.add("me/pickled", hub_repos.pickled(minilm, folder / "pickled"))
        env = {"HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "0", "HF_TOKEN": TOKEN}
        with server(env=env) as url:
            yield World(hub, url)


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield context.new_page()
    context.close()


def go(page, world: World, model: str, name: str = "", text: str = hub_repos.TEXT) -> None:
    page.goto(f"{world.url}/{name}?model={quote(model)}&text={quote(text)}")


def test_a_model_of_405_billion_parameters_from_kilobytes(page, world):
    go(page, world, LLAMA, "rope")
    page.wait_for_selector("text=matches transformers", timeout=90_000)
    assert page.locator(".badge").first.inner_text().startswith("RoPE")
    page.wait_for_selector(".js-plotly-plot .main-svg")
    tokenizer = (world.hub.repos[LLAMA].commits[world.hub.repos[LLAMA].commit] / "tokenizer.json").stat().st_size
    assert world.hub.sent < tokenizer + 6_000_000  # of 800 GB; the rows of the text are 3 MB
    before = len(world.hub.requests)
    page.get_by_role("radio", name="Wavelengths").click()
    page.wait_for_selector("text=wavelength")
    page.wait_for_load_state("networkidle")
    assert len(world.hub.requests) == before  # one commit is pinned for the session


def test_q_and_k_are_read_when_asked_for(page, world):
    go(page, world, MINILM, "learned", text="a cat")
    page.get_by_role("button", name="Read q and k too: 1.2 MB").click(timeout=60_000)
    expect(page.get_by_role("button", name="Read q and k too")).to_have_count(0, timeout=60_000)
    page.wait_for_selector("text=matches transformers")


def test_gated_private_and_pickled_models_say_what_to_do(page, world):
    go(page, world, "me/nothing")
    page.wait_for_selector(".trouble", timeout=60_000)
    assert "me/nothing" in page.locator(".trouble").inner_text()
    page.get_by_role("button", name="Try again").wait_for()
    expect(page.get_by_label("Text", exact=True)).to_have_value(hub_repos.TEXT)

    go(page, world, "me/pickled")
    page.wait_for_selector("text=from the configuration alone", timeout=60_000)
    assert page.locator(".badge").first.inner_text().startswith("Learned")
    assert "30,522" in page.locator(".facts").inner_text()  # its vocabulary
    page.get_by_role("button", name="Read it: 90.9 MB").click()
    page.wait_for_selector("text=matches transformers", timeout=90_000)

    world.hub.tokens.clear()  # a token that was let in no more
    go(page, world, "me/gated")
    page.wait_for_selector(".trouble", timeout=60_000)
    world.hub.tokens.add(TOKEN)
    assert TOKEN not in page.content()
    assert page.locator(".stException").count() == 0


def test_a_slow_read_shows_how_far_it_is_and_can_be_stopped(page, world):
    world.hub.delay = 1.5
    try:
        go(page, world, "me/slow", text="a cat")
        page.get_by_role("button", name="Stop", exact=True).click(timeout=60_000)
        page.wait_for_selector("text=was stopped", timeout=60_000)
    finally:
        world.hub.delay = 0
    expect(page.get_by_label("Text", exact=True)).to_have_value("a cat")
    page.get_by_role("button", name="Go on").click()
    page.wait_for_selector("text=matches transformers", timeout=60_000)


def test_a_name_without_an_owner_is_typed_and_is_in_the_link(page, world):
    world.hub.moved["minilm"] = MINILM
    go(page, world, "tinput/rope", text="a cat")
    page.wait_for_selector(".badge", timeout=60_000)
    box = page.get_by_role("combobox", name="Model")
    box.click()
    box.fill("minilm")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=matches transformers", timeout=60_000)
    assert page.locator(".badge").first.inner_text().startswith("Learned")
    assert "model=minilm" in page.url
