"""A Hub with one repo that is broken in a way, mended again, and compared with the folder that it was made from."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import hub_jobs as jobs
from tests.hub import TOKEN, Client, Hub, Repo
from tests.hub_repos import rewrite

__all__ = [
    "EMBEDDING",
    "INDEX",
    "STEP",
    "WEIGHTS",
    "Case",
    "World",
    "edit",
    "meets",
    "remove",
    "replace",
    "same",
    "shorten",
]

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
EMBEDDING = "model.embed_tokens.weight"
# what a person can do next: each sentence holds one of these
STEP = re.compile(
    r"\b(check|try|choose|open|log in|ask for|set|unset|download|leave|free|give|convert|install|put|use|look for)\b"
)


@dataclass
class World:
    """A Hub with the healthy repo `name`, and folders that hold it whole and in shards."""

    hub: Hub
    run: Client
    name: str
    repo: Repo
    folder: Path
    shards: Path
    scratch: Path

    def push(self, change: Callable[[Path], Any], shards: bool = False) -> None:
        """A new commit, in which something was changed."""
        target = self.scratch / "changed"
        shutil.copytree(self.shards if shards else self.folder, target)
        change(target)
        self.repo.push(target)

    def header(self, change: Callable[[dict[str, Any]], Any]) -> None:
        """A new commit in which the weights' header is another."""
        self.repo.push(rewrite(self.folder, self.scratch / "header", change=change))


def edit(file: str, change: Callable[[Any], Any]) -> Callable[[Path], Any]:
    """A change to a JSON file, made in place by `change`."""

    def apply(folder: Path) -> None:
        value = json.loads((folder / file).read_text())
        change(value)
        (folder / file).write_text(json.dumps(value))

    return apply


def remove(*files: str) -> Callable[[Path], Any]:
    """A change that takes files away."""
    return lambda folder: [(folder / file).unlink() for file in files]


def replace(file: str, content: bytes) -> Callable[[Path], Any]:
    """A change that gives a file another content."""
    return lambda folder: (folder / file).write_bytes(content)


def shorten(file: str, by: int) -> Callable[[Path], Any]:
    """A change that takes so many bytes from the end of a file."""
    return lambda folder: (folder / file).write_bytes((folder / file).read_bytes()[:-by])


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two traces are equal, bit for bit, in all that both hold; attention may be had from a folder alone."""
    drop = "attention"
    arrays = [{k: v for k, v in seen["arrays"].items() if not k.startswith(drop)} for seen in (one, other)]
    facts = [{k: v for k, v in seen["facts"].items() if not k.startswith(drop)} for seen in (one, other)]
    assert arrays[0], "nothing to compare"
    return arrays[0] == arrays[1] and facts[0] == facts[1]


@dataclass
class Case:
    """What is done, and what must come of it: the error's class, what the sentence says, and the most traffic."""

    what: str
    breaks: Callable[[World], Any]
    kind: str
    says: tuple[str, ...]
    requests: int = 12
    sent: int = 250_000
    job: str = "seen"
    patience: float = 10.0
    revision: str | None = None


def meets(world: World, case: Case) -> None:
    """Asserts that a failure is one sentence with the next step, and no more than that."""
    hub, run = world.hub, world.run
    case.breaks(world)
    job: list[Any] = [] if case.job == "seen" else ["seen"]
    if case.job == "impatient":
        job = [case.patience, "seen"]
    outcome = run.outcome(getattr(jobs, case.job), *job, world.name, revision=case.revision)

    assert outcome.kinds, "nothing was raised"
    assert "TinputError" in outcome.kinds, outcome.shown
    assert set(case.kind.split("|")) & set(outcome.kinds), outcome.said
    said = outcome.said
    assert re.fullmatch(r"[^\n]{20,400}\.", said), said  # one line that ends
    for part in case.says:
        assert re.search(part.format(name=re.escape(world.name), url=re.escape(hub.url)), said, re.IGNORECASE), said
    assert STEP.search(said), f"no next step: {said}"
    assert not re.search(r"Traceback|Error\b|0x[0-9a-f]+|Signature|<html", said), said
    assert TOKEN not in outcome.shown
    assert "Signature" not in outcome.printed
    assert len(hub.requests) <= case.requests, hub.requests
    assert hub.sent <= case.sent, hub.requests

    # all is well again: so is the model, and the same as from the folder
    hub.heal()
    hub.tokens.add(TOKEN)
    hub.stop()
    hub.start()
    hub.add(world.name, world.folder)
    assert same(run(jobs.seen, world.name), run(jobs.seen, str(world.folder)))
