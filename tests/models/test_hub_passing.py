"""Trouble with the Hub that passes, a repo that changes while it is read, and what is left where something is gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests import hub_jobs as jobs
from tests import tiny
from tests.hub import TOKEN
from tests.hub_world import STEP, WEIGHTS, World, remove, same


@dataclass
class Passing:
    """Trouble that passes: done to the Hub, the waits that it costs, and the most traffic."""

    what: str
    breaks: Callable[[World], Any]
    waits: tuple[float, ...] | None = ()
    requests: int = 14
    sent: int = 250_000


PASSING = [
    Passing("none", lambda _: None),
    Passing(
        "too many requests, come back in 2 seconds",
        lambda w: w.hub.fail("/api/models", status=429, headers={"Retry-After": "2"}, times=2),
        (2.0, 2.0),
    ),
    Passing(
        "too many requests, come back at a date that is over",
        lambda w: w.hub.fail(
            "/api/models", status=429, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, times=1
        ),
        (0.5,),
    ),
    Passing("the server is broken for a moment", lambda w: w.hub.fail("/api/models", status=500, times=2), (0.5, 1.0)),
    Passing("the storage is down for a moment", lambda w: w.hub.fail(host="cdn", status=503, times=2), None),
    Passing("a range is cut in the middle, twice", lambda w: w.hub.fail(host="cdn", cut=30_000, times=2), None),
    Passing(
        "the storage's addresses have expired", lambda w: w.hub.fail(host="cdn", after=w.hub.expire, times=1), (), 20
    ),
    Passing("text files come compressed", lambda w: setattr(w.hub, "compress", True)),
    Passing("small files lie behind a redirect", lambda w: setattr(w.hub, "resolve_cache", True), requests=20),
    Passing("one range at a time", lambda w: setattr(w.hub, "multipart", False)),
    Passing("the repo has another name now", lambda w: rename(w), requests=30),
    Passing("the weights are kept by xet", lambda w: kept_by_xet(w)),
    Passing("no ETag on ranges", lambda w: w.hub.fail(host="cdn", drop=("ETag", "Accept-Ranges"))),
]


def rename(world: World) -> None:
    repo = world.hub.repos.pop(world.name)
    repo.name = world.hub.moved[world.name] = f"{world.name}-renamed"
    world.hub.repos[repo.name] = repo


def kept_by_xet(world: World) -> None:
    """The Hub's redirect to the weights says by which hash xet knows them, and where it gives a token for that."""
    route = f"{world.hub.url}/api/models/{world.name}/xet-read-token/{world.repo.commit}"
    said = {"X-Xet-Hash": "a" * 64, "X-Xet-Refresh-Route": route, "Link": f'<{route}>; rel="xet-auth"'}
    world.hub.fail(WEIGHTS, host="hub", adds=said)


@pytest.mark.parametrize("case", PASSING, ids=lambda case: case.what)
def test_trouble_that_passes_costs_a_wait_and_nothing_else(world, case):
    hub, run = world.hub, world.run
    case.breaks(world)
    found = run(jobs.seen, world.name)
    assert same(found, run(jobs.seen, str(world.folder)))
    waits = run(jobs.waited)
    if case.waits is not None:
        assert tuple(waits) == case.waits
    assert len(waits) <= 4
    assert len(hub.requests) <= case.requests, hub.requests
    assert hub.sent <= case.sent, hub.requests
    assert not any(request.token for request in hub.requests if request.host == "cdn")


def test_a_client_that_sends_the_token_with_everything_sends_it_to_the_hub_alone(world):
    assert same(world.run(jobs.with_own_client, "seen", world.name), world.run(jobs.seen, str(world.folder)))
    storage = [request for request in world.hub.requests if request.host == "cdn"]
    assert storage
    assert not any(request.token for request in storage)


def test_a_wait_that_the_server_asks_for_is_kept(world):
    """By the clock."""
    world.hub.fail("/api/models", status=429, headers={"Retry-After": "1"}, times=1)
    _, seconds = world.run(jobs.patiently, "opened", world.name)
    first, second = (request for request in world.hub.requests if "/api/models" in request.path)
    assert (first.status, second.status) == (429, 200)
    assert seconds >= 1.0


# --- many rows in one request

ROWS = list(range(0, 60_000, 1_500))  # 40 rows that lie apart


def ranges(change: Callable[[list[str]], list[str]]) -> Callable[[str], str]:
    """What a server makes of a Range header: its ranges, changed."""
    return lambda header: "bytes=" + ",".join(change(header.removeprefix("bytes=").split(",")))


def moved(one: str) -> str:
    start, stop = one.split("-")
    return f"{int(start) + 256}-{int(stop) + 256}"


