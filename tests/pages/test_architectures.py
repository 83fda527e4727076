"""The Architectures page: the bundled atlas, searched, counted, laid side by side."""

import io
import json
import re

import nbformat
import numpy as np
import pandas as pd
import pytest

from tests import app, tiny
from tests.pages import code_shown
from tinput import atlas, figures
from tinput.positions import SCHEMES
from tinput.ui import architectures, notebook, onefile, takeaway

VERSION, ROWS = atlas.load()


def test_all_are_counted_in_the_colours_of_their_schemes():
    at = app.show("architectures")
    (figure,) = app.figures(at)
    labels, values, colours = atlas.counts(ROWS)
    assert sum(values) == len(ROWS)
    (bars,) = [trace for trace in figure["data"] if trace["type"] == "bar"]
    assert list(bars["y"]) == values
    assert list(bars["marker"]["color"]) == colours
    by_label = dict(zip(labels, values, strict=True))
    for name, scheme in SCHEMES.items():
        count = sum("reason" not in row and row["schemes"][0] == name for row in ROWS)
        assert by_label.get(atlas.short(scheme.LABEL), 0) == count
    assert f"Text architectures of transformers {VERSION}: {len(ROWS)} of {len(ROWS)}, 231 of them" in app.words(at)


def test_the_table_says_what_the_atlas_says():
    at = app.show("architectures")
    frame = at.main.dataframe[0].value.set_index("architecture")
    assert len(frame) == len(ROWS)
    assert frame.loc["gemma3_text", "theta"] == "10,000; 1,000,000"
    assert frame.loc["gptj", "pairing"] == "interleaved"
    assert frame.loc["gptj", "turned"] == "64 of 256"
    assert frame.loc["deepseek_v3", "turned"] == "64 of 192 from 128"
    assert frame.loc["opt", "first row"] == "2"
    assert frame.loc["smollm3", "scheme"] == "RoPE in 27 of 36 layers"


@pytest.mark.parametrize(
    ("find", "some"), [("opt", "opt"), ("alibi", "bloom"), ("interleaved", "gptj"), ("2,000,000", "smollm3")]
)
def test_a_search_is_in_the_link(find, some):
    at = app.show("architectures", find=find)
    names = list(at.main.dataframe[0].value["architecture"])
    assert some in names
    assert len(names) < len(ROWS)
    assert names == [row["model_type"] for row in atlas.matching(ROWS, find)]
    assert f"with “{find}”: {len(names)} of {len(ROWS)}, " in app.words(at)


def test_a_search_without_an_answer_says_so():
    at = app.show("architectures", find="no such thing <b>")
    assert "No architecture has all of these words" in app.words(at)
    assert not app.figures(at)


def test_rows_side_by_side():
    at = app.show("architectures", archs=["llama", "gptj"])
    page = app.html(at)
    heads = re.findall(r'<th scope="col">(.*?)</th>', page)
    assert heads[-2:] == ["llama", "gptj"]
    assert "<tr class=differs><td>pairing</td><td>half-split</td><td>interleaved</td></tr>" in page
    assert "<tr><td>theta</td><td>10,000</td><td>10,000</td></tr>" in page


@pytest.mark.parametrize(
    ("chosen", "before", "now", "then"),
    [
        ([], [], ["a"], ["a"]),
        (["b", "a"], ["a"], ["a", "c"], ["b", "a", "c"]),  # b was typed, or ticked in another search
        (["b", "a"], ["a"], [], ["b"]),
        (["a"], ["a", "b"], ["a", "b", "c"], ["a", "c"]),  # b was ticked, then taken out of the list
        (["b"], [], ["b"], ["b"]),
    ],
)
def test_ticks_change_what_they_are_about_alone(chosen, before, now, then):
    assert architectures.with_ticks(chosen, before, now) == then


def test_one_row_differs_from_nothing_and_leads_to_its_schemes():
    at = app.show("architectures", archs="mpnet")
    assert "class=differs" not in app.html(at)
    links = [link.proto.page for link in at.main.get("page_link")]
    assert links == ["learned", "relative_bias"]


