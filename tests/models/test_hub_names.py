"""Ids without an owner, as the oldest models on the Hub have: "gpt2" is answered from where the repo is now."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests import hub_jobs as jobs
from tests import makers, tiny
from tests.hub import Client, Hub, client
from tests.hub_world import STEP, WEIGHTS, same


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("gpt2") / "model"
    tiny.make("gpt2", folder, vocab_size=400)
    makers.byte_level().save_pretrained(folder)
    return folder


@pytest.fixture
def moved(running, folder, request) -> Iterator[tuple[Hub, Client, str]]:
    """A Hub on which "<test>" is now "community/<test>", answered by redirects; and the first name."""
    hub, run = running
    hub.heal()
    name = re.sub("[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    hub.add(f"community/{name}", folder)
    hub.moved[name] = f"community/{name}"
    yield hub, run, name
    del hub.moved[name]


def test_a_name_without_an_owner_is_read_through_the_redirects(moved, folder):
    hub, run, name = moved
    found = run(jobs.seen, name, attention=True)
    expected = run(jobs.seen, str(folder), attention=True)
    assert found["arrays"] == expected["arrays"]
    assert found["revision"] == hub.repos[f"community/{name}"].commit
    paths = {urlsplit(request.path).path for request in hub.requests}
    assert f"/{name}/resolve/{found['revision']}/config.json" in paths  # pinned, under the name that was typed
    assert not any(request.token for request in hub.requests if request.host == "cdn")
    folders = run(jobs.files_below, str(run.home / "hf" / "hub"))
    assert any(file.startswith(f"models--{name}/") for file in folders)  # where huggingface_hub looks for this name


def test_the_second_time_asks_for_its_commit_alone_and_offline_for_nothing(moved):
    hub, run, name = moved
    expected = run(jobs.seen, name, attention=True)
    hub.heal()
    assert run(jobs.seen, name, attention=True)["arrays"] == expected["arrays"]
    assert {request.status for request in hub.requests} == {200, 307}
    assert all("/api/models/" in request.path for request in hub.requests), hub.requests
    with client(hub, home=run.home, env={"HF_HUB_OFFLINE": "1"}) as offline:
        outcome = offline.outcome(jobs.seen, name, attention=True)
    assert not outcome.kinds, outcome.shown
    assert outcome.value["arrays"] == expected["arrays"]
    assert outcome.connections == 0


def test_rows_that_were_read_by_one_name_are_not_read_again_by_the_other(moved):
    hub, run, name = moved
    expected = run(jobs.seen, name, attention=True)
    hub.heal()
    assert same(run(jobs.seen, f"community/{name}", attention=True), expected)
    assert not any(WEIGHTS in request.path for request in hub.requests), hub.requests


def test_a_revision_of_a_name_without_an_owner(moved, folder, tmp_path):
    hub, run, name = moved
    repo = hub.repos[f"community/{name}"]
    repo.refs["v1"] = old = repo.commit
    repo.push(tiny.make("gpt2", tmp_path / "new", seed=1, vocab_size=400))
    for revision in ("v1", old):
        found = run(jobs.seen, name, revision=revision)
        assert found["revision"] == old
        assert same(found, run(jobs.seen, str(folder)))
    outcome = run.outcome(jobs.opened, name, "v9")
    assert "NotFound" in outcome.kinds, outcome.shown
    assert re.search(rf"{name} has no revision 'v9'", outcome.said), outcome.said


def test_gated_by_a_name_without_an_owner(moved):
    hub, run, name = moved
    hub.repos[f"community/{name}"].gated = True
    outcome = run.outcome(jobs.opened, name)
    assert "Gated" in outcome.kinds, outcome.shown
    assert f"ask for access at {hub.url}/{name}," in outcome.said


def test_a_folder_or_a_bundled_model_of_the_name_comes_first(moved, folder, tmp_path):
    hub, run, name = moved
    (tmp_path / name).symlink_to(folder)
    found = run(jobs.here, str(tmp_path), "seen", name)
    assert found["revision"] is None
    assert same(found, run(jobs.seen, str(folder)))
    hub.add("rope", folder)
    try:
        assert run(jobs.opened, "rope")["scheme"] == "rope"
    finally:
        del hub.repos["rope"]
    assert not hub.requests


@pytest.mark.parametrize(("name", "nearest"), [("ropes", "tinput/rope"), ("Alibi", "tinput/alibi"), ("gpt22", None)])
@pytest.mark.parametrize("state", ["online", "without a token", "no network"])
def test_a_name_that_is_nowhere_is_told_with_the_nearest_bundled_one(running, name, nearest, state):
    hub, run = running
    hub.heal()
    kind = "NotFound"
    if state == "no network":
        hub.stop()
        outcome, kind = run.outcome(jobs.opened, name), "Unreachable"
        hub.start()
    elif state == "without a token":
        outcome = run.outcome(jobs.anonymously, "opened", name)
    else:
        outcome = run.outcome(jobs.opened, name)
    assert kind in outcome.kinds, outcome.shown
    said = outcome.said
    assert re.fullmatch(rf"{name} is no folder and no bundled model[^\n]*\.", said), said
    assert (f"(the nearest is {nearest})" in said) == (nearest is not None), said
    assert STEP.search(said), said


def test_the_app_takes_a_name_without_an_owner_and_the_python_shown_does_too(moved):
    import numpy as np

    hub, run, name = moved
    commit = hub.repos[f"community/{name}"].commit
    for typed in (name, f"{name}@{commit}"):
        seen = run(jobs.looked_at, "learned", text="the cat", model=typed)
        assert "matches transformers" in seen["words"], seen["words"]
        assert f"open_model({name!r}, revision={commit!r})" in seen["code"][0], seen["code"]
        (made, *_) = run(jobs.executed, seen["code"][0])
        np.testing.assert_allclose(made, seen["heats"][0], rtol=1e-6)
    told = run(jobs.looked_at, "learned", text="the cat", model="ropes")
    assert "the nearest is tinput/rope" in told["words"]
    assert "again-ropes" in told["buttons"]
