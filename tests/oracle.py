"""What transformers' own full model does, seen through plain hooks: what the recorder's tests hold it against.

Nothing here uses tinput's loader, its skeleton or its tape: a checkpoint is opened by `from_pretrained`, run whole, and
looked at with forward hooks and a stand-in for torch's attention function.
"""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from transformers import PreTrainedModel

import tinput
from tests import tiny

# Untyped: a test knows which effect it expects, and asks for its cosines without a word before.
open_model: Callable[..., Any] = tinput.open_model

# The first block of each stack, by the path that the class gives it: written by hand, so that nothing finds it for us.
FIRST_BLOCK: dict[str, dict[str, str]] = {
    "bert": {"encoder": "bert.encoder.layer.0"},
    "gpt2": {"decoder": "transformer.h.0"},
    "roberta": {"encoder": "roberta.encoder.layer.0"},
    "distilbert": {"encoder": "distilbert.transformer.layer.0"},
    "opt": {"decoder": "model.decoder.layers.0"},
    "bart": {"encoder": "model.encoder.layers.0", "decoder": "model.decoder.layers.0"},
    "marian": {"encoder": "model.encoder.layers.0", "decoder": "model.decoder.layers.0"},
    "t5": {"encoder": "encoder.block.0", "decoder": "decoder.block.0"},
    "albert": {"encoder": "albert.encoder.albert_layer_groups.0"},
    "bloom": {"decoder": "transformer.h.0"},
    "mpt": {"decoder": "transformer.blocks.0"},
    "falcon": {"decoder": "transformer.h.0"},
    "gptj": {"decoder": "transformer.h.0"},
    "gpt_neox": {"decoder": "gpt_neox.layers.0"},
    "modernbert": {"encoder": "model.layers.0"},
    "xlnet": {"decoder": "transformer.layer.0"},
    "deberta-v2": {"encoder": "deberta.encoder.layer.0"},
    "mamba": {"decoder": "backbone.layers.0"},
}
FIRST_BLOCK |= {"opt-narrow": FIRST_BLOCK["opt"], "falcon-alibi": FIRST_BLOCK["falcon"]}
FIRST_BLOCK |= {"distilbert-sinusoidal": FIRST_BLOCK["distilbert"], "deberta-v2-relative": FIRST_BLOCK["deberta-v2"]}
FIRST_BLOCK |= {name: {"decoder": "model.layers.0"} for name in tiny.CONFIGS if name not in FIRST_BLOCK}

STACKS = [(name, stack) for name in tiny.CONFIGS for stack in FIRST_BLOCK[name]]
"""Every (name, stack) there is."""


@dataclass(eq=False)
class Seen:
    """What hooks saw of one whole forward pass.

    block_input: what the first block was handed; outputs: module path -> what it returned first
    fused: the arguments and results of each call of torch's attention function; result: the model's own
    """

    block_input: Tensor
    outputs: dict[str, Tensor]
    fused: list[Fused]
    result: Any


@dataclass(eq=False)
class Fused:
    """One call of scaled_dot_product_attention."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    causal: bool
    scale: float | None
    out: Tensor


@dataclass(eq=False)
class Checkpoint:
    """A folder, transformers' model of it, and tinput's."""

    name: str
    folder: Path
    full: PreTrainedModel
    first_block: dict[str, str]
    opened: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> Any:
        """The folder through open_model, once."""
        if "" not in self.opened:
            self.opened[""] = open_model(self.folder)
        return self.opened[""]

    def trace(self, ids: list[int], stack: str | None = None, **options: Any) -> Any:
        """tinput's answer."""
        return self.model.trace(ids=ids, stack=stack if len(self.first_block) > 1 else None, **options)

    def run(self, ids: list[int], stack: str | None = None, full: PreTrainedModel | None = None, **inputs: Any) -> Seen:
        """transformers' answer: the whole model, with every module watched."""
        model = full or self.full
        return watch(model, self.first_block[stack or next(iter(self.first_block))], ids, **inputs)

    def eager(self) -> PreTrainedModel:
        """The same folder with the attention that keeps its weights."""
        return type(self.full).from_pretrained(self.folder, attn_implementation="eager").eval()


def watch(model: PreTrainedModel, first_block: str, ids: list[int], **inputs: Any) -> Seen:
    """Runs a whole model on ids (seq,) with a hook on each module."""
    entered: list[Tensor] = []
    outputs: dict[str, Tensor] = {}
    fused: list[Fused] = []
    handles = []

    def before(_, args, kwargs):
        given = args[0] if args else kwargs.get("hidden_states", kwargs.get("output_h"))
        entered.append(given.clone())

    def keep(path):
        def after(_, __, output):
            first = output[0] if isinstance(output, tuple) else output
            if isinstance(first, Tensor):
                outputs.setdefault(path, first.clone())

        return after

    inner = torch.nn.functional.scaled_dot_product_attention

    def spy(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        out = inner(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        fused.append(Fused(query.clone(), key.clone(), value.clone(), attn_mask, is_causal, scale, out))
        return out

    for path, module in model.named_modules():
        if path == first_block:
            handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(module.register_forward_hook(keep(path)))
    if model.config.is_encoder_decoder:
        inputs.setdefault("decoder_input_ids", torch.tensor([ids]))
    try:
        with torch.no_grad(), mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", spy):
            result = model(input_ids=torch.tensor([ids]), **inputs)
    finally:
        for handle in handles:
            handle.remove()
    return Seen(entered[0], outputs, fused, result)


def checkpoint(name: str, **changes: Any) -> Checkpoint:
    """A tiny checkpoint of `tiny.CONFIGS`, made once in a test run. changes: configuration entries to set besides"""
    return _checkpoint(name, json.dumps(changes))


def checkpoint_of(folder: Path, kind: str, class_name: str, **config: Any) -> Checkpoint:
    """A tiny checkpoint of a class that is not among the tiny models."""
    import transformers

    torch.manual_seed(0)
    config_class: Any = transformers.CONFIG_MAPPING[kind]
    built: Any = getattr(transformers, class_name)(config_class(**tiny.SMALL | config))
    built.save_pretrained(folder)
    return Checkpoint(kind, folder, type(built).from_pretrained(folder).eval(), {"decoder": "model.layers.0"})


@functools.cache
def _checkpoint(name: str, changes: str) -> Checkpoint:
    folder = _home() / str(_checkpoint.cache_info().misses)
    full = tiny.make(name, folder, **json.loads(changes))
    return Checkpoint(name, folder, full, FIRST_BLOCK[name])


@functools.cache
def _home() -> Path:
    home = tempfile.mkdtemp(prefix="tinput-oracle-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return Path(home)


def some_ids(length: int, *, vocabulary: int = 300, seed: int = 0) -> list[int]:
    """Ordinary ids with repeats, none of them special in any of the tiny models."""
    numbers = torch.randint(5, vocabulary, (length,), generator=torch.Generator().manual_seed(seed))
    return [*numbers[: max(1, length - 2)].tolist(), *numbers[:2].tolist()][:length]
