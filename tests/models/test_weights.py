"""Tensors by name: the files against safetensors' own reader, the module's names against from_pretrained."""

from __future__ import annotations

import copy
import json
import struct
import threading
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests import tiny
from tinput.errors import BadFile, BadIds
from tinput.models.headers import read_header
from tinput.models.named import ModuleWeights
from tinput.models.weights import Weights


def on_meta(model: transformers.PreTrainedModel, **changes) -> transformers.PreTrainedModel:
    config = copy.deepcopy(model.config)
    for key, value in changes.items():
        setattr(config, key, value)
    with torch.device("meta"):
        return type(model)(config)


def write(file: Path, header: object, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return file


# ---- the files ---------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(tmp_path):
    torch.manual_seed(0)
    tensors = {
        "bf16": torch.randn(5, 7).bfloat16(),
        "f16": torch.randn(3).half(),
        "f32": torch.randn(4, 2, 3),
        "f64": torch.randn(2, 2, dtype=torch.float64),
        "f8": torch.randn(6, 3).to(torch.float8_e4m3fn),
        "i64": torch.arange(9).view(3, 3),
        "bool": torch.tensor([True, False]),
        "number": torch.tensor(3.5),
        "nothing": torch.empty(0, 4),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path, tensors


def test_every_dtype_and_shape_as_safetensors_reads_it(mixed):
    folder, tensors = mixed
    weights = Weights(folder)
    assert weights.names.keys() == tensors.keys()
    for name, expected in load_file(folder / "model.safetensors").items():
        got = weights.tensor(name)
        assert got.dtype == expected.dtype == weights.dtype(name)
        assert got.shape == expected.shape == weights.names[name].shape
        assert torch.equal(
            got.view(torch.uint8) if got.dim() else got, expected.view(torch.uint8) if got.dim() else expected
        )


@pytest.mark.parametrize("name", ["bf16", "f32", "f8"])
def test_rows_are_the_rows_of_the_tensor(mixed, name):
    folder, tensors = mixed
    index = torch.tensor([2, 0, 2, 3])
    rows = Weights(folder).rows(name, index)
    assert torch.equal(rows.float(), tensors[name].float()[index])


def test_rows_that_are_not_there(mixed):
    weights = Weights(mixed[0])
    for bad in (-1, 5):
        with pytest.raises(BadIds, match=f"no row {bad} in bf16: it has rows 0 to 4"):
            weights.rows("bf16", torch.tensor([0, bad]))
    with pytest.raises(BadIds, match="single number"):
        weights.rows("number", torch.tensor([0]))


@pytest.mark.parametrize("padding", range(9))
def test_a_header_of_any_length(tmp_path, padding):
    """Headers are padded to eight bytes by most writers, not by all: floats may lie unaligned."""
    values = torch.arange(12, dtype=torch.float32).view(4, 3)
    header = json.dumps({"x": {"dtype": "F32", "shape": [4, 3], "data_offsets": [0, 48]}}).encode() + b" " * padding
    write(tmp_path / "model.safetensors", header, values.numpy().tobytes())
    weights = Weights(tmp_path)
    assert torch.equal(weights.tensor("x"), values)
    assert torch.equal(weights.rows("x", torch.tensor([3, 1])), values[[3, 1]])


def test_a_header_of_exactly_100000_bytes(tmp_path):
    text = json.dumps({"x": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}}).encode()
    file = write(tmp_path / "model.safetensors", text.ljust(100_000), b"\x07\x08")
    assert struct.unpack("<Q", file.read_bytes()[:8]) == (100_000,)
    assert Weights(tmp_path).tensor("x").tolist() == [7, 8]


def test_the_file_is_mapped_not_read(tmp_path):
    """A gigabyte that takes no room on the disk: rows of it come at once, and memory stays where it was."""
    resource = pytest.importorskip("resource")
    rows, width = 1_000_000, 256
    size = rows * width * 4
    text = json.dumps({"x": {"dtype": "F32", "shape": [rows, width], "data_offsets": [0, size]}}).encode()
    file = write(tmp_path / "model.safetensors", text.ljust(128))
    begin = file.stat().st_size
    with file.open("r+b") as stream:
        stream.truncate(begin + size)
        stream.seek(begin + 777_777 * width * 4)
        stream.write(struct.pack("<f", 2.5))
    weights = Weights(tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert weights.rows("x", torch.tensor([777_777, 0]))[:, 0].tolist() == [2.5, 0.0]
    assert weights.tensor("x")[777_777, 0] == 2.5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # kB


def test_a_file_larger_than_memory_is_mapped_all_the_same(mixed, monkeypatch):
    """Linux refuses a writable map of such a file, by the very error that is raised here."""

    def refused(*_, **__):
        raise RuntimeError("unable to mmap 429496729600 bytes from file: Cannot allocate memory (12)")

    monkeypatch.setattr(torch, "from_file", refused)
    folder, tensors = mixed
    weights = Weights(folder)
    for name, expected in tensors.items():
        assert torch.equal(weights.tensor(name).double(), expected.double())
    weights.tensor("f32").zero_()  # a copy: neither a crash nor a change
    assert torch.equal(weights.tensor("f32"), tensors["f32"])
    assert torch.equal(weights.rows("f32", torch.tensor([3, 1])), tensors["f32"][[3, 1]])


def test_copies_and_threads_share_the_map(mixed):
    folder, tensors = mixed
    weights = Weights(folder)
    assert copy.deepcopy(weights).tensor("f32").data_ptr() == weights.tensor("f32").data_ptr()
    fresh, wrong = Weights(folder), []

    def read():
        for name in ("f32", "bf16") * 50:
            wrong.extend([] if torch.equal(fresh.tensor(name), tensors[name]) else [name])

    threads = [threading.Thread(target=read) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_writing_to_a_tensor_leaves_the_file_alone(mixed):
    before = (mixed[0] / "model.safetensors").read_bytes()
    Weights(mixed[0]).tensor("f32").zero_()
    assert (mixed[0] / "model.safetensors").read_bytes() == before


def test_no_file_stays_open(mixed):
    opened = Path("/proc/self/fd")
    if not opened.exists():
        pytest.skip("no /proc here")
    weights = Weights(mixed[0])
    weights.tensor("f32")
    assert not [fd for fd in opened.iterdir() if "model.safetensors" in str(fd.resolve())]


def test_a_file_that_shrinks_after_it_was_opened(mixed):
    weights = Weights(mixed[0])
    weights.tensor("f32")
    file = mixed[0] / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(BadFile, match=r"model\.safetensors has changed"):
        weights.tensor("f32")


# ---- bad files: a clear error each, naming the file ----------------------------------------------------------------

ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d7a" * 16 + b"\nsize 437951328\n"
BAD = {
    "empty": (b"", "not even a header"),
    "five bytes": (b"\x05\0\0\0\0", "not even a header"),
    "header of 2^64 - 1": (b"\xff" * 8 + b"{}", "18,446,744,073,709,551,615 bytes"),
    "header of 2^63": (struct.pack("<Q", 2**63) + b"{}", "claims"),
    "header longer than the file": (struct.pack("<Q", 100) + b"{}", "claims 100 bytes and the file has 10"),
    "git-lfs pointer": (POINTER, "git-lfs pointer"),
    "no JSON": (struct.pack("<Q", 4) + b"{x: ", "no JSON"),
    "no UTF-8": (struct.pack("<Q", 4) + b'{"\xff"', "no JSON"),
    "deep": (struct.pack("<Q", 200_000) + b"[" * 200_000, "no JSON"),
    "a list": (struct.pack("<Q", 2) + b"[]", "no JSON object"),
}
BAD_ENTRY = {
    "no object": 3,
    "no shape": {"dtype": "F32", "data_offsets": [0, 8]},
    "unknown dtype": ENTRY | {"dtype": "F31"},
    "a dtype that cannot be a key": ENTRY | {"dtype": []},
    "negative": ENTRY | {"shape": [-2], "data_offsets": [8, 0]},
    "fraction": ENTRY | {"shape": [2.0]},
    "truth": ENTRY | {"shape": [True, 2]},
    "three offsets": ENTRY | {"data_offsets": [0, 4, 8]},
    "too few bytes": ENTRY | {"data_offsets": [0, 7]},
    "past the end": ENTRY | {"shape": [200], "data_offsets": [0, 800]},
    "huge": ENTRY | {"shape": [2**40, 2**40], "data_offsets": [0, 2**82]},
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_is_no_safetensors(tmp_path, case):
    data, message = BAD[case]
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(BadFile, match=message) as caught:
        Weights(tmp_path)
    assert str(tmp_path / "model.safetensors") in str(caught.value)


@pytest.mark.parametrize("case", BAD_ENTRY)
def test_an_entry_that_does_not_fit(tmp_path, case):
    write(tmp_path / "model.safetensors", {"odd one": BAD_ENTRY[case]}, b"\0" * 8)
    with pytest.raises(BadFile, match="odd one") as caught:
        Weights(tmp_path)
    assert str(tmp_path / "model.safetensors") in str(caught.value)


def test_half_a_file(tmp_path):
    save_file({"x": torch.randn(100, 100)}, tmp_path / "model.safetensors")
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadFile, match=r"model\.safetensors is cut short: tensor 'x' ends at byte"):
        Weights(tmp_path)


def test_folders_without_weights(tmp_path):
    with pytest.raises(BadFile, match=r"no weights: no model\.safetensors"):
        Weights(tmp_path)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(BadFile, match="adapter"):
        Weights(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(BadFile, match=r"pytorch_model\.bin is a pickle.*save_pretrained"):
        Weights(tmp_path)
    save_file({"x": torch.ones(1)}, tmp_path / "other.safetensors")
    assert Weights(tmp_path).tensor("x") == 1
    save_file({"x": torch.ones(1)}, tmp_path / "another.safetensors")
    with pytest.raises(BadFile, match="2 safetensors files but no model"):
        Weights(tmp_path)


@pytest.fixture
def shards(tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path / "one.safetensors")
    save_file({"b": torch.zeros(2)}, tmp_path / "two.safetensors")
    index(tmp_path, {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})
    return tmp_path


def index(folder: Path, content: object) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / "model.safetensors.index.json").write_text(text)


def test_shards(shards):
    weights = Weights(shards)
    assert weights.tensor("a").tolist() == [1, 1]
    assert weights.names["b"].file == shards / "two.safetensors"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "no index of shards"),
        ("[]", "no index of shards"),
        ('{"weight_map": 3}', "no index of shards"),
        ('{"weight_map": {"a": 3}}', "no index of shards"),
        ('{"weight_map": {"a": "../one.safetensors"}}', "outside its folder"),
        ('{"weight_map": {"a": "/etc/passwd"}}', "outside its folder"),
        ('{"weight_map": {"a": "three.safetensors"}}', r"three\.safetensors is missing"),
        ('{"weight_map": {"c": "one.safetensors"}}', r"one\.safetensors does not hold tensor 'c'"),
    ],
)
def test_an_index_that_lies(shards, content, message):
    index(shards, content)
    with pytest.raises(BadFile, match=message) as caught:
        Weights(shards)
    assert str(shards) in str(caught.value)


