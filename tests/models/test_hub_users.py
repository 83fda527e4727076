"""Several at one server: whose token is used, threads that share a model, reads that are watched and stopped."""

from __future__ import annotations

import pytest

from tests import hub_jobs as jobs
from tests.hub import TOKEN
from tests.hub_world import WEIGHTS, same

# --- tokens


@pytest.mark.parametrize("kind", ["gated", "private"])
def test_a_visitor_without_the_token_is_not_shown_what_the_owner_has_read(world, kind):
    """The server's own token, its cache on disk and its models in memory are not for visitors."""
    hub, run = world.hub, world.run
    setattr(world.repo, kind, True)
    world.repo.readers = (TOKEN,)
    assert same(run(jobs.seen, world.name), run(jobs.seen, str(world.folder)))
    hub.requests.clear()
    for revision in (None, world.repo.commit):
        outcome = run.outcome(jobs.opened, world.name, revision, token=False)
        assert {"Gated", "Private", "NotFound"} & set(outcome.kinds), (revision, outcome.value)
        assert TOKEN not in outcome.shown
    assert not any(request.token for request in hub.requests)


@pytest.mark.parametrize("without_a_token", [False, True])
def test_of_a_gated_model_the_app_says_what_is_known_of_its_architecture(world, without_a_token):
    world.repo.gated = True
    job = ("anonymously", "looked_at") if without_a_token else ("looked_at",)
    seen = world.run(getattr(jobs, job[0]), *job[1:], "pipeline", model=world.name, text="the cat")
    assert "is gated" in seen["words"]
    assert "RoPE: rotation of q and k" in seen["words"]
    assert "by its architecture alone: nothing is recorded" in seen["words"]
    assert "Its architecture is llama" in seen["words"]
    assert "matches transformers" not in seen["words"]
    assert not seen["heats"]


def test_a_public_model_is_read_without_a_token_for_a_visitor(world):
    run = world.run
    assert run(jobs.opened, world.name, token=False)["scheme"] == "rope"
    assert same(run(jobs.traced, world.name), run(jobs.seen, str(world.folder)))
    assert world.hub.requests
    assert not any(request.token for request in world.hub.requests)


def test_a_file_that_is_gated_alone_is_not_shown_to_a_visitor_either(world):
    """A repo that became gated after it was read without a token."""
    world.run(jobs.opened, world.name, token=False)
    world.repo.gated = True
    outcome = world.run.outcome(jobs.opened, world.name, token=False)
    assert "Gated" in outcome.kinds, outcome.value


# --- threads


def test_threads_that_trace_one_model_find_the_same(world):
    alone = world.run(jobs.seen, str(world.folder), attention=True)
    found = world.run(jobs.at_once, world.name, 8, attention=True)
    assert all(one["arrays"] == alone["arrays"] for one in found)
    ranges = [request.range for request in world.hub.requests if request.host == "cdn"]
    assert ranges.count("bytes=0-99999") == 1, ranges  # the header


# --- progress


def test_a_listener_is_told_of_bytes_and_steps(world):
    world.hub.delay = 0.12  # so that there is time to tell
    found, heard = world.run(jobs.told, world.name, attention=True)
    assert same(found, world.run(jobs.seen, str(world.folder)))
    steps = list(dict.fromkeys(step for _, _, step in heard))
    assert any("tokenizer.json" in step for step in steps), steps
    assert all(world.name in step or "embed" in step for step in steps), steps
    assert all(0 <= done <= total for done, total, _ in heard)
    for step in steps:  # each goes up, and ends with all that was wanted
        done = [done for done, _, of in heard if of == step]
        assert done == sorted(done), step
        last = next((done, total) for done, total, of in reversed(heard) if of == step)
        assert last[0] == last[1], step


def test_a_read_that_is_stopped_keeps_nothing_half_read(world):
    hub, run = world.hub, world.run
    hub.fail(WEIGHTS, host="cdn", delay=0.3)
    said = run(jobs.stopped, world.name, -1)  # at the first word
    assert said.startswith("Enough"), said
    hub.heal()
    assert same(run(jobs.seen, world.name), run(jobs.seen, str(world.folder)))


# --- a commit that is named


def test_a_commit_that_is_named_is_read_as_the_branch_is(world):
    hub, run = world.hub, world.run
    commit = world.repo.commit
    first = run(jobs.seen, world.name, revision=commit)
    assert first["revision"] == commit
    assert all(request.status < 400 for request in hub.requests), hub.requests  # nothing is tried that is not there
    hub.requests.clear()
    assert same(run(jobs.seen, world.name, revision=commit), first)
    assert not hub.requests


def test_what_a_repo_lacks_is_told_alike_by_branch_and_by_commit(world):
    world.push(lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin"))
    said = []
    for revision in (None, world.repo.commit, world.repo.commit):
        outcome = world.run.outcome(jobs.seen, world.name, revision=revision)
        assert "Pickled" in outcome.kinds, outcome.shown
        said.append(outcome.said)
    assert len(set(said)) == 1, said
