"""Building a real model's module and finding its scheme, beside transformers building the same class on `meta`.

No weights: the configurations of three of the largest published models, written out. tinput builds the module,
gives it its buffers and runs it once without weights, at full depth, to see which layer gets positions how;
transformers only builds it. Each in a process of its own, after the same steps on two small layers of the same kind,
so that neither pays for an import. Time is the median over processes; memory is by how much the process grew at its
largest, and both have aims of their own besides: 2 seconds, 150 MB.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.models import MB, _Memory
from benchmarks.table import Row
from tests.hub_repos import LLAMA_405B

ROUNDS = 5  # processes for each side's time
SECONDS = 2.0
MEGABYTES = 150.0

# What a module depends on, of config.json of meta-llama/Llama-3.1-405B, deepseek-ai/DeepSeek-V3, Qwen/Qwen3-235B-A22B.
PUBLISHED: dict[str, dict[str, Any]] = {
    "Llama-3.1-405B": LLAMA_405B,
    "DeepSeek-V3": {
        "model_type": "deepseek_v3",
        "architectures": ["DeepseekV3ForCausalLM"],
        "vocab_size": 129_280,
        "hidden_size": 7_168,
        "intermediate_size": 18_432,
        "moe_intermediate_size": 2_048,
        "num_hidden_layers": 61,
        "first_k_dense_replace": 3,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "q_lora_rank": 1_536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "n_group": 8,
        "topk_group": 4,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "hidden_act": "silu",
        "max_position_embeddings": 163_840,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000,
        "rope_scaling": {
            "type": "yarn",
            "factor": 40,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 4_096,
        },
        "tie_word_embeddings": False,
    },
    "Qwen3-235B-A22B": {
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "vocab_size": 151_936,
        "hidden_size": 4_096,
        "intermediate_size": 12_288,
        "moe_intermediate_size": 1_536,
        "num_hidden_layers": 94,
        "num_attention_heads": 64,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "hidden_act": "silu",
        "max_position_embeddings": 40_960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "rope_scaling": None,
        "tie_word_embeddings": False,
    },
}
# The same at a toy size, for the imports and first calls that neither side is charged for.
SMALL = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 2,
    "first_k_dense_replace": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "head_dim": 16,
    "n_routed_experts": 16,
    "num_experts": 16,
}


def rows() -> Iterator[Row]:
    """The table's rows: seconds and megabytes of each model, beside transformers' and beside the aim."""
    for name in PUBLISHED:
        results = [{side: _worker(side, name, "time") for side in SIDES} for _ in range(ROUNDS)]  # in turns
        layers = {(PUBLISHED[name]["num_hidden_layers"], "rope")}
        if found := {tuple(r["tinput"]["found"]) for r in results} - layers:
            raise AssertionError(f"{name}: found {found} where each of the layers rotates")
        ours, theirs = (statistics.median(r[side]["seconds"] for r in results) for side in SIDES)
        yield Row(f"{name}: skeleton and scheme", ours, theirs, "transformers on meta, no scheme", "s")
        yield Row(f"{name}: skeleton and scheme", ours, SECONDS, "the aim", "s", 1.0)
        if not Path("/proc/self/clear_refs").exists():
            print("  memory is measured on Linux only", file=sys.stderr)
            continue
        ours, theirs = (_worker(side, name, "memory")["peak"] for side in SIDES)
        yield Row(f"{name}: peak memory", ours, theirs, "transformers on meta, no scheme", "MB")
        yield Row(f"{name}: peak memory", ours, MEGABYTES, "the aim", "MB", 1.0)


# --- the two ways, each run in a process of its own ------------------------------------------------------------


def _tinput(config: Any) -> Any:
    from tinput.models.skeleton import Skeleton
    from tinput.record import survey

    skeleton = Skeleton(config, None)
    return skeleton, survey(skeleton)


def _transformers(config: Any) -> Any:
    import torch
    import transformers

    with torch.device("meta"):
        return getattr(transformers, config.architectures[0])(config).eval()


SIDES = {"tinput": _tinput, "transformers": _transformers}


def _worker(side: str, name: str, what: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.skeletons", side, name, what]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{side} on {name} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _work(side: str, name: str, what: str) -> dict[str, Any]:
    from transformers import CONFIG_MAPPING

    published = PUBLISHED[name]
    small = published | {key: value for key, value in SMALL.items() if key in published}
    kind = CONFIG_MAPPING[str(published["model_type"])]
    small, config = (kind.from_dict(dict(given)) for given in (small, published))
    SIDES[side](small)
    if what == "memory":
        with _Memory() as memory:
            SIDES[side](config)
        return {"peak": memory.peak / MB}
    start = time.perf_counter()
    made = SIDES[side](config)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "found": _found(made) if side == "tinput" else None}


def _found(made: Any) -> tuple[int, str]:
    """How many layers the one scheme that was found reaches, and its name."""
    from tinput.open import scheme_of

    _, anatomy = made
    (stack,) = anatomy.stacks
    (injection,) = stack.injections
    return len(injection.layers), scheme_of(injection)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("name", choices=PUBLISHED)
    parser.add_argument("what", choices=("time", "memory"))
    chosen = parser.parse_args()
    print(json.dumps(_work(chosen.side, chosen.name, chosen.what)))