# ---- the module's names --------------------------------------------------------------------------------------------


def check_all(oracle: transformers.PreTrainedModel, folder: Path) -> ModuleWeights:
    """Each tensor of the module's state equals what from_pretrained loaded; sinusoids that no file holds are absent."""
    module = ModuleWeights(Weights(folder), on_meta(oracle))
    absent = set()
    for name, expected in oracle.state_dict().items():
        if not module.has(name):
            absent.add(name)
            continue
        assert torch.equal(module.tensor(name), expected), name
        assert module.shape(name) == tuple(expected.shape)
        if expected.dim() > 1:
            index = torch.tensor([len(expected) - 1, 0, 0])
            assert torch.equal(module.rows(name, index), expected[index]), name
    computed = {n for n in absent if oracle.config.model_type == "marian" and n.endswith("embed_positions.weight")}
    assert absent == computed
    return module


@pytest.mark.parametrize("name", tiny.CONFIGS)
def test_every_tensor_of_every_architecture(tmp_path, name):
    check_all(tiny.make(name, tmp_path), tmp_path)


@pytest.mark.parametrize("name", ["llama", "phi3", "gpt_oss", "deepseek_v3", "t5", "modernbert"])
def test_sharded(tmp_path, name):
    oracle = tiny.make(name, tmp_path, save={"max_shard_size": "100KB"})
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    check_all(oracle, tmp_path)


