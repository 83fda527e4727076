"""A Hub on loopback: serves folders as repos to the real `huggingface_hub`, counts what it sends, fails as it is told.

with Hub() as hub, client(hub) as run:  # client: a process with HF_ENDPOINT set, which is read once, at import
    hub.add("owner/tiny", folder)  # gated=True, private=True; .push(folder) for a new commit
    hub.fail("model.safetensors", status=503, times=2)  # or cut=, whole=, hang=, ...: see Fault
    shape = run(a_module_level_function, "owner/tiny")  # its value; run.outcome(...) for errors and logs
    assert len(hub.requests) <= 12 and hub.sent < 200_000

Large files are on a second host, the CDN, by a redirect with a signature, as on the real one; no token may come there.
The endpoints and headers are those that huggingface_hub 2.4 reads (file_download.py, hf_api.py, utils/_http.py).
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.hub_client import TOKEN, Client, Outcome, client

__all__ = ["TOKEN", "Client", "Fault", "Hub", "Outcome", "Repo", "Request", "client"]

CHUNK = 1 << 16
LARGE = 10_000_000  # bytes; files above it, and weights of any size, are on the CDN
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".model")
NOT_COUNTED = "/api/agent-harnesses"  # huggingface_hub asks for it once a day, whatever the user does
RESOLVE = re.compile(r"/(?P<repo>[^/]+(?:/[^/]+)?)/resolve/(?P<rev>[^/]+)/(?P<file>.+)")
API = re.compile(
    r"/api/models/(?P<repo>[^/]+/[^/]+|[^/]+)(?:/(?P<what>revision|tree|refs|commits|discussions)(?P<rest>/.*)?)?"
)
RANGE = re.compile(r"bytes=(\d*)-(\d*)")
PULL_REQUEST = re.compile(r"refs/pr/(\d+)")


@dataclass
class Request:
    """One request, as it came. `sent`: bytes of the body that the client took, at most what its buffers hold more."""

    host: str  # "hub" or "cdn"
    method: str
    path: str  # with the query, without the signature
    range: str | None
    token: bool  # whether an Authorization header came
    status: int = 0
    sent: int = 0


@dataclass
class Fault:
    """What goes wrong with requests whose path holds `on`, `times` times after the first `skip`.

    status, headers, body: this answer in place of the right one (a status of 200 with a body: a login page)
    cut: only so many bytes of the body, then the connection ends; hang: no answer until the client goes away
    whole: the range is ignored, and the whole file sent with 200
    content_range: this header in place of the true one; shift: the bytes sent lie so far from those asked for
    drop: headers that are left out; delay: seconds before the answer; after: called once the answer is sent
    ranged, host, method: only such requests
    """

    on: str = ""
    times: float = float("inf")
    skip: int = 0
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: int | None = None
    hang: bool = False
    whole: bool = False
    content_range: str | None = None
    shift: int = 0
    drop: tuple[str, ...] = ()
    delay: float = 0.0
    after: Callable[[], Any] | None = None
    ranged: bool | None = None
    host: str | None = None
    method: str | None = None
    met: int = 0  # requests that it fell on

    def fits(self, request: Request) -> bool:
        return (
            self.on in request.path
            and self.ranged in (None, request.range is not None)
            and self.host in (None, request.host)
            and self.method in (None, request.method)
        )


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


class Hub:
    """The two hosts, while the context is open.

    requests: all that came, but for NOT_COUNTED; sent: bytes of their answers' bodies
    delay: seconds before each answer; compress: gzip for text files, as the real one does where a client accepts it
    resolve_cache: small files by one more redirect on the same host, as the real one does since 2025
    tokens: those that are valid; with any other one every answer is 401
    """

    def __init__(self):
        self.repos: dict[str, Repo] = {}
        self.moved: dict[str, str] = {}  # a former name -> the name now, by redirect
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.tokens = {TOKEN}
        self.delay, self.compress, self.resolve_cache = 0.0, False, False
        self._signature = secrets.token_hex(16)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._servers: dict[str, ThreadingHTTPServer] = {}
        self._ports = {"hub": 0, "cdn": 0}
        self.leaving = threading.Event()

    def __enter__(self) -> Hub:
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._ports['hub']}"

    @property
    def cdn(self) -> str:
        return f"http://127.0.0.1:{self._ports['cdn']}"

    @property
    def sent(self) -> int:
        return sum(request.sent for request in self.requests)

    def start(self) -> None:
        """Listens, on the same ports as before."""
        self.leaving.clear()
        for host, port in self._ports.items():
            handler = type("Handler", (_Handler,), {"hub": self, "host": host})
            server = ThreadingHTTPServer(("127.0.0.1", port), handler)
            server.daemon_threads = True
            self._servers[host], self._ports[host] = server, server.server_address[1]
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Refuses connections from now on, and ends those that are open."""
        self.leaving.set()
        for server in self._servers.values():
            server.shutdown()
            server.server_close()
        self._servers.clear()
        for connection in tuple(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def add(self, name: str, folder: Path, **options: Any) -> Repo:
        """A folder as the repo `name`; options: gated, private, readers (see Repo)."""
        repo = self.repos[name] = Repo(name, **options)
        repo.push(Path(folder))
        return repo

    def fail(self, on: str = "", **how: Any) -> Fault:
        """From now on, requests whose path holds `on` fail as `Fault` says; the first fault that fits is taken."""
        self.faults.append(fault := Fault(on, **how))
        return fault

    def heal(self) -> None:
        """All is well again, and nothing was counted."""
        self.faults.clear()
        self.requests.clear()
        self.delay = 0.0

    def expire(self) -> None:
        """The CDN's addresses that were handed out so far answer 403 from now on."""
        self._signature = secrets.token_hex(16)

    # --- answers

    def fault_for(self, request: Request) -> Fault | None:
        with self._lock:
            for fault in self.faults:
                if fault.fits(request):
                    fault.met += 1
                    if fault.skip < fault.met <= fault.skip + fault.times:
                        return fault
        return None

    def reply(self, host: str, target: str, token: str | None, span: str | None) -> Reply:
        """The right answer to a request for `target` (path and query)."""
        split = urlsplit(target)
        if host == "cdn":
            return self._from_cdn(split.path, parse_qs(split.query), span)
        if token is not None and token not in self.tokens:
            return _error(401, None, "Invalid credentials in Authorization header")
        cached = split.path.startswith("/api/resolve-cache/models/")
        path = (
            re.sub(r"^/api/resolve-cache/models/((?:[^/]+/){2})", r"/\1resolve/", split.path) if cached else split.path
        )
        if found := RESOLVE.fullmatch(path):
            return self._resolve(*map(unquote, found.group("repo", "rev", "file")), token, span, cached)
        if found := API.fullmatch(path):
            what, rest = found["what"] or "revision", unquote(found["rest"] or "")[1:]
            return self._api(unquote(found["repo"]), what, rest, token, parse_qs(split.query))
        return _error(404, None, "Not Found")

    def _repo(self, name: str, token: str | None) -> Repo | Reply:
        repo = self.repos.get(name)
        if repo is None or (repo.private and token not in repo.readers):  # the two look the same from outside
            return _error(401 if token is None else 404, "RepoNotFound", "Repository not found")
        return repo

    def _resolve(self, name: str, rev: str, file: str, token: str | None, span: str | None, cached: bool) -> Reply:
        if name in self.moved:
            return Reply(307, {"Location": f"/{self.moved[name]}/resolve/{quote(rev, safe='')}/{quote(file)}"})
        repo = self._repo(name, token)
        if isinstance(repo, Reply):
            return repo
        if repo.gated and token not in repo.readers:
            ask = "You must have access to it and be authenticated to access it. Please log in."
            if token is not None:
                ask = f"You are not in the authorized list. Visit {self.url}/{name} to ask for access."
            return _error(401 if token is None else 403, "GatedRepo", f"Access to model {name} is restricted. {ask}")
        commit = repo.refs.get(rev, rev)
        if commit not in repo.commits:
            return _error(404, "RevisionNotFound", f"Invalid rev id: {rev}")
        headers = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        path = repo.file(commit, file)
        if path is None:
            reply = _error(404, "EntryNotFound", "Entry not found")
            reply.headers |= headers
            return reply
        etag = f'"{_digest(path, _stamp(path))}"'
        if _on_cdn(path):
            headers |= {"X-Linked-Size": str(path.stat().st_size), "X-Linked-Etag": etag}
            location = f"{self.cdn}/{name}/{commit}/{quote(file)}?Expires=1&Signature={self._signature}"
            return Reply(302, headers | {"Location": location}, b"Found. Redirecting")
        if self.resolve_cache and not cached:
            headers |= {"X-Linked-Size": str(path.stat().st_size), "X-Linked-Etag": etag}
            location = f"/api/resolve-cache/models/{name}/{commit}/{quote(file)}"
            return Reply(307, headers | {"Location": location}, b"Temporary Redirect")
        return _ranged(path, headers | {"ETag": etag}, span)

    def _from_cdn(self, path: str, query: dict[str, list[str]], span: str | None) -> Reply:
        name, commit, file = re.fullmatch(r"/(.+?)/([0-9a-f]{40})/(.+)", unquote(path)).groups()  # type: ignore
        if query.get("Signature") != [self._signature]:
            return Reply(403, {"Content-Type": "application/xml"}, b"<Error><Code>AccessDenied</Code></Error>")
        found = self.repos[name].file(commit, file)
        assert found is not None, path
        return _ranged(found, {"ETag": f'"{_digest(found, _stamp(found))}"', "Accept-Ranges": "bytes"}, span)

    def _api(self, name: str, what: str, rest: str, token: str | None, query: dict[str, list[str]]) -> Reply:
        if name in self.moved:
            return Reply(307, {"Location": f"/api/models/{self.moved[name]}/{what}/{quote(rest, safe='')}"})
        repo = self._repo(name, token)
        if isinstance(repo, Reply):
            return repo
        if what == "refs":
            groups: dict[str, list] = {"branches": [], "tags": [], "converts": [], "pullRequests": []}
            for ref, commit in repo.refs.items():
                group, full = ("pullRequests", ref) if ref.startswith("refs/") else ("branches", f"refs/heads/{ref}")
                groups[group].append({"name": ref.removeprefix("refs/pr/"), "ref": full, "targetCommit": commit})
            return _json(groups)
        if what == "discussions":
            return _json(_discussions(repo))
        rev, _, inside = rest.partition("/")
        if PULL_REQUEST.fullmatch(rest):
            rev, inside = rest, ""
        commit = repo.refs.get(rev or "main", rev)
        if commit not in repo.commits:
            return _error(404, "RevisionNotFound", f"Invalid rev id: {rev}")
        if what == "commits":
            line = [commit] if commit == repo.commit else [commit, repo.commit]
            blank = {"title": "", "message": "", "date": DATE, "authors": [{"user": "someone"}]}
            return _json([{"id": one, **blank} for one in line])
        if what == "tree":
            found = [_entry(file, path) for file, path in repo.files(commit) if file.startswith(inside)]
            return _json(
                found if "recursive" in query else [e for e in found if "/" not in e["path"][len(inside) + 1 :]]
            )
        return _json(_model_info(repo, commit, blobs="blobs" in query))


DATE = "2026-01-01T00:00:00.000Z"


def _json(value: Any) -> Reply:
    return Reply(200, {"Content-Type": "application/json; charset=utf-8"}, json.dumps(value).encode())


def _error(status: int, code: str | None, message: str) -> Reply:
    named = {"X-Error-Code": code} if code else {}
    reply = _json({"error": message})
    return Reply(status, reply.headers | named | {"X-Error-Message": message}, reply.body)


def _ranged(path: Path, headers: dict[str, str], span: str | None) -> Reply:
    """A file, or one range of it; several ranges in one request are answered with the file, as S3 does."""
    size, asked = path.stat().st_size, RANGE.fullmatch(span or "")
    if not asked or asked.groups() == ("", ""):
        return Reply(200, headers, path, 0, size)
    first, last = asked.groups()
    start = int(first) if first else max(size - int(last), 0)
    stop = min(int(last) + 1, size) if first and last else size
    if start >= size or start >= stop:
        return Reply(416, {"Content-Range": f"bytes */{size}"})
    return Reply(206, headers | {"Content-Range": f"bytes {start}-{stop - 1}/{size}"}, path, start, stop)


def _on_cdn(path: Path) -> bool:
    return path.suffix in WEIGHTS or path.stat().st_size > LARGE


def _stamp(path: Path) -> tuple[int, int]:
    return path.stat().st_size, path.stat().st_mtime_ns


@cache
def _digest(path: Path, stamp: tuple[int, int]) -> str:
    """sha256 of a file on the CDN (of its name and stamp where reading it takes long), git's sha1 of another."""
    if not _on_cdn(path):
        return hashlib.sha1(b"blob %d\0" % stamp[0] + path.read_bytes()).hexdigest()
    if stamp[0] > 1 << 26:
        return hashlib.sha256(f"{path} {stamp}".encode()).hexdigest()
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _entry(file: str, path: Path) -> dict[str, Any]:
    size, digest = path.stat().st_size, _digest(path, _stamp(path))
    entry = {"type": "file", "path": file, "size": size, "oid": digest[:40]}
    return entry | ({"lfs": {"oid": digest, "size": size, "pointerSize": 134}} if _on_cdn(path) else {})


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


class _Handler(BaseHTTPRequestHandler):
    """One connection of one of the two hosts; `hub` and `host` are set on a subclass."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    hub: Hub
    host: str

    def setup(self) -> None:
        super().setup()
        self.hub._open.add(self.connection)

    def finish(self) -> None:
        self.hub._open.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        with contextlib.suppress(ConnectionError, BrokenPipeError):
            self._do()
            return
        self.close_connection = True

    do_HEAD = do_GET

    def _do(self) -> None:
        if self.path.startswith(NOT_COUNTED):
            self._send(_error(404, None, "Not Found"), Request(self.host, self.command, self.path, None, False), None)
            return
        hub, told = self.hub, self.headers.get("Authorization")
        shown = re.sub(r"\?Expires=.*", "", self.path)
        request = Request(self.host, self.command, shown, self.headers.get("Range"), told is not None)
        hub.requests.append(request)
        fault = hub.fault_for(request)
        time.sleep(hub.delay + (fault.delay if fault else 0.0))
        if fault and fault.hang:
            self._wait_until_gone()
            raise ConnectionAbortedError
        token = told.removeprefix("Bearer ") if told else None
        span = None if fault and fault.whole else request.range
        reply = hub.reply(self.host, self.path, token, span)
        if fault and fault.status is not None:
            reply = Reply(fault.status, fault.headers, fault.body)
        self._send(reply, request, fault)
        if fault and fault.after:
            fault.after()

    def _send(self, reply: Reply, request: Request, fault: Fault | None) -> None:
        headers = {"Content-Length": str(reply.length)} | reply.headers
        if fault:
            if fault.content_range and reply.status == 206:
                headers["Content-Range"] = fault.content_range
            if fault.shift and reply.status == 206:
                assert reply.stop is not None
                reply.start, reply.stop = reply.start + fault.shift, reply.stop + fault.shift
            if fault.whole:  # a buffer so small that `sent` tells what the client took
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, CHUNK)
            headers = {name: value for name, value in headers.items() if name not in fault.drop}
        accepts = "gzip" in self.headers.get("Accept-Encoding", "") and request.range is None
        if self.hub.compress and accepts and reply.status == 200 and self.command == "GET" and self.host == "hub":
            whole = reply.body if isinstance(reply.body, bytes) else reply.body.read_bytes()
            reply = Reply(200, body=gzip.compress(whole, 1))
            headers |= {"Content-Encoding": "gzip", "Content-Length": str(reply.length)}
        request.status = reply.status
        self.send_response(reply.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        left = reply.length if fault is None or fault.cut is None else min(fault.cut, reply.length)
        cut = left < reply.length
        for part in _parts(reply, left):
            request.sent += len(part)  # before: the client may have all of it, and its test may count, before we go on
            try:
                self.wfile.write(part)
            except OSError:
                request.sent -= len(part)
                raise
        if cut:
            raise ConnectionAbortedError

    def _wait_until_gone(self) -> None:
        self.connection.settimeout(0.05)
        while not self.hub.leaving.is_set():
            with contextlib.suppress(TimeoutError):
                if not self.connection.recv(1):
                    return


def _parts(reply: Reply, left: int) -> Iterator[bytes]:
    if isinstance(reply.body, bytes):
        if reply.body:
            yield reply.body[reply.start : reply.start + left]
        return
    with reply.body.open("rb") as stream:
        stream.seek(reply.start)
        while left and (part := stream.read(min(CHUNK, left))):
            left -= len(part)
            yield part
