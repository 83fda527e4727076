"""open_model: what can be asked of a model before a trace, of a trace, and what becomes of bad requests."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
import torch
import transformers

from tests import tiny
from tests.makers import byte_level
from tests.oracle import Checkpoint, checkpoint, open_model, some_ids
from tinput.errors import BadFile, BadIds, BadModel, BadText, NotFound, TooLong


def test_what_a_model_says_of_itself():
    made = checkpoint("mistral")
    model = made.model
    assert (model.name, model.folder, model.revision, model.bundled) == (str(made.folder), made.folder, None, False)
    assert (model.model_type, model.class_name, model.vocab_size) == ("mistral", "MistralForCausalLM", 320)
    assert model.checkpoint_dtype == "float32"
    assert model.config["sliding_window"] == 8
    assert type(model.config) is dict
    assert repr(model) == f"Model({str(made.folder)!r})"


def test_a_path_in_any_form(tmp_path, monkeypatch):
    shutil.copytree(checkpoint("bert").folder, tmp_path / "a model")
    monkeypatch.chdir(tmp_path)
    for name in (tmp_path / "a model", str(tmp_path / "a model"), f"{tmp_path / 'a model'}/", "./a model"):
        assert open_model(name).scheme == "learned"


@pytest.mark.parametrize("name", ["", " ", "no/such/folder/here", "/no/such/folder", "tinput/nothing", "\0"])
def test_a_name_of_nothing(name):
    with pytest.raises(BadModel) as caught:
        open_model(name)
    assert "\n" not in str(caught.value)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(BadModel):
        open_model(tmp_path / "model.safetensors")
    with pytest.raises(BadModel, match=r"config\.json"):
        open_model(tmp_path)


def test_a_bundled_model_has_two_names():
    short, long = open_model("rope"), open_model("tinput/rope")
    assert short.bundled
    assert long.bundled
    assert (short.scheme, short.layer_schemes) == (long.scheme, long.layer_schemes)
    assert torch.equal(short.trace("a cat").block_input, long.trace("a cat").block_input)
    with pytest.raises(NotFound):
        open_model("tinput/ropes")


def test_bundled_models_against_from_pretrained():
    from tinput import twins

    for name in twins.NAMES:
        folder = twins.folder(name)
        full = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        blocks = next(path for path, part in full.named_modules() if isinstance(part, torch.nn.ModuleList))
        ids = transformers.AutoTokenizer.from_pretrained(folder)("The cat sat; the other cat sat too.")["input_ids"]
        seen = Checkpoint(name, folder, full, {"decoder": f"{blocks}.0"}).run(ids)
        trace = open_model(name).trace("The cat sat; the other cat sat too.")
        assert trace.ids.tolist() == ids
        assert torch.equal(trace.block_input, seen.block_input[0])
        assert trace.checkpoint_dtype == "float16"


def test_rows_of_tables_are_the_checkpoints():
    for name, table in [("bert", "bert.embeddings.word_embeddings.weight"), ("gemma", "model.embed_tokens.weight")]:
        made = checkpoint(name)
        model, state = made.model, made.full.state_dict()
        index = torch.tensor([9, 5, 9, 0])
        assert model.embedding_name == table
        assert torch.equal(model.embedding_rows(index), state[table][index])
        assert torch.equal(model.table_rows(table, index), state[table][index])
        assert model.table_size(table) == 320
    table = checkpoint("opt").trace([5]).effects[0].table
    assert checkpoint("opt").model.table_size(table) == 130


def test_stacks():
    assert checkpoint("bart").model.stacks == ("encoder", "decoder")
    assert checkpoint("bert").model.stacks == ("encoder",)
    assert checkpoint("llama").model.stacks == ("decoder",)
    assert checkpoint("llama").model.stack("decoder") is checkpoint("llama").model.stack()
    for name, stack in [("llama", "encoder"), ("bert", "decoder"), ("bart", "both")]:
        with pytest.raises(BadIds):
            checkpoint(name).model.stack(stack)


def test_the_class_in_config_json_is_the_one_that_runs(tmp_path):
    """The same type with another head, and with none named."""
    import json

    config: Any = tiny.build("bert").config
    bare = transformers.BertModel(config).eval()
    bare.save_pretrained(tmp_path / "bare")
    model = open_model(tmp_path / "bare")
    assert model.class_name == "BertModel"
    seen = Checkpoint("bert", tmp_path, bare, {"encoder": "encoder.layer.0"}).run(some_ids(6))
    assert torch.equal(model.trace(ids=some_ids(6)).block_input, seen.block_input[0])
    file = tmp_path / "bare" / "config.json"
    config = json.loads(file.read_text())
    config.pop("architectures")
    file.write_text(json.dumps(config))
    assert torch.equal(open_model(tmp_path / "bare").trace(ids=some_ids(6)).block_input, seen.block_input[0])


def test_two_schemes_in_one_model(tmp_path):
    """MPNet adds a table and then a bias by bucket."""
    config = transformers.MPNetConfig(
        vocab_size=320,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=64,
    )
    torch.manual_seed(0)
    built = transformers.MPNetForMaskedLM(config)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    built.save_pretrained(tmp_path)
    full = transformers.MPNetForMaskedLM.from_pretrained(tmp_path).eval()
    made = Checkpoint("mpnet", tmp_path, full, {"encoder": "mpnet.encoder.layer.0"})
    ids = [0, 5, 1, 9, 2]  # 1 is the pad
    trace, seen = made.trace(ids), made.run(ids, output_attentions=True)
    assert made.model.schemes == trace.schemes == ("learned", "relative_bias")
    assert made.model.scheme == trace.scheme == "learned"
    assert made.model.layer_schemes == ("relative_bias", "relative_bias")
    assert torch.equal(trace.block_input, seen.block_input[0])
    assert trace.positions.tolist() == [2, 3, 1, 4, 5]
    assert torch.allclose(trace.attention.weights.tensor(), seen.result.attentions[0][0], atol=1e-5)
    assert [type(found.effect).__name__ for found in trace.effects] == ["Add", "Bias"]
    assert trace.agreement.ok is True, trace.agreement.message
    # set by hand, positions move the table's rows and not the bias, which counts for itself
    chosen = [7, 2, 9, 4, 30]
    trace, seen = made.trace(ids, positions=chosen), made.run(ids, position_ids=torch.tensor([chosen]))
    assert torch.equal(trace.block_input, seen.block_input[0])
    assert [found.positions.tolist() for found in trace.effects] == [chosen, [0, 1, 2, 3, 4]]
    assert trace.agreement.ok is True, trace.agreement.message


# --- too long


@pytest.mark.parametrize(
    ("name", "changes", "usable"),
    [
        ("gpt2", {"n_positions": 10}, 10),
        ("bert", {"max_position_embeddings": 10}, 10),
        ("roberta", {"max_position_embeddings": 10}, 8),  # max - pad - 1
        ("roberta", {"max_position_embeddings": 10, "pad_token_id": 3}, 6),
        ("opt", {"max_position_embeddings": 10}, 10),  # two more rows than it says
        ("bart", {"max_position_embeddings": 10}, 10),
        ("distilbert-sinusoidal", {"max_position_embeddings": 10}, 10),
        ("albert", {"max_position_embeddings": 10}, 10),
    ],
)
def test_more_tokens_than_a_table_has_rows(name, changes, usable):
    made = checkpoint(name, **changes)
    assert made.model.usable_length == usable
    fits = made.trace(some_ids(usable))
    assert torch.equal(fits.block_input, made.run(some_ids(usable)).block_input[0])
    with pytest.raises(TooLong) as caught:
        made.trace(some_ids(usable + 1))
    assert caught.value.usable == usable
    assert f"{usable + 1}" in str(caught.value)
    assert f"{usable}" in str(caught.value)


@pytest.mark.parametrize("name", ["llama", "t5", "bloom", "mamba", "gpt_neox"])
def test_no_table_no_end(name):
    assert checkpoint(name).model.usable_length is None
    assert len(checkpoint(name).trace(some_ids(300)).block_input) == 300


# --- what may be asked of trace


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, BadIds),
        ({"text": "a", "ids": [5]}, BadIds),
        ({"ids": []}, BadText),
        ({"ids": [-1, 5]}, BadIds),
        ({"ids": [320]}, BadIds),
        ({"ids": [2**62]}, BadIds),
        ({"ids": [2**70]}, BadIds),
        ({"ids": [1.5, 2.0]}, BadIds),
        ({"ids": [True, False]}, BadIds),
        ({"ids": [[5, 6]]}, BadIds),
        ({"ids": ["a"]}, BadIds),
        ({"ids": [None]}, BadIds),
        ({"ids": 5}, BadIds),
        ({"ids": torch.tensor([5.0])}, BadIds),
        ({"ids": [5, 6], "positions": [0]}, BadIds),
        ({"ids": [5, 6], "positions": [0, -1]}, BadIds),
        ({"ids": [5, 6], "positions": [0, 1.5]}, BadIds),
        ({"ids": [5, 6], "positions": [0, 10_000]}, BadIds),
        ({"ids": [5, 6], "stack": "encoder"}, BadIds),
        ({"ids": [5, 6], "stack": "middle"}, BadIds),
        ({"ids": [5, 6], "dtype": "int32"}, BadIds),
        ({"ids": [5, 6], "dtype": "float8_e4m3fn"}, BadIds),
        ({"ids": [5, 6], "dtype": None}, BadIds),
        ({"text": "hello"}, BadFile),  # this folder has no tokenizer
    ],
)
def test_bad_requests_are_named(given, error):
    model = checkpoint("gpt2").model
    with pytest.raises(error) as caught:
        model.trace(**given)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) > 20
    assert torch.equal(model.trace(ids=[5, 6]).block_input, checkpoint("gpt2").run([5, 6]).block_input[0])


def test_ids_in_any_integer_form():
    made = checkpoint("gpt2")
    expected = made.trace([5, 6]).block_input
    for ids in ((5, 6), torch.tensor([5, 6]), torch.tensor([5, 6], dtype=torch.int32), range(5, 7)):
        assert torch.equal(made.model.trace(ids=ids).block_input, expected)


def test_what_was_given_is_not_changed_and_not_shared():
    made = checkpoint("gpt2")
    ids = torch.tensor([5, 6, 7])
    trace = made.model.trace(ids=ids)
    ids[0] = 9
    assert trace.ids.tolist() == [5, 6, 7]


def test_stacks_of_an_encoder_decoder():
    made = checkpoint("bart")
    encoder, decoder = made.trace([5, 6], "encoder"), made.trace([5, 6], "decoder")
    assert torch.equal(made.model.trace(ids=[5, 6]).block_input, encoder.block_input)
    assert not torch.equal(encoder.block_input, decoder.block_input)
    with pytest.raises(BadIds, match="encoder"):
        made.model.trace(ids=[5, 6], stack="both")


# --- texts


@pytest.fixture(scope="module")
def spoken(tmp_path_factory):
    """A GPT-2 with a tokenizer of its own, and transformers' own reading of the folder."""
    folder = tmp_path_factory.mktemp("spoken")
    full = tiny.make("gpt2", folder, vocab_size=340)
    byte_level().save_pretrained(folder)
    return Checkpoint("gpt2", folder, full, {"decoder": "transformer.h.0"})


