"""What `tests.hub` answers with: repos with their commits, files and their ranges, and what the API tells of them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["Reply", "Repo", "api", "error", "etag", "on_cdn", "ranged"]

LARGE = 10_000_000  # bytes; files above it, and weights of any size, are on the CDN
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".model")
RANGES = re.compile(r"bytes=((?:\d+-\d*|-\d+)(?:, ?(?:\d+-\d*|-\d+))*)")
PULL_REQUEST = re.compile(r"refs/pr/(\d+)")
DATE = "2026-01-01T00:00:00.000Z"


@dataclass
class Repo:
    """A repo: commits, newest last, each a folder; `refs` name them. `gated` and `private` let `readers` in alone."""

    name: str
    gated: bool = False
    private: bool = False
    readers: tuple[str, ...] = ()  # tokens
    commits: dict[str, Path] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)  # "main", a tag, "refs/pr/1" -> commit
    titles: dict[str, str] = field(default_factory=dict)  # of pull requests, by ref

    def push(self, folder: Path, ref: str = "main", *, title: str = "") -> str:
        """A new commit of `ref` with the files of a folder, or a pull request ("refs/pr/1"); returns its id."""
        commit = hashlib.sha1(f"{self.name} {ref} {len(self.commits)} {secrets.token_hex(8)}".encode()).hexdigest()
        self.commits[commit], self.refs[ref], self.titles[ref] = folder, commit, title
        return commit

    @property
    def commit(self) -> str:
        return self.refs["main"]

    def file(self, commit: str, name: str) -> Path | None:
        folder = self.commits[commit].resolve()
        path = folder / name
        return path if ".." not in Path(name).parts and path.is_file() else None

    def files(self, commit: str) -> Iterator[tuple[str, Path]]:
        folder = self.commits[commit]
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                yield path.relative_to(folder).as_posix(), path


@dataclass
class Reply:
    """What is sent: a status, headers, and bytes, or bytes `start` to `stop` of a file."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | Path = b""
    start: int = 0
    stop: int | None = None

    @property
    def length(self) -> int:
        whole = len(self.body) if isinstance(self.body, bytes) else self.body.stat().st_size
        return (whole if self.stop is None else self.stop) - self.start


def json_reply(value: Any) -> Reply:
    return Reply(200, {"Content-Type": "application/json; charset=utf-8"}, json.dumps(value).encode())


def error(status: int, code: str | None, message: str) -> Reply:
    named = {"X-Error-Code": code} if code else {}
    reply = json_reply({"error": message})
    return Reply(status, reply.headers | named | {"X-Error-Message": message}, reply.body)


def ranged(path: Path, headers: dict[str, str], span: str | None, *, many: bool = False) -> Reply:
    """A file, or ranges of it. many: several are answered as parts, else with the whole file."""
    size, asked = path.stat().st_size, RANGES.fullmatch(span or "")
    spans = [_span(one, size) for one in asked[1].split(",")] if asked else []
    if not spans or (len(spans) > 1 and not many):
        return Reply(200, headers, path, 0, size)
    spans = [(start, stop) for start, stop in spans if start < stop]
    if not spans:
        return Reply(416, {"Content-Range": f"bytes */{size}"})
    said = [f"bytes {start}-{stop - 1}/{size}" for start, stop in spans]
    if len(spans) == 1:
        return Reply(206, headers | {"Content-Range": said[0]}, path, *spans[0])
    body, boundary = b"", secrets.token_hex(8)
    with path.open("rb") as stream:
        for (start, stop), one in zip(spans, said, strict=True):
            stream.seek(start)
            body += (
                f"\r\n--{boundary}\r\nContent-Type: application/octet-stream\r\nContent-Range: {one}\r\n\r\n".encode()
            )
            body += stream.read(stop - start)
    body += f"\r\n--{boundary}--\r\n".encode()
    return Reply(206, headers | {"Content-Type": f"multipart/byteranges; boundary={boundary}"}, body)


def _span(asked: str, size: int) -> tuple[int, int]:
    first, last = asked.strip().split("-")
    start = int(first) if first else max(size - int(last), 0)
    return start, min(int(last) + 1, size) if first and last else size


def on_cdn(path: Path) -> bool:
    return path.suffix in WEIGHTS or path.stat().st_size > LARGE


