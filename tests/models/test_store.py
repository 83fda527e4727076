"""The store of byte ranges: what it keeps and for how long, in threads and processes, and where there is no disk."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tinput.models import store as module
from tinput.models.progress import Meter
from tinput.models.ranges import RemoteFile
from tinput.models.store import Store


def some(seed: int, size: int) -> bytes:
    return bytes((seed * 7 + n) % 251 for n in range(size))


def test_what_was_put_is_had_by_another_and_nothing_else(tmp_path):
    path = tmp_path / "a" / "b" / "store.sqlite"
    Store(path).put("file", [(0, b"abc"), (3, b"defg")])
    other = Store(path)
    assert other.get("file", [(0, 3), (3, 7), (0, 7), (7, 9)]) == {(0, 3): b"abc", (3, 7): b"defg"}
    assert other.get("another file", [(0, 3)]) == {}
    other.put("file", [(0, b"xyz")])  # the same again
    assert Store(path).get("file", [(0, 3)]) == {(0, 3): b"xyz"}


def test_the_file_stays_within_its_limit_and_the_least_recently_used_go(tmp_path, monkeypatch):
    clock = [1_000_000]
    monkeypatch.setattr(module.time, "time", lambda: clock[0])
    path, limit = tmp_path / "store.sqlite", 2_000_000
    store = Store(path, limit)
    for n in range(200):
        clock[0] += 100
        store.put("file", [(n * 100_000, some(n, 100_000))])
        assert store.get("file", [(0, 100_000)]) == {(0, 100_000): some(0, 100_000)}, n  # used all along: it stays
        assert path.stat().st_size <= limit
    assert store.get("file", [(199 * 100_000, 200 * 100_000)])
    assert not store.get("file", [(5 * 100_000, 6 * 100_000)])
    assert store.size() > limit // 2


def test_what_is_larger_than_the_store_is_not_kept(tmp_path):
    store = Store(tmp_path / "store.sqlite", 500_000)
    store.put("file", [(0, b"small")])
    store.put("file", [(10, some(1, 600_000))])
    assert store.get("file", [(0, 5), (10, 600_010)]) == {(0, 5): b"small"}


@pytest.mark.parametrize("damage", [b"no database at all" * 1_000, b"", b"SQLite format 3\0" + b"\xff" * 4_000])
def test_a_damaged_file_is_begun_anew(tmp_path, damage):
    path = tmp_path / "store.sqlite"
    path.write_bytes(damage)
    store = Store(path)
    store.put("file", [(0, b"abc")])
    assert store.get("file", [(0, 3)]) == {(0, 3): b"abc"}


def test_a_piece_that_changed_on_disk_is_not_taken(tmp_path):
    path = tmp_path / "store.sqlite"
    store = Store(path)
    store.put("file", [(0, b"the true bytes of a tensor")])
    store.close()
    raw = path.read_bytes()
    assert b"the true bytes" in raw
    path.write_bytes(raw.replace(b"the true bytes", b"the last bytes"))
    assert Store(path).get("file", [(0, 26)]) == {}


@pytest.mark.parametrize("path", [Path("/proc/nowhere/store.sqlite"), None], ids=["no disk", "none wanted"])
def test_without_a_disk_memory_serves(path):
    store = Store(path)
    store.put("file", [(0, b"abc")])
    assert store.get("file", [(0, 3)]) == {(0, 3): b"abc"}
    assert Store(path).get("file", [(0, 3)]) == {}


def test_a_full_disk_is_survived(tmp_path):
    """SQLite is told that its file may not grow, which it reports as a full disk."""
    store = Store(tmp_path / "store.sqlite")
    store.put("file", [(0, b"abc")])
    assert store._connection is not None
    store._connection.execute("PRAGMA max_page_count = 1")
    store.put("file", [(10, some(1, 100_000))])
    store.put("file", [(10, some(1, 100_000))])
    assert store.get("file", [(10, 100_010)]) == {(10, 100_010): some(1, 100_000)}


def test_another_process_that_holds_the_file_costs_a_miss_and_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BUSY", 0.05)
    path = tmp_path / "store.sqlite"
    store = Store(path)
    store.put("file", [(0, b"abc")])
    other = Store(path)
    other.get("file", [])
    assert other._connection is not None
    other._connection.execute("BEGIN EXCLUSIVE")
    store.put("file", [(3, b"def")])
    assert store.get("file", [(0, 3)]) == {}
    other._connection.execute("COMMIT")
    assert store.get("file", [(0, 3), (3, 6)]) == {(0, 3): b"abc"}


def test_threads_and_processes_at_once(tmp_path):
    path = tmp_path / "store.sqlite"
    code = (
        "import sys; from pathlib import Path; from tinput.models.store import Store\n"
        "store = Store(Path(sys.argv[1]))\n"
        "for n in range(30): store.put('file', [(1000 * n, bytes([n]) * 1000)])\n"
        "found = store.get('file', [(1000 * n, 1000 * n + 1000) for n in range(30)])\n"
        "assert len(found) == 30 and all(raw == bytes([start // 1000]) * 1000 for (start, _), raw in found.items())\n"
    )
    env = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    others = [subprocess.Popen([sys.executable, "-c", code, str(path)], env=env) for _ in range(2)]
    store, wrong = Store(path), []

    def work(seed: int) -> None:
        for n in range(30):
            store.put(f"of thread {seed}", [(n, some(seed, 500))])
            if store.get(f"of thread {seed}", [(n, n + 500)]) != {(n, n + 500): some(seed, 500)}:
                wrong.append((seed, n))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [other.wait(60) for other in others] == [0, 0]
    assert not wrong


@pytest.mark.parametrize(
    ("said", "limit"), [(None, module.LIMIT), ("", module.LIMIT), ("5", 5), ("-1", 0), ("x", module.LIMIT)]
)
def test_the_limit_of_the_variable(said, limit):
    assert module._limit(said) == limit


class Here(RemoteFile):
    """A file that needs no network."""

    def fetch(self, start, stop, take, meter, clip=False):  # noqa: ARG002 - the signature of any
        take(start, some(1, stop)[start:])
        return stop - start


@pytest.mark.parametrize(("size", "kept"), [(200_000, True), (600_000, False)])
def test_what_would_fill_the_store_is_read_and_not_kept(tmp_path, size, kept):
    """It would push out all else."""

    class Repo:
        key, name, commit = "repo", "owner/name", "0" * 40

    repo: Any = Repo()
    store, place, meter = Store(tmp_path / "store.sqlite", 1_000_000), bytearray(size), Meter("reading")
    store.put("another", [(0, b"abc")])
    for job in Here(repo, "model.safetensors", store).reading([((0, size), memoryview(place))], meter).singly():
        job()
    assert bytes(place) == some(1, size)
    assert bool(store.get("repo model.safetensors", [(0, size)])) is kept
    assert store.get("another", [(0, 3)])
