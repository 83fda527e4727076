"""Which layers have which position scheme: of tiny models, of variants, and of models whose names say nothing."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests import tiny
from tests.oracle import Checkpoint, checkpoint, open_model, some_ids
from tests.record.test_attention import turned
from tinput.positions import Add, Bias, Content, Nothing, Rotate

SCHEMES = {
    "learned": "bert gpt2 roberta distilbert opt opt-narrow bart albert deberta-v2",
    "sinusoidal": "marian distilbert-sinusoidal",
    "rope": "falcon llama mistral qwen2 qwen3 gemma gemma3_text gptj gpt_neox phi3 cohere2 smollm3 modernbert "
    "deepseek_v3 gpt_oss",
    "alibi": "bloom mpt falcon-alibi",
    "relative_bias": "t5",
    "relative": "xlnet deberta-v2-relative",
    "none": "mamba",
}
SCHEME = {name: scheme for scheme, names in SCHEMES.items() for name in names.split()}
EFFECT = {"learned": Add, "sinusoidal": Add, "rope": Rotate, "alibi": Bias, "relative_bias": Bias, "relative": Content}
SECOND_LAYER = {"cohere2": "none", "smollm3": "none"}


def test_every_tiny_model_is_named():
    assert SCHEME.keys() == tiny.CONFIGS.keys()


@pytest.mark.parametrize("name", tiny.CONFIGS)
def test_schemes(name):
    made, scheme = checkpoint(name), SCHEME[name]
    model = made.model
    assert model.scheme == scheme
    assert model.schemes == (scheme,)
    assert model.layer_schemes == (scheme, SECOND_LAYER.get(name, scheme))
    assert model.reason.endswith(".")
    assert model.stacks == tuple(made.first_block)
    for stack in made.first_block:
        trace = made.trace(some_ids(6), stack)
        assert trace.scheme == scheme
        assert type(trace.effect) is EFFECT.get(scheme, Nothing)
        assert [type(found.effect) for found in trace.effects if found.effect is None] == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bert", "looked up by position in a learned table, is added to the embedding before the first BertLayer"),
        ("marian", "computed from positions alone, is added to the embedding before the first MarianEncoderLayer"),
        ("llama", "rotates q and k in all 2 layers"),
        ("smollm3", "rotates q and k in 1 of 2 layers (0)"),
        ("bloom", "computed from positions alone, is added to the scores in all 2 layers"),
        ("t5", "looked up by position in a learned table, is added to the scores in all 2 layers"),
        ("mamba", "None of the 2 layers has attention"),
    ],
)
def test_the_reason_says_how_it_was_found(name, expected):
    assert expected in checkpoint(name).model.reason


def test_a_scheme_is_found_without_reading_a_weight(tmp_path):
    """The file's bytes past the header are noise: whatever is found, is not found in them."""
    for name in ("bert", "marian", "t5", "gemma3_text"):
        folder = tmp_path / name
        tiny.make(name, folder)
        file = folder / "model.safetensors"
        content = file.read_bytes()
        header = 8 + int.from_bytes(content[:8], "little")
        file.write_bytes(content[:header] + b"\xff" * (len(content) - header))  # all NaN
        model = open_model(folder)
        assert model.scheme == SCHEME[name]
        assert model.reason == checkpoint(name).model.reason


# --- layers that differ


def test_gemma_3_has_two_thetas():
    """cases.md 8: 8 layers, of which only layer 5 is full; it starts at 1/8, the sliding ones at 1."""
    rope = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    }
    made = checkpoint(
        "gemma3_text", num_hidden_layers=8, layer_types=None, sliding_window_pattern=6, rope_parameters=rope
    )
    assert made.full.config.layer_types == ["sliding_attention"] * 5 + ["full_attention"] + ["sliding_attention"] * 2
    trace = made.trace([7, 8, 9])
    sliding, full = trace.effects
    assert (sliding.layers, full.layers) == ((0, 1, 2, 3, 4, 6, 7), (5,))
    pair = torch.arange(12)
    assert torch.allclose(sliding.effect.angles[1], 1e4 ** -(pair / 12), rtol=1e-5)
    assert torch.allclose(full.effect.angles[1], 1e6 ** -(pair / 12) / 8, rtol=1e-5)
    assert made.model.layer_schemes == ("rope",) * 8
    assert trace.agreement.ok is True
    own = made.full.model.rotary_emb  # type: ignore[union-attr]
    cos, _ = own(torch.zeros(1, 3, 1), torch.arange(3)[None], "full_attention")
    assert torch.equal(full.effect.cos, cos[0])


