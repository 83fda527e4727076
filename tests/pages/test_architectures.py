"""The Architectures page: the bundled atlas, searched, counted, laid side by side."""

import re

import pytest

from tests import app
from tinput import atlas
from tinput.positions import SCHEMES
from tinput.ui import architectures

VERSION, ROWS = atlas.load()


def test_all_are_counted_in_the_colours_of_their_schemes():
    at = app.show("architectures")
    (figure,) = app.figures(at)
    labels, values, colours = architectures.counts(ROWS)
    assert sum(values) == len(ROWS)
    (bars,) = [trace for trace in figure["data"] if trace["type"] == "bar"]
    assert list(bars["y"]) == values
    assert list(bars["marker"]["color"]) == colours
    by_label = dict(zip(labels, values, strict=True))
    for name, scheme in SCHEMES.items():
        count = sum("reason" not in row and row["schemes"][0] == name for row in ROWS)
        assert by_label.get(architectures.short(scheme.LABEL), 0) == count
    assert f"{len(ROWS)} of {len(ROWS)} text architectures of transformers {VERSION}" in app.words(at)


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
    assert names == [row["model_type"] for row in architectures.matching(ROWS, find)]
    assert f"{len(names)} of {len(ROWS)} text architectures" in app.words(at)


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


def test_one_row_differs_from_nothing_and_leads_to_its_schemes():
    at = app.show("architectures", archs="mpnet")
    assert "class=differs" not in app.html(at)
    links = [link.proto.page for link in at.main.get("page_link")]
    assert links == ["learned", "relative_bias"]


def test_an_architecture_that_was_not_recorded_says_why():
    row = next(row for row in ROWS if "reason" in row)
    at = app.show("architectures", archs=row["model_type"])
    assert row["reason"] in app.words(at)


def test_the_python():
    for block in app.code(app.show("architectures")):
        exec(block, {})