def test_the_files_own_dtype(tmp_path):
    model = tiny.build("llama").bfloat16()
    model.save_pretrained(tmp_path)
    module = ModuleWeights(Weights(tmp_path), on_meta(model))
    name = "model.embed_tokens.weight"
    assert module.dtype(name) == module.tensor(name).dtype == torch.bfloat16
    assert torch.equal(module.tensor(name), model.state_dict()[name])


@pytest.mark.parametrize(("name", "inner"), [("bert", "bert"), ("gpt2", "transformer"), ("llama", "model")])
def test_a_head_on_a_bare_checkpoint_and_the_reverse(tmp_path, name, inner):
    """A prefix is added or taken away as the loader does, in both directions."""
    whole = tiny.build(name)
    bare = getattr(whole, inner)
    bare.save_pretrained(tmp_path / "bare")
    module = ModuleWeights(Weights(tmp_path / "bare"), on_meta(whole))
    for key, expected in bare.state_dict().items():
        assert torch.equal(module.tensor(f"{inner}.{key}"), expected)
    whole.save_pretrained(tmp_path / "whole")
    module = ModuleWeights(Weights(tmp_path / "whole"), on_meta(bare))
    for key, expected in bare.state_dict().items():
        if "pooler" not in key:
            assert torch.equal(module.tensor(key), expected)


