"""Byte ranges of files on the Hub, kept on disk so that nothing is read twice. Shared by threads and processes.

One SQLite file: a piece is a file's bytes from `start` on, with a checksum. The least recently used go first once the
file has grown to its limit. It is a cache: where the disk is full, read-only or the file is damaged, memory takes its
place, and nobody is told.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

__all__ = ["Store", "shared"]

VARIABLE = "TINPUT_CACHE_BYTES"
LIMIT = 1_000_000_000  # bytes on disk, unless the variable says otherwise
IN_MEMORY = 64_000_000  # bytes, where there is no disk to be had
FRESH = 60  # seconds in which a piece counts as just used: reading then writes nothing
OVERHEAD = 8_192  # bytes that a piece may take besides its own: the rest of its last page, and its place in the indices
BUSY = 5.0  # seconds to wait for another process
SCHEMA = """
CREATE TABLE IF NOT EXISTS files (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL);
CREATE TABLE IF NOT EXISTS pieces (
    file INTEGER NOT NULL, start INTEGER NOT NULL, length INTEGER NOT NULL,
    used INTEGER NOT NULL, crc INTEGER NOT NULL, bytes BLOB NOT NULL,
    UNIQUE (file, start, length)
);
CREATE INDEX IF NOT EXISTS by_use ON pieces (used);
"""


class Store:
    """Pieces of files. `file` is any name that stands for contents that never change: endpoint, repo, commit, path."""

    def __init__(self, path: Path | None, limit: int = LIMIT):
        self.path, self.limit = (path if limit > 0 else None), limit
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0

    def get(self, file: str, spans: Sequence[tuple[int, int]]) -> dict[tuple[int, int], bytes]:
        """Those of the spans (start, stop) that are here."""
        found: dict[tuple[int, int], bytes] = {}
        with self._open() as db:
            number = db.execute("SELECT id FROM files WHERE name = ?", (file,)).fetchone()
            now, stale = int(time.time()), []
            for start, stop in spans if number else ():
                row = db.execute(
                    "SELECT rowid, used, crc, bytes FROM pieces WHERE file = ? AND start = ? AND length = ?",
                    (*number, start, stop - start),
                ).fetchone()
                if row and zlib.crc32(row[3]) == row[2]:
                    found[start, stop] = row[3]
                    if now - row[1] > FRESH:
                        stale.append((now, row[0]))
            if stale:
                with contextlib.suppress(sqlite3.OperationalError), db:  # busy: it counts as old, that is all
                    db.executemany("UPDATE pieces SET used = ? WHERE rowid = ?", stale)
        return found

    def put(self, file: str, pieces: Iterable[tuple[int, bytes]]) -> None:
        """Keeps pieces (start, bytes) of a file, all or none of them."""
        now, pieces = int(time.time()), [(start, raw) for start, raw in pieces]
        need = sum(len(raw) + OVERHEAD for _, raw in pieces)
        limit = self.limit if self.path else min(self.limit or IN_MEMORY, IN_MEMORY)
        if need > limit:
            return
        with self._open() as db, db:
            while (excess := self._size(db) + need - limit) > 0:  # first: the file never grows past its limit
                gone = []
                for row, length in db.execute("SELECT rowid, length FROM pieces ORDER BY used"):
                    gone.append((row,))
                    excess -= length
                    if excess <= 0:
                        break
                if not gone:
                    return
                db.executemany("DELETE FROM pieces WHERE rowid = ?", gone)
            db.execute("INSERT OR IGNORE INTO files (name) VALUES (?)", (file,))
            number = db.execute("SELECT id FROM files WHERE name = ?", (file,)).fetchone()[0]
            db.executemany(
                "INSERT OR REPLACE INTO pieces VALUES (?, ?, ?, ?, ?, ?)",
                ((number, start, len(raw), now, zlib.crc32(raw), raw) for start, raw in pieces),
            )
            db.execute("PRAGMA incremental_vacuum").fetchall()

    def size(self) -> int:
        """Bytes in use."""
        with self._open() as db:
            return self._size(db)
        return 0

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    @staticmethod
    def _size(db: sqlite3.Connection) -> int:
        pages, free, size = (
            db.execute(f"PRAGMA {p}").fetchone()[0] for p in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The connection, one thread at a time. What goes wrong with the file ends the block, and no more."""
        with self._lock:
            if self._process != os.getpid():  # a connection is not to be carried into a forked process
                self._connection, self._process = None, os.getpid()
            while self._connection is None:
                try:
                    self._connection = self._connect()
                except (sqlite3.Error, OSError) as error:
                    self._give_up(error, opening=True)
            try:
                yield self._connection
            except (sqlite3.Error, OSError) as error:
                self._give_up(error)

    def _connect(self) -> sqlite3.Connection:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        name = ":memory:" if self.path is None else str(self.path)
        db = sqlite3.connect(name, timeout=BUSY, check_same_thread=False)
        # A crash of this process loses nothing; of the machine, perhaps the last pieces, which their checksums tell.
        for setting in ("auto_vacuum = INCREMENTAL", "synchronous = OFF", "temp_store = MEMORY"):
            db.execute(f"PRAGMA {setting}")
        db.executescript(SCHEMA)
        return db

    def _give_up(self, error: Exception, opening: bool = False) -> None:
        """Another process is busy: this once. A damaged file: a new one. Anything else: memory, from now on."""
        if not opening and isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            return
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None
        damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
        if damaged and self.path is not None:
            with contextlib.suppress(OSError):
                self.path.unlink()
                return
        self.path = None


_shared: dict[Path, Store] = {}
_shared_lock = threading.Lock()


def shared() -> Store:
    """The store of this user: in huggingface_hub's folder for assets, which HF_HOME moves."""
    from huggingface_hub import constants

    path = Path(constants.HF_ASSETS_CACHE) / "tinput" / "ranges-1.sqlite"
    with _shared_lock:
        if path not in _shared:
            _shared[path] = Store(path, _limit(os.environ.get(VARIABLE)))
        return _shared[path]


def _limit(said: str | None) -> int:
    try:
        return max(0, int(said)) if said else LIMIT
    except ValueError:
        return LIMIT
