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
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.hub_answers import Reply, Repo, api, error, etag, on_cdn, ranged
from tests.hub_client import TOKEN, Client, Outcome, client

__all__ = ["TOKEN", "Client", "Fault", "Hub", "Outcome", "Repo", "Request", "client"]

CHUNK = 1 << 16
NOT_COUNTED = "/api/agent-harnesses"  # huggingface_hub asks for it once a day, whatever the user does
CACHED = re.compile(r"^/api/resolve-cache/models/((?:[^/]+/){2})")
RESOLVE = re.compile(r"/(?P<repo>[^/]+(?:/[^/]+)?)/resolve/(?P<rev>[^/]+)/(?P<file>.+)")
API = re.compile(
    r"/api/models/(?P<repo>[^/]+/[^/]+|[^/]+)(?:/(?P<what>revision|tree|refs|commits|discussions)(?P<rest>/.*)?)?"
)


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
    whole: the range is ignored, and the whole file sent with 200; reads: what the server makes of the Range header
    content_range: this header in place of the true one; shift: the bytes sent lie so far from those asked for
    drop: headers that are left out; adds: headers that come besides
    delay: seconds before the answer; after: called once the answer is sent
    ranged, many (ranges in one), host, method: only such requests
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
    reads: Callable[[str], str] | None = None
    content_range: str | None = None
    shift: int = 0
    drop: tuple[str, ...] = ()
    adds: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    after: Callable[[], Any] | None = None
    ranged: bool | None = None
    many: bool | None = None
    host: str | None = None
    method: str | None = None
    met: int = 0  # requests that it fell on

    def fits(self, request: Request) -> bool:
        return (
            self.on in request.path
            and self.ranged in (None, request.range is not None)
            and self.many in (None, "," in (request.range or ""))
            and self.host in (None, request.host)
            and self.method in (None, request.method)
        )


class Hub:
    """The two hosts, while the context is open.

    requests: all that came, but for NOT_COUNTED; sent: bytes of their answers' bodies
    delay: seconds before each answer; compress: gzip for text files, as the real one does where a client accepts it
    multipart: several ranges in one request are answered, as CloudFront does; else with the whole file, as S3 does
    resolve_cache: small files by one more redirect on the same host, as the real one does since 2025
    tokens: those that are valid; with any other one every answer is 401
    """

    def __init__(self):
        self.repos: dict[str, Repo] = {}
        self.moved: dict[str, str] = {}  # a former name -> the name now, by redirect
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.tokens = {TOKEN}
        self.delay, self.compress, self.resolve_cache, self.multipart = 0.0, False, False, True
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
            server = _Server(("127.0.0.1", port), handler)
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
        self.delay, self.compress, self.resolve_cache, self.multipart = 0.0, False, False, True

    def expire(self) -> None:
        """The CDN's addresses that were handed out so far answer 403 from now on."""
        self._signature = secrets.token_hex(16)

    def move_cdn(self) -> None:
        """The CDN is at another address from now on, of which a client knows nothing."""
        self.stop()
        self._ports["cdn"] = 0
        self.start()

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
            return error(401, None, "Invalid credentials in Authorization header")
        path, cached = CACHED.subn(r"/\1resolve/", split.path)
        if found := RESOLVE.fullmatch(path):
            name, rev, file = map(unquote, found.group("repo", "rev", "file"))
            return self._resolve(name, rev, file, token, span, bool(cached))
        if found := API.fullmatch(path):
            what, rest = found["what"] or "revision", unquote(found["rest"] or "")[1:]
            return self._api(unquote(found["repo"]), what, rest, token, parse_qs(split.query))
        return error(404, None, "Not Found")

    def _repo(self, name: str, token: str | None) -> Repo | Reply:
        repo = self.repos.get(name)
        if repo is None or (repo.private and token not in repo.readers):  # the two look the same from outside
            return error(401 if token is None else 404, "RepoNotFound", "Repository not found")
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
            return error(401 if token is None else 403, "GatedRepo", f"Access to model {name} is restricted. {ask}")
        commit = repo.refs.get(rev, rev)
        if commit not in repo.commits:
            return error(404, "RevisionNotFound", f"Invalid rev id: {rev}")
        headers = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        path = repo.file(commit, file)
        if path is None:
            reply = error(404, "EntryNotFound", "Entry not found")
            reply.headers |= headers
            return reply
        tag = etag(path)
        if on_cdn(path):
            headers |= {"X-Linked-Size": str(path.stat().st_size), "X-Linked-Etag": tag}
            location = f"{self.cdn}/{name}/{commit}/{quote(file)}?Expires=1&Signature={self._signature}"
            return Reply(302, headers | {"Location": location}, b"Found. Redirecting")
        if self.resolve_cache and not cached:
            headers |= {"X-Linked-Size": str(path.stat().st_size), "X-Linked-Etag": tag}
            location = f"/api/resolve-cache/models/{name}/{commit}/{quote(file)}"
            return Reply(307, headers | {"Location": location}, b"Temporary Redirect")
        return ranged(path, headers | {"ETag": tag}, span)

    def _from_cdn(self, path: str, query: dict[str, list[str]], span: str | None) -> Reply:
        name, commit, file = re.fullmatch(r"/(.+?)/([0-9a-f]{40})/(.+)", unquote(path)).groups()  # type: ignore
        if query.get("Signature") != [self._signature]:
            return Reply(403, {"Content-Type": "application/xml"}, b"<Error><Code>AccessDenied</Code></Error>")
        found = self.repos[name].file(commit, file)
        assert found is not None, path
        return ranged(found, {"ETag": etag(found), "Accept-Ranges": "bytes"}, span, many=self.multipart)

    def _api(self, name: str, what: str, rest: str, token: str | None, query: dict[str, list[str]]) -> Reply:
        if name in self.moved:
            return Reply(307, {"Location": f"/api/models/{self.moved[name]}/{what}/{quote(rest, safe='')}"})
        repo = self._repo(name, token)
        if isinstance(repo, Reply):
            return repo
        return api(repo, what, rest, query)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64  # connections that wait to be taken: a client opens many at once

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client that goes away is none
            super().handle_error(request, client_address)


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
            self._send(error(404, None, "Not Found"), Request(self.host, self.command, self.path, None, False), None)
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
        if fault and fault.reads and span:
            span = fault.reads(span)
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
            headers = {name: value for name, value in headers.items() if name not in fault.drop} | fault.adds
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