def etag(path: Path) -> str:
    """An entity tag, quoted: sha256 of a file on the CDN, git's sha1 of another."""
    return f'"{_digest(path)}"'


def _digest(path: Path) -> str:
    return _digest_of(path, path.stat().st_size, path.stat().st_mtime_ns)


@cache
def _digest_of(path: Path, size: int, changed: int) -> str:
    if not on_cdn(path):
        return hashlib.sha1(b"blob %d\0" % size + path.read_bytes()).hexdigest()
    if size > 1 << 26:  # reading it takes long: its name and stamp stand for it
        return hashlib.sha256(f"{path} {size} {changed}".encode()).hexdigest()
    return hashlib.sha256(path.read_bytes()).hexdigest()


def api(repo: Repo, what: str, rest: str, query: dict[str, list[str]]) -> Reply:
    """What lies below /api/models/owner/name: refs, discussions, commits, tree, or (revision) the repo itself."""
    if what == "refs":
        return json_reply(_refs(repo))
    if what == "discussions":
        return json_reply(_discussions(repo))
    rev, _, inside = rest.partition("/")
    if PULL_REQUEST.fullmatch(rest):
        rev, inside = rest, ""
    commit = repo.refs.get(rev or "main", rev)
    if commit not in repo.commits:
        return error(404, "RevisionNotFound", f"Invalid rev id: {rev}")
    if what == "commits":
        line = [commit] if commit == repo.commit else [commit, repo.commit]
        blank = {"title": "", "message": "", "date": DATE, "authors": [{"user": "someone"}]}
        return json_reply([{"id": one, **blank} for one in line])
    if what == "tree":
        found = [_entry(file, path) for file, path in repo.files(commit) if file.startswith(inside)]
        here = [entry for entry in found if "/" not in entry["path"][len(inside) + 1 :]]
        return json_reply(found if "recursive" in query else here)
    return json_reply(_model_info(repo, commit, blobs="blobs" in query))


def _refs(repo: Repo) -> dict[str, Any]:
    groups: dict[str, list] = {"branches": [], "tags": [], "converts": [], "pullRequests": []}
    for ref, commit in repo.refs.items():
        group, full = ("pullRequests", ref) if ref.startswith("refs/") else ("branches", f"refs/heads/{ref}")
        groups[group].append({"name": ref.removeprefix("refs/pr/"), "ref": full, "targetCommit": commit})
    return groups


def _entry(file: str, path: Path) -> dict[str, Any]:
    size, digest = path.stat().st_size, _digest(path)
    entry = {"type": "file", "path": file, "size": size, "oid": digest[:40]}
    return entry | ({"lfs": {"oid": digest, "size": size, "pointerSize": 134}} if on_cdn(path) else {})


def _model_info(repo: Repo, commit: str, blobs: bool) -> dict[str, Any]:
    """What the real one tells of a repo, to everybody even if it is gated; of its configuration this much."""
    siblings: list[dict[str, Any]] = [{"rfilename": file} for file, _ in repo.files(commit)]
    if blobs:
        for sibling, (file, path) in zip(siblings, repo.files(commit), strict=True):
            entry = _entry(file, path)
            sibling |= {"size": entry["size"], "blobId": entry["oid"]}
            if "lfs" in entry:
                sibling["lfs"] = {"sha256": entry["lfs"]["oid"], "size": entry["size"], "pointerSize": 134}
    config = {}
    with contextlib.suppress(OSError, ValueError):
        config = json.loads((repo.commits[commit] / "config.json").read_bytes())
    told = {key: config[key] for key in ("architectures", "model_type") if isinstance(config, dict) and key in config}
    flags = {"private": repo.private, "gated": "manual" if repo.gated else False, "disabled": False}
    named = {"_id": commit[:24], "id": repo.name, "modelId": repo.name, "author": repo.name.split("/")[0]}
    return named | {"sha": commit, "lastModified": DATE, "tags": [], "siblings": siblings, "config": told} | flags


def _discussions(repo: Repo) -> dict[str, Any]:
    found = [
        {"title": repo.titles[ref], "num": int(number[1]), "status": "open", "isPullRequest": True, "createdAt": DATE}
        | {"author": {"name": "SFconvertbot"}, "repo": {"name": repo.name, "type": "model"}}
        for ref in repo.refs
        if (number := PULL_REQUEST.fullmatch(ref))
    ]
    return {"discussions": found, "count": len(found), "start": 0}