@pytest.mark.parametrize("name", ["smollm3"])
def test_no_rope_layers_holds_1_where_rope_is_used(name):
    """cases.md 9: eight layers, every fourth without."""
    made = checkpoint(name, num_hidden_layers=8, no_rope_layers=None, no_rope_layer_interval=4)
    assert made.full.config.no_rope_layers == [1, 1, 1, 0, 1, 1, 1, 0]
    assert made.model.layer_schemes == ("rope", "rope", "rope", "none", "rope", "rope", "rope", "none")
    assert made.trace(some_ids(5)).effects[0].layers == (0, 1, 2, 4, 5, 6)


def test_the_first_rotation_may_come_in_a_later_layer():
    """SmolLM3 with its first layer unrotated: layer 1 is what the attention shows, and q and k there are real."""
    made, ids = checkpoint("smollm3", no_rope_layers=[0, 1]), some_ids(9)
    trace, seen = made.trace(ids), made.run(ids)
    assert made.model.layer_schemes == ("none", "rope")
    assert trace.attention.layer == 1
    assert torch.equal(trace.attention.q, seen.fused[1].query[0])
    assert torch.equal(trace.block_input, seen.block_input[0])
    assert trace.agreement.ok is True


def test_a_rotation_far_down_is_not_run_but_said():
    """At layer 6 of 8 all layers before would have to be loaded: the cosines are shown, q and k are not."""
    made, ids = checkpoint("smollm3", num_hidden_layers=8, no_rope_layers=[0] * 6 + [1, 1]), some_ids(9)
    trace = made.trace(ids)
    assert made.model.layer_schemes == ("none",) * 6 + ("rope",) * 2
    assert torch.equal(trace.block_input, made.run(ids).block_input[0])
    assert trace.attention is None
    assert "layer 6" in trace.attention_reason
    found = trace.effects[0]
    assert found.layers == (6, 7)
    assert (found.effect is None) == bool(found.reason)
    if found.effect is not None:
        assert torch.allclose(found.effect.angles[1, 0], torch.tensor(1.0))


def test_cohere_rotates_its_sliding_layers_alone():
    layers = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
    model = checkpoint("cohere2", num_hidden_layers=4, layer_types=layers).model
    assert model.layer_schemes == ("rope", "rope", "none", "rope")


def test_modernberts_two_thetas():
    made = checkpoint("modernbert")
    full, sliding = made.trace(some_ids(5)).effects
    assert (full.layers, sliding.layers) == ((0,), (1,))
    theta = made.full.config.rope_parameters
    for found, kind in ((full, "full_attention"), (sliding, "sliding_attention")):
        expected = theta[kind]["rope_theta"] ** -(torch.arange(8) / 8)
        assert torch.allclose(found.effect.angles[1], expected, rtol=1e-5)


# --- rotations


def test_theta_in_the_dict_wins_over_the_old_key():
    """cases.md 6: in the old key, in the dict, in both, in neither."""
    new = {"rope_type": "default", "rope_theta": 500000.0}
    for given, theta in [
        ({"rope_theta": 20000.0}, 20000.0),
        ({"rope_parameters": new}, 500000.0),
        ({"rope_parameters": new, "rope_theta": 20000.0}, 500000.0),
        ({}, 10000.0),
    ]:
        trace = checkpoint("llama", **given).trace([7, 8])
        assert torch.allclose(trace.effect.angles[1], theta ** -(torch.arange(8) / 8), rtol=1e-5), given
        assert trace.agreement.ok is True


def test_a_theta_that_only_the_old_key_of_the_file_holds(tmp_path):
    """As published: config.json written by hand, before `rope_parameters` was there."""
    import json

    tiny.make("llama", tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    for key in ("rope_parameters", "rope_scaling"):
        config.pop(key, None)
    file.write_text(json.dumps(config | {"rope_theta": 1e6}))
    trace = open_model(tmp_path).trace(ids=[7, 8])
    assert torch.allclose(trace.effect.angles[1], 1e6 ** -(torch.arange(8) / 8), rtol=1e-5)
    assert trace.agreement.ok is True


def test_partial_rotation_in_two_spellings():
    """cases.md 7: rotary_dim, and a share of the head."""
    gptj = checkpoint("gptj", rotary_dim=4).trace(some_ids(6))
    assert torch.allclose(gptj.effect.angles[1], torch.tensor([1.0, 0.01]))
    assert torch.equal(gptj.attention.q[..., 4:], gptj.attention.q_before[..., 4:])
    half = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}
    neox = checkpoint("gpt_neox", hidden_size=32, **half).trace(some_ids(6))
    assert torch.allclose(neox.effect.angles[1], torch.tensor([1.0, 0.01]))
    assert torch.equal(neox.attention.q[..., 4:], neox.attention.q_before[..., 4:])
    old = checkpoint("gpt_neox", hidden_size=32, rotary_pct=0.5).trace(some_ids(6))
    assert torch.equal(old.effect.angles, neox.effect.angles)
    for trace in (gptj, neox, old):
        assert trace.agreement.ok is True


