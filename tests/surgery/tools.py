"""The ids of surgery's tests, and attention layers laid side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import tinput

# Untyped: a test knows that there is attention, and which effect it expects.
open_model: Callable[..., Any] = tinput.open_model

IDS = [20, 33, 41, 20, 57, 60, 71, 33, 41, 25]
TURNING = ("llama", "gptj", "gpt_neox", "gemma", "deepseek_v3", "modernbert", "gpt_oss", "qwen3")
ADDING = ("gpt2", "bert", "roberta", "opt", "albert", "distilbert-sinusoidal")


def logits(attention) -> torch.Tensor:
    """Scores with their bias where a key is seen, 0 elsewhere: (heads, query, key)."""
    found = attention.scores.tensor() + attention.bias.tensor()
    return found.masked_fill(attention.mask.tensor() < 0, 0.0)


def apart(one, other) -> float:
    return float((logits(one) - logits(other)).abs().max())


def weights_apart(one, other) -> float:
    return float((one.weights.tensor() - other.weights.tensor()).abs().max())


def own(trace) -> torch.Tensor:
    return torch.arange(len(trace.ids)) if trace.positions is None else trace.positions
