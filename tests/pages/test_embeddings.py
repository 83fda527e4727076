"""The Embeddings page: similarities, neighbours, norms and the map are those of the recorded vectors."""

import numpy as np
import pytest
import torch

import tinput
from tests import app
from tests.pages import code_shown
from tinput import measure
from tinput.twins import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_similarity_raw_and_entering(name):
    trace = tinput.open_model(name).trace(app.TEXT)
    rows = tinput.open_model(name).embedding_rows(trace.ids)
    pair = app.heats(app.figures(app.show("embeddings", model=name))[0])  # both in one picture, one beside the other
    for shown, vectors in zip(pair, (rows, trace.block_input), strict=True):
        expected = torch.nn.functional.cosine_similarity(vectors[:, None].double(), vectors[None].double(), dim=-1)
        np.testing.assert_allclose(shown, expected.numpy(), atol=1e-6)


def test_nearest_tokens_of_the_vocabulary():
    model = tinput.open_model("tinput/rope")
    ids = model.tokenize(app.TEXT).ids
    rows = model.embedding_rows(torch.arange(model.vocab_size)).double()
    cosine = torch.nn.functional.cosine_similarity(rows, rows[ids[2]][None], dim=-1)
    cosine[ids[2]] = -2
    at = app.show("embeddings", model="tinput/rope", look="Nearest tokens", token="2")
    (shown,) = app.series(app.figures(at)[0]).values()
    np.testing.assert_allclose(shown, cosine.topk(12).values.numpy(), atol=1e-6)
    made, (figure,) = code_shown.run(app.code(at)[0]), app.figures(at)
    (bars,) = (trace.y for trace in made.data if len(trace.y) > 1)
    np.testing.assert_allclose(bars, shown, atol=1e-6)  # all of them, each by its name
    assert made.layout.xaxis.ticktext == tuple(figure["layout"]["xaxis"]["ticktext"])


def test_norms_and_map():
    trace = tinput.open_model("tinput/sinusoidal").trace(app.TEXT)
    norms = app.series(app.figures(app.show("embeddings", look="Norms"))[0])
    np.testing.assert_allclose(norms["block input"], trace.block_input.double().norm(dim=-1).numpy(), rtol=1e-6)
    at = app.show("embeddings", look="Map", of="Block input")
    share = float(measure.project(trace.block_input).share.sum())
    assert f"hold {share:.0%} of their variance" in app.words(at)


@pytest.mark.parametrize("text", app.HOSTILE)
@pytest.mark.parametrize("look", ["Similarity", "Nearest tokens", "Norms", "Map"])
def test_any_text(look, text):
    at = app.show("embeddings", text, look=look)
    assert app.chips(at) == list(tinput.open_model(NAMES[0]).tokenize(text).labels)
    assert len(app.figures(at)) == 1


@pytest.mark.parametrize("look", ["Similarity", "Nearest tokens", "Norms", "Map"])
def test_the_python_runs_as_shown(look):
    (block,) = app.code(app.show("embeddings", look=look))
    space: dict = {}
    lines, last = block.rsplit("\ntinput.", 1)
    exec(f"{lines}\nfigure = tinput.{last}", space)
    assert space["figure"].data