@pytest.mark.parametrize(
    "text",
    [
        "the cat sat",
        " ",
        "\n\n",
        "a",
        "é 🦙 깰",
        "<script>alert(1)</script>",
        "$x$ **b**",
        "\0",
        "مرحبا",
        "a⭢b",
    ],
)
def test_texts_go_through(spoken, text):
    from transformers import AutoTokenizer

    ids = AutoTokenizer.from_pretrained(spoken.folder)(text)["input_ids"]
    trace = spoken.model.trace(text)
    assert trace.ids.tolist() == ids
    assert list(trace.tokens.ids) == ids
    assert trace.tokens.text == text
    assert torch.equal(trace.block_input, spoken.run(ids).block_input[0])


def test_a_text_longer_than_the_table(spoken):
    with pytest.raises(TooLong) as caught:
        spoken.model.trace("x" * 500)
    assert caught.value.usable == 128


def test_no_text_at_all(spoken):
    with pytest.raises(BadText, match="text"):
        spoken.model.trace("")


def test_a_lone_surrogate(spoken):
    for call in (spoken.model.tokenize, spoken.model.trace):
        with pytest.raises(BadText, match="surrogate"):
            call("a\ud800b")


def test_a_text_that_is_none(spoken):
    for text in (5, b"bytes", ["a"]):
        with pytest.raises(BadText):
            spoken.model.trace(text)