def other(folder: Path, kind: str, class_name: str, **config: Any) -> Checkpoint:
    """A tiny checkpoint of a class that is not among the tiny models."""
    torch.manual_seed(0)
    config_class: Any = CONFIG_MAPPING[kind]
    built: Any = getattr(transformers, class_name)(config_class(**tiny.SMALL | config))
    built.save_pretrained(folder)
    return Checkpoint(kind, folder, type(built).from_pretrained(folder).eval(), {"decoder": "model.layers.0"})


def test_the_two_spellings_of_the_published_models(tmp_path):
    """cases.md 7: rotary_dim=64 of a 128-wide head is 32 frequencies; rotary_pct=.5 of an 8-wide one is 1, .01."""
    sizes = {"head_dim": 128, "num_key_value_heads": 2, "num_local_experts": 2, "num_experts_per_tok": 2}
    sizes |= {"bos_token_id": 1, "eos_token_id": 2}
    made = other(tmp_path / "minimax", "minimax_m2", "MiniMaxM2ForCausalLM", rotary_dim=64, **sizes)
    trace, seen = made.trace(some_ids(6)), made.run(some_ids(6))
    assert trace.effect.angles.shape == (6, 32)
    assert torch.equal(trace.attention.q, seen.fused[0].query[0])
    assert torch.equal(trace.attention.q[..., 64:], trace.attention.q_before[..., 64:])
    assert trace.agreement.ok is True

    sizes = {"hidden_size": 32, "bos_token_id": 1, "eos_token_id": 2}
    made = other(tmp_path / "neox", "gpt_neox_japanese", "GPTNeoXJapaneseForCausalLM", rotary_pct=0.5, **sizes)
    trace = made.trace(some_ids(6))
    assert torch.allclose(trace.effect.angles[1], torch.tensor([1.0, 0.01]))
    assert trace.effect.rotary_dim == 4
    assert trace.agreement.ok is True


