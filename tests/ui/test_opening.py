"""A model on the Hub whose q and k were left out for their size: every page says so, and has the button beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import tinput
from tests import hub_jobs, makers, tiny
from tests.hub import Client, Hub, client

TEXT = "the cat sat"
ROPE, ALIBI = "me/llama", "me/bloom"


@dataclass
class World:
    run: Client
    folders: dict[str, Path]


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    """Models whose q and k are too large to be read unasked, on a Hub, and a process with the app."""
    folders = {name: tmp_path_factory.mktemp("models") / name.split("/")[-1] for name in (ROPE, ALIBI)}
    tiny.make("llama", folders[ROPE], vocab_size=400, hidden_size=256, head_dim=64)
    tiny.make("bloom", folders[ALIBI], vocab_size=400, hidden_size=256)
    with Hub() as hub, client(hub) as run:
        for name, folder in folders.items():
            makers.byte_level().save_pretrained(folder)
            hub.add(name, folder)
        yield World(run, folders)


@pytest.mark.parametrize(
    ("page", "model", "link"),
    [
        ("surgery", ROPE, {}),
        ("rope", ROPE, {"turn": "q and k"}),
        ("rope", ROPE, {"turn": "Scores"}),
        ("rope", ROPE, {"turn": "By pair"}),
        ("rope", ALIBI, {"turn": "By pair"}),
        ("alibi", ALIBI, {"slope": "Attention weights"}),
        ("relative_bias", ROPE, {"bucket": "Attention weights"}),
    ],
)
def test_a_page_that_needs_q_and_k_says_what_to_press_and_has_the_button(world, page, model, link):
    seen = world.run(hub_jobs.looked_at, page, text=TEXT, model=model, **link)
    said = re.search(rf"q and k of {model} were left out for their size \((.*?)\): press “(.*?)”\.", seen["words"])
    assert said is not None, seen["words"]
    for place in ("top", "page"):  # beneath the tokens, and beside the sentence
        assert seen["buttons"][f"attention-{place}-{model}"] == f"{said[2]}: {said[1]}"
    assert f"q and k of {model} were left out for their size ({said[1]})." in seen["paper"]
    assert "press" not in seen["paper"]
    for python in ("attention=True", "ask for", "no attention", "could not be"):
        assert python not in seen["words"]
    read = world.run(hub_jobs.looked_at, page, f"attention-page-{model}", text=TEXT, model=model, **link)
    assert "left out" not in read["words"]
    assert not any(key.startswith("attention-") for key in read["buttons"])
    assert len(read["code"]) == 1  # the picture


def test_side_by_side_each_column_has_a_button_of_its_own(world):
    link = {"text": TEXT, "model": ROPE, "other": ALIBI, "compare": "Attention", "head": "1"}
    seen = world.run(hub_jobs.looked_at, "side_by_side", **link)
    assert not seen["heats"]
    assert "attention=True" not in seen["words"]
    assert "is not shown" not in seen["words"]
    for number, name in enumerate((ROPE, ALIBI)):
        assert f"q and k of {name} were left out" in seen["words"]
        key = f"attention-column {number}-{name}"
        assert key in seen["buttons"]
        one = world.run(hub_jobs.looked_at, "side_by_side", key, **link)
        assert f"q and k of {name} were left out" not in one["words"]
        assert sum(key.startswith("attention-") for key in one["buttons"]) == 1  # the other column's
        attention = tinput.open_model(world.folders[name]).trace(TEXT).attention
        assert attention is not None
        (shown,) = one["heats"]
        np.testing.assert_allclose(np.nan_to_num(shown), attention.weights[1].tensor().numpy(), atol=1e-6)
        (made,) = world.run(hub_jobs.executed, one["code"][0])
        np.testing.assert_allclose(made, shown, atol=1e-6)


def test_side_by_side_one_model_twice_is_read_by_either_button(world):
    link = {"text": TEXT, "model": ROPE, "other": ROPE, "compare": "Attention"}
    keys = [f"attention-column {number}-{ROPE}" for number in (0, 1)]
    assert set(keys) <= set(world.run(hub_jobs.looked_at, "side_by_side", **link)["buttons"])
    for key in keys:
        assert len(world.run(hub_jobs.looked_at, "side_by_side", key, **link)["heats"]) == 2
