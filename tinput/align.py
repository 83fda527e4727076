"""Several tokenizations of one text, aligned by the text's bytes: what stands for the same stretch stands together.

A tokenizer cuts a text at some of its bytes. The cuts that all of them share divide the text into segments, each a
whole number of tokens in every one: the finest such division, so that a text beside itself has one token a segment.
A stretch that no tokenizer has a token for (a blank that all drop) is no segment of its own: it belongs to the next.
Where one alone drops it, its range there is empty.

    common = align(model.tokenize(text), other.tokenize(text))
    [(segment.text, segment.tokens) for segment in common.segments]  # (b"unhappy", ((0, 1), (0, 3)))
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tinput import measure
from tinput.tokens import Tokens

__all__ = ["Alignment", "Part", "Range", "align", "correlation", "pool", "pool_weights"]

MASKED = -1e29  # a mask is -inf, or the most negative number of its dtype
Range = tuple[int, int]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """A stretch of the text and its tokens in each tokenization.

    start, stop: bytes of the text's UTF-8; text: those bytes; tokens: (first, stop) in each, empty where first == stop
    kind: "text", or "before" and "after" for the special tokens around it, which stand for no byte
    """

    start: int
    stop: int
    text: bytes
    tokens: tuple[Range, ...]
    kind: str = "text"


@dataclass(frozen=True)
class Alignment:
    """Tokenizations of one text beside each other.

    segments: they divide the text's bytes from 0 to `stop`, where the shortest of them was cut, without gap or overlap
    before, after: the ranges of the special tokens around the text in each
    size: bytes of the whole text
    """

    segments: tuple[Part, ...]
    before: tuple[Range, ...]
    after: tuple[Range, ...]
    size: int

    @property
    def stop(self) -> int:
        return self.segments[-1].stop if self.segments else 0

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The segments, with the special tokens before and after them where any tokenization has some."""
        ends = [Part(at, at, b"", ranges, kind) for at, ranges, kind in self._ends() if any(b > a for a, b in ranges)]
        before = [part for part in ends if part.kind == "before"]
        return (*before, *self.segments, *(part for part in ends if part.kind == "after"))

    def _ends(self) -> Iterator[tuple[int, tuple[Range, ...], str]]:
        yield 0, self.before, "before"
        yield self.stop, self.after, "after"

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """What to call each of `parts`, never blank: as tokens are called, and (start), (end) for special tokens."""
        count = len(self.segments)
        shown = Tokens(
            (0,) * count,
            ("(empty)",) * count,
            tuple(segment.text for segment in self.segments),
            (None,) * count,
            (False,) * count,
        ).labels
        named = {"before": "(start)", "after": "(end)"}
        found = iter(shown)
        return tuple(named.get(part.kind) or next(found) for part in self.parts)

    def ranges(self, number: int) -> tuple[Range, ...]:
        """(first, stop) of each of `parts` in one tokenization: together all tokens that are kept, in order."""
        return tuple(part.tokens[number] for part in self.parts)

    def first_apart(self, values: Sequence[Sequence[Any]], *, tolerance: float = 0.0) -> int | None:
        """The first of `parts` where something differs between any two, or None where it never does.

        values: for each tokenization, one value a token; tolerance: relative, for numbers
        """
        for number, part in enumerate(self.parts):
            first, *others = (tuple(row[a:b]) for row, (a, b) in zip(values, part.tokens, strict=True))
            if any(not _same(first, other, tolerance) for other in others):
                return number
        return None


def align(*tokens: Tokens, lengths: Sequence[int] | None = None) -> Alignment:
    """The finest division of the text in which each segment is a whole number of tokens in every tokenization.

    tokens: of one and the same text; lengths: how many tokens of each to keep, where the text was cut: segments end
        with the last that is whole in all of them
    Where a tokenization has nothing but special tokens, they count as before the text.
    Raises ValueError for none, or for different texts.
    """
    if not tokens:
        raise ValueError("there is nothing to align: give the tokens of at least one tokenizer")
    if len({each.text for each in tokens}) > 1:
        raise ValueError("these are tokens of different texts; align tokenizations of one text")
    data = tokens[0].text.encode()
    kept = [len(each) for each in tokens] if lengths is None else list(lengths)
    content = [_content(each) for each in tokens]
    free = np.ones(len(data) + 1, bool)  # at which bytes all of them can be cut
    latest = []
    for each, (first, stop) in zip(tokens, content, strict=True):
        starts, stops = _places(each, data, first, stop)
        ended = np.concatenate(([0], np.maximum.accumulate(stops)))  # before token k: where the text so far ends,
        begins = np.concatenate((np.minimum.accumulate(starts[::-1])[::-1], [len(data)]))  # and the rest begins
        here = ended <= begins
        edges = np.zeros(len(data) + 2, np.int64)
        np.add.at(edges, ended[here], 1)
        np.add.at(edges, begins[here] + 1, -1)
        free &= edges[:-1].cumsum() > 0
        latest.append(begins)
    cuts = np.flatnonzero(free)
    at = np.stack([first + begins.searchsorted(cuts) for (first, _), begins in zip(content, latest, strict=True)])
    at[:, -1] = [stop for _, stop in content]  # tokens without width at the end of the text belong to it
    cuts, at = _with_tokens(cuts, at)
    segments = []
    for number in range(len(cuts) - 1):
        ranges = tuple((int(a), int(b)) for a, b in at[:, number : number + 2])
        if any(b > most for (_, b), most in zip(ranges, kept, strict=True)):
            break
        start, stop = int(cuts[number]), int(cuts[number + 1])
        segments.append(Part(start, stop, data[start:stop], ranges))
    ends = segments[-1].tokens if segments else tuple((first, first) for first, _ in content)
    whole = len(segments) == len(cuts) - 1
    return Alignment(
        tuple(segments),
        tuple((0, min(first, most)) for (first, _), most in zip(content, kept, strict=True)),
        tuple((b, most if whole else b) for (_, b), most in zip(ends, kept, strict=True)),
        len(data),
    )