def test_a_rotation_the_other_way_round_is_said(tmp_path):
    """NanoChat's sine has the other sign; the angles are the same."""
    sizes = {"num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2}
    trace = other(tmp_path, "nanochat", "NanoChatForCausalLM", **sizes).trace(some_ids(6))
    assert any("minus the angle" in note for note in trace.notes)
    assert trace.agreement.ok is True
    assert checkpoint("llama").trace(some_ids(6)).notes == ()


def test_llama_4s_layers_without_rotation(tmp_path):
    """cases.md 9, the other model that spells it so; its pairs lie side by side, as complex numbers."""
    sizes = {"num_hidden_layers": 8, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size_mlp": 96}
    sizes |= {"num_local_experts": 2, "attention_chunk_size": 8, "num_experts_per_tok": 1}
    made = other(tmp_path, "llama4_text", "Llama4ForCausalLM", **sizes)
    assert made.model.layer_schemes == ("rope", "rope", "rope", "none", "rope", "rope", "rope", "none")
    trace, seen = made.trace(some_ids(6)), made.run(some_ids(6))
    assert trace.effect.layout == "interleaved"
    assert torch.equal(trace.attention.q, seen.fused[0].query[0])
    assert torch.equal(trace.block_input, seen.block_input[0])
    assert trace.agreement.ok is True


@pytest.mark.parametrize(
    ("name", "layout", "start", "width"),
    [
        ("llama", "half", 0, 16),
        ("falcon", "half", 0, 16),
        ("phi3", "half", 0, 16),
        ("modernbert", "half", 0, 16),
        ("gpt_neox", "half", 0, 4),
        ("gptj", "interleaved", 0, 8),
        ("cohere2", "interleaved", 0, 16),
        ("deepseek_v3", "half", 16, 8),  # sorted into evens and odds first: half-split by the time it is turned
    ],
)
def test_pairing_and_place(name, layout, start, width):
    effect = checkpoint(name).trace(some_ids(6)).effect
    assert (effect.layout, effect.start, effect.rotary_dim) == (layout, start, width)


def test_two_pairings_of_the_same_angles():
    """cases.md 10: q = 1, 2, 3, 4 at position 1; the two effects as recorded, the turn by the definition."""
    q = torch.tensor([[[0.0] * 4, [1.0, 2.0, 3.0, 4.0]]])
    small = {"num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 4}
    half = checkpoint("llama", **small).trace([7, 8]).effect
    between = checkpoint("gptj", n_head=16, rotary_dim=4).trace([7, 8]).effect
    assert torch.allclose(half.angles, between.angles)
    for effect, expected in [
        (half, [-1.9841, 1.9599, 2.4624, 4.0198]),
        (between, [-1.1426, 1.9221, 2.9599, 4.0298]),
    ]:
        found = turned(q, effect.angles, effect.layout, effect.start)[0, 1]
        assert torch.allclose(found.float(), torch.tensor(expected), atol=1e-4)


@pytest.mark.parametrize(
    ("mscale", "expected"),
    [((1.0, 1.0), 1.0), ((0.707, 1.0), 0.92104), ((0.707, None), 1.36889), ((None, None), 1.36889)],
)
def test_yarns_magnitude(mscale, expected):
    """cases.md 11."""
    rope: dict[str, Any] = {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 40.0,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 4096,
    }
    rope |= {key: value for key, value in zip(("mscale", "mscale_all_dim"), mscale, strict=True) if value is not None}
    trace = checkpoint("llama", rope_parameters=rope).trace([7, 8, 9])
    assert torch.allclose(torch.hypot(trace.effect.cos, trace.effect.sin), torch.tensor(expected), atol=1e-5)
    assert trace.agreement.ok is True
    assert torch.allclose(trace.effect.angles[1, 0], torch.tensor(1.0), atol=1e-5)  # apart from the angle


def test_dynamic_frequencies_start_afresh():
    """cases.md 12: transformers' module keeps the frequencies of the longest text so far; a trace does not."""
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    made = checkpoint("llama", max_position_embeddings=32, rope_parameters=rope)
    for length, last in [(20, 3.1623e-4), (32, 3.1623e-4), (64, 1.0541e-4), (40, 2.1082e-4), (8, 3.1623e-4)]:
        trace = made.trace(some_ids(length))
        frequency = float(trace.effect.angles[1, -1])
        assert frequency == pytest.approx(last, rel=1e-4), length
        assert trace.agreement.ok is True, trace.agreement.message
        fresh = Checkpoint("llama", made.folder, made.eager(), made.first_block)
        own = fresh.full.model.rotary_emb(torch.zeros(1, length, 1), torch.arange(length)[None])  # type: ignore[union-attr]
        assert torch.equal(trace.effect.cos, own[0][0])


def test_llama_3s_three_bands():
    """cases.md 13: head 64, theta 5e5."""
    rope = {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    trace = checkpoint("llama", head_dim=64, rope_parameters=rope).trace([7, 8])
    plain = 5e5 ** -(torch.arange(32).double() / 32)
    divided = plain / trace.effect.angles[1].double()
    expected = torch.tensor([1.0] * 15 + [1.651, 3.292, 9.667] + [32.0] * 14, dtype=torch.float64)
    assert torch.allclose(divided, expected, rtol=1e-3)
    assert trace.agreement.ok is True


SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 32},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "longrope": {"factor": 4.0, "original_max_position_embeddings": 32},
}


@pytest.mark.parametrize(
    ("name", "scaling"),
    [*((name, scaling) for name in ("llama", "gpt_neox") for scaling in SCALINGS), ("phi3", "longrope")],
)
@pytest.mark.parametrize("length", [10, 50])
def test_every_scaling_agrees_with_the_formula(name, scaling, length):
    pair = {"gpt_neox": 2}.get(name, 8)
    rope = {"rope_type": scaling, "rope_theta": 1e4, **SCALINGS[scaling]}
    if scaling == "longrope":
        rope |= {"short_factor": [1.0 + 0.1 * i for i in range(pair)], "long_factor": [2.0 + i for i in range(pair)]}
    if name == "gpt_neox":
        rope["partial_rotary_factor"] = 0.25
    longest = 32 if scaling == "dynamic" else 128
    more = {"original_max_position_embeddings": 32} if scaling == "longrope" else {}
    made, ids = checkpoint(name, rope_parameters=rope, max_position_embeddings=longest, **more), some_ids(length)
    trace = made.trace(ids)
    assert trace.agreement.ok is True, trace.agreement.message
    # against the whole model: a fresh one, which has seen no other length
    seen = made.run(ids, full=type(made.full).from_pretrained(made.folder).eval())
    assert torch.equal(trace.attention.q, seen.fused[0].query[0])
    plain = 1e4 ** -(torch.arange(pair) / pair)
    at_rest = scaling == "dynamic" and length <= longest
    assert torch.allclose(trace.effect.angles[1], plain, rtol=1e-4) == at_rest


def test_hard_positions_far_out():
    """At the end of a long context the tolerance grows with the position, and the two still agree."""
    trace = checkpoint("llama", max_position_embeddings=131072).trace([5, 6, 7], positions=[0, 50_000, 131_071])
    assert trace.agreement.ok is True
    exact = torch.outer(trace.positions.double(), 1e4 ** -(torch.arange(8).double() / 8))
    assert math.isclose(float((trace.effect.angles.double() - exact).abs().max()), 0.0, abs_tol=131_071 * 2**-23)


# --- names prove nothing

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
    return other(folder, "recurrent_gemma", "RecurrentGemmaForCausalLM", block_types=blocks, **sizes)


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
