"""The files of a checkpoint: tensors by name, as safetensors' own reader has them."""

from __future__ import annotations

import copy
import json
import struct
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tinput.errors import BadFile, BadIds
from tinput.models.headers import read_header
from tinput.models.weights import Weights


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


def test_a_header_of_two_hundred_thousand_names(tmp_path):
    entries = {f"layers.{n}.x": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for n in range(200_000)}
    assert len(read_header(write(tmp_path / "model.safetensors", entries))) == 200_000


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