def pool(values: Tensor, ranges: Sequence[Range]) -> Tensor:
    """The mean over each range of tokens: (seq, ...) -> (parts, ...), float32; NaN for a range without tokens."""
    return (_sums(values.double(), ranges) / _counts(ranges, values.ndim)).float()


def pool_weights(weights: Tensor, ranges: Sequence[Range], mask: Tensor | None = None) -> Tensor:
    """Attention from part to part: the mean over its queries, the sum over its keys: (seq, seq) -> (parts, parts).

    So the weights of a query still sum to what they did. NaN for a part without tokens, and where the mask (seq, seq),
    0 where a key is seen and -inf where not, hides all of it. Source: Clark et al. 2019, "What Does BERT Look At?",
    section 4.1, who make words of pieces in this way.
    """
    empty = torch.tensor([a == b for a, b in ranges], dtype=torch.bool)
    pooled = _sums(_sums(weights.double().T, ranges).T, ranges) / _counts(ranges, 2)  # queries without tokens: NaN
    pooled[:, empty] = math.nan
    if mask is not None:
        seen = _sums(_sums((mask > MASKED).double().T, ranges).T, ranges)
        pooled[seen == 0] = math.nan
    return pooled.float()


def correlation(a: Tensor, b: Tensor) -> float:
    """Pearson's correlation of two similarity matrices (n, n), over the pairs of two different rows that both have.

    NaN where there are fewer than two pairs, or all are equal. Source: Kriegeskorte et al. 2008, "Representational
    similarity analysis".
    """
    if a.shape != b.shape:
        raise ValueError(f"the matrices have shapes {tuple(a.shape)} and {tuple(b.shape)}; pool both by the same parts")
    row, column = torch.triu_indices(len(a), len(a), 1)
    return measure.correlation(a[row, column], b[row, column]) if len(row) > 1 else math.nan


# --- where a tokenization can be cut ---------------------------------------------------------------------------------


def _content(tokens: Tokens) -> Range:
    """From the first to after the last token that comes from the text; all that is around was added."""
    own = [k for k, span in enumerate(tokens.spans) if span is not None]
    return (own[0], own[-1] + 1) if own else (len(tokens), len(tokens))


def _places(tokens: Tokens, data: bytes, first: int, stop: int) -> tuple[Ints, Ints]:
    """The first byte of each token of the text, and that after its last: (n,), (n,).

    Several byte tokens share the span of their character: where their bytes are the text's, each has its own place.
    """
    code = np.frombuffer(tokens.text.encode("utf-32-le"), np.uint32)
    byte = np.concatenate(([0], np.cumsum(1 + (code > 0x7F) + (code > 0x7FF) + (code > 0xFFFF))))  # of each character
    nowhere = (len(tokens.text), 0)  # an added token amid the text limits nothing
    spans = np.array([span or nowhere for span in tokens.spans[first:stop]], np.int64).reshape(-1, 2)
    starts, stops = byte[spans[:, 0]], byte[spans[:, 1]]
    for group in tokens.groups:
        if group.span is None or group.stop - group.start < 2:
            continue
        raw = tokens.bytes[group.start : group.stop]
        begin = int(byte[group.span[0]])
        if b"".join(raw) == data[begin : byte[group.span[1]]]:
            edges = begin + np.cumsum([0, *map(len, raw)])
            starts[group.start - first : group.stop - first] = edges[:-1]
            stops[group.start - first : group.stop - first] = edges[1:]
    return starts, stops


def _with_tokens(cuts: Ints, at: Ints) -> tuple[Ints, Ints]:
    """Without the cuts that end a stretch in which nobody has a token: it belongs to what follows, or comes last."""
    total = at.sum(axis=0)
    kept = np.flatnonzero(np.concatenate(([True], np.diff(total) > 0)))
    if kept[-1] != len(cuts) - 1:
        kept = np.append(kept[:-1] if len(kept) > 1 else kept, len(cuts) - 1)
    return cuts[kept], at[:, kept]


def _sums(values: Tensor, ranges: Sequence[Range]) -> Tensor:
    """The sum over each of some ranges that follow one another: (seq, ...) -> (parts, ...)."""
    counts = torch.tensor([b - a for a, b in ranges], dtype=torch.int64)
    part = torch.arange(len(ranges)).repeat_interleave(counts)  # of each token
    first = ranges[0][0] if ranges else 0
    out = values.new_zeros(len(ranges), *values.shape[1:])
    return out.index_add_(0, part, values[first : first + len(part)])


def _counts(ranges: Sequence[Range], axes: int) -> Tensor:
    """How many tokens each range has, NaN for none: (parts, 1, ...)."""
    counts = torch.tensor([b - a or math.nan for a, b in ranges], dtype=torch.float64)
    return counts.reshape(-1, *[1] * (axes - 1))


def _same(one: tuple[Any, ...], two: tuple[Any, ...], tolerance: float) -> bool:
    if not tolerance or len(one) != len(two):
        return one == two
    return all(math.isclose(a, b, rel_tol=tolerance) for a, b in zip(one, two, strict=True))
