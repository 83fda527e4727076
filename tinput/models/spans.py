"""Byte ranges as such: which of them make one request, and where the bytes of an answer go. No network here.

An answer to several ranges comes as multipart/byteranges (RFC 9110, section 14.6): parts, each with the range that it
holds, in any order, and some perhaps joined.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

__all__ = ["HEAD", "Places", "Run", "Span", "boundary_of", "content_range", "merged", "parts_of"]

Span = tuple[int, int]  # (start, stop) in bytes

HEAD = 100_000  # bytes read of a file first: most headers are shorter, a 405B's are
GAP = 0.02  # of the bytes that are wanted: so many may be read between them, to save requests
LONGEST_LINE = 4_000  # bytes, of a part's headers
CONTENT_RANGE = re.compile(r"\s*bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)\s*")
BOUNDARY = re.compile(r'multipart/byteranges\s*;.*?boundary="?([^";]{1,200})"?', re.IGNORECASE)


class Run(NamedTuple):
    """Bytes start to stop of a file, which hold the spans of these numbers."""

    start: int
    stop: int
    members: tuple[int, ...]


def merged(spans: Sequence[Span], gap: float = GAP, least: int = HEAD) -> list[Run]:
    """Spans that do not overlap -> runs: neighbours in one, and those across the smallest gaps.

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


class Places:
    """Where the bytes of spans go as they come: parts (span, memory), spans that do not overlap, in any order.

    Bytes of a span must come in order; those that belong to none are dropped.
    """

    def __init__(self, parts: Sequence[tuple[Span, memoryview]]):
        self.parts = sorted(parts, key=lambda part: part[0])
        self._starts = [span[0] for span, _ in self.parts]
        self._reached = list(self._starts)

    def put(self, position: int, chunk: bytes) -> tuple[int, list[int]]:
        """Takes bytes of the file from `position` on: how many were new, and which spans are whole now."""
        view, stop = memoryview(chunk), position + len(chunk)
        new, whole = 0, []
        for k in range(max(0, bisect_right(self._starts, position) - 1), len(self.parts)):
            (start, end), place = self.parts[k]
            if start >= stop:
                break
            at, until = self._reached[k], min(end, stop)
            if position <= at < until:
                place[at - start : until - start] = view[at - position : until - position]
                self._reached[k], new = until, new + until - at
                if until == end:
                    whole.append(k)
        return new, whole

    def missing(self) -> list[int]:
        """The numbers of the spans that are not whole."""
        return [k for k, ((_, end), _) in enumerate(self.parts) if self._reached[k] < end]


def content_range(said: str) -> tuple[int, int, int | None] | None:
    """Content-Range -> (start, stop, size of the file or None where it is `*`); None if it is none."""
    if (found := CONTENT_RANGE.fullmatch(said)) is None:
        return None
    return int(found[1]), int(found[2]) + 1, None if found[3] == "*" else int(found[3])


def boundary_of(content_type: str) -> bytes | None:
    """What divides the parts of a multipart/byteranges answer; None for an answer that is none."""
    found = BOUNDARY.match(content_type)
    return found[1].strip().encode("latin-1", "replace") if found else None


def parts_of(
    chunks: Iterator[bytes], boundary: bytes, check: Callable[[str], tuple[int, int]]
) -> Iterator[tuple[int, bytes]]:
    """(position in the file, bytes) of a multipart/byteranges body. check: Content-Range -> (start, stop), or raises.

    Ends where the last part does. Raises ValueError for a body that is none.
    """
    held = bytearray()

    def more() -> None:
        chunk = next(chunks, None)
        if chunk is None:
            raise ValueError("it ends early")
        held.extend(chunk)

    def line() -> bytes:
        while (end := held.find(b"\r\n")) < 0:
            if len(held) > LONGEST_LINE:
                raise ValueError("a line without an end")
            more()
        found = bytes(held[:end])
        del held[: end + 2]
        return found

    while True:
        while not (divider := line()):
            pass
        if divider.rstrip() == b"--" + boundary + b"--":
            return
        if divider.rstrip() != b"--" + boundary:
            raise ValueError("no boundary where one must be")
        said = None
        while header := line():
            name, _, value = header.partition(b":")
            if name.strip().lower() == b"content-range":
                said = value.decode("latin-1").strip()
        if said is None:
            raise ValueError("a part that does not say where it belongs")
        position, stop = check(said)
        while position < stop:
            if not held:
                more()
            part = bytes(held[: stop - position])
            del held[: len(part)]
            yield position, part
            position += len(part)
