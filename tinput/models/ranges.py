"""Byte ranges of one file of a repo on the Hub: asked for, checked, read into memory, kept in the store.

A large file is on another host, to which the Hub redirects with a signature; the address is kept for the next range
and asked for anew when it has expired. The token goes to the Hub alone. Every answer is checked before its body is
read: that it is the range that was asked for, of a file of the same size, at the same commit. A connection that is
cut goes on at the byte that was reached.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from tinput.errors import BadFile, TinputError, Unreachable
from tinput.models import hub as hubs
from tinput.models import progress
from tinput.models.headers import TensorInfo, header_end, parse_header
from tinput.models.hub import Hub, Retry, Tries
from tinput.models.progress import Meter
from tinput.models.store import Store

__all__ = ["HEAD", "RemoteFile", "Run", "Span", "merged"]

Span = tuple[int, int]  # (start, stop) in bytes

HEAD = 100_000  # bytes read of a file first: most headers are shorter, a 405B's are
GAP = 0.02  # of the bytes that are wanted: so many may be read between them, to save requests
SMALL = 1_000_000  # bytes; a file this small is taken whole from a server that knows no ranges
FLUSH = 4_000_000  # bytes read before they go to the store
CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
REDIRECTS = (301, 302, 303, 307, 308)


class Run(NamedTuple):
    """One request: bytes start to stop, which hold the spans of these numbers."""

    start: int
    stop: int
    members: tuple[int, ...]


def merged(spans: Sequence[Span], gap: float = GAP, least: int = HEAD) -> list[Run]:
    """Spans that do not overlap -> requests: neighbours in one, and those across the smallest gaps.

    In all, gaps may have `gap` times the bytes of the spans (or of `least`, if these are fewer).
    """
    order = sorted(range(len(spans)), key=lambda k: spans[k])
    gaps = sorted((spans[b][0] - spans[a][1], n) for n, (a, b) in enumerate(itertools.pairwise(order)))
    left = gap * max(least, sum(stop - start for start, stop in spans))
    joined = set()
    for size, n in gaps:
        left -= size
        if left < 0:
            break
        joined.add(n)
    runs: list[list[int]] = []
    for n, k in enumerate(order):
        if n and n - 1 in joined:
            runs[-1].append(k)
        else:
            runs.append([k])
    return [Run(spans[run[0]][0], spans[run[-1]][1], tuple(run)) for run in runs]


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
        first = bytearray(HEAD)
        length = self._fetch(0, HEAD, [(0, HEAD, memoryview(first))], meter, clip=True)
        assert self.size is not None
        end = header_end(bytes(first[:length]), self.size, str(self))
        if end <= length:
            return bytes(first[:length])
        meter.expect(end - length)
        rest = bytearray(end - length)
        self._fetch(length, end, [(length, end, memoryview(rest))], meter)
        return bytes(first[:length] + rest)

    def read(self, parts: Sequence[tuple[Span, memoryview]], meter: Meter) -> list[Callable[[], Any]]:
        """Spans that do not overlap, each into its place: what is kept at once, the rest by the jobs that are returned.

        meter: is told how many bytes the jobs will read, and of each as it is read
        """
        kept = self._store.get(self._key, [span for span, _ in parts])
        missing, size = [], 0
        for span, place in parts:
            if span in kept:
                place[:] = kept[span]
            elif span[1] <= len(self._first):
                place[:] = self._first[span[0] : span[1]]
            elif span[0] < span[1]:
                missing.append((*span, place))
                size += span[1] - span[0]
        meter.expect(size)
        keep = size <= self._store.limit // 2  # what fills the store would push out all else

        def job(run: Run) -> Callable[[], Any]:
            return lambda: self._fetch(run.start, run.stop, [missing[k] for k in run.members], meter, keep=keep)

        return [job(run) for run in merged([(start, stop) for start, stop, _ in missing])]

    # --- one request, made until it is answered

    def _fetch(
        self,
        start: int,
        stop: int,
        parts: Sequence[tuple[int, int, memoryview]],
        meter: Meter,
        *,
        keep: bool = False,
        clip: bool = False,
    ) -> int:
        """Bytes start to stop into the parts (start, stop, place) that lie in them, in order; how many there were.

        clip: fewer will do where the file ends before `stop`
        """
        position, part, unkept, size = start, 0, [], 0
        tries = Tries(str(self), meter)
        while position < stop:
            problem: Exception
            try:
                with self._answer(position, stop, clip) as (chunks, end):
                    stop = end
                    for chunk in chunks:
                        tries.went_well()
                        view, at = memoryview(chunk), position
                        position += len(view)
                        got = 0
                        while part < len(parts) and parts[part][0] < position:
                            first, last, place = parts[part]
                            a, b = max(first, at), min(last, position)
                            place[a - first : b - first] = view[a - at : b - at]
                            got += b - a
                            if position < last:
                                break
                            part, size = part + 1, size + last - first
                            unkept.append((first, place))
                        meter.add(got)
                        if keep and size >= FLUSH:
                            self._store.put(self._key, [(at, bytes(place)) for at, place in unkept])
                            unkept, size = [], 0
                    if position < stop:
                        raise Retry("the connection was cut")
                    break
            except (Retry, TinputError) as error:
                problem = error
            problem.__context__ = None  # which holds the request, and with it the token
            if not isinstance(problem, Retry):
                raise problem
            tries.failed(problem)
        if keep and unkept:
            self._store.put(self._key, [(at, bytes(place)) for at, place in unkept])
        return stop - start

    @contextlib.contextmanager
    def _answer(self, start: int, stop: int, clip: bool) -> Iterator[tuple[Iterator[bytes], int]]:
        """The body of the answer for bytes start to stop, checked: (chunks, where it will end). Raises Retry."""
        import httpx2
        from huggingface_hub.errors import OfflineModeIsEnabled

        problem: Exception | None = None
        try:
            with self._open(start, stop) as response:
                if response.status_code == 206:
                    stop = self._checked_range(response, start, stop, clip)
                    yield _counted(response.iter_raw(), stop - start), stop
                else:
                    stop = self._whole(response, stop, clip)
                    body = b"".join(_counted(response.iter_raw(), self.size or 0))
                    yield iter([body[start:stop]]), stop
        except (httpx2.HTTPError, httpx2.StreamError, OfflineModeIsEnabled) as error:
            problem = hubs.explained(error, str(self))
        except RuntimeError as error:  # huggingface_hub closes its client for all when one connection fails
            if "closed" not in str(error):
                raise
            problem = Retry("the connection was closed")
        if problem is not None:
            raise problem

    @contextlib.contextmanager
    def _open(self, start: int, stop: int) -> Iterator[Any]:
        """The response to a ranged GET, its body not read yet, redirects followed."""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers, get_session

        ours = {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
        home = hf_hub_url(self.hub.name, self.name, revision=self.hub.commit)
        address = self._address
        at_home, url = address is None, address or home
        for _ in range(8):
            headers = build_hf_headers(token=self.hub.token) | ours if at_home else ours
            client = get_session()
            request = client.build_request("GET", url, headers=headers, timeout=hubs.timeout())
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
                    raise self._refused(response, start)
                yield response
                return
            finally:
                response.close()
        raise Unreachable(f"{self} could not be read from {hubs.host()}: too many redirects; check HF_ENDPOINT.")

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
        found = CONTENT_RANGE.fullmatch(said.strip())
        if found and found[3] != "*":
            self._check_size(int(found[3]))
        end = min(stop, self.size) if clip and self.size is not None else stop
        encoded = response.headers.get("Content-Encoding", "identity") != "identity"
        if not found or encoded or (int(found[1]), int(found[2]) + 1) != (start, end) or self.size is None:
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

    def _refused(self, response: Any, start: int) -> Exception:
        headers, status = response.headers, response.status_code
        if status == 416:
            return BadFile(f"{self} is cut short: it ends before byte {start:,}; choose another revision.")
        if status == 404 and headers.get("X-Error-Code") in (None, "EntryNotFound"):
            return BadFile(f"{self} is missing on {hubs.host()}, though its index names it; choose another revision.")
        return hubs.refused(status, str(self), headers.get("X-Error-Code"), headers.get("Retry-After"))


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
