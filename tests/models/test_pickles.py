"""Weights that are pickles alone: not read unasked, read as tensors when asked for, and never run."""

from __future__ import annotations

import json
import os
import pickle
import shutil

import pytest
import torch

from tests.oracle import checkpoint, open_model
from tinput.errors import BadFile, BadIds, NoWeights, Pickled
from tinput.models.pickles import PickledWeights, pickles_of

IDS = [9, 7, 9, 30]


@pytest.fixture
def folder(tmp_path):
    """A GPT-2's folder without its weights, and the state that they were."""
    made = checkpoint("gpt2")
    shutil.copy(made.folder / "config.json", tmp_path)
    return made, tmp_path, {name: value.clone() for name, value in made.full.state_dict().items()}


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "before torch 1.6"])
def test_it_is_read_when_it_is_asked_for_and_not_before(folder, legacy):
    made, place, state = folder
    torch.save(state, place / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    model = open_model(place)
    assert model.scheme == "learned"
    assert isinstance(model.no_weights, Pickled)
    size = (place / "pytorch_model.bin").stat().st_size
    assert model.no_weights.size == size
    with pytest.raises(Pickled, match=r"pytorch_model\.bin of .*kB.*allow_pickle=True") as caught:
        model.trace(ids=IDS)
    assert caught.value.size == size
    asked = open_model(place, allow_pickle=True)
    assert asked.no_weights is None
    trace, expected = asked.trace(ids=IDS), made.trace(IDS)
    assert torch.equal(trace.block_input, expected.block_input)
    assert torch.equal(trace.attention.q, expected.attention.q)
    assert trace.checkpoint_dtype == "float32"


def test_shards_are_read_as_they_are_asked_for(folder):
    made, place, state = folder
    names = sorted(state)
    parts = {"pytorch_model-00001-of-00002.bin": names[::2], "pytorch_model-00002-of-00002.bin": names[1::2]}
    for file, held in parts.items():
        torch.save({name: state[name] for name in held}, place / file)
    index = {name: file for file, held in parts.items() for name in held}
    (place / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": index}))
    assert torch.equal(open_model(place, allow_pickle=True).trace(ids=IDS).block_input, made.trace(IDS).block_input)
    one, other = parts
    (place / other).unlink()
    weights = PickledWeights({file: place / file for file in (one, "pytorch_model.bin.index.json")}, "here")
    assert torch.equal(weights.tensor(names[0]), state[names[0]])
    assert set(weights.infos_at_hand()) == set(parts[one])
    assert weights.info(names[0]).shape == tuple(state[names[0]].shape)
    with pytest.raises(BadFile, match=f"{other} is missing in here"):
        weights.tensor(names[1])
    with pytest.raises(BadFile, match="is in no file of here"):
        weights.tensor("nothing")
    with pytest.raises(BadIds, match="no row 320"):
        weights.rows("transformer.wte.weight", torch.tensor([320]))


class Harmful:
    def __reduce__(self):
        return os.mkdir, (os.environ["TINPUT_TEST_HARM"],)


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_that_would_run_something_is_refused(folder, tmp_path, monkeypatch, protocol):
    _, place, _ = folder
    monkeypatch.setenv("TINPUT_TEST_HARM", str(tmp_path / "harm"))
    with (place / "pytorch_model.bin").open("wb") as stream:
        pickle.dump({"transformer.wte.weight": Harmful()}, stream, protocol=protocol)
    with pytest.raises(BadFile):
        open_model(place, allow_pickle=True).trace(ids=IDS)
    torch.save({"transformer.wte.weight": Harmful()}, place / "pytorch_model.bin")
    with pytest.raises(BadFile, match="holds more than tensors"):
        open_model(place, allow_pickle=True).trace(ids=IDS)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("content", [b"", b"no pickle", pickle.dumps([1, 2, 3]), pickle.dumps({"a": 1})])
def test_what_is_no_pickle_of_tensors_is_an_error(folder, content):
    _, place, _ = folder
    (place / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(BadFile) as caught:
        open_model(place, allow_pickle=True).trace(ids=IDS)
    assert "\n" not in str(caught.value)


def test_which_files_are_weights():
    assert pickles_of(["pytorch_model.bin", "training_args.bin", "vocab.txt"]) == ["pytorch_model.bin"]
    assert pickles_of(["optimizer.pt", "training_args.bin", "config.json", "x/pytorch_model.bin"]) == []
    assert pickles_of(["consolidated.pth", "config.json"]) == ["consolidated.pth"]
    shards = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin", "pytorch_model.bin.index.json"]
    assert sorted(pickles_of([*shards, "readme.md"])) == sorted(shards)


@pytest.mark.parametrize(
    ("name", "said"), [("model.gguf", "GGUF"), ("tf_model.h5", "TensorFlow"), ("a.md", "no weights")]
)
def test_what_else_a_folder_may_hold(folder, name, said):
    _, place, _ = folder
    (place / name).write_bytes(b"")
    model = open_model(place)
    assert type(model.no_weights) is NoWeights
    with pytest.raises(NoWeights, match=said):
        model.trace(ids=IDS)