# how it answers; the most requests and bytes that this may cost
SERVERS: dict[str, tuple[dict[str, Any], int, int]] = {
    "it answers": ({}, 14, 150_000),
    "one at a time": ({"whole": True}, 60, 2_000_000),
    "the first alone": ({"reads": ranges(lambda all: all[:1])}, 60, 150_000),
    "in another order": ({"reads": ranges(lambda all: all[::-1])}, 14, 150_000),
    "others than were asked for": ({"reads": ranges(lambda all: [moved(one) for one in all])}, 60, 200_000),
    "more than were asked for": ({"reads": ranges(lambda all: [*all, "0-99999"])}, 60, 300_000),
    "refused": ({"status": 416}, 60, 150_000),
    "forbidden": ({"status": 400}, 60, 150_000),
    "cut in the middle": ({"cut": 5_000, "times": 1}, 60, 150_000),
    "broken for a moment": ({"status": 503, "times": 2}, 60, 150_000),
}


@pytest.mark.parametrize("server", SERVERS)
def test_many_rows_are_right_whatever_a_server_makes_of_many_ranges(world, server):
    hub, run = world.hub, world.run
    how, requests, sent = SERVERS[server]
    hub.move_cdn()  # what it can do is found out once
    fault = hub.fail(host="cdn", many=True, **how)
    found = run(jobs.seen, world.name, None, ids=ROWS)
    assert fault.met, hub.requests
    assert same(found, run(jobs.seen, str(world.folder), None, ids=ROWS))
    assert len(hub.requests) <= requests, hub.requests
    assert hub.sent <= sent, hub.requests


# --- one commit for one model


def test_a_repo_that_changes_is_read_on_at_the_commit_that_was_opened(world):
    hub, run = world.hub, world.run
    old = world.repo.commit
    assert run(jobs.opened, world.name)["revision"] == old
    world.push(lambda f: tiny.make("llama", f, seed=1, vocab_size=60_000, tie_word_embeddings=True))
    assert world.repo.commit != old
    hub.requests.clear()
    assert same(run(jobs.traced, world.name), run(jobs.seen, str(world.folder)))
    assert all(old in request.path for request in hub.requests)
    new = run(jobs.seen, world.name)  # opened again: the new one
    assert new["revision"] == world.repo.commit
    assert same(new, run(jobs.seen, str(world.repo.commits[world.repo.commit])))


def test_an_older_commit_and_a_tag_can_be_named(world):
    run, old = world.run, world.repo.commit
    world.repo.refs["v1"] = old
    world.push(lambda f: tiny.make("llama", f, seed=1, vocab_size=60_000, tie_word_embeddings=True))
    expected = run(jobs.seen, str(world.folder))
    for revision in (old, "v1"):
        found = run(jobs.seen, world.name, revision=revision)
        assert found["revision"] == old
        assert same(found, expected)


def test_a_commit_that_is_gone_is_told(world):
    run, old = world.run, world.repo.commit
    run(jobs.opened, world.name)
    world.push(lambda _: None)
    del world.repo.commits[old]
    outcome = run.outcome(jobs.traced, world.name)
    assert "BadModel" in outcome.kinds, outcome.shown
    assert world.name in outcome.said
    assert STEP.search(outcome.said)
    assert TOKEN not in outcome.shown


def test_what_comes_at_another_commit_is_not_taken(world):
    """A mirror that answers with its newest commit, whatever was asked for."""
    run = world.run
    run(jobs.opened, world.name)
    old = world.repo.commit
    world.push(lambda _: None)
    world.repo.commits[old] = world.repo.commits[world.repo.commit]
    world.hub.fail(WEIGHTS, host="hub", status=302, headers={"X-Repo-Commit": world.repo.commit, "Location": "/x"})
    outcome = run.outcome(jobs.traced, world.name)
    assert "BadFile" in outcome.kinds, outcome.shown
    assert old[:8] in outcome.said
    assert "open it again" in outcome.said


# --- what is left when something is missing


def test_without_a_tokenizer_ids_can_be_traced(world):
    world.push(remove("tokenizer.json", "tokenizer_config.json"))
    ids = [1, 5, 7, 5]
    found = world.run(jobs.seen, world.name, None, ids=ids)
    assert same(found, world.run(jobs.seen, str(world.folder), None, ids=ids))


def test_a_scheme_is_known_without_a_byte_of_the_weights(world):
    world.hub.fail(host="cdn", status=503)
    found = world.run(jobs.opened, world.name)
    assert found["scheme"] == "rope"


def test_the_token_is_in_no_repr_of_an_open_model(world):
    outcome = world.run.outcome(jobs.looked_through, world.name)
    assert not outcome.kinds, outcome.shown
    assert TOKEN not in outcome.shown
    assert TOKEN not in outcome.value
    assert world.name in outcome.value
