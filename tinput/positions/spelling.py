"""One size, several spellings: how published config.json files name what the formulas need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["CONTEXT", "D_MODEL", "HEADS", "pick", "size", "text_part", "trained_length"]

D_MODEL = ("hidden_size", "d_model", "n_embd", "dim", "emb_dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads")
CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "max_sequence_length", "seq_length")


def pick(config: Mapping[str, Any], *names: str) -> Any:
    """The value of the first of `names` that is present and not null, or None."""
    return next((config[name] for name in names if config.get(name) is not None), None)


def size(config: Mapping[str, Any], names: tuple[str, ...], what: str) -> int:
    """A size that the formula cannot do without. Raises ValueError naming the keys that were looked for."""
    value = pick(config, *names)
    if value is None:
        raise ValueError(f"the configuration does not say {what}: none of {', '.join(names)} is in it")
    return int(value)


def trained_length(config: Mapping[str, Any]) -> int:
    """How many tokens a model was trained on: before its context was stretched, where the configuration says so.

    0 where it says neither.
    """
    said = text_part(config)
    options = pick(said, "rope_parameters", "rope_scaling") or {}
    groups = [said, options, *(group for group in options.values() if isinstance(group, Mapping))]
    before = next((found for group in groups if (found := group.get("original_max_position_embeddings"))), None)
    return int(before or pick(said, *CONTEXT) or 0)


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The text model's part of a multimodal configuration, or the configuration itself."""
    nested = config.get("text_config")
    return nested if isinstance(nested, Mapping) and pick(config, *HEADS) is None else config
