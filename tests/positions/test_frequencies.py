"""RoPE's frequencies against transformers' own rotary modules, and what is read from a configuration."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import pytest
import torch

from tinput.positions import Nothing, Rotate, rope


def plain(**more) -> dict:
    """A small configuration, as a config.json would hold it."""
    return {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 64} | more


def library(config: dict) -> Any:
    """The same, as transformers opens it."""
    from transformers import CONFIG_MAPPING

    return CONFIG_MAPPING[config.get("model_type", "llama")].from_dict(deepcopy(config))


# The frequencies


SCALED = {
    "default": {},
    "linear": {"factor": 8.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 16.0, "original_max_position_embeddings": 64},
    "yarn beta": {
        "rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096,
        "beta_fast": 20, "beta_slow": 2.0,
    },
    "yarn untruncated": {
        "rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False,
    },
    "yarn mscale": {
        "rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096,
        "mscale": 0.7, "mscale_all_dim": 0.5,
    },
    "yarn attention": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": 0.5,
    },
    "longrope": {
        "short_factor": [1.0 + i / 8 for i in range(8)],
        "long_factor": [2.0 + i for i in range(8)],
        "original_max_position_embeddings": 32, "factor": 4.0,
    },
    "llama3": {
        "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    },
    "proportional": {"partial_rotary_factor": 0.25},
    "proportional factor": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "factor": 2.0},
}  # fmt: skip


@pytest.mark.parametrize("theta", [10000.0, 500000.0])
@pytest.mark.parametrize(("name", "more"), SCALED.items())
def test_every_rope_type_is_the_library_s(name, more, theta):
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    parameters = {"rope_type": name, "rope_theta": theta} | more
    config = library(plain(rope_parameters=parameters))
    module = LlamaRotaryEmbedding(config)
    for mapping in (config.to_dict(), plain(rope_parameters=parameters)):  # as the recorder has it, and as published
        found = rope.frequencies(mapping)
        assert found.inv_freq.dtype == torch.float64
        torch.testing.assert_close(found.inv_freq.float(), module.inv_freq, rtol=1e-6, atol=0)
        assert found.attention_factor == pytest.approx(module.attention_scaling, rel=1e-6)
        assert found.rope_type == module.rope_type
        assert found.rotary_dim == 2 * len(module.inv_freq)


@pytest.mark.parametrize("name", [name for name in SCALED if name not in ("dynamic", "longrope")])
def test_the_old_spelling_of_a_scaling(name):
    scaling = {"type": name} | {key if key != "rope_type" else "type": value for key, value in SCALED[name].items()}
    old = rope.frequencies(plain(rope_theta=5000.0, rope_scaling=scaling))
    new = rope.frequencies(plain(rope_parameters={"rope_type": name, "rope_theta": 5000.0} | SCALED[name]))
    assert torch.equal(old.inv_freq, new.inv_freq)
    assert old.attention_factor == new.attention_factor


@pytest.mark.parametrize("length", [8, 32, 33, 64, 100])
@pytest.mark.parametrize("name", ["dynamic", "longrope", "yarn"])
def test_predicted_cos_and_sin_are_a_fresh_module_s(name, length):
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    parameters = {"rope_type": name, "rope_theta": 10000.0} | SCALED[name]
    config = library(plain(max_position_embeddings=32, rope_parameters=parameters))
    positions = torch.arange(length)
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), positions[None])
    effect = rope.predict(config.to_dict(), positions)
    assert isinstance(effect, Rotate)
    pairs = effect.angles.shape[1]
    tolerance = 1e-6 * float(cos.abs().max()) + length * 2**-23
    assert float((effect.cos - cos[0, :, :pairs]).abs().max()) <= tolerance
    assert float((effect.sin - sin[0, :, :pairs]).abs().max()) <= tolerance


def test_dynamic_is_rebuilt_by_length_and_keeps_no_state():
    config = {"head_dim": 16, "max_position_embeddings": 32, "rope_scaling": {"type": "dynamic", "factor": 2.0}}

    def last(length):
        return rope.frequencies(config, seq_len=length).inv_freq[-1].item()

    assert [last(n) for n in (8, 32, 64, 40)] == pytest.approx([3.1623e-4, 3.1623e-4, 1.0541e-4, 2.1082e-4], rel=5e-5)


def test_the_three_bands_of_llama_3():
    scaling = {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }  # fmt: skip
    base = rope.frequencies({"head_dim": 64, "rope_theta": 5e5}).inv_freq
    scaled = rope.frequencies({"head_dim": 64, "rope_theta": 5e5, "rope_scaling": scaling}).inv_freq
    divided = (base / scaled).tolist()
    assert divided[:15] == [1.0] * 15
    assert divided[15:18] == pytest.approx([1.651, 3.292, 9.667], abs=5e-4)
    assert divided[18:] == pytest.approx([32.0] * 14, rel=1e-12)


@pytest.mark.parametrize(
    ("mscale", "mscale_all_dim", "factor"),
    [(1.0, 1.0, 1.0), (0.707, 1.0, 0.92104), (0.707, None, 1.36889), (None, None, 1.36889)],
)
def test_the_first_place_of_yarn_s_magnitude(mscale, mscale_all_dim, factor):
    scaling = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}
    scaling |= {"mscale": mscale, "mscale_all_dim": mscale_all_dim}
    config = plain(rope_scaling={key: value for key, value in scaling.items() if value is not None})
    assert rope.frequencies(config).attention_factor == pytest.approx(factor, abs=5e-6)
    effect = rope.predict(config, torch.arange(4))
    assert isinstance(effect, Rotate)
    torch.testing.assert_close(torch.hypot(effect.cos, effect.sin), torch.full((4, 8), factor), atol=1e-5, rtol=0)
    unscaled = rope.frequencies(config).inv_freq  # the magnitude is no part of the angle
    torch.testing.assert_close(effect.angles[1], unscaled.float())
    assert rope.frequencies(config).softmax_scale_factor == 1.0


def test_the_second_place_of_yarn_s_magnitude():
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention

    scaling = {
        "type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 1.0,
    }  # fmt: skip
    published = {
        "model_type": "deepseek_v3", "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2,
        "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16, "kv_lora_rank": 8, "q_lora_rank": None,
        "max_position_embeddings": 163840, "rope_theta": 10000, "rope_scaling": scaling,
    }  # fmt: skip
    config = library(published)
    attention = DeepseekV3Attention(config, layer_idx=0)
    for mapping in (published, config.to_dict()):
        found = rope.frequencies(mapping)
        assert found.softmax_scale_factor == pytest.approx(1.87385, abs=5e-6)
        assert found.softmax_scale_factor / math.sqrt(24) == pytest.approx(attention.scaling, rel=1e-6)
        assert found.attention_factor == 1.0
        assert found.rotary_dim == 8
        effect = rope.predict(mapping, torch.arange(3), layout="interleaved")
        assert isinstance(effect, Rotate)
        assert (effect.start, effect.layout, effect.rotary_dim) == (16, "interleaved", 8)


def test_proportional_keeps_pairs_that_do_not_turn():
    found = rope.frequencies(
        {"head_dim": 16, "rope_parameters": {"rope_type": "proportional"} | SCALED["proportional"]}
    )
    assert found.rotary_dim == 16
    assert (found.inv_freq > 0).tolist() == [True] * 2 + [False] * 6
    assert found.inv_freq[1].item() == pytest.approx(10000 ** (-2 / 16), rel=1e-12)
    assert rope.wavelengths(found.inv_freq)[-1].item() == math.inf


def test_wavelengths():
    assert rope.wavelengths(torch.tensor([1.0, 0.5])).tolist() == pytest.approx([2 * math.pi, 4 * math.pi])


# Configurations


def test_theta_in_the_old_key_the_new_dict_or_both():
    def theta(**config):
        found = rope.parse(plain(**config))
        return found and found.theta

    in_dict = {"rope_type": "default", "rope_theta": 500000.0}
    assert theta(rope_theta=70000.0) == 70000
    assert theta(rope_parameters=in_dict) == 500000
    assert theta(rope_theta=10000.0, rope_parameters=in_dict) == 500000
    assert theta(model_type="llama") == 10000
    assert theta(rotary_emb_base=25000) == 25000


def test_partial_rotation_in_the_old_spellings():
    m2 = {"model_type": "minimax_m2", "head_dim": 128, "hidden_size": 3072, "num_attention_heads": 48}
    m2 |= {"rope_theta": 5000000, "rotary_dim": 64}
    japanese = {"model_type": "gpt_neox_japanese", "hidden_size": 32, "num_attention_heads": 4, "rotary_pct": 0.5}
    for mapping in (m2, library(m2).to_dict()):
        assert rope.frequencies(mapping).inv_freq.shape == (32,)
    for mapping in (japanese, library(japanese).to_dict()):
        assert rope.frequencies(mapping).inv_freq.tolist() == pytest.approx([1, 0.01], rel=1e-12)
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    turned = rope.rotate(x, rope.angles(torch.arange(3), rope.frequencies(japanese).inv_freq))
    assert torch.equal(turned[:, 4:], x[:, 4:])
    assert not torch.equal(turned[1:, :4], x[1:, :4])


def test_gptj_counts_dimensions_and_has_a_table():
    from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions

    config = library({"model_type": "gptj", "n_embd": 64, "n_head": 4, "rotary_dim": 8})
    table = create_sinusoidal_positions(20, 8)  # (position, sines then cosines)
    effect = rope.predict(config.to_dict(), torch.arange(20), layout="interleaved")
    assert isinstance(effect, Rotate)
    torch.testing.assert_close(torch.cat((effect.sin, effect.cos), 1), table, atol=20 * 2**-23, rtol=1e-6)
    assert rope.frequencies({"model_type": "gptj", "n_embd": 4096, "n_head": 16}).rotary_dim == 64


GEMMA3 = {  # as google/gemma-3 checkpoints are published
    "model_type": "gemma3_text", "hidden_size": 64, "num_attention_heads": 4, "head_dim": 16, "num_hidden_layers": 8,
    "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "sliding_window_pattern": 6,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}  # fmt: skip
MODERNBERT = {
    "model_type": "modernbert", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 7,
    "global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "global_attn_every_n_layers": 3,
}  # fmt: skip


def test_local_and_global_layers_differ_in_theta_and_scaling():
    from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding

    config = library(GEMMA3)
    module = Gemma3RotaryEmbedding(config)
    for mapping in (GEMMA3, config.to_dict()):
        types = rope.layer_types(mapping)
        assert [i for i, kind in enumerate(types) if kind == "full_attention"] == [5]
        for kind, first in (("sliding_attention", 1.0), ("full_attention", 0.125)):
            found = rope.frequencies(mapping, layer_type=kind).inv_freq
            assert found[0].item() == first
            torch.testing.assert_close(found.float(), getattr(module, f"{kind}_inv_freq"), rtol=1e-6, atol=0)
        assert torch.equal(rope.frequencies(mapping).inv_freq, rope.frequencies(mapping, layer_type=types[0]).inv_freq)


def test_modernbert_s_two_thetas():
    from transformers.models.modernbert.modeling_modernbert import ModernBertRotaryEmbedding

    config = library(MODERNBERT)
    module = ModernBertRotaryEmbedding(config)
    for mapping in (MODERNBERT, config.to_dict()):
        assert rope.layer_types(mapping)[:4] == ("full_attention", *["sliding_attention"] * 2, "full_attention")
        for kind in ("sliding_attention", "full_attention"):
            found = rope.frequencies(mapping, layer_type=kind).inv_freq
            torch.testing.assert_close(found.float(), getattr(module, f"{kind}_inv_freq"), rtol=1e-6, atol=0)
        first = rope.frequencies(mapping).inv_freq  # of the first layer, a global one
        assert first[1].item() == pytest.approx(160000 ** (-2 / 16), rel=1e-12)


def test_layers_that_do_not_rotate():
    for model_type in ("smollm3", "llama4_text"):
        mapping = library({"model_type": model_type, "num_hidden_layers": 8}).to_dict()
        assert mapping["no_rope_layers"] == [1, 1, 1, 0, 1, 1, 1, 0]
        assert rope.rotated_layers(mapping) == tuple(i not in (3, 7) for i in range(8))
    assert rope.rotated_layers({"no_rope_layer_interval": 4, "num_hidden_layers": 4}) == (True, True, True, False)
    assert rope.rotated_layers(plain()) is None
    nested = {"full_attention": None, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    config = plain(layer_types=["sliding_attention", "full_attention"], rope_parameters=nested)
    assert isinstance(rope.predict(config, torch.arange(2), layer_type="full_attention"), Nothing)
    assert isinstance(rope.predict(config, torch.arange(2)), Rotate)
    with pytest.raises(ValueError, match="do not rotate"):
        rope.frequencies(config, layer_type="full_attention")


def test_phi_3_keeps_its_original_length_outside_the_scaling():
    from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

    scaling = {"type": "longrope", "short_factor": [1.1] * 8, "long_factor": [4.0] * 8}
    published = {
        "model_type": "phi3", "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 128,
        "original_max_position_embeddings": 32, "rope_theta": 10000.0, "rope_scaling": scaling,
    }  # fmt: skip
    config = library(published | {"pad_token_id": 0})
    for length in (20, 32, 33, 90):
        module = Phi3RotaryEmbedding(config)
        cos, _ = module(torch.zeros(1), torch.arange(length)[None])
        for mapping in (published, config.to_dict()):
            found = rope.frequencies(mapping, seq_len=length)
            torch.testing.assert_close(found.inv_freq.float(), module.inv_freq, rtol=1e-6, atol=0)
            assert found.attention_factor == pytest.approx(float(cos.max()), rel=1e-6)
            assert found.rope_type == "longrope"
    for older in ("su", "yarn"):  # its first checkpoints' names, which transformers 5.24 no longer opens
        renamed = rope.frequencies(published | {"rope_scaling": scaling | {"type": older}}, seq_len=90)
        assert renamed.rope_type == "longrope"
        assert torch.equal(renamed.inv_freq, found.inv_freq)


def test_a_text_turns_alike_in_all_three_sections_of_a_multimodal_rotation():
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding

    scaling = {"type": "mrope", "mrope_section": [2, 3, 3]}
    text = plain(model_type="qwen2_vl_text", rope_theta=1000000.0, rope_scaling=scaling)
    config = library(text)
    positions = torch.arange(9)
    cos, _ = Qwen2VLRotaryEmbedding(config)(torch.zeros(1), positions.expand(3, 1, 9))
    for mapping in (text, config.to_dict(), {"model_type": "qwen2_vl", "text_config": text}):
        effect = rope.predict(mapping, positions)
        assert isinstance(effect, Rotate)
        torch.testing.assert_close(effect.cos, cos.reshape(-1, 9, 16)[0, :, :8], atol=2e-6, rtol=0)


MODULES = {  # model type: (class of its rotary module, what its configuration is given besides the sizes)
    "llama": ("LlamaRotaryEmbedding", {}),
    "mistral": ("MistralRotaryEmbedding", {"head_dim": 24}),
    "qwen2": ("Qwen2RotaryEmbedding", {}),
    "qwen3": ("Qwen3RotaryEmbedding", {"head_dim": 24}),
    "gemma": ("GemmaRotaryEmbedding", {"head_dim": 24}),
    "gpt_neox": ("GPTNeoXRotaryEmbedding", {}),
    "phi": ("PhiRotaryEmbedding", {}),
    "phi3": ("Phi3RotaryEmbedding", {"pad_token_id": 0}),
    "stablelm": ("StableLmRotaryEmbedding", {}),
    "glm": ("GlmRotaryEmbedding", {"head_dim": 16}),
    "cohere2": ("Cohere2RotaryEmbedding", {}),
    "smollm3": ("SmolLM3RotaryEmbedding", {}),
    "deepseek_v3": ("DeepseekV3RotaryEmbedding", {"qk_rope_head_dim": 8, "qk_nope_head_dim": 16}),
    "gpt_oss": ("GptOssRotaryEmbedding", {"head_dim": 16}),
    "minimax_m2": ("MiniMaxM2RotaryEmbedding", {"head_dim": 16, "rotary_dim": 8}),
    "falcon": ("FalconRotaryEmbedding", {}),
    "qwen3_next": ("Qwen3NextRotaryEmbedding", {"head_dim": 16}),
}


@pytest.mark.parametrize(("model_type", "module_and_more"), MODULES.items())
def test_the_rotary_module_of_a_model(model_type, module_and_more):
    from importlib import import_module

    name, more = module_and_more
    module = getattr(import_module(f"transformers.models.{model_type}.modeling_{model_type}"), name)
    published = plain(model_type=model_type, **more)  # no theta, no part: the class's own
    config = library(published)
    theirs = module(config)
    mappings = [config.to_dict()]
    if model_type != "gpt_oss":  # its class fills in a whole scaling
        mappings.append(published)
    for mapping in mappings:
        found = rope.frequencies(mapping)
        torch.testing.assert_close(found.inv_freq.float(), theirs.inv_freq, rtol=1e-6, atol=0)
        assert found.attention_factor == pytest.approx(theirs.attention_scaling, rel=1e-6)


def test_what_a_class_fills_in_by_itself_is_not_guessed():
    with pytest.raises(ValueError, match="gpt_oss has no plain default"):
        rope.frequencies(plain(model_type="gpt_oss"))


def test_defaults_of_the_classes_are_all_known():
    """Every configuration class with a theta or a part of its own: known, refused, or not a text model's."""
    from transformers import CONFIG_MAPPING

    from tinput.positions import unsaid

    for name in {*unsaid.THETAS, *unsaid.PARTS} & set(CONFIG_MAPPING):
        mapping = CONFIG_MAPPING[name]().to_dict()
        mapping = mapping.get("text_config") or mapping
        parameters = mapping["rope_parameters"]
        whole = parameters.get("full_attention", parameters)
        if name in unsaid.THETAS:
            assert whole["rope_theta"] == unsaid.THETAS[name], name
        if name in unsaid.PARTS:
            assert whole["partial_rotary_factor"] == unsaid.PARTS[name], name

    # and a class that says so in the usual way is not forgotten
    forgotten = {
        name
        for name in ("cohere", "exaone", "helium", "mixtral", "smollm3", "ernie4_5", "phimoe", "nomic_bert", "bitnet")
        if CONFIG_MAPPING[name].default_theta != unsaid.THETAS.get(name)
    }
    assert not forgotten


