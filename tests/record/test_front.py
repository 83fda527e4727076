"""One run of a module: how far it goes, what it reads, and what becomes of bad input."""

from __future__ import annotations

import gc
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests import tiny
from tests.makers import byte_level
from tests.oracle import Checkpoint, checkpoint, open_model, some_ids
from tinput.errors import BadFile, BadIds, BadModel, BadText, NotRecorded, TooLong, Unknown
from tinput.models.weights import Weights
from tinput.record.front import Front


class Read:
    """What was read of a file: names of whole tensors, and rows by name."""

    def __init__(self, monkeypatch):
        self.whole: list[str] = []
        self.rows: dict[str, list[int]] = {}
        tensor, rows = Weights.tensor, Weights.rows

        def spy_tensor(weights, name, *args, **kwargs):
            self.whole.append(name)
            return tensor(weights, name, *args, **kwargs)

        def spy_rows(weights, name, index, *args, **kwargs):
            self.rows.setdefault(name, []).extend(index.tolist())
            return rows(weights, name, index, *args, **kwargs)

        monkeypatch.setattr(Weights, "tensor", spy_tensor)
        monkeypatch.setattr(Weights, "rows", spy_rows)


# --- only what is touched


@pytest.mark.parametrize(
    ("name", "stack", "table", "layers"),
    [
        ("llama", "decoder", "model.embed_tokens.weight", "model.layers."),
        ("gpt2", "decoder", "transformer.wte.weight", "transformer.h."),
        ("bert", "encoder", "bert.embeddings.word_embeddings.weight", "bert.encoder.layer."),
        ("bart", "encoder", "model.shared.weight", "model.encoder.layers."),
        ("bart", "decoder", "model.shared.weight", "model.decoder.layers."),
        ("t5", "decoder", "shared.weight", "decoder.block."),
        ("gpt_oss", "decoder", "model.embed_tokens.weight", "model.layers."),
        ("deepseek_v3", "decoder", "model.embed_tokens.weight", "model.layers."),
    ],
)
def test_only_what_is_touched_is_read(name, stack, table, layers, monkeypatch):
    made = checkpoint(name)
    made.trace([5], stack)  # what a model reads once, at its first trace
    read = Read(monkeypatch)
    made.trace([9, 7, 9, 30, 7], stack)
    assert sorted(set(read.rows[table])) == [7, 9, 30]
    assert len(read.rows[table]) == 3  # each row once
    assert table not in read.whole
    assert read.whole
    inside = [key for key in read.whole if key.startswith(layers)]
    assert inside
    assert all(key.startswith(f"{layers}0.") for key in inside)
    kept = {"mlp", "fc1", "fc2", "lm_head", "o_proj", "out_proj", "down_proj", "experts", "DenseReluDense", "cls"}
    assert not [key for key in read.whole if kept & set(key.split("."))]  # what comes after q and k
    other = {"encoder": "decoder", "decoder": "encoder"}[stack]
    assert not [key for key in read.whole if f"{other}." in key and not key.startswith(layers)]


def test_opening_reads_no_weight(monkeypatch):
    folder = checkpoint("llama").folder
    read = Read(monkeypatch)
    model = open_model(folder)
    assert model.scheme == "rope"
    assert model.layer_schemes
    assert model.reason
    assert model.config["hidden_size"] == 64
    assert (read.whole, read.rows) == ([], {})


def test_the_rows_of_a_long_text_are_read_once_each(monkeypatch):
    made = checkpoint("llama")
    read = Read(monkeypatch)
    made.trace([5, 6] * 50)
    assert sorted(read.rows["model.embed_tokens.weight"]) == [5, 6]


# --- ties


def rewritten(source: Path, folder: Path, change) -> Path:
    """A copy of a checkpoint whose tensors went through `change(tensors)`."""
    shutil.copytree(source, folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})
    return folder


def test_a_tied_table_that_is_saved_under_the_heads_name(tmp_path):
    """cases.md 21: only lm_head.weight in the file, embeddings tied: that table is the embedding."""
    made = checkpoint("llama", tie_word_embeddings=True)

    def rename(tensors):
        tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")

    folder = rewritten(made.folder, tmp_path / "tied", rename)
    trace = open_model(folder).trace(ids=some_ids(7))
    full = type(made.full).from_pretrained(folder).eval()
    seen = Checkpoint("llama", folder, full, made.first_block).run(some_ids(7))
    assert torch.equal(trace.block_input, seen.block_input[0])
    assert torch.equal(trace.block_input, made.trace(some_ids(7)).block_input)


