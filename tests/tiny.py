"""Tiny models of many architectures, random in every parameter, saved as checkpoints: what the tests record and read.

The oracle is always transformers' own `from_pretrained` of the same folder.
"""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING, PreTrainedModel

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()

SMALL = {
    "vocab_size": 320,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
}
GPT = {
    "vocab_size": 320,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 128,
    "bos_token_id": 301,
    "eos_token_id": 301,
}
SEQ2SEQ = {
    "vocab_size": 320,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "max_position_embeddings": 128,
}
BERT = SMALL | {"max_position_embeddings": 128}
GQA = SMALL | {"num_key_value_heads": 2, "head_dim": 16}

# name: (class, model_type, configuration). A name after a dash is a variant of a type that has more than one scheme.
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertForMaskedLM", "bert", BERT),
    "gpt2": ("GPT2LMHeadModel", "gpt2", GPT),
    "roberta": ("RobertaForMaskedLM", "roberta", BERT | {"pad_token_id": 1}),
    "distilbert": (
        "DistilBertForMaskedLM",
        "distilbert",
        {"vocab_size": 320, "dim": 64, "hidden_dim": 96, "n_heads": 4, "n_layers": 2, "max_position_embeddings": 128},
    ),
    "opt": ("OPTForCausalLM", "opt", BERT | {"ffn_dim": 96, "word_embed_proj_dim": 64, "pad_token_id": 1}),
    "opt-narrow": ("OPTForCausalLM", "opt", BERT | {"ffn_dim": 96, "word_embed_proj_dim": 32, "pad_token_id": 1}),
    "bart": ("BartForConditionalGeneration", "bart", SEQ2SEQ),
    "marian": (
        "MarianMTModel",
        "marian",
        SEQ2SEQ
        | {"decoder_vocab_size": 320, "decoder_start_token_id": 317, "pad_token_id": 317, "eos_token_id": 0}
        | {"forced_eos_token_id": 0, "scale_embedding": True},
    ),
    "t5": (
        "T5ForConditionalGeneration",
        "t5",
        {"vocab_size": 320, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4},
    ),
    "albert": ("AlbertForMaskedLM", "albert", BERT | {"embedding_size": 32, "bos_token_id": 2, "eos_token_id": 3}),
    "bloom": ("BloomForCausalLM", "bloom", {"vocab_size": 320, "hidden_size": 64, "n_layer": 2, "n_head": 4}),
    "mpt": (
        "MptForCausalLM",
        "mpt",
        {"vocab_size": 320, "d_model": 64, "n_layers": 2, "n_heads": 4, "max_seq_len": 128},
    ),
    "falcon": ("FalconForCausalLM", "falcon", SMALL | {"ffn_hidden_size": 96}),
    "llama": ("LlamaForCausalLM", "llama", GQA),
    "mistral": ("MistralForCausalLM", "mistral", GQA | {"sliding_window": 8}),
    "qwen2": ("Qwen2ForCausalLM", "qwen2", SMALL | {"num_key_value_heads": 2}),
    "qwen3": ("Qwen3ForCausalLM", "qwen3", GQA),
    "gemma": ("GemmaForCausalLM", "gemma", GQA | {"head_dim": 24}),
    "gemma3_text": (
        "Gemma3ForCausalLM",
        "gemma3_text",
        GQA | {"head_dim": 24, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "gptj": ("GPTJForCausalLM", "gptj", GPT | {"rotary_dim": 8}),
    "gpt_neox": ("GPTNeoXForCausalLM", "gpt_neox", SMALL),
    "phi3": ("Phi3ForCausalLM", "phi3", SMALL | {"num_key_value_heads": 4, "pad_token_id": 304, "eos_token_id": 304}),
    "cohere2": (
        "Cohere2ForCausalLM",
        "cohere2",
        SMALL
        | {"num_key_value_heads": 4, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
        | {"bos_token_id": 5, "eos_token_id": 302},
    ),
    "smollm3": (
        "SmolLM3ForCausalLM",
        "smollm3",
        SMALL
        | {"num_key_value_heads": 2, "no_rope_layers": [1, 0], "bos_token_id": 316, "eos_token_id": 317}
        | {"pad_token_id": 301},
    ),
    "modernbert": (
        "ModernBertForMaskedLM",
        "modernbert",
        SMALL
        | {"local_attention": 8, "layer_types": ["full_attention", "sliding_attention"], "bos_token_id": 307}
        | {"eos_token_id": 308, "cls_token_id": 307, "sep_token_id": 308, "pad_token_id": 309},
    ),
    "deepseek_v3": (
        "DeepseekV3ForCausalLM",
        "deepseek_v3",
        SMALL
        | {"num_key_value_heads": 4, "first_k_dense_replace": 1, "kv_lora_rank": 24, "q_lora_rank": 32, "n_group": 1}
        | {"topk_group": 1, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 96}
        | {"qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16},
    ),
    "gpt_oss": (
        "GptOssForCausalLM",
        "gpt_oss",
        GQA
        | {"head_dim": 24, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8}
        | {"layer_types": ["sliding_attention", "full_attention"]},
    ),
    "xlnet": (
        "XLNetLMHeadModel",
        "xlnet",
        {"vocab_size": 320, "d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 96},
    ),
    "deberta-v2": ("DebertaV2ForMaskedLM", "deberta-v2", BERT),
    "mamba": (
        "MambaForCausalLM",
        "mamba",
        {"vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8, "time_step_rank": 4},
    ),
    # the other schemes of some of them
    "falcon-alibi": ("FalconForCausalLM", "falcon", SMALL | {"ffn_hidden_size": 96, "alibi": True}),
    "deberta-v2-relative": (
        "DebertaV2ForMaskedLM",
        "deberta-v2",
        BERT
        | {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["p2c", "c2p"]}
        | {"position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True},
    ),
    "distilbert-sinusoidal": (
        "DistilBertForMaskedLM",
        "distilbert",
        {"vocab_size": 320, "dim": 64, "hidden_dim": 96, "n_heads": 4, "n_layers": 2, "max_position_embeddings": 128}
        | {"sinusoidal_pos_embds": True},
    ),
}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    name: (class_name, {"model_type": kind, **config}) for name, (class_name, kind, config) in MODELS.items()
}
"""name -> (class name, configuration with its model_type)."""


def build(name: str, *, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A model of `CONFIGS`, in float32 and eval mode, every learned parameter perturbed so that a missed term shows.

    changes: configuration entries to set besides
    """
    class_name, config = CONFIGS[name]
    config = copy.deepcopy(config) | changes
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = getattr(transformers, class_name)(CONFIG_MAPPING[config.pop("model_type")](**config)).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.requires_grad and not (name == "distilbert-sinusoidal" and "position" in key):  # no sinusoids
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def make(
    name: str, folder: Path, seed: int = 0, *, save: dict[str, Any] | None = None, **changes: Any
) -> PreTrainedModel:
    """Build, save to `folder`, and return what `from_pretrained` makes of it (the oracle).

    save: options of save_pretrained, such as max_shard_size
    """
    model = build(name, seed=seed, **changes)
    model.save_pretrained(folder, **(save or {}))
    return type(model).from_pretrained(folder).eval()
