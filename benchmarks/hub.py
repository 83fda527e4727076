"""Models on the Hub: bytes, requests, seconds and memory for the first block's input, against a Hub on loopback.

Bytes stand beside their floor: what no reader can do without. That is the tokenizer's files, the configuration, the
index, of each shard touched its header (or the 100 kB in which a parser looks for it), the distinct rows of each table,
and the small tensors on the way. And beside what `from_pretrained` downloads.

Each measurement is made in a process of its own with empty caches, after the same steps on a small repo of the same
kind, so that no import is in it. The block input must be the folder's, bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.models import MB, _Memory, _small_sibling
from benchmarks.table import Row
from tests.hub import Hub, Request, client
from tests.hub_repos import TEXT, llama_405b, minilm
from tests.makers import byte_level

SMALL = "small/llama"  # the repo that is traced first
ROUNDS = 3  # processes for each time
HEAD = 100_000  # bytes that a parser reads first
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
CONFIG, INDEX, SINGLE = "config.json", "model.safetensors.index.json", "model.safetensors"
BYTES, SECONDS, SECONDS_DELAYED, REQUESTS, MEMORY = 1.05, 3.0, 5.0, 12, 150.0  # the aims
DELAY = 0.05  # seconds a request

# What a text touches: tables, of which it takes rows (by ids, or by positions), and tensors that are read whole.
Touched = dict[str, str]
MINILM: Touched = {
    "embeddings.word_embeddings.weight": "ids",
    "embeddings.position_embeddings.weight": "positions",
    "embeddings.token_type_embeddings.weight": "one",
    "embeddings.LayerNorm.weight": "whole",
    "embeddings.LayerNorm.bias": "whole",
}
LLAMA: Touched = {"model.embed_tokens.weight": "ids"}


def rows() -> Iterator[Row]:
    """The table's rows: a published checkpoint of 22 million parameters, and one of 405 billion."""
    with tempfile.TemporaryDirectory(prefix="tinput-bench-") as place, Hub() as hub:
        yield from _bytes(hub, "all-MiniLM-L6-v2", minilm(), MINILM)
        big = llama_405b(Path(place) / "llama-405b")
        small = _small_sibling(big, Path(place) / "small")
        byte_level().save_pretrained(small)
        hub.add(SMALL, small)
        yield from _bytes(hub, "Llama 405B", big, LLAMA)
        yield from _speed(hub, "Llama 405B", big)
        yield from _again(hub, "Llama 405B", big)


def _bytes(hub: Hub, name: str, folder: Path, touched: Touched) -> Iterator[Row]:
    repo = hub.add(f"bytes/{folder.name}", folder).name
    hub.heal()
    with client(hub) as run:
        found = run(traced, repo, None)
        sent, weights = hub.sent, sum(request.sent for request in hub.requests if request.host == "cdn")
        if found["digest"] != run(traced, str(folder), None)["digest"]:
            raise AssertionError(f"{name}: the block input is not the folder's")
    tokenizer, rest = floor(folder, found["ids"], touched)
    yield Row(f"{name}: bytes", sent / MB, (tokenizer + rest) / MB, "the floor", "MB", BYTES)
    small = sum((folder / file).stat().st_size for file in (CONFIG, INDEX) if (folder / file).is_file())
    yield Row(f"{name}: of which weights", weights / MB, (rest - small) / MB, "the floor", "MB")
    yield Row(f"{name}: bytes", sent / MB, _downloaded(hub, repo, folder) / MB, "from_pretrained", "MB")


def floor(folder: Path, ids: list[int], touched: Touched) -> tuple[int, int]:
    """Bytes that nobody can do without: of the tokenizer, and of everything else."""
    sizes = {file: (folder / file).stat().st_size for file in (*TOKENIZER, CONFIG, INDEX) if (folder / file).is_file()}
    tokenizer = sum(size for file, size in sizes.items() if file in TOKENIZER)
    where = json.loads((folder / INDEX).read_text())["weight_map"] if INDEX in sizes else {}
    headers: dict[str, tuple[int, dict[str, Any]]] = {}
    rest = sum(sizes.values()) - tokenizer
    for tensor, how in touched.items():
        file = where.get(tensor, SINGLE)
        if file not in headers:
            with (folder / file).open("rb") as stream:
                length = 8 + int.from_bytes(stream.read(8), "little")
                headers[file] = length, json.loads(stream.read(length - 8))
            rest += max(length, min(HEAD, (folder / file).stat().st_size))
        entry = headers[file][1][tensor]
        start, stop = entry["data_offsets"]
        count = {"ids": len(set(ids)), "positions": len(ids), "one": 1, "whole": entry["shape"][0]}[how]
        rest += (stop - start) // entry["shape"][0] * count
    return tokenizer, rest