def test_an_untied_table_that_is_missing_is_an_error(tmp_path):
    """Never initialised values in a model's name."""
    made = checkpoint("llama", tie_word_embeddings=False)
    folder = rewritten(made.folder, tmp_path / "untied", lambda tensors: tensors.pop("model.embed_tokens.weight"))
    with pytest.raises(BadFile, match=r"embed_tokens"):
        open_model(folder).trace(ids=[5, 6])


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("bert", "bert.embeddings.position_embeddings.weight"),
        ("bert", "bert.embeddings.LayerNorm.weight"),
        ("llama", "model.embed_tokens.weight"),
    ],
)
def test_a_tensor_missing_before_the_first_block_is_an_error(name, missing, tmp_path):
    folder = rewritten(checkpoint(name).folder, tmp_path / "part", lambda tensors: tensors.pop(missing))
    with pytest.raises(BadFile, match=missing.rsplit(".", 2)[-2]):
        open_model(folder).trace(ids=[5, 6])


def without_q(tensors):
    tensors.pop("model.layers.0.self_attn.q_proj.weight")


def packed_q(tensors):
    """How a quantized checkpoint holds it: codes and scales of another name."""
    without_q(tensors)
    tensors["model.layers.0.self_attn.q_proj.qweight"] = torch.ones(8, 64, dtype=torch.int32)


def cut_q(tensors):
    tensors["model.layers.0.self_attn.q_proj.weight"] = torch.zeros(8, 8)


@pytest.mark.parametrize("spoil", [without_q, packed_q, cut_q])
def test_a_projection_that_cannot_be_had_leaves_the_rest(spoil, tmp_path):
    """No q, so no attention, and the reason; the block input and the angles need none."""
    made = checkpoint("llama")
    trace = open_model(rewritten(made.folder, tmp_path / "part", spoil)).trace(ids=some_ids(7))
    assert torch.equal(trace.block_input, made.run(some_ids(7)).block_input[0])
    assert trace.attention is None
    assert "q_proj" in trace.attention_reason
    assert torch.equal(trace.effect.cos, made.trace(some_ids(7)).effect.cos)
    assert trace.agreement.ok is True
    assert "attention_q" not in trace.arrays()


def test_a_bias_that_cannot_be_had_leaves_the_rest(tmp_path):
    made = checkpoint("t5")
    missing = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    model = open_model(rewritten(made.folder, tmp_path / "part", lambda tensors: tensors.pop(missing)))
    trace = model.trace(ids=some_ids(7))
    assert model.scheme == "relative_bias"
    assert torch.equal(trace.block_input, made.run(some_ids(7)).block_input[0])
    assert trace.attention is None
    assert trace.effects[0].effect is None
    for reason in (trace.attention_reason, trace.effects[0].reason, trace.textbook_reason, trace.agreement.message):
        assert "relative_attention_bias" in reason
    assert trace.agreement.ok is None


@pytest.mark.parametrize("scaled", [True, False])
def test_a_quantized_projection_is_never_read_as_numbers(tmp_path, scaled):
    """DeepSeek's own checkpoints: float8 codes whose scales stand beside them. Without those, they are nothing."""
    made = checkpoint("llama")
    name = "model.layers.0.self_attn.q_proj.weight"
    codes = made.full.state_dict()[name].to(torch.float8_e4m3fn)

    def quantize(tensors):
        tensors[name] = codes
        if scaled:
            tensors[f"{name}_scale_inv"] = torch.full((1, 1), 0.25)

    folder = rewritten(made.folder, tmp_path / "fp8", quantize)
    config = json.loads((folder / "config.json").read_text())
    scheme = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": scheme}))
    trace = open_model(folder).trace(ids=some_ids(7))
    assert torch.equal(trace.block_input, made.run(some_ids(7)).block_input[0])
    if not scaled:
        assert trace.attention is None
        assert "fp8" in trace.attention_reason
        return
    full = type(made.full).from_pretrained(made.folder).eval()
    full.load_state_dict(made.full.state_dict() | {name: codes.float() * 0.25})
    assert torch.equal(trace.attention.q, made.run(some_ids(7), full=full).fused[0].query[0])


def test_nan_in_a_checkpoint_is_said(tmp_path):
    def spoil(tensors):
        tensors["model.embed_tokens.weight"][7] = torch.nan

    folder = rewritten(checkpoint("llama").folder, tmp_path / "nan", spoil)
    model = open_model(folder)
    with pytest.raises(NotRecorded, match="NaN"):
        model.trace(ids=[5, 7])
    assert torch.isfinite(model.trace(ids=[5, 6]).block_input).all()  # the other rows are fine


