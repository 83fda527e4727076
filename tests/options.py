"""Options of the classes that change how positions enter: more of the census, by name, with the scheme that is right.

The census has one configuration of each type; these are others of the same types. What must be found is said here by
hand, from each model's own publication or code: nothing in tinput made it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["OPTIONS", "SCALED"]

_DEBERTA = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}

# name: (type, what is set beside the census's configuration of the type, the schemes of each stack)
OPTIONS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    # scores from content and distance
    "deberta (relative)": ("deberta", _DEBERTA, ["relative"]),
    "deberta (relative and absolute)": ("deberta", _DEBERTA | {"position_biased_input": True}, ["learned + relative"]),
    "deberta-v2 (relative)": ("deberta-v2", _DEBERTA, ["relative"]),
    "deberta-v2 (buckets)": (
        "deberta-v2",
        _DEBERTA | {"position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True},
        ["relative"],
    ),
    "funnel (factorized)": (
        "funnel",
        {"attention_type": "factorized", "block_sizes": [1, 1], "num_decoder_layers": 1},
        ["relative"] * 3,
    ),
    # another way in than the type's usual one
    "falcon (alibi)": ("falcon", {"alibi": True}, ["alibi"]),
    "esm (rotary)": ("esm", {"position_embedding_type": "rotary"}, ["rope"]),
    "distilbert (sinusoidal)": ("distilbert", {"sinusoidal_pos_embds": True}, ["sinusoidal"]),
    "xlm (sinusoidal)": ("xlm", {"sinusoidal_embeddings": True}, ["sinusoidal"]),
    "flaubert (sinusoidal)": ("flaubert", {"sinusoidal_embeddings": True}, ["sinusoidal"]),
    "reformer (not axial)": ("reformer", {"axial_pos_embds": False}, ["learned"]),
    "roformer (rotary value)": ("roformer", {"rotary_value": True}, ["rope"]),
    "mpt (no alibi)": ("mpt", {"attn_config": {"alibi": False}}, ["alibi"]),  # transformers ignores the setting
    "mpt (alibi_bias_max)": ("mpt", {"attn_config": {"alibi_bias_max": 16}}, ["alibi"]),  # and this one
    # heads that are no power of two
    "bloom (6 heads)": ("bloom", {"n_head": 6, "hidden_size": 96}, ["alibi"]),
    "bloom (12 heads)": ("bloom", {"n_head": 12, "hidden_size": 96}, ["alibi"]),
    "mpt (6 heads)": ("mpt", {"n_heads": 6, "d_model": 96}, ["alibi"]),
    "mpt (12 heads)": ("mpt", {"n_heads": 12, "d_model": 96}, ["alibi"]),
    "t5 (6 heads)": ("t5", {"num_heads": 6}, ["relative_bias"] * 2),
    "t5 (12 heads)": ("t5", {"num_heads": 12}, ["relative_bias"] * 2),
    # projections and scaled embeddings
    "opt (narrow)": ("opt", {"word_embed_proj_dim": 32, "do_layer_norm_before": False}, ["learned"]),  # as OPT-350m
    "albert (as wide)": ("albert", {"embedding_size": 64}, ["learned"]),
    "electra (as wide)": ("electra", {"embedding_size": 64}, ["learned"]),
    "bart (scaled)": ("bart", {"scale_embedding": True}, ["learned"] * 2),
    "mbart (scaled)": ("mbart", {"scale_embedding": True}, ["learned"] * 2),
    "pegasus (scaled)": ("pegasus", {"scale_embedding": True}, ["sinusoidal"] * 2),
    "marian (scaled)": ("marian", {"scale_embedding": True}, ["sinusoidal"] * 2),
}

# --- every scaling of a rotation, on four models that hold it in different ways

_PAIRS = {"llama": 8, "gpt_neox": 2, "phi3": 8, "deepseek_v3": 4}
SCALED: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 32},
    "longrope": {"factor": 4.0, "original_max_position_embeddings": 32},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "proportional": {"partial_rotary_factor": 0.5},
}


def _scaled(kind: str, scaling: str) -> dict[str, Any]:
    rope = {"rope_type": scaling, "rope_theta": 1e4, **SCALED[scaling]}
    changes: dict[str, Any] = {"max_position_embeddings": 32 if scaling == "dynamic" else 128}  # so that 40 is past it
    if scaling == "longrope":
        pairs = _PAIRS[kind]
        rope |= {"short_factor": [1 + 0.1 * i for i in range(pairs)], "long_factor": [2.0 + i for i in range(pairs)]}
        changes["original_max_position_embeddings"] = 32
    if kind == "gpt_neox":
        rope.setdefault("partial_rotary_factor", 0.25)
    return changes | {"rope_parameters": rope}


OPTIONS |= {
    f"{kind} ({scaling})": (kind, _scaled(kind, scaling), ["rope"])
    for kind in _PAIRS
    for scaling in (SCALED if kind != "phi3" else ["longrope"])  # its class refuses every other
}
