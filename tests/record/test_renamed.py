"""Names prove nothing: models with every class, module and variable renamed are read alike."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.oracle import Checkpoint, checkpoint, checkpoint_of, some_ids

# What the library asks a module for by name: these cannot be called otherwise.
PROTOCOL = set(
    """config training forward register_buffer dtype device loss_function gradient_checkpointing weight bias is_causal
    num_key_value_groups layer_idx rope_type inv_freq original_inv_freq attention_scaling max_seq_len_cached
    original_max_seq_len padding_idx""".split()
)


def renamed(source: str, package: str, *, pair: bool) -> tuple[str, dict[str, str]]:
    """A modeling file with its classes, functions and attributes called something else, and in another order.

    pair: an encoder and a decoder, which the library finds by these names
    Returns the source and the names: old -> new.
    """
    tree = ast.parse(source)
    keep = PROTOCOL | ({"encoder", "decoder"} if pair else set())
    names = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    stored = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    names |= {node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id == "self"}
    ordered = sorted((name for name in names if name not in keep and not name.startswith("_")), key=hash_of)
    new = {name: f"part_{place}" for place, name in enumerate(ordered)}
    for name in new:  # the library sets the frequencies of classes that are called so
        if "RotaryEmbedding" in name:
            new[name] += "_RotaryEmbedding"
    text = ast.unparse(Renamed(new).visit(Reordered().visit(tree)))
    text = re.sub(r"from \.\.\.([\w.]*) import", r"from transformers.\1 import", text)
    text = text.replace("from transformers. import", "from transformers import")
    text = re.sub(r"from \.\.(\w)", r"from transformers.models.\1", text)
    return re.sub(r"from \.(\w+)", rf"from transformers.models.{package}.\1", text), new


class Renamed(ast.NodeTransformer):
    """Changes the names, but none of a configuration's, and no keyword of the library's functions."""

    def __init__(self, new: dict[str, str]):
        self.new = new

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.defined:
            node.id = self.new.get(node.id, node.id)
        return node

    def visit_Module(self, node: ast.Module) -> ast.AST:
        self.defined = {item.name for item in node.body if isinstance(item, (ast.ClassDef, ast.FunctionDef))}
        for item in node.body:
            if isinstance(item, (ast.ClassDef, ast.FunctionDef)):
                item.name = self.new.get(item.name, item.name)
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        owner = ast.unparse(node.value)
        torchs = owner.split(".")[0] in ("nn", "torch", "F", "init")
        if node.attr not in self.defined and not torchs and not owner.endswith("config"):
            node.attr = self.new.get(node.attr, node.attr)
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = ast.unparse(node.targets[0])
        if target == "base_model_prefix" or "_tied_weights" in target:  # paths in strings
            for item in ast.walk(node.value):
                if isinstance(item, ast.Constant) and isinstance(item.value, str):
                    item.value = _other_path(item.value, self.new)
        return self.generic_visit(node)


def hash_of(name: str) -> int:
    """An order that has nothing to do with the alphabet or the source."""
    return sum((place + 1) * ord(letter) ** 2 for place, letter in enumerate(name)) % 997


class Reordered(ast.NodeTransformer):
    """Turns round the order of independent assignments in each __init__, and of the methods of each class."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                item.body = self._turned(item.body)
        methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
        plain = not any(m.decorator_list for m in methods)
        if plain:
            node.body = [item for item in node.body if item not in methods] + methods[::-1]
        return node

    @staticmethod
    def _turned(body: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        run: list[ast.stmt] = []
        for statement in body:
            target, _, value = ast.unparse(statement).partition(" = ")
            own = isinstance(statement, ast.Assign) and re.fullmatch(r"self\.\w+", target) and "self." not in value
            if own:
                run.append(statement)
            else:
                out += [*run[::-1], statement]
                run = []
        return out + run[::-1]


@pytest.fixture
def rename(tmp_path) -> Iterator[Any]:
    """rename(checkpoint) -> the same under other names, known to the library until the test ends."""
    undo: list[Any] = []

    def make(plain: Checkpoint) -> Checkpoint:
        original = plain.full
        module = sys.modules[type(original).__module__]
        package = module.__name__.split(".")[2]
        source, names = renamed(inspect.getsource(module), package, pair=original.config.is_encoder_decoder)
        file = tmp_path / f"other_{package}.py"
        file.write_text(source)
        other = _load(file)
        undo.append(lambda: sys.modules.pop(other.__name__))
        cls = getattr(other, names[type(original).__name__])
        kind = f"other-{package}"
        config_class = type(f"Other{package}", (type(original.config),), {"model_type": kind})
        for item in vars(other).values():
            if isinstance(item, type) and item.__module__ == other.__name__ and "config_class" in dir(item):
                item.config_class = config_class
                embedding = getattr(item, "_input_embed_layer", "embed_tokens")
                item._input_embed_layer = names.get(embedding, embedding)
        AutoConfig.register(kind, config_class)
        undo.append(lambda: CONFIG_MAPPING._extra_content.pop(kind))
        auto = AutoModelForSeq2SeqLM if original.config.is_encoder_decoder else AutoModelForCausalLM
        auto = AutoModelForMaskedLM if "MaskedLM" in type(original).__name__ else auto
        auto.register(config_class, cls)
        undo.append(lambda: auto._model_mapping._extra_content.pop(config_class))

        folder = tmp_path / kind
        model = cls(config_class(**{k: v for k, v in original.config.to_dict().items() if k != "model_type"})).eval()
        values = {_other_path(key, names): value for key, value in original.state_dict().items()}
        model.load_state_dict(values, strict=True)
        model.save_pretrained(folder)
        full = cls.from_pretrained(folder).eval()
        blocks = {stack: _other_path(path, names) for stack, path in plain.first_block.items()}
        return Checkpoint(kind, folder, full, blocks)

    yield make
    for action in reversed(undo):
        action()


def _load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def _other_path(path: str, names: dict[str, str]) -> str:
    return ".".join(names.get(part, part) for part in path.split("."))


def mixed(folder: Path) -> Checkpoint:
    """Two recurrent layers, then one of attention, which rotates half of each head."""
    sizes = {"num_hidden_layers": 3, "num_key_value_heads": 2, "lru_width": 64, "attention_window_size": 8}
    blocks = ["recurrent", "recurrent", "attention"]
    return checkpoint_of(folder, "recurrent_gemma", "RecurrentGemmaForCausalLM", block_types=blocks, **sizes)


def test_recurrent_layers_before_the_first_rotation(tmp_path):
    trace = (made := mixed(tmp_path)).trace(some_ids(9))
    assert made.model.layer_schemes == ("none", "none", "rope")
    assert (trace.attention.layer, trace.effect.rotary_dim) == (2, 8)
    assert torch.equal(trace.attention.q, made.run(some_ids(9)).fused[0].query[0])
    assert trace.agreement.ok is True


# Ten of different kinds: post-norm and pre-norm, one stack and two, and each way in which positions enter.
RENAMED = "bert llama gpt2 t5 mpt gptj marian gemma3_text deberta-v2-relative mixed".split()


@pytest.mark.parametrize("name", RENAMED)
def test_a_model_with_every_name_changed(name, rename, tmp_path):
    known = mixed(tmp_path / "plain") if name == "mixed" else checkpoint(name)
    made, ids = rename(known), some_ids(12)
    assert type(made.full).__name__.startswith("part_")
    assert not set(made.full.state_dict()) & set(known.full.state_dict())
    for stack in made.first_block:
        plain, other = known.trace(ids, stack), made.trace(ids, stack)
        assert [(s.op, s.role, s.name) for s in other.stages] == [(s.op, s.role, s.name) for s in plain.stages]
        assert all(torch.equal(a.value, b.value) for a, b in zip(plain.stages, other.stages, strict=True))
        assert torch.equal(other.block_input, made.run(ids, stack).block_input[0])
        assert torch.equal(other.block_input, plain.block_input)
        assert other.schemes == plain.schemes
        for key, value in plain.arrays().items():
            assert torch.equal(torch.from_numpy(value), torch.from_numpy(other.arrays()[key])), key
        assert (other.agreement.ok, other.agreement.message) == (plain.agreement.ok, plain.agreement.message)
    assert made.model.layer_schemes == known.model.layer_schemes
