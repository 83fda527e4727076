"""Byte ranges of one file of a repo on the Hub: asked for, checked, read into memory, kept in the store.

A large file is on another host, to which the Hub redirects with a signature; the address is kept for the next range
and asked for anew when it has expired. The token goes to the Hub alone. Every answer is checked before its body is
read: that it is the range that was asked for, of a file of the same size, at the same commit. A connection that is
cut goes on at the byte that was reached.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import urljoin, urlsplit

from tinput.errors import BadFile, TinputError, Unreachable
from tinput.models import asking, progress
from tinput.models.asking import Retry, Tries
from tinput.models.headers import TensorInfo, header_end, parse_header
from tinput.models.hub import Hub
from tinput.models.progress import Meter
from tinput.models.spans import HEAD, Places, Run, Span, boundary_of, content_range, merged, parts_of
from tinput.models.store import Store

__all__ = ["Reading", "RemoteFile"]

SMALL = 1_000_000  # bytes; a file this small is taken whole from a server that knows no ranges
FLUSH = 4_000_000  # bytes read before they go to the store
MANY = 16  # requests that several connections make in no time; more are asked for as one of many ranges
AT_ONCE = 100  # ranges in a request: its line must not be too long for a server
REDIRECTS = (301, 302, 303, 307, 308)

_one_by_one: set[str] = set()  # hosts that do not answer to many ranges in one request


class RemoteFile:
    """One file of a repo. Safe to share among threads."""

    def __init__(self, hub: Hub, name: str, store: Store):
        self.hub, self.name, self._store = hub, name, store
        self.size: int | None = None
        self._first = b""  # the beginning of the file, as far as it was read with the header
        self._header: dict[str, TensorInfo] | None = None
        self._key = f"{hub.key} {name}"
        self._address: str | None = None  # on the other host, signed
        self._lock = threading.Lock()  # while the header is read: who else wants it waits

    def __str__(self) -> str:
        return f"{self.hub.name}/{self.name}"

    def header(self) -> dict[str, TensorInfo]:
        """What the file holds, by name. Its first bytes are read once, and kept."""
        with self._lock:
            if self._header is None:
                self._first, self._header = self._read_header()
            return self._header

    @property
    def known_header(self) -> dict[str, TensorInfo] | None:
        """The header, if it was read."""
        return self._header

    def _read_header(self) -> tuple[bytes, dict[str, TensorInfo]]:
        key, ends = f"{self._key} header", (0, 16)  # the file's size, and how many of its first bytes are kept
        if (known := self._store.get(key, [ends]).get(ends)) is not None:
            size, length = int.from_bytes(known[:8], "little"), int.from_bytes(known[8:], "little")
            kept = self._store.get(key, [(16, 16 + length)])
            if kept:
                self._check_size(size)
                return (first := kept[16, 16 + length]), parse_header(first, size, str(self))
        meter = Meter(f"the header of {self}", HEAD)
        first = progress.run(meter, [lambda: self._beginning(meter)])[0]
        assert self.size is not None
        header = parse_header(first, self.size, str(self))
        self._store.put(key, [(0, self.size.to_bytes(8, "little") + len(first).to_bytes(8, "little")), (16, first)])
        return first, header

    def _beginning(self, meter: Meter) -> bytes:
        first = bytearray()

        def take(_: int, chunk: bytes) -> None:
            first.extend(chunk)
            meter.add(len(chunk))

        length = self.fetch(0, HEAD, take, meter, clip=True)
        assert self.size is not None
        end = header_end(bytes(first), self.size, str(self))
        if end > length:
            meter.expect(end - length)
            self.fetch(length, end, take, meter)
        return bytes(first)

    def reading(self, parts: Sequence[tuple[Span, memoryview]], meter: Meter) -> Reading:
        """Spans that do not overlap, each into its place: what is kept at once, the rest by the reading's jobs."""
        kept = self._store.get(self._key, [span for span, _ in parts])
        missing = []
        for (start, stop), place in parts:
            if (start, stop) in kept:
                place[:] = kept[start, stop]
            elif stop <= len(self._first):
                place[:] = self._first[start:stop]
            elif start < stop:
                missing.append(((start, stop), place))
        size = sum(stop - start for (start, stop), _ in missing)
        meter.expect(size)
        keep = size <= self._store.limit // 2  # what fills the store would push out all else
        return Reading(self, Places(missing), meter, self._keep if keep else lambda _: None)

    def _keep(self, parts: list[tuple[Span, memoryview]]) -> None:
        self._store.put(self._key, [(start, bytes(place)) for (start, _), place in parts])

    def fetch(self, start: int, stop: int, take: Callable[[int, bytes], None], meter: Meter, clip: bool = False) -> int:
        """Hands bytes start to stop to `take(position, bytes)`, in order; how many there were. Tries until it succeeds.

        clip: fewer will do where the file ends before `stop`
        """
        position = start
        tries = Tries(str(self), meter)
        while position < stop:
            problem: Exception
            try:
                with self._answer(position, stop, clip) as (chunks, end):
                    stop = end
                    for chunk in chunks:
                        tries.went_well()
                        take(position, chunk)
                        position += len(chunk)
                    if position < stop:
                        raise Retry("the connection was cut")
                    break
            except (Retry, TinputError) as error:
                problem = error
            problem.__context__ = None  # which holds the request, and with it the token
            if not isinstance(problem, Retry):
                raise problem
            tries.failed(problem)
        return stop - start

    def fetch_many(self, spans: Sequence[Span], take: Callable[[int, bytes], None]) -> None:
        """Hands bytes of several spans to `take`, in one request, as far as that goes: not all servers answer to it."""
        import httpx2

        def check(said: str) -> Span:
            found = content_range(said)
            if found is None or found[2] is None or found[2] != self.size or not found[0] < found[1] <= found[2]:
                raise ValueError("a part that does not say where it belongs")
            return found[0], found[1]

        understood = False
        errors = (Retry, TinputError, httpx2.HTTPError, httpx2.StreamError, RuntimeError, ValueError)
        asked = self._open(",".join(f"{start}-{stop - 1}" for start, stop in spans))
        with contextlib.suppress(*errors), asked as response:
            boundary = boundary_of(response.headers.get("Content-Type", ""))
            if response.status_code == 206 and boundary is not None:
                for position, chunk in parts_of(response.iter_raw(), boundary, check):
                    understood = True
                    take(position, chunk)
        if not understood:
            _one_by_one.add(self._host)

    @property
    def takes_many(self) -> bool:
        """Whether its host may answer to many ranges in one request."""
        return self.size is not None and self._host not in _one_by_one

    @property
    def _host(self) -> str:
        return urlsplit(self._address or asking.endpoint()).netloc

    @contextlib.contextmanager
    def _answer(self, start: int, stop: int, clip: bool) -> Iterator[tuple[Iterator[bytes], int]]:
        """The body of the answer for bytes start to stop, checked: (chunks, where it will end). Raises Retry."""
        import httpx2
        from huggingface_hub.errors import OfflineModeIsEnabled

        problem: Exception | None = None
        try:
            with self._open(f"{start}-{stop - 1}") as response:
                if response.status_code == 206:
                    stop = self._checked_range(response, start, stop, clip)
                    yield _counted(response.iter_raw(), stop - start), stop
                else:
                    stop = self._whole(response, stop, clip)
                    body = b"".join(_counted(response.iter_raw(), self.size or 0))
                    yield iter([body[start:stop]]), stop
        except (httpx2.HTTPError, httpx2.StreamError, OfflineModeIsEnabled) as error:
            problem = asking.explained(error, self.hub.name, self.name)
        except RuntimeError as error:  # huggingface_hub closes its client for all when one connection fails
            if "closed" not in str(error):
                raise
            problem = Retry("the connection was closed")
        if problem is not None:
            raise problem

    @contextlib.contextmanager
    def _open(self, asked: str) -> Iterator[Any]:
        """The response to a GET of ranges ("0-99,200-299"), its body not read yet, redirects followed."""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers, get_session

        ours = {"Range": f"bytes={asked}", "Accept-Encoding": "identity"}
        home = hf_hub_url(self.hub.name, self.name, revision=self.hub.commit)
        address = self._address
        at_home, url = address is None, address or home
        for _ in range(8):
            headers = build_hf_headers(token=self.hub.token) | ours if at_home else ours
            client = get_session()
            request = client.build_request("GET", url, headers=headers, timeout=asking.timeout())
            if not at_home:
                request.headers.pop("Authorization", None)
            response = client.send(request, stream=True, follow_redirects=False)
            try:
                status = response.status_code
                if at_home:
                    self._check_commit(response)
                if status in REDIRECTS and "Location" in response.headers:
                    url = urljoin(url, response.headers["Location"])
                    at_home = at_home and _origin(url) == _origin(home)
                    if not at_home:
                        self._address = url
                    if int(response.headers.get("Content-Length") or HEAD) < HEAD:
                        response.read()  # the connection is used again only if nothing is left in it
                    continue
                if not at_home and status in (400, 401, 403, 404, 410):  # the signature is too old: once more from home
                    if address is None:
                        raise Retry(f"its storage answers with {status}")
                    self._address = address = None
                    at_home, url = True, home
                    continue
                if status >= 400:
                    raise self._refused(response, asked)
                yield response
                return
            finally:
                response.close()
        raise Unreachable(f"{self} could not be read from {asking.host()}: too many redirects; check HF_ENDPOINT.")

    # --- what an answer must be

    def _check_commit(self, response: Any) -> None:
        commit = response.headers.get("X-Repo-Commit")
        if commit is not None and commit != self.hub.commit:
            raise BadFile(
                f"{self} was asked for at commit {self.hub.commit[:8]} and came at {commit[:8]}: "
                "the model has changed meanwhile; open it again."
            )
        linked = response.headers.get("X-Linked-Size")
        if linked is not None and linked.isdigit():
            self._check_size(int(linked))

    def _check_size(self, size: int) -> None:
        if self.size is None:
            self.size = size
        elif self.size != size:
            raise BadFile(
                f"{self} had {self.size:,} bytes a moment ago and has {size:,} now: the file has changed meanwhile; "
                "open the model again."
            )

    def _checked_range(self, response: Any, start: int, stop: int, clip: bool) -> int:
        """Where the range ends that is coming."""
        said = response.headers.get("Content-Range", "")
        found = content_range(said)
        if found and found[2] is not None:
            self._check_size(found[2])
        end = min(stop, self.size) if clip and self.size is not None else stop
        encoded = response.headers.get("Content-Encoding", "identity") != "identity"
        if not found or encoded or found[:2] != (start, end) or self.size is None:
            raise Unreachable(
                f"{self}: {_where(response)} was asked for bytes {start:,} to {stop - 1:,} and sends "
                f"{said[:80] or 'no Content-Range'!r}; try later, or set HF_ENDPOINT to another address of the Hub."
            )
        return end

    def _whole(self, response: Any, stop: int, clip: bool) -> int:
        """Where the range ends, in a whole file that is small enough to be taken."""
        length = response.headers.get("Content-Length", "")
        size = int(length) if length.isdigit() else None
        if size is None or size > SMALL or response.status_code != 200 or (self.size or size) != size:
            raise Unreachable(
                f"{self}: {_where(response)} ignores that only a part is asked for, and would send the whole file"
                f"{f' of {size:,} bytes' if size else ''}; nothing of it was read: set HF_ENDPOINT to another address "
                "of the Hub, or download the model."
            )
        if (response.headers.get("Content-Type") or "").startswith("text/html"):
            raise Unreachable(f"{self}: {_where(response)} sends a web page in place of the file; check the network.")
        self._check_size(size)
        if size < stop and not clip:
            raise BadFile(f"{self} is cut short: it has {size:,} bytes, and more were promised.")
        return min(stop, size)

    def _refused(self, response: Any, asked: str) -> Exception:
        headers, status = response.headers, response.status_code
        if status == 416:
            return BadFile(
                f"{self} is cut short: it ends before byte {int(asked.partition('-')[0]):,}; choose another revision."
            )
        if status == 404 and headers.get("X-Error-Code") in (None, "EntryNotFound"):
            return BadFile(f"{self} is missing on {asking.host()}, though its index names it; choose another revision.")
        return asking.refused(status, self.hub.name, self.name, headers)


