"""The frame: text, model and controls, what is kept, what is said when something cannot be shown."""

import concurrent.futures
import shutil
import tomllib
from functools import partial

import pytest
from streamlit import config

import tinput
from tests import app
from tinput.models import files
from tinput.twins import NAMES, folder
from tinput.ui import cache, examples, kit


@pytest.mark.parametrize("page", app.TEXT_PAGES)
@pytest.mark.parametrize("text", ["", "   \n\t "])
def test_without_text_a_page_says_what_to_do(page, text):
    at = app.show(page, text)
    assert "Type a sentence at the left" in app.words(at)
    assert at.text_area(key="text").value == text


@pytest.mark.parametrize("page", app.TEXT_PAGES)
def test_a_model_that_is_not_there_keeps_the_text(page):
    at = app.show(page, "my own words", model="no/such/folder")
    assert "no/such/folder" in app.trouble(at)
    assert at.text_area(key="text").value == "my own words"


@pytest.mark.parametrize("page", app.TEXT_PAGES)
@pytest.mark.parametrize("text", app.HOSTILE)
def test_any_text_on_every_page(page, text):
    at = app.show(page, text)
    assert app.chips(at) == list(tinput.open_model(NAMES[0]).tokenize(text).labels)


def test_a_bad_folder_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{ half")
    at = app.show("pipeline", model=str(tmp_path))
    assert str(tmp_path / "config.json") in app.trouble(at)


@pytest.fixture
def details():
    """What Streamlit shows of a fault; as it was, afterwards."""
    before = config.get_option("client.showErrorDetails")
    yield partial(config.set_option, "client.showErrorDetails")
    config.set_option("client.showErrorDetails", before)


@pytest.mark.parametrize(("shown", "traceback"), [("none", 0), ("full", 1)])
def test_a_fault_of_ours_is_one_sentence_and_its_traceback_is_in_the_log(
    details, monkeypatch, caplog, shown, traceback
):
    def broken(*_, **__):
        raise RuntimeError("on purpose")

    details(shown)
    at = app.start()
    monkeypatch.setattr(kit.Page, "show", broken)
    at.text_area(key="text").set_value("my own words").run()
    assert "it is a fault of this program, not of your text" in app.trouble(at)
    assert len(at.exception) == traceback, "the tests see it, a visitor does not"
    assert at.text_area(key="text").value == "my own words"
    (record,) = [record for record in caplog.records if record.name == "tinput"]
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "on purpose"


def test_the_app_as_it_is_started_shows_no_traceback_and_the_tests_do():
    said = tomllib.loads((app.ROOT / ".streamlit/config.toml").read_text(encoding="utf-8"))
    assert said["client"]["showErrorDetails"] == "none"
    assert config.get_option("client.showErrorDetails") == "full"


def test_a_path_may_not_be_typed_where_others_can_reach_the_server(monkeypatch):
    monkeypatch.setattr(kit, "may_type_paths", lambda: False)
    at = app.show("pipeline", model=str(folder("tinput/rope")))
    assert "may not be read" in app.trouble(at)
    monkeypatch.setenv("TINPUT_MODELS", str(folder("tinput/rope").parent))
    assert app.trouble(app.show("pipeline", model=str(folder("tinput/rope")))) == ""


def test_examples_fill_the_text():
    at = app.start()
    for name, example in examples.EXAMPLES.items():
        at.button(key=f"example-{name}").click().run()
        assert at.text_area(key="text").value == example
        assert app.chips(at)[:3] == list(tinput.open_model(NAMES[0]).tokenize(example).labels[:3])


def test_text_and_model_stay_when_the_page_changes():
    at = app.start()
    at.text_area(key="text").set_value("quite another text").run()
    at.selectbox(key="model").set_value("tinput/rope").run()
    at.switch_page("../../pages/tokens.py").run()
    assert at.text_area(key="text").value == "quite another text"
    assert app.badges(at)[0][0].startswith("RoPE")


def test_what_is_as_it_was_is_not_in_the_address():
    at = app.show("pipeline", kit.DEFAULT_TEXT, model=NAMES[0])
    assert not at.query_params


def test_long_text_is_cut_and_said_and_not_in_the_link():
    text = "word " * 20_000  # 100,000 characters
    at = app.start()
    at.selectbox(key="model").set_value("tinput/alibi").run()
    at.text_area(key="text").set_value(text).run()
    assert not at.exception
    total = len(tinput.open_model("tinput/alibi").tokenize(text).ids)
    assert f"the first {kit.LIMIT:,} of {total:,} tokens" in app.words(at)
    assert f"Shown of the text: its first {kit.LIMIT:,} tokens, each a vector of" in app.words(at)
    assert "The text becomes" not in app.words(at)
    assert "text" not in at.query_params
    assert any("too long for a link" in element.proto.body for element in at.sidebar.get("html"))
    assert at.text_area(key="text").value == text
    at.text_area(key="text").set_value("short again").run()
    assert at.query_params["text"] == "short again"
    assert app.words(at).count("Shown:") == 0
    assert "The text becomes" in app.words(at)


def test_a_table_shorter_than_the_text_is_shown_as_far_as_it_goes():
    model = tinput.open_model("tinput/learned")
    text = "the cat sat on the mat and the dog sat on the cat. " * 60
    usable = model.usable_length
    assert usable is not None
    assert len(model.tokenize(text).ids) > usable
    at = app.start()
    at.selectbox(key="model").set_value("tinput/learned").run()
    at.text_area(key="text").set_value(text).run()
    assert f"position table ends after {usable:,}" in app.words(at)
    assert len(app.figures(at)) == 2


def test_large_type_reaches_page_and_figures():
    small, large = app.show("pipeline"), app.show("pipeline", large="true")
    fonts = [app.figures(at)[1]["layout"]["font"]["size"] for at in (small, large)]
    assert fonts[0] >= 14
    assert fonts[1] > fonts[0]
    sheets = [next(e.proto.body for e in at.get("html") if e.proto.body.startswith("<style>")) for at in (small, large)]
    assert "html { font-size: 130% !important; }" in sheets[1]
    assert "font-size: 130%" not in sheets[0]


def test_figures_have_descriptions_and_csv_with_their_source():
    at = app.show("pipeline")
    for element in at.main.get("plotly_chart"):
        assert len(element.proto.alt) > 20


def test_ten_threads_on_one_model():
    key = cache.Key("tinput/rope", files.find("tinput/rope").stamp)
    texts = [f"the cat sat on mat number {i % 5}" for i in range(20)]

    def traced(text):
        return cache.trace(key, text).block_input

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        found = list(pool.map(traced, texts))
    for text, block_input in zip(texts, found, strict=True):
        assert block_input.equal(tinput.open_model("tinput/rope").trace(text).block_input)


def test_a_changed_file_is_another_model(tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(folder("tinput/rope"), copy)
    before = app.badges(app.show("pipeline", model=str(copy)))
    config = copy / "config.json"
    config.write_text(config.read_text().replace('"rope"', '"alibi"'))
    after = app.badges(app.show("pipeline", model=str(copy)))
    assert before[0][0].startswith("RoPE")
    assert after[0][0].startswith("ALiBi")
