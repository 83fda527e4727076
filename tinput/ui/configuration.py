"""What can be said of a model from its configuration alone, where weights are gated, absent or not to be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tinput.errors import BadModel
from tinput.ui import literal

__all__ = ["sizes"]

# What a person looks for first; a configuration may hold a hundred entries more.
_SIZES = {
    "model_type": "architecture",
    "hidden_size": "width",
    "d_model": "width",
    "n_embd": "width",
    "num_hidden_layers": "layers",
    "n_layer": "layers",
    "num_attention_heads": "heads",
    "n_head": "heads",
    "num_key_value_heads": "kv heads",
    "head_dim": "width of a head",
    "vocab_size": "vocabulary",
    "max_position_embeddings": "context",
    "n_positions": "context",
    "rope_theta": "theta",
    "rope_scaling": "scaling",
    "rope_parameters": "rotation",
    "torch_dtype": "dtype",
    "dtype": "dtype",
}


def sizes(config: Mapping[str, Any] | BadModel) -> str:
    """HTML of a configuration's sizes as they stand in it; empty for an error that carries none."""
    found = getattr(config, "config", None) if isinstance(config, BadModel) else config
    if not isinstance(found, Mapping):
        return ""
    rows = [(name, _said(found[key])) for key, name in _SIZES.items() if found.get(key) not in (None, {}, "")]
    return literal.table(("config.json says", ""), rows, [False] * len(rows)) if rows else ""


def _said(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return str(value)[:200]
    return f"{value:,}"