def _downloaded(hub: Hub, repo: str, folder: Path) -> int:
    """Bytes that from_pretrained downloads: measured, or (where that is more than a disk holds) of its files."""
    weights = list(folder.glob("*.safetensors"))
    if sum(path.stat().st_size for path in weights) > 1e9:
        named = (folder / file for file in (*TOKENIZER, CONFIG, INDEX))
        return sum(path.stat().st_size for path in (*weights, *named) if path.is_file())
    hub.heal()
    with client(hub) as run:
        run(pretrained, repo)
    return hub.sent


def _speed(hub: Hub, name: str, folder: Path) -> Iterator[Row]:
    seconds: dict[float, list[float]] = {0.0: [], DELAY: []}
    requests = 0
    for number in range(ROUNDS):
        for delay, found in seconds.items():
            repo = hub.add(f"speed/{number}-{1e3 * delay:.0f}", folder).name
            hub.heal()
            hub.delay = delay
            with client(hub) as run:
                found.append(run(traced, repo, SMALL)["seconds"])
            requests = max(requests, sum(not r.path.endswith(TOKENIZER) for r in _of(hub, repo)))
    hub.heal()
    yield Row(f"{name}, 100 tokens: time", statistics.median(seconds[0.0]), SECONDS, "the aim", "s", 1.0)
    waits = f"{1e3 * DELAY:.0f} ms a request"
    yield Row(f"{name}, {waits}: time", statistics.median(seconds[DELAY]), SECONDS_DELAYED, "the aim", "s", 1.0)
    yield Row(f"{name}: requests, tokenizer aside", requests, REQUESTS, "the aim", "", 1.0)
    if Path("/proc/self/clear_refs").exists():
        for what, done in {"memory grown by": "trace", "that of the tokenizer alone": "tokenize"}.items():
            repo = hub.add(f"memory/{done}", folder).name
            with client(hub) as run:
                grown = run(remembered, repo, SMALL, done) / MB
            yield Row(f"{name}: {what}", grown, MEMORY, "the aim", "MB", 1.0 if done == "trace" else None)


def _again(hub: Hub, name: str, folder: Path) -> Iterator[Row]:
    repo = hub.add("again/405b", folder).name
    with client(hub) as first:
        first(traced, repo, SMALL)
        hub.heal()
        with client(hub, home=first.home) as run:
            run(traced, repo, SMALL)
        yield Row(f"{name}, second time: requests", len(_of(hub, repo)), 1, "the aim", "", 1.0)
        with client(hub, home=first.home, env={"HF_HUB_OFFLINE": "1"}) as run:
            opened = run.outcome(traced, repo, SMALL).connections
        yield Row(f"{name}, second time, offline: connections", opened, 1, "the aim: none", "", 0.0)


def _of(hub: Hub, repo: str) -> list[Request]:
    return [request for request in hub.requests if repo in request.path]


# --- what the client's process does ---------------------------------------------------------------------------------


def traced(name: str, small: str | None) -> dict[str, Any]:
    """Opens and traces a model, after a small one of its kind; seconds, ids and a digest of the block input."""
    import tinput

    if small:
        tinput.open_model(small).trace(TEXT)
    start = time.perf_counter()
    trace = tinput.open_model(name).trace(TEXT)
    seconds = time.perf_counter() - start
    digest = hashlib.sha256(trace.block_input.numpy().tobytes()).hexdigest()
    return {"seconds": seconds, "ids": trace.ids.tolist(), "digest": digest}


def remembered(name: str, small: str, what: str) -> int:
    """By how many bytes the process grew, at its largest, to open a model and to "trace" or "tokenize" a text."""
    import tinput

    tinput.open_model(small).trace(TEXT)
    with _Memory() as memory:
        getattr(tinput.open_model(name), what)(TEXT)
    return memory.peak


def pretrained(name: str) -> None:
    """transformers' way to a model and its tokenizer."""
    from transformers import AutoModel, AutoTokenizer

    AutoTokenizer.from_pretrained(name)
    AutoModel.from_pretrained(name)
