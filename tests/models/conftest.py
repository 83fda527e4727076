"""For the tests of the Hub: one process as its client, and a Hub with a healthy repo for each test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import hub_jobs
from tests.hub import TOKEN, Client, Hub, client
from tests.hub_world import World


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> tuple[Path, Path]:
    """A Llama of 15 MB, nearly all of it the embedding, in one file and in shards."""
    from tests import makers, tiny  # late: transformers takes seconds, and most tests here want no Hub

    made = []
    for name, save in (("whole", {}), ("shards", {"max_shard_size": "300KB"})):
        folder = tmp_path_factory.mktemp("folders") / name
        size = 60_000 if name == "whole" else 1_000
        tiny.make("llama", folder, save=save, vocab_size=size, tie_word_embeddings=True)
        makers.byte_level(start=True).save_pretrained(folder)
        made.append(folder)
    return made[0], made[1]


@pytest.fixture(scope="session")
def running() -> Iterator[tuple[Hub, Client]]:
    with Hub() as hub, client(hub) as run:
        run(hub_jobs.hurry)
        yield hub, run


@pytest.fixture
def world(running, folders, tmp_path, request) -> World:
    hub, run = running
    hub.heal()
    hub.tokens = {TOKEN}
    run(hub_jobs.waited)
    what = getattr(request.node, "callspec", None)
    name = f"owner/{re.sub('[^a-z0-9]+', '-', (what.id if what else request.node.name).lower()).strip('-')}"
    return World(hub, run, name, hub.add(name, folders[0]), folders[0], folders[1], tmp_path)
