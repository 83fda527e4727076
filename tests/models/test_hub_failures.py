"""What goes wrong between tinput and the Hub, and what then: one sentence with the next step, and no more than that.

Each failure is done to a Hub on loopback, and met by the real huggingface_hub client in a process of its own. Whatever
happens, the token is nowhere to be seen, requests and bytes are bounded, and the next attempt works once all is well.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import tiny
from tests.hub_repos import pickled
from tests.hub_world import EMBEDDING, INDEX, WEIGHTS, Case, World, edit, meets, remove, replace, shorten

FIRST = "model-00001-of"  # the shard that holds the embedding


def where(header: dict[str, Any]) -> dict[str, Any]:
    return header[EMBEDDING]


def refuse(name: str) -> Callable[[World], Any]:
    """gated, private or missing; anything else changes nothing."""
    return lambda w: w.hub.repos.pop(w.name) if name == "missing" else setattr(w.repo, name, True)


CASES = [
    # who may see it
    Case("there is no such repo", refuse("missing"), "NotFound", ("{name}", "spelling"), 2, 1_000),
    Case("private, with a token that may not see it", refuse("private"), "NotFound", ("{name}", "token"), 2, 1_000),
    Case(
        "private or missing, without a token",
        refuse("private"),
        "Private",
        ("{name}", "log ?in", "spelling"),
        2,
        1_000,
        job="anonymously",
    ),
    Case("gated", refuse("gated"), "Gated", ("{name}", "gated", "ask for access at {url}/{name}"), 3, 3_000),
    Case(
        "gated, without a token",
        refuse("gated"),
        "Gated",
        ("{name}", "gated", "log in|HF_TOKEN"),
        3,
        3_000,
        job="anonymously",
    ),
    Case("a token that is not valid", lambda w: w.hub.tokens.clear(), "NotAllowed", ("token", "log in"), 2, 1_000),
    Case("no such revision", refuse("nothing"), "NotFound", ("{name}", "revision 'v9'"), 2, 1_000, revision="v9"),
    Case(
        "gated in its storage alone",
        lambda w: w.hub.fail(host="cdn", status=403),
        "Unreachable|NotAllowed",
        ("{name}", "403"),
        requests=20,
    ),
    # the network
    Case("no network", lambda w: w.hub.stop(), "Unreachable", ("network|connection", "{name}"), 0, 0),
    Case(
        "no answer",
        lambda w: w.hub.fail(hang=True),
        "Unreachable",
        ("no answer within 0.3 seconds", "{name}"),
        6,
        0,
        job="impatient",
        patience=0.3,
    ),
    Case(
        "no answer from the storage",
        lambda w: w.hub.fail(host="cdn", hang=True),
        "Unreachable",
        ("no answer within 0.5 seconds", "{name}/model.safetensors"),
        job="impatient",
        patience=0.5,
    ),
    Case("too many requests", lambda w: w.hub.fail(status=429), "Unreachable", ("too many requests", "{name}"), 5, 0),
    Case(
        "too many requests, come back in ten minutes",
        lambda w: w.hub.fail(status=429, headers={"Retry-After": "600"}),
        "Unreachable",
        ("600 seconds", "{name}"),
        1,
        0,
    ),
    Case("the server is broken", lambda w: w.hub.fail(status=500), "Unreachable", ("500", "{name}"), 5, 0),
    Case("the storage is down", lambda w: w.hub.fail(host="cdn", status=503), "Unreachable", ("503", WEIGHTS)),
    Case(
        "each range is cut at once",
        lambda w: w.hub.fail(host="cdn", cut=0),
        "Unreachable",
        ("cut", "{name}/model.safetensors"),
    ),
    Case(
        "each answer is cut, of small files too",
        lambda w: w.hub.fail("config.json", method="GET", cut=10),
        "Unreachable",
        ("cut|shorter", "{name}/config.json"),
        40,
    ),
    Case(
        "a web page in place of every answer",
        lambda w: w.hub.fail(
            status=200, headers={"Content-Type": "text/html"}, body=b"<html>Please log in to the WiFi"
        ),
        "Unreachable",
        ("{name}|the Hub", "HF_ENDPOINT|network"),
        6,
        1_000,
    ),
    # ranges
    Case(
        "ranges are ignored",
        lambda w: w.hub.fail(WEIGHTS, whole=True),
        "Unreachable",
        ("{name}/model.safetensors", "whole file of 1[0-9],[0-9]{{3}},[0-9]{{3}} bytes"),
        sent=4_000_000,  # what a socket's buffers hold, of 15 MB
    ),
    Case(
        "another range than was asked for",
        lambda w: w.hub.fail(WEIGHTS, content_range="bytes 7-100006/15500000"),
        "Unreachable|BadFile",
        ("{name}/model.safetensors",),
    ),
    Case(
        "a range that does not say which",
        lambda w: w.hub.fail(WEIGHTS, drop=("Content-Range",)),
        "Unreachable",
        ("{name}/model.safetensors", "Content-Range"),
    ),
    # weights
    Case(
        "a header as long as memory",
        lambda w: w.push(replace(WEIGHTS, (2**64 - 1).to_bytes(8, "little") + b"{}")),
        "BadFile",
        ("{name}/model.safetensors", "header"),
    ),
    Case(
        "a header that is no JSON",
        lambda w: w.push(replace(WEIGHTS, (8).to_bytes(8, "little") + b"{'not':1")),
        "BadFile",
        ("{name}/model.safetensors", "JSON"),
    ),
    Case(
        "a pointer in place of the weights",
        lambda w: w.push(replace(WEIGHTS, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n" * 2)),
        "BadFile",
        ("{name}/model.safetensors", "pointer"),
    ),
    Case(
        "cut short in its last tensor",
        lambda w: w.push(shorten(WEIGHTS, 1_000)),
        "BadFile",
        ("{name}/model.safetensors", "cut short"),
    ),
    Case(
        "offsets past the end",
        lambda w: w.header(lambda h: where(h).update(shape=[600_000, 64], data_offsets=[0, 600_000 * 64 * 4])),
        "BadFile",
        ("{name}/model.safetensors", EMBEDDING),
    ),
    Case(
        "offsets that do not fit the shape",
        lambda w: w.header(lambda h: where(h).update(shape=[60_001, 64])),
        "BadFile",
        ("{name}/model.safetensors", EMBEDDING),
    ),
    Case(
        "a dtype that does not fit the bytes",
        lambda w: w.header(lambda h: where(h).update(dtype="BF16")),
        "BadFile",
        ("{name}/model.safetensors", EMBEDDING),
    ),
    Case(
        "codes in place of numbers",
        lambda w: w.header(lambda h: where(h).update(dtype="I32")),
        "BadFile",
        ("{name}", EMBEDDING, "I32"),
    ),
    Case(
        "a shape that is not the configuration's",
        lambda w: w.header(lambda h: where(h).update(shape=[120_000, 32])),
        "BadFile",
        ("{name}", EMBEDDING, r"\[120000, 32\]", r"\[60000, 64\]"),
    ),
    Case(
        "the embedding is not there",
        lambda w: w.header(lambda h: h.pop(EMBEDDING)),
        "BadFile",
        ("{name}", EMBEDDING),
    ),
    Case(
        "a shard that is missing",
        lambda w: w.push(lambda f: next(f.glob(f"{FIRST}*")).unlink(), shards=True),
        "BadFile",
        ("{name}/" + FIRST, "missing"),
    ),
    Case(
        "a tensor in another shard than the index says",
        lambda w: w.push(
            edit(INDEX, lambda v: v["weight_map"].update({EMBEDDING: sorted(set(v["weight_map"].values()))[-1]})),
            shards=True,
        ),
        "BadFile",
        ("{name}/model-0000", EMBEDDING),
    ),
    Case(
        "a tensor that no shard holds",
        lambda w: w.push(edit(INDEX, lambda v: v["weight_map"].pop(EMBEDDING)), shards=True),
        "BadFile",
        ("{name}", EMBEDDING),
    ),
    Case(
        "an index that leads elsewhere",
        lambda w: w.push(
            edit(INDEX, lambda v: v["weight_map"].update({EMBEDDING: "../../other/model.bin"})), shards=True
        ),
        "BadFile",
        ("{name}", "index"),
    ),
    Case(
        "an index that is none",
        lambda w: w.push(replace(INDEX, b"[]"), shards=True),
        "BadFile",
        ("{name}/model.safetensors.index.json",),
    ),
    Case(
        "a disk that is full",
        refuse("nothing"),
        "BadFile|Unreachable",
        ("{name}", "disk is full", "HF_HOME"),
        job="without_room",
    ),
    Case("no weights", lambda w: w.push(remove(WEIGHTS)), "NoWeights", ("{name}", "weights")),
    Case(
        "only a pickle",
        lambda w: w.repo.push(pickled(w.folder, w.scratch / "pickled")),
        "Pickled",
        ("{name}", "pickle", "MB|GB|bytes", "allow_pickle=True"),
    ),
    Case(
        "only GGUF",
        lambda w: w.push(lambda f: (f / "config.json").unlink() or (f / WEIGHTS).rename(f / "model.gguf")),
        "BadFile",
        ("{name}", "GGUF"),
    ),
    # configuration
    Case("no configuration", lambda w: w.push(remove("config.json")), "BadFile", ("{name}", "config.json"), 3, 3_000),
    Case(
        "a configuration that is no JSON",
        lambda w: w.push(replace("config.json", b"<html>")),
        "BadFile",
        ("{name}", "config.json", "JSON"),
        4,
        3_000,
    ),
    Case(
        "an architecture that transformers does not have",
        lambda w: w.push(edit("config.json", lambda v: v.update(model_type="tomorrow"))),
        "Unknown",
        ("{name}", "tomorrow", "newer transformers"),
        4,
        3_000,
    ),
    Case(
        "code that comes with the checkpoint",
        lambda w: w.push(
            edit("config.json", lambda v: v.update(model_type="own", auto_map={"AutoModel": "modeling.Own"}))
        ),
        "Unknown",
        ("{name}", "never runs code"),
        4,
        3_000,
    ),
    # tokenizer
    Case(
        "no tokenizer",
        lambda w: w.push(remove("tokenizer.json", "tokenizer_config.json")),
        "BadText|BadFile|NotFound",
        ("{name}", "tokenizer", r"ids=\["),
    ),
    Case(
        "a tokenizer for sentencepiece that is none",
        lambda w: w.push(lambda f: (f / "tokenizer.json").rename(f / "tokenizer.model")),
        "BadText|BadFile|NotFound",
        ("{name}", "tokenizer"),
    ),
    Case(
        "a tokenizer that is none",
        lambda w: w.push(replace("tokenizer.json", b"{}")),
        "BadText|BadFile|NotFound",
        ("{name}", "tokenizer"),
    ),
    Case(
        "more ids than rows",
        lambda w: w.push(lambda f: shutil.copytree(few_rows(w), f, dirs_exist_ok=True)),
        "BadIds",
        ("20", "rows|embeddings|ids"),
    ),
]


def few_rows(world: World) -> Path:
    """A Llama with 20 rows of embedding, fewer than the tokenizer has ids."""
    folder = world.scratch / "few"
    tiny.make("llama", folder, vocab_size=20, bos_token_id=1, eos_token_id=2)
    return folder


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_a_failure_is_one_sentence_with_the_next_step(world, case):
    meets(world, case)
