"""A wrong recording is red: each number that a page shows is put wrong on purpose, and the badge must see it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tests import census
from tests.oracle import checkpoint, open_model, some_ids
from tinput.record import attention, injected, recording

replace = dataclasses.replace
OTHER = {"half": "interleaved", "interleaved": "half"}

# What is put wrong: (module, function, what becomes of its result), and models that are to be red
WRONG: dict[str, tuple[Any, str, Callable[[Any], Any], str]] = {
    "vectors": (injected, "_vectors", lambda found: found + 1e-3, "bert roberta opt-narrow marian mpnet"),
    "cosines": (injected, "_rotation", lambda r: replace(r, cos=1.0005 * r.cos), "llama gptj deepseek_v3 gpt_oss"),
    "sines": (injected, "_rotation", lambda r: replace(r, sin=-r.sin), "llama gptj gemma3_text"),
    "angles": (injected, "_rotation", lambda r: replace(r, angles=r.angles + 0.01), "llama gptj gpt_oss gpt_neox"),
    "angles of another pair": (injected, "_rotation", lambda r: replace(r, angles=r.angles.flip(-1)), "llama phi3"),
    "pairs": (injected, "_rotation", lambda r: replace(r, layout=OTHER[r.layout]), "llama gptj deepseek_v3"),
    "pairs, normed or scaled after": (
        injected,
        "_rotation",
        lambda r: replace(r, layout=OTHER[r.layout]),
        "llama4_text nanochat ministral3",
    ),
    "where the turned dimensions start": (
        injected,
        "_rotation",
        lambda r: replace(r, start=r.start + 2),
        "llama deepseek_v3",
    ),
    "a bias": (attention, "_bias", lambda b: type(b).of(1.0005 * b.tensor()), "bloom mpt t5 falcon-alibi mpnet"),
    "distances": (
        injected,
        "_of_distances",
        lambda found: {key: None if value is None else value + 1 for key, value in found.items()},
        "xlnet deberta-v2-relative funnel inkling_text prophetnet",
    ),
    "positions": (injected, "_positions", lambda p: None if p is None else p + 1, "llama bert marian bloom"),
    "the layers that rotate": (
        recording,
        "effects_of",
        lambda effects: tuple(replace(found, layers=(0, 1)) for found in effects),
        "smollm3 gemma3_text",
    ),
}
CASES = [(what, name) for what, (_, _, _, names) in WRONG.items() for name in names.split()]
STACK = {"prophetnet": "decoder"}  # of two stacks that which has the effect; else the first


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A tiny model of a name among tests.tiny, or of any type; each opened once."""
    opened: dict[str, Any] = {}

    def get(name: str) -> Any:
        if name not in opened:
            try:
                opened[name] = checkpoint(name).model
            except KeyError:
                folder = tmp_path_factory.mktemp("census")
                census.build(name).save_pretrained(folder)
                opened[name] = open_model(folder)
        return opened[name]

    return get


@pytest.mark.parametrize(("what", "name"), CASES)
def test_a_wrong_recording_is_red(what, name, models, monkeypatch):
    model, ids = models(name), some_ids(20)
    stack = STACK.get(name, model.stacks[0]) if len(model.stacks) > 1 else None
    assert model.trace(ids=ids, stack=stack).agreement.ok is True
    module, function, change, _ = WRONG[what]
    right = getattr(module, function)
    monkeypatch.setattr(module, function, lambda *args, **more: change(right(*args, **more)))
    agreement = model.trace(ids=ids, stack=stack).agreement
    assert agreement.ok is False, agreement.message
    assert agreement.max_abs_diff > agreement.tolerance


def test_two_thetas_taken_for_one_are_red(monkeypatch):
    """Gemma 3's local rotation, said to be that of its global layer too: right in the layer that was traced."""
    model = checkpoint("gemma3_text").model
    right = recording.effects_of
    monkeypatch.setattr(
        recording, "effects_of", lambda *args, **more: (replace(right(*args, **more)[0], layers=(0, 1)),)
    )
    agreement = model.trace(ids=some_ids(20)).agreement
    assert agreement.ok is False
    assert "in layer 1, of type full_attention, the formula gives another" in agreement.message


def test_a_layer_that_is_left_out_is_named(monkeypatch):
    right = recording.effects_of
    monkeypatch.setattr(
        recording, "effects_of", lambda *args, **more: tuple(replace(e, layers=(1,)) for e in right(*args, **more))
    )
    agreement = checkpoint("smollm3").trace(some_ids(20)).agreement
    assert agreement.ok is False
    assert "layer 0 lacks it, against the configuration" in agreement.message