def test_old_names_of_layer_norms(tmp_path):
    oracle = tiny.make("bert", tmp_path)
    file = tmp_path / "model.safetensors"
    old = {
        k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v
        for k, v in load_file(file).items()
    }
    assert any(k.endswith("gamma") for k in old)
    save_file(old, file, metadata={"format": "pt"})
    check_all(oracle, tmp_path)


def test_only_the_head_is_saved_and_embeddings_are_tied(tmp_path):
    oracle = tiny.make("llama", tmp_path, tie_word_embeddings=True)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    assert "lm_head.weight" not in tensors
    tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")
    save_file(tensors, file, metadata={"format": "pt"})
    module = check_all(oracle, tmp_path)
    assert module.names_in_file("model.embed_tokens.weight") == ("lm_head.weight",)


def test_only_the_head_is_saved_and_embeddings_are_not_tied(tmp_path):
    oracle = tiny.make("llama", tmp_path, tie_word_embeddings=False)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.embed_tokens.weight"]
    save_file(tensors, file, metadata={"format": "pt"})
    module = ModuleWeights(Weights(tmp_path), on_meta(oracle))
    assert not module.has("model.embed_tokens.weight")
    assert module.has("lm_head.weight")
    with pytest.raises(BadFile, match=rf"'model\.embed_tokens\.weight' is not in the files of {tmp_path}"):
        module.tensor("model.embed_tokens.weight")


