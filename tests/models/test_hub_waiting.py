"""Servers that make one wait: for how long, by which header, and what is said when it would be too long."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from tests import hub_jobs as jobs
from tests.hub_world import WEIGHTS, Case, World, meets


def by_xet(world: World, file: str) -> None:
    """A file is said to be kept by xet, at an address where nobody listens."""
    hub, size = world.hub, (world.folder / file).stat().st_size
    token = f"/api/models/{world.name}/xet-read-token/{world.repo.commit}"
    kept = {"X-Xet-Hash": "a" * 64, "X-Xet-Refresh-Route": f"{hub.url}{token}", "ETag": f'"{"b" * 64}"'}
    hub.fail(
        file,
        method="HEAD",
        status=200,
        headers={**kept, "X-Repo-Commit": world.repo.commit, "Content-Length": str(size)},
    )
    until = str(int(time.time()) + 3_600)
    where = {"X-Xet-Cas-Url": "http://127.0.0.1:9", "X-Xet-Access-Token": "x", "X-Xet-Token-Expiration": until}
    hub.fail(token, status=200, headers=where, body=b"{}")


CASES = [
    Case(
        "too many requests, come back at a date",
        lambda w: w.hub.fail(status=429, headers={"Retry-After": formatdate(time.time() + 600, usegmt=True)}),
        "Unreachable",
        (r"try again in (600|59\d) seconds", "{name}"),
        1,
        0,
    ),
    Case(
        "too many requests, as the Hub itself says it",
        lambda w: w.hub.fail(status=429, headers={"RateLimit": '"api";r=0;t=55'}),
        "Unreachable",
        ("try again in 55 seconds", "{name}"),
        1,
        0,
    ),
    *(
        Case(
            f"too many requests, come back in {what}",
            lambda w, said=said: w.hub.fail(status=429, headers={"Retry-After": said}),
            "Unreachable",
            ("too many requests", "{name}", r"try again later\."),
            requests,
            0,
        )
        for what, said, requests in (
            ("thirty years", "1000000000", 1),
            ("more than a float holds", "9" * 400, 1),
            ("minus five seconds", "-5", 5),
            ("a while", "soon", 5),
            ("no date", "Wed, 99 Foo 2026", 5),
        )
    ),
    Case(
        "no answer for a small file",
        lambda w: w.hub.fail("config.json", hang=True),
        "Unreachable",
        ("nothing came for 0.9 seconds", "{name}/config.json"),
        4,
        3_000,
        job="impatient",
        patience=0.3,
    ),
    Case(  # huggingface_hub would sleep as long as that
        "too many requests for a small file, come back in thirty years",
        lambda w: w.hub.fail("config.json", status=429, headers={"Retry-After": "1000000000"}),
        "Unreachable",
        ("nothing came for 0.9 seconds", "{name}/config.json"),
        4,
        3_000,
        job="impatient",
        patience=0.3,
    ),
    Case(
        "the storage of large files that huggingface_hub goes to by itself is out of reach",
        lambda w: by_xet(w, "tokenizer.json"),
        "Unreachable",
        ("nothing came for 1.5 seconds", "{name}/tokenizer.json", "HF_HUB_DISABLE_XET=1"),
        job="impatient",
        patience=0.5,
    ),
    Case(
        "no answer on pull requests",  # where huggingface_hub sets no limit at all
        lambda w: (
            w.hub.fail("/discussions", hang=True),
            w.push(lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin")),
        ),
        "Pickled",
        ("{name}", "pickle"),
        job="impatient",
        patience=0.3,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_a_server_that_makes_one_wait_is_told_of_in_one_sentence(world, case):
    meets(world, case)


def test_a_read_that_hangs_is_stopped_at_once(world):
    """By the clock, with all the patience that huggingface_hub has by default: minutes."""
    for on in ("/api/models", "config.json", WEIGHTS):
        hub = world.hub
        hub.heal()
        hub.fail(on, hang=True)
        said, seconds = world.run(jobs.patiently, "stopped_after", world.name, 0.3)
        assert said.startswith("Enough"), said
        assert seconds < 3.5, (on, seconds)
        hub.stop()  # ends what hangs
        hub.start()
