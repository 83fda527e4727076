"""Where a value came from: the code that is shown is run, and gives the recorded value, in every model at hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests import makers, tiny
from tests.record.test_between import opened as opened_beside
from tests.surgery.tools import IDS, open_model
from tinput import surgery
from tinput.errors import BadIds, NotRecorded
from tinput.twins import NAMES, folder


def run(start: dict[str, Any], links) -> dict[str, Any]:
    """The names that a shown program leaves, run after its opening."""
    space = dict(start)
    exec(surgery.program(links), space)
    return space


def opening(model, trace) -> dict[str, Any]:
    space: dict[str, Any] = {}
    exec(surgery.opening(model, trace), space)
    return space


@pytest.mark.parametrize("name", [*NAMES, *tiny.CONFIGS])
def test_the_python_of_a_block_input_s_value_gives_it(opened, name):
    model, trace = opened(name)
    start = opening(model, trace)
    for token, dimension in ((0, 0), (4, 17), (9, trace.block_input.shape[1] - 1)):
        links = surgery.input_chain(model, trace, token, dimension)
        want = float(trace.block_input[token, dimension])
        space = run(start, links)
        assert space["value"] == pytest.approx(want, abs=1e-5)
        assert links[-1].value == want
        assert not [link.name for link in links if link.read]  # each step is a formula, none read off
        for link in links:  # and each number on the way is what its own line gives
            if isinstance(link.value, float) and link.code.startswith("x"):
                row = space[link.code.split(" = ")[0]]
                assert link.value == pytest.approx(float(row[dimension]), abs=1e-5)


@pytest.mark.parametrize("name", [*NAMES, *(name for name in tiny.CONFIGS if name != "mamba")])
def test_the_python_of_an_attention_weight_gives_it(opened, name):
    model, trace = opened(name)
    weights, scores = trace.attention.weights.tensor(), trace.attention.scores.tensor()
    start = opening(model, trace)
    for head, query, key in ((0, 9, 2), (3, 5, 5), (1, 2, 7)):
        links = surgery.weight_chain(model, trace, head, query, key)
        space = run(start, links)
        assert space["weight"] == pytest.approx(float(weights[head, query, key]), abs=1e-5)
        by_name = {link.name: link for link in links}
        assert by_name["weight"].value == pytest.approx(float(weights[head, query, key]), abs=1e-5)
        assert by_name["score"].value == pytest.approx(float(scores[head, query, key]), abs=1e-5)
        read = [link.name for link in links if link.read]
        assert read == (["+ bias"] if trace.scheme == "relative" else [])  # whose share is not of positions alone
        if "mask" in by_name:
            hidden = weights[head, query, key] == 0
            assert by_name["mask"].value == ("hidden: its score is -∞" if hidden else "seen")


@pytest.mark.parametrize(
    ("kind", "changes", "named"),
    [
        ("gemma2", {"attn_logit_softcapping": 0.5}, ["capped"]),
        ("doge", {}, ["+ other"]),
        ("inkling2_text", {}, ["+ bias", "sink"]),
    ],
)
def test_what_else_a_model_does_to_its_scores_is_a_step(kind, changes, named, tmp_path):
    """A cap, a mask of numbers, a sink that each query makes: the steps give the weight that was recorded."""
    model, _ = opened_beside(kind, tmp_path, **changes)
    trace = model.trace(ids=IDS)
    weights = trace.attention.weights.tensor()
    for head, query, key in ((0, 9, 2), (3, 5, 5)):
        links = surgery.weight_chain(model, trace, head, query, key)
        assert set(named) <= {link.name for link in links}
        assert not links[-1].read
        assert run(opening(model, trace), links)["weight"] == pytest.approx(float(weights[head, query, key]), abs=1e-5)


def test_from_a_text_the_chain_begins_with_bytes():
    """The numbers of a bundled model, from its file, by hand."""
    model = open_model("tinput/learned")
    trace = model.trace("The old man saw the young man")
    links = surgery.input_chain(model, trace, 2, 5)
    weights = load_file(folder("learned") / "model.safetensors")
    token = weights["model.embed_tokens.weight"][int(trace.ids[2]), 5].double()
    place = weights["model.position_table.weight"][2, 5].double()
    assert [link.name for link in links] == [
        "bytes", "id", "token embedding", "× 11.31", "position embedding", "+ position", "block input",
    ]  # fmt: skip
    assert links[0].value == repr(b" man")
    assert links[1].value == str(int(trace.ids[2]))
    want = [token, token * 128**0.5, place, token * 128**0.5 + place]
    np.testing.assert_allclose([float(link.value) for link in links[2:6]], want, rtol=1e-6)
    assert run(opening(model, trace), links)["piece"] == b" man"
    assert "'The old man saw the young man'" in surgery.opening(model, trace)


def test_a_token_that_the_tokenizer_puts_in_has_no_bytes_in_the_text(tmp_path):
    tiny.make("bert", tmp_path)
    makers.wordpiece().save_pretrained(tmp_path)
    model = open_model(str(tmp_path))
    trace = model.trace("the cat")
    first, second = (surgery.input_chain(model, trace, token, 0)[0] for token in (0, 1))
    assert (first.name, first.value) == ("bytes", repr(b""))
    assert "no byte of the text" in first.words
    assert (second.value, second.words) == (repr(b"the"), "These bytes of the text are one token.")


@pytest.mark.parametrize("name", ["opt-narrow", "albert"])
def test_a_row_of_another_width_is_told_by_its_length(opened, name):
    model, trace = opened(name)
    links = surgery.input_chain(model, trace, 3, 40)
    narrow = trace.stages[0].value.flatten(1)[3]
    assert len(narrow) == 32
    (first,) = (link for link in links if link.name == "token embedding")
    assert first.value == f"32 numbers of length {float(torch.linalg.vector_norm(narrow)):.4g}"


def test_cells_that_are_not_there(opened):
    model, trace = opened("tinput/rope")
    with pytest.raises(BadIds, match="There are 10 tokens and 128 dimensions"):
        surgery.input_chain(model, trace, 10, 0)
    with pytest.raises(BadIds, match="4 heads, 10 queries and 10 keys"):
        surgery.weight_chain(model, trace, 4, 0, 0)
    model, trace = opened("mamba")
    with pytest.raises(NotRecorded, match="There is no attention to change in"):
        surgery.weight_chain(model, trace, 0, 0, 0)


def test_what_no_formula_gives_is_read_off_and_said_to_be(opened):
    """Stages and weights put out of order on purpose: the code must still give what the trace holds."""
    model, trace = opened("gpt2")
    stages = list(trace.stages)
    stages[0] = replace(stages[0], value=stages[0].value + 1)  # no row of the table
    stages[2] = replace(stages[2], value=stages[2].value[:1])  # no row for each token
    strange = replace(trace, stages=tuple(stages), attention=replace(trace.attention, weights=trace.attention.mask))
    links = surgery.input_chain(model, strange, 4, 3)
    read = [link.name for link in links if link.read]
    assert read == ["token embedding", "+ position", "dropout"]
    space = run({**opening(model, trace), "trace": strange}, links)
    assert space["value"] == float(trace.block_input[4, 3])
    last = surgery.weight_chain(model, strange, 1, 3, 2)[-1]
    assert (last.read, last.value) == (True, 0.0)  # what now stands where weights were
    assert "the steps above give" in last.words


def test_attention_whose_rows_are_no_tokens_is_refused(opened):
    model, trace = opened("tinput/none")
    longer = replace(trace.attention, q=torch.cat((trace.attention.q, trace.attention.q), dim=1))
    with pytest.raises(NotRecorded, match="has 20 queries and 10 keys for 10 tokens"):
        surgery.weight_chain(model, replace(trace, attention=longer), 0, 0, 0)
