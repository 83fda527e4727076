"""Folders that are no model, or a spoiled one: one sentence each, which names the file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from tests import tiny
from tests.oracle import checkpoint, open_model
from tinput.errors import BadFile, BadModel, Unknown


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