def test_the_file_keeps_the_text(spoken, tmp_path):
    import numpy as np

    with np.load(spoken.model.trace("the cat").save(tmp_path / "t")) as file:
        about = json.loads(str(file["provenance"]))
    assert about["text"] == "the cat"
    assert "".join(about["pieces"]).replace("Ġ", " ") == "the cat"


@pytest.mark.parametrize("kind", ["gemma3", "llama4", "qwen3_5", "mllama", "voxtral"])
def test_a_model_of_text_and_pictures_that_looks_back_only_is_a_decoder(kind, tmp_path):
    from tests import census

    census.build(kind).save_pretrained(tmp_path)
    model = open_model(tmp_path)
    trace = model.trace(ids=[20, 21, 22, 23])
    assert model.stacks == ("decoder",)
    assert trace.stack == "decoder"
    assert trace.causal is True


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_positions_past_the_table_are_said_to_be_positions(name):
    model = checkpoint(name).model
    usable = model.usable_length
    with pytest.raises(BadIds, match=f"no position {usable + 1:,} .* has {usable:,} of them"):
        model.trace(ids=[5, 6], positions=[usable, usable + 1])


@pytest.mark.parametrize("flags", [{"add_special_tokens": "no"}, {"attention": "yes"}, {"attention": 1}])
def test_a_flag_is_true_or_false(flags):
    with pytest.raises(BadIds, match="is True or False, not"):
        open_model("tinput/rope").trace("a b", **flags)


def test_allowing_pickles_is_no_word():
    with pytest.raises(BadIds, match="allow_pickle is True or False, not 'no'"):
        open_model("tinput/rope", allow_pickle="no")  # type: ignore[arg-type]