class Reading:
    """Spans of one file on their way into memory. First `many()`, where that is not empty, then `singly()`: jobs."""

    def __init__(self, file: RemoteFile, places: Places, meter: Meter, keep: Callable[[list], None]):
        self._file, self._places, self._meter, self._keep = file, places, meter, keep
        self._lock = threading.Lock()
        self._whole: list[int] = []  # here, and not kept yet
        self._size = 0

    def many(self) -> list[Callable[[], Any]]:
        """Requests of many ranges each, where single ones would be too many. They may leave something out."""
        runs = self._runs()
        if len(runs) <= MANY or not self._file.takes_many:
            return []
        spans = [(run.start, run.stop) for run in runs]
        batches = [spans[k : k + AT_ONCE] for k in range(0, len(spans), AT_ONCE)]
        return [lambda batch=batch: self._done(self._file.fetch_many(batch, self._take)) for batch in batches]

    def singly(self) -> list[Callable[[], Any]]:
        """Requests of one range each, for all that is not here yet."""
        return [
            lambda run=run: self._done(self._file.fetch(run.start, run.stop, self._take, self._meter))
            for run in self._runs()
        ]

    def _runs(self) -> list[Run]:
        return merged([self._places.parts[k][0] for k in self._places.missing()])

    def _take(self, position: int, chunk: bytes) -> None:
        new, whole = self._places.put(position, chunk)
        self._meter.add(new)
        if whole:
            with self._lock:
                self._whole += whole
                self._size += sum(len(self._places.parts[k][1]) for k in whole)
                full = self._size >= FLUSH
            if full:
                self._done()

    def _done(self, _: Any = None) -> None:
        """Keeps what is whole."""
        with self._lock:
            whole, self._whole, self._size = self._whole, [], 0
        if whole:
            self._keep([self._places.parts[k] for k in whole])


def _counted(chunks: Iterator[bytes], length: int) -> Iterator[bytes]:
    """The chunks, as long as they are no more than was promised."""
    for chunk in chunks:
        length -= len(chunk)
        if length < 0:
            raise Unreachable("The Hub sends more bytes than were asked for; try again later.")
        yield chunk


def _origin(url: str) -> tuple[str, str | None, int | None]:
    found = urlsplit(url)
    return found.scheme, found.hostname, found.port


def _where(response: Any) -> str:
    """The host that answered, by a name that can be shown."""
    return response.request.url.host or "the server"