def test_an_architecture_that_was_not_recorded_says_why():
    row = next(row for row in ROWS if "reason" in row)
    at = app.show("architectures", archs=row["model_type"])
    assert row["reason"] in app.words(at)


SEARCHES = ["", "alibi", "500,000", "'quoted\" rope", "dbrx"]


def shown(at):
    return at.session_state[takeaway.KEY]


@pytest.mark.parametrize("find", SEARCHES)
def test_the_python_makes_exactly_what_is_shown(find):
    at = app.show("architectures", find=find)
    blocks = app.code(at)
    assert len(blocks) == len(app.figures(at)) + len(at.main.dataframe)
    for block, figure in zip(blocks, app.figures(at), strict=False):
        code_shown.assert_the_same(code_shown.run(block), figure)
    for block, table in zip(blocks[1:], at.main.dataframe, strict=True):
        pd.testing.assert_frame_equal(code_shown.run(block), table.value)


def test_the_notebook_makes_exactly_what_is_shown():
    at = app.show("architectures", find="alibi")
    cells = nbformat.reads(notebook.make(shown(at), "today"), as_version=4).cells
    preamble, picture, table = [cell.source for cell in cells if cell.cell_type == "code"]
    code_shown.assert_the_same(code_shown.run(f"{preamble}\n{picture}"), app.figures(at)[0])
    pd.testing.assert_frame_equal(code_shown.run(f"{preamble}\n{table}"), at.main.dataframe[0].value)


def test_exports_say_that_the_numbers_are_the_atlas_s():
    at = app.show("architectures", "some words of mine", model="tinput/rope", find="alibi")
    (source,) = shown(at).sources
    assert "default sizes" in str(source["numbers from"])
    assert source["versions"] == f"transformers {VERSION}"
    assert source["found by"] == "alibi"
    assert not {"model", "dtype", "tokens"} & source.keys()
    file = onefile.html(shown(at), "today").decode()
    assert "Find: <b>alibi</b>" in file
    assert "some words of mine" not in file  # but in the view's link, where + stands for a blank
    assert not shown(at).traces
    assert "find=alibi" in shown(at).link
    (picture,) = shown(at).pictures
    table = figures.to_csv(picture.figure, source)
    assert table.startswith("# numbers from: tinput's atlas")
    with np.load(io.BytesIO(figures.to_npz(picture.figure, source)), allow_pickle=False) as npz:
        assert json.loads(str(npz["provenance"])).items() >= source.items()


def test_a_search_shows_the_columns_that_its_rows_fill_and_whole_numbers():
    at = app.show("architectures", find="alibi", present="true")  # the box is out of sight: the words say what it holds
    table = at.main.dataframe[0].value
    assert not table.isna().all().any()
    assert "theta" not in table
    assert "theta" in app.show("architectures").main.dataframe[0].value
    assert app.figures(at)[0]["layout"]["yaxis"]["dtick"] == 1
    assert "with “alibi”: 2 of 254, 2 of them recorded" in app.words(at)


def test_without_a_search_none_is_named():
    at = app.show("architectures")
    assert "Find:" not in onefile.html(shown(at), "today").decode()
    assert "found by" not in shown(at).sources[0]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("tinput/rope", "The model in use, tinput/rope, is of no type of transformers"),
        ("no/such/folder", ""),
        ("owner/name", ""),
    ],
)
def test_any_model_in_use_leaves_the_page_whole(model, said):
    at = app.show("architectures", "", model=model)
    assert len(at.main.dataframe[0].value) == len(ROWS)
    assert said in app.words(at)
    assert ("The model in use" in app.words(at)) == bool(said)
    assert "at the left" not in app.words(at)


def test_a_model_in_use_that_is_in_the_table(tmp_path):
    tiny.make("gpt2", tmp_path)
    at = app.show("architectures", model=str(tmp_path))
    assert "is of type gpt2." in app.words(at)