def test_infinity_in_a_checkpoint_is_shown_as_it_is(tmp_path):
    def spoil(tensors):
        tensors["model.embed_tokens.weight"][7, 0] = torch.inf

    folder = rewritten(checkpoint("llama").folder, tmp_path / "inf", spoil)
    trace = open_model(folder).trace(ids=[5, 7])
    assert trace.block_input[1, 0] == torch.inf


# --- folders that are no model


def copied(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(checkpoint(name).folder, folder))


def cut_file(folder: Path) -> str:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    return "model.safetensors"


def cut_header(folder: Path) -> str:
    (folder / "model.safetensors").write_bytes(b"\x10\x00\x00")
    return "model.safetensors"


def endless_header(folder: Path) -> str:
    (folder / "model.safetensors").write_bytes(b"\xff" * 8 + b"{}")
    return "model.safetensors"


def pointer(folder: Path) -> str:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 123456\n"
    (folder / "model.safetensors").write_text(text)
    return "model.safetensors"


def pickle_only(folder: Path) -> str:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    return "pytorch_model.bin"


def no_weights(folder: Path) -> str:
    (folder / "model.safetensors").unlink()
    return "safetensors"


def no_config(folder: Path) -> str:
    (folder / "config.json").unlink()
    return "config.json"


def broken_config(folder: Path) -> str:
    (folder / "config.json").write_text('{"model_type": "llama",')
    return "config.json"


def config_of_a_list(folder: Path) -> str:
    (folder / "config.json").write_text("[1, 2]")
    return "config.json"


def unbuildable(folder: Path) -> str:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_attention_heads": 0}))
    return "config.json"


@pytest.mark.parametrize(
    "spoil",
    [
        cut_file,
        cut_header,
        endless_header,
        pointer,
        pickle_only,
        no_weights,
        no_config,
        broken_config,
        config_of_a_list,
        unbuildable,
    ],
)
def test_a_broken_folder_is_one_sentence_that_names_the_file(spoil, tmp_path):
    folder = copied("llama", tmp_path / "broken")
    named = spoil(folder)
    with pytest.raises(BadModel) as caught:
        open_model(folder).trace(ids=[5, 6])
    message = str(caught.value)
    assert named in message
    assert "\n" not in message
    assert "Traceback" not in message


def test_a_missing_shard_is_named(tmp_path):
    folder = tmp_path / "shards"
    tiny.make("llama", folder, save={"max_shard_size": "60KB"})
    shard = sorted(folder.glob("*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(BadFile, match=shard.name):
        open_model(folder).trace(ids=[5, 6])


def test_an_architecture_that_transformers_does_not_have(tmp_path):
    folder = copied("llama", tmp_path / "unknown")
    config = json.loads((folder / "config.json").read_text())
    changes = {"model_type": "no_such_model", "auto_map": {"AutoModel": "code.Model"}}
    (folder / "config.json").write_text(json.dumps(config | changes))
    (folder / "code.py").write_text("raise SystemExit('code of a checkpoint was run')")
    with pytest.raises(Unknown, match="no_such_model"):
        open_model(folder)


def test_code_beside_a_known_architecture_is_not_run(tmp_path):
    folder = copied("llama", tmp_path / "code")
    config = json.loads((folder / "config.json").read_text())
    names = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": names}))
    (folder / "code.py").write_text("raise SystemExit('code of a checkpoint was run')")
    assert torch.equal(open_model(folder).trace(ids=[5, 6]).block_input, checkpoint("llama").trace([5, 6]).block_input)


# --- too long


@pytest.mark.parametrize(
    ("name", "changes", "usable"),
    [
        ("gpt2", {"n_positions": 10}, 10),
        ("bert", {"max_position_embeddings": 10}, 10),
        ("roberta", {"max_position_embeddings": 10}, 8),  # cases.md 17: max - pad - 1
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


def test_weights_are_not_kept(monkeypatch):
    """A trace's weights go with it: two traces read the same again."""
    made = checkpoint("llama")
    read = Read(monkeypatch)
    made.trace([5, 6])
    first = sorted(read.whole)
    read.whole.clear()
    made.trace([5, 6])
    assert sorted(read.whole) == first


def test_what_was_read_does_not_wait_for_the_garbage_collector(tmp_path):
    tiny.make("gpt2", tmp_path)
    model = open_model(tmp_path)
    assert model.anatomy.stacks
    gc.collect()
    gc.disable()
    try:
        trace = model.trace(ids=[3, 1, 2])
        assert not [each for each in gc.get_objects() if type(each) is Front]
    finally:
        gc.enable()
    assert trace.block_input.shape == (3, 64)