def test_three_names_of_one_table_agree(tmp_path):
    """Tied by configuration, yet only a copy that is neither the source nor the one asked for is in the file."""
    oracle = tiny.make("t5", tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    table = tensors.pop("shared.weight")
    save_file(tensors | {"lm_head.weight": table}, file, metadata={"format": "pt"})
    module = check_all(oracle, tmp_path)
    for name in ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
        assert torch.equal(module.tensor(name), table)


def test_tied_by_configuration_but_saved_apart(tmp_path):
    """Two different tables in the file stay two: from_pretrained warns and does not tie them."""
    oracle = tiny.make("llama", tmp_path, tie_word_embeddings=False)
    settings = json.loads((tmp_path / "config.json").read_text()) | {"tie_word_embeddings": True}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    again = type(oracle).from_pretrained(tmp_path)
    assert not torch.equal(again.lm_head.weight, again.model.embed_tokens.weight)
    check_all(again, tmp_path)


def test_another_shape_than_the_configuration_says(tmp_path):
    oracle = tiny.make("gpt2", tmp_path)
    module = ModuleWeights(Weights(tmp_path), on_meta(oracle, n_positions=64))
    name = "transformer.wpe.weight"
    assert not module.has(name)
    with pytest.raises(BadFile, match=r"wpe\.weight.*model\.safetensors has shape \[128, 64\].*wants \[64, 64\]"):
        module.rows(name, torch.tensor([0]))
    assert module.has("transformer.wte.weight")


def test_another_shape_of_what_is_put_together(tmp_path):
    oracle = tiny.make("deepseek_v3", tmp_path)
    module = ModuleWeights(Weights(tmp_path), on_meta(oracle, moe_intermediate_size=48))
    with pytest.raises(BadFile, match=r"gate_up_proj.*with shape \[4, 192, 64\].*wants \[4, 96, 64\]"):
        module.tensor("model.layers.1.mlp.experts.gate_up_proj")


def test_a_missing_part_of_what_is_put_together(tmp_path):
    """One expert too few never becomes a model with initialised values."""
    oracle = tiny.make("deepseek_v3", tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.1.mlp.experts.2.up_proj.weight"]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(BadFile, match=r"experts\.gate_up_proj"):
        ModuleWeights(Weights(tmp_path), on_meta(oracle)).tensor("model.layers.1.mlp.experts.gate_up_proj")


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float8_e4m3fn])
def test_codes_are_never_values(tmp_path, dtype):
    oracle = tiny.make("llama", tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    name = "model.layers.0.self_attn.q_proj.weight"
    tensors[name] = tensors[name].to(dtype)
    save_file(tensors, file, metadata={"format": "pt"})
    model = on_meta(oracle, quantization_config={"quant_method": "fp8"})
    module = ModuleWeights(Weights(tmp_path), model)
    assert not module.has(name)
    with pytest.raises(BadFile, match=r"q_proj\.weight.*codes \(fp8\).*does not dequantise"):
        module.tensor(name)
    assert torch.equal(module.tensor("model.embed_tokens.weight"), oracle.state_dict()["model.embed_tokens.weight"])


def test_float8_without_a_quantisation_is_a_value(tmp_path):
    oracle = tiny.make("llama", tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = {k: v.to(torch.float8_e4m3fn) for k, v in load_file(file).items()}
    save_file(tensors, file, metadata={"format": "pt"})
    module = ModuleWeights(Weights(tmp_path), on_meta(oracle))
    assert module.tensor("model.norm.weight").dtype == torch.float8_e4m3fn


def test_an_unknown_name(tmp_path):
    oracle = tiny.make("bert", tmp_path)
    with pytest.raises(BadFile, match="no tensor 'nonsense'"):
        ModuleWeights(Weights(tmp_path), on_meta(oracle)).tensor("nonsense")


def test_many_numbered_names_are_renamed_by_their_shape(tmp_path):
    """Twelve experts, in an order in which "10" comes before "2": each ends up in its own place."""
    oracle = tiny.make("deepseek_v3", tmp_path, n_routed_experts=12)
    file = tmp_path / "model.safetensors"
    save_file(dict(sorted(load_file(file).items(), reverse=True)), file, metadata={"format": "pt"})
    module = check_all(oracle, tmp_path)
    names = module.names_in_file("model.layers.1.mlp.experts.gate_up_proj")
    assert len(names) == 24


def test_renamings_that_look_at_numbers_or_remember():
    """Those are given every key, in the loader's order; the others one key for all that differ in numbers alone."""
    from transformers.core_model_loading import GroupWeightRename, WeightRenaming, dot_natural_key

    from tinput.models.named import _renamed

    keys = ["h.10.norm.0.w", "h.2.norm.0.w", "h.2.norm.1.w", "h.2.norm.2.w", "h.7.w1"]
    asked = []

    def run(mapping):
        asked.clear()

        def rename(key):
            asked.append(key)
            for one in mapping:
                key, _ = one.rename_source_key(key)
            return key, None

        return {key: name for key, name, _ in _renamed(keys, rename, mapping)}

    assert run([WeightRenaming(r"h\.(\d+)\.", r"layers.\1.")]) == {k: k.replace("h.", "layers.") for k in keys}
    assert len(asked) == 2  # norm.#.w under h.#, and w1
    literal = [WeightRenaming(r"norm\.0\.", "first."), WeightRenaming("w1", "up")]
    expected = {"h.10.norm.0.w": "h.10.first.w", "h.2.norm.0.w": "h.2.first.w", "h.7.w1": "h.7.up"}
    assert run(literal) == {k: expected.get(k, k) for k in keys}
    assert asked == sorted(keys, key=dot_natural_key)
    state = [GroupWeightRename(["norm.1", "norm.2"], ["norm.3", "norm.4"])]
    assert run(state)["h.2.norm.2.w"] == "h.2.norm.4.w"


def test_a_header_of_two_hundred_thousand_names(tmp_path):
    entries = {f"layers.{n}.x": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for n in range(200_000)}
    assert len(read_header(write(tmp_path / "model.safetensors", entries))) == 200_000
