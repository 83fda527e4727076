"""One run of a module: how far it goes, what it reads, and what becomes of weights that are not there."""

from __future__ import annotations

import gc
import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests import census, tiny
from tests.oracle import Checkpoint, checkpoint, open_model, some_ids
from tinput.errors import BadFile, NotRecorded
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


def test_channels_first_and_more_tokens_than_channels(tmp_path):
    """SqueezeBERT's blocks are handed (batch, channels, seq)."""
    census.build("squeezebert").save_pretrained(tmp_path)
    full = transformers.SqueezeBertForMaskedLM.from_pretrained(tmp_path).eval()
    ids = some_ids(100)
    entered: list[torch.Tensor] = []
    full.transformer.embeddings.register_forward_hook(lambda _, __, out: entered.append(out[0].clone()))
    with torch.no_grad():
        full(torch.tensor([ids]))
    trace = open_model(tmp_path).trace(ids=ids)
    assert torch.equal(trace.block_input, entered[0])  # (100, 64)
    assert trace.agreement.ok is True


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
    """Only lm_head.weight in the file, embeddings tied: that table is the embedding."""
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
