"""Byte ranges as such: what is asked for together, where the bytes go, and answers in several parts."""

from __future__ import annotations

import random

import pytest

from tinput.models.spans import Places, boundary_of, content_range, merged, parts_of

FILE = bytes(random.Random(0).randbytes(20_000))


@pytest.mark.parametrize(
    ("spans", "gap", "expected"),
    [
        ([], 0.0, []),
        ([(5, 9)], 0.0, [(5, 9, (0,))]),
        ([(10, 20), (0, 10)], 0.0, [(0, 20, (1, 0))]),  # neighbours, in any order
        ([(0, 10), (11, 20)], 0.0, [(0, 10, (0,)), (11, 20, (1,))]),
        ([(0, 100), (101, 200)], 0.02, [(0, 200, (0, 1))]),  # 1 byte of 199: less than 2 %
        ([(0, 100), (150, 250)], 0.02, [(0, 100, (0,)), (150, 250, (1,))]),
        # 3 bytes may be read for nothing: they go to the smallest gaps
        ([(0, 50), (53, 100), (102, 151), (152, 200)], 0.02, [(0, 50, (0,)), (53, 200, (1, 2, 3))]),
    ],
)
def test_what_is_asked_for_together(spans, gap, expected):
    assert [tuple(run) for run in merged(spans, gap, least=0)] == expected


def test_no_more_is_read_for_nothing_than_is_allowed():
    draw = random.Random(1)
    for _ in range(50):
        starts = sorted(draw.sample(range(0, 100_000, 100), 60))
        spans = [(start, start + draw.randint(1, 100)) for start in starts]
        draw.shuffle(spans)
        runs = merged(spans, 0.05, least=0)
        wanted = sum(stop - start for start, stop in spans)
        read = sum(run.stop - run.start for run in runs)
        assert wanted <= read <= 1.05 * wanted
        assert sorted(k for run in runs for k in run.members) == list(range(60))
        assert all(run.start <= spans[k][0] and spans[k][1] <= run.stop for run in runs for k in run.members)


@pytest.mark.parametrize("size", [1, 7, 64, 5_000, 20_000])
def test_bytes_go_where_they_belong_in_pieces_of_any_size(size):
    spans = [(15_000, 15_500), (100, 400), (400, 401), (7_000, 9_999)]
    memory = [bytearray(stop - start) for start, stop in spans]
    places = Places([(span, memoryview(m)) for span, m in zip(spans, memory, strict=True)])
    new, whole = 0, []
    for at in range(0, len(FILE), size):
        more, done = places.put(at, FILE[at : at + size])
        new, whole = new + more, whole + done
    assert [bytes(m) for m in memory] == [FILE[start:stop] for start, stop in spans]
    assert new == sum(stop - start for start, stop in spans)
    assert whole == [0, 1, 2, 3]  # in the order of the file
    assert places.missing() == []
    assert places.put(0, FILE) == (0, [])  # what is here is not taken twice


def test_a_span_that_is_cut_goes_on_where_it_was():
    memory = bytearray(1_000)
    places = Places([((500, 1_500), memoryview(memory))])
    assert places.put(400, FILE[400:900]) == (400, [])
    assert places.put(1_200, FILE[1_200:1_500]) == (0, [])  # a hole in between: not taken
    assert places.missing() == [0]
    assert places.put(800, FILE[800:2_000]) == (600, [0])
    assert bytes(memory) == FILE[500:1_500]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("bytes 0-99/200", (0, 100, 200)),
        (" bytes 5-5/* ", (5, 6, None)),
        ("bytes */200", None),
        ("0-99/200", None),
        ("", None),
        ("bytes -1-99/200", None),
    ],
)
def test_content_range(said, expected):
    assert content_range(said) == expected


def body(*spans: tuple[int, int], size: int = len(FILE), boundary: str = "XX") -> bytes:
    made = b""
    for start, stop in spans:
        said = f"\r\n--{boundary}\r\nContent-Type: text/plain\r\ncontent-range: bytes {start}-{stop - 1}/{size}\r\n\r\n"
        made += said.encode() + FILE[start:stop]
    return made + f"\r\n--{boundary}--\r\n".encode()


def check(said: str) -> tuple[int, int]:
    found = content_range(said)
    if found is None or found[2] != len(FILE):
        raise ValueError(said)
    return found[:2]


@pytest.mark.parametrize("size", [1, 3, 17, 100_000])
def test_an_answer_in_parts_in_chunks_of_any_size(size):
    spans = [(900, 1_000), (0, 1), (5_000, 9_000)]  # in an order of the server's
    raw = body(*spans)
    found: dict[int, bytes] = {}
    for position, chunk in parts_of((raw[at : at + size] for at in range(0, len(raw), size)), b"XX", check):
        found |= {position + n: bytes([byte]) for n, byte in enumerate(chunk)}
    expected = {at: FILE[at : at + 1] for start, stop in spans for at in range(start, stop)}
    assert found == expected


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"<html>no parts at all</html>\r\n",
        body((0, 10), boundary="another"),
        body((0, 10), size=7),
        body((0, 10))[:-20],
        b"--XX\r\nContent-Type: text/plain\r\n\r\nno range",
        b"x" * 10_000,
    ],
    ids=["empty", "a page", "another boundary", "another file", "cut", "no range", "a line without an end"],
)
def test_an_answer_that_is_not_in_parts_is_refused(raw):
    with pytest.raises(ValueError):
        list(parts_of(iter([raw]), b"XX", check))


def test_the_boundary_of_an_answer():
    assert boundary_of("multipart/byteranges; boundary=abc") == b"abc"
    assert boundary_of('Multipart/ByteRanges; charset=x; boundary="a b"') == b"a b"
    for other in ("text/plain", "multipart/form-data; boundary=abc", ""):
        assert boundary_of(other) is None
