"""The training script, from a folder of texts to models that load."""

from __future__ import annotations

import itertools
import json
import math

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tinput import twins
from tinput.twins import train
from tinput.twins.tokenizer import START, train_tokenizer

TEXT = "The cat sat on the mat, and the dog sat by the door. " * 40


@pytest.fixture
def folder(tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    for name in ("a.txt", "b.txt", "last.txt"):
        (texts / name).write_text(name + TEXT, encoding="utf-8")
    return texts


def test_two_steps_from_texts_to_models(folder, tmp_path, capsys):
    out = tmp_path / "out"
    options = ["--held-out", "last.txt", "--steps", "2", "--vocab-size", "300", "--schemes", "learned", "rope"]
    train.main([str(folder), "--out", str(out), *options])
    shown = capsys.readouterr().out
    assert "learned: step 2 of 2, loss " in shown
    assert (out / "heldout.txt").read_text(encoding="utf-8") == "last.txt" + TEXT
    for scheme in ("learned", "rope"):
        model = AutoModelForCausalLM.from_pretrained(out / scheme)
        assert model.dtype == torch.float16
        assert model.config.scheme == scheme
        tokenizer = AutoTokenizer.from_pretrained(out / scheme)
        assert model.config.vocab_size == len(tokenizer)
        facts = json.loads((out / scheme / "training.json").read_text())
        assert (facts["steps"], facts["seed"]) == (2, 0)
        loss = facts["held_out_loss"]
        assert loss["128"]["nats_a_token"] == pytest.approx(math.log(len(tokenizer)), abs=1)
        assert loss["128"]["nats_a_byte"] == pytest.approx(
            loss["128"]["nats_a_token"] / facts["bytes_a_token"], abs=1e-3
        )
        assert (loss["512"] is None) == (scheme == "learned")


def test_what_two_twins_share_starts_the_same():
    states = [train.untrained(scheme, 300, seed=3).state_dict() for scheme in ("learned", "relative_bias", "none")]
    assert {k for state in states for k in state} - set(states[2]) == {"model.position_table.weight"}
    for name, value in states[2].items():
        assert torch.equal(value, states[0][name])
        assert torch.equal(value, states[1][name])


def test_the_order_of_the_data_is_the_seeds():
    tokens = torch.arange(5000)
    first, again, other = (list(itertools.islice(train.batches(tokens, seed), 2)) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    assert first[0].shape == (train.BATCH, train.CONTEXT + 1)
    assert (first[0].diff(dim=1) == 1).all()  # each row is text as it stands


def test_it_learns():
    """Ten steps on one sentence bring the loss well below where it starts."""
    tokens = torch.tensor(train_tokenizer([TEXT], 270).encode(TEXT * 3))
    data = train.Data(tokens, tokens, TEXT)
    before = train.evaluate(train.untrained("none", 270, 0).eval(), tokens, 64, total=64)
    after = train.evaluate(train.train("none", data, 270, steps=10, seed=0), tokens, 64, total=64)
    assert before is not None
    assert after is not None
    assert after < before - 0.5


def test_the_schedule_rises_and_falls():
    rates = [train.schedule(step, 1000) for step in range(1000)]
    assert rates[0] < 0.02
    assert max(rates) > 0.98
    assert rates[-1] == pytest.approx(0.02, abs=1e-4)


def test_the_tokenizer_is_bytes_and_merges():
    tokenizer = train_tokenizer([TEXT], 280)
    assert len(tokenizer) == 280
    assert tokenizer.convert_ids_to_tokens(0) == tokenizer.bos_token == START
    assert tokenizer.decode(tokenizer.encode("🦙 never seen")) == "🦙 never seen"


@pytest.mark.parametrize(
    ("files", "held_out", "says"),
    [
        (["a.txt"], "a.txt", "two .txt files or more"),
        (["a.txt", "b.txt"], "c.txt", "has no c.txt: choose .* a.txt, b.txt"),
    ],
)
def test_says_what_the_folder_lacks(tmp_path, files, held_out, says):
    for name in files:
        (tmp_path / name).write_text(TEXT, encoding="utf-8")
    with pytest.raises(SystemExit, match=says):
        train.main([str(tmp_path), "--held-out", held_out, "--out", str(tmp_path / "out")])


def test_refuses_a_scheme_that_is_not_bundled(tmp_path, capsys):
    with pytest.raises(SystemExit):
        train.main([str(tmp_path), "--schemes", "relative"])
    assert "invalid choice: 'relative'" in capsys.readouterr().err
    assert "tinput/relative" not in twins.NAMES
