"""The floor of bytes that the Hub's benchmark holds tinput to, against one worked out by hand."""

from __future__ import annotations

import json

import torch
from safetensors.torch import save_file

from benchmarks import hub

TABLE, NORM = torch.zeros(50, 8), torch.zeros(8)  # float32


def test_the_floor_is_files_headers_distinct_rows_and_small_tensors(tmp_path):
    save_file({"table": TABLE, "norm": NORM}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}" * 10)
    (tmp_path / "tokenizer.json").write_text("{}" * 100)
    (tmp_path / "vocab.txt").write_text("not needed beside tokenizer.json")
    found = hub.floor(tmp_path, [4, 7, 4], {"table": "ids", "norm": "whole"})
    whole = (tmp_path / "model.safetensors").stat().st_size  # less than the 100 kB that a parser reads
    assert found == (200, 20 + whole + 2 * 8 * 4 + 8 * 4)


def test_each_shard_that_is_touched_counts_its_header_once(tmp_path):
    big = torch.zeros(1_000, 64)  # 256 kB a shard
    save_file({"a": big, "b": big.clone()}, tmp_path / "1.safetensors")
    save_file({"c": big}, tmp_path / "2.safetensors")
    save_file({"d": big}, tmp_path / "3.safetensors")
    index = json.dumps({"weight_map": {"a": "1.safetensors", "b": "1.safetensors", "c": "2.safetensors"}})
    (tmp_path / "model.safetensors.index.json").write_text(index)
    found = hub.floor(tmp_path, [1, 2, 3], {"a": "ids", "b": "positions", "c": "one"})
    assert found == (0, len(index) + 2 * 100_000 + (3 + 3 + 1) * 64 * 4)