@pytest.mark.parametrize(
    ("config", "match"),
    [
        (plain(rope_scaling={"rope_type": "spiral"}), "unknown rope_type 'spiral'"),
        (plain(rope_scaling={"rope_type": "linear"}), "factor"),
        ({"num_attention_heads": 4}, "hidden_size"),
        ({"hidden_size": 4}, "num_attention_heads"),
        ({"head_dim": 8, "rope_scaling": {"type": "dynamic", "factor": 2.0}}, "max_position_embeddings"),
        (
            plain(rope_scaling={"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}),
            "1 factors for 8 pairs",
        ),
    ],
)
def test_a_configuration_that_does_not_say_enough(config, match):
    with pytest.raises(ValueError, match=match):
        rope.frequencies(config)


def test_deepseek_v4_names_its_parameters_by_kind_and_turns_the_last_dimensions():
    from transformers import DeepseekV4Config
    from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4RotaryEmbedding

    kinds = ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]
    config = DeepseekV4Config(head_dim=64, num_hidden_layers=3, layer_types=kinds, num_attention_heads=4)
    module = DeepseekV4RotaryEmbedding(config)
    for kind, label in zip(kinds, ("main", "compress", "compress"), strict=True):
        found = rope.frequencies(config.to_dict(), layer_type=kind)
        torch.testing.assert_close(found.inv_freq.float(), getattr(module, f"{label}_inv_freq"), rtol=1e-6, atol=0)
        said = rope.parse(config.to_dict(), kind)
        assert said is not None
        assert said.start == 64 - found.rotary_dim


def test_a_part_of_a_slice_turns_where_it_is_proportional():
    said = {"rope_type": "proportional", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    found = rope.frequencies({"qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "rope_parameters": said})
    assert found.inv_freq.tolist() == pytest.approx([1.0, 0.1, 0.0, 0.0])
