"""Tensors by the names of transformers' module: each as from_pretrained has it."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests import tiny
from tinput.errors import BadFile
from tinput.models.named import ModuleWeights
from tinput.models.weights import Weights


def on_meta(model: transformers.PreTrainedModel, **changes) -> transformers.PreTrainedModel:
    config = copy.deepcopy(model.config)
    for key, value in changes.items():
        setattr(config, key, value)
    with torch.device("meta"):
        return type(model)(config)


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
