"""What a published config.json may leave unsaid about a rotation, because its class has a value of its own.

Only where the key is absent; a configuration that says it is believed. Held against the library's classes in a test.
"""

__all__ = ["LOCAL_IS_PLAIN", "PARTS", "ROTARY_DIMS", "THETAS", "UNCERTAIN"]

_THETAS: dict[float, str] = {
    1e3: "nomic_bert",
    2e4: "jina_embeddings_v3",
    1e5: "helium",
    1.6e5: "gte modernbert modernbert-decoder",
    5e5: "bitnet cohere ernie4_5 ernie4_5_moe exaone flex_olmo llama4 llama4_text mellum mllama_text_model olmo3",
    1e6: "emu3_text_model gemma3 gemma3_text gemma3n_text lfm2 lfm2_moe minimax mixtral phimoe solar_open",
    2e6: "smollm3",
    2.56e6: "ultrabert ultravbert",
    5e6: "mimo_v2_flash minimax_m2 minimax_m3_vl_text",
    6e6: "bailing_hybrid",
    8e6: "sarvam_moe",
    1e7: "dory longcat_flash",
    11_158_840.0: "hy_v3",
}
THETAS = {name: theta for theta, names in _THETAS.items() for name in names.split()}

# local layers of these keep 10000 whatever the global ones have
LOCAL_IS_PLAIN = frozenset(
    "gemma3 gemma3_text gemma3n_text modernbert modernbert-decoder mellum dory ultrabert ultravbert"
    " mimo_v2_flash".split()
)

_PARTS: dict[float, str] = {
    0.25: "gpt_neox stablelm qwen3_next qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text",
    0.5: "bamba fuyu glm glm4 glm4_moe nemotron persimmon phi recurrent_gemma",
    0.334: "mimo_v2_flash",
}
PARTS = {name: part for part, names in _PARTS.items() for name in names.split()}

ROTARY_DIMS = {"codegen": 64, "gptj": 64}

# whole dictionaries by default (a scaling, or parameters by layer type): a configuration without one says too little
UNCERTAIN = frozenset(
    "apertus apertus1p5_text cwm dots3_note dots3_note_text gemma4 gemma4_assistant gemma4_text gemma4_unified"
    " gemma4_unified_assistant gemma4_unified_text gpt_oss openai_privacy_filter laguna lfm3 ministral3 neomme"
    " zaya".split()
)
