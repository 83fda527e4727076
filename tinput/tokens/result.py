"""What tokenizing gives: one entry a token, the stretches of text that they share, and how to show each of them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

Span = tuple[int, int]

LONGEST_LABEL = 32  # characters; longer ones end in an ellipsis
BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
BIDI = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)  # would turn the page around
NAMED = (
    {"\n": "⏎", "\t": "⇥", " ": "␣"}
    | {chr(n): chr(0x2400 + n) for n in range(32) if chr(n) not in "\n\t"}
    | {"\x7f": "␡"}
)


@dataclass(frozen=True)
class Flag:
    """Something a reader should know. kind: "double start", "unknown" or "cut"; index: the first token concerned."""

    kind: str
    message: str
    index: int
    indices: tuple[int, ...] = ()


@dataclass(frozen=True)
class Group:
    """Tokens start to stop (exclusive) that cover one stretch of text together; text: that stretch, or the piece of a
    token that stands for none."""

    start: int
    stop: int
    text: str
    span: Span | None


@dataclass(frozen=True)
class Tokens:
    """One entry a token in each tuple.

    ids; pieces: the vocabulary's strings; bytes: what each stands for, empty for a special token which was added
    spans: (start, end) in `text`, None for an added special token; special: whether it is one, added or typed
    unknown: the tokens for which the vocabulary had no piece
    """

    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    bytes: tuple[bytes, ...]
    spans: tuple[Span | None, ...]
    special: tuple[bool, ...]
    text: str = ""
    unknown: tuple[int, ...] = ()
    limit: int | None = None  # the tokenizer's own maximum, specials included, where it has one

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """What to show for each token, never blank: spaces and control characters visible, lone bytes as \\xf0."""
        return tuple(map(self._label, range(len(self.ids))))

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The tokens in groups that share characters, in order: the text of all groups prints each character once."""
        return tuple(_groups(self))

    @cached_property
    def flags(self) -> tuple[Flag, ...]:
        """Two start tokens, unknown pieces, more tokens than the tokenizer's own maximum."""
        return tuple(_flags(self))

    def _label(self, i: int) -> str:
        piece, raw = self.pieces[i], self.bytes[i]
        if self.special[i] or i in self._unknown or not raw:
            return label_of(piece)
        if piece.startswith("##") and raw == piece[2:].encode(errors="surrogatepass"):
            return _crop(_visible(piece))
        try:
            return _crop(_visible(raw.decode()))
        except UnicodeDecodeError:
            return piece if BYTE_PIECE.fullmatch(piece) else _crop(_visible(raw.decode(errors="backslashreplace")))

    @cached_property
    def _unknown(self) -> frozenset[int]:
        return frozenset(self.unknown)


def _groups(tokens: Tokens) -> Iterator[Group]:
    start, span = 0, None

    def group(stop: int) -> Group:
        piece = "".join(tokens.pieces[start:stop])
        return Group(start, stop, piece if span is None else tokens.text[slice(*span)], span)

    for k, current in enumerate(tokens.spans):
        if k and span is not None and current is not None and span[0] < span[1] and current[0] < span[1]:
            span = (span[0], max(span[1], current[1]))  # shares a character with the group before
            continue
        if k:
            yield group(k)
        start, span = k, current
    if tokens.spans:
        yield group(len(tokens.spans))


def _flags(tokens: Tokens) -> Iterator[Flag]:
    ids, special = tokens.ids, tokens.special
    if len(ids) > 1 and ids[0] == ids[1] and special[0] and special[1]:
        who = "the tokenizer adds one and the text has its own" if tokens.spans[0] is None else "the text has both"
        yield Flag(
            "double start", f"There are two start tokens {tokens.pieces[0]}: {who}; the model sees both.", 1, (0, 1)
        )
    if tokens.unknown:
        k, span = tokens.unknown[0], tokens.spans[tokens.unknown[0]]
        what = tokens.text[slice(*span)] if span else tokens.pieces[k]
        count = len(tokens.unknown)
        more = "" if count == 1 else f" (and {count - 1:,} more)"
        yield Flag(
            "unknown",
            f"The vocabulary has no piece for {_crop(what)!r}{more}: the model sees {tokens.pieces[k]} in its place.",
            k,
            tokens.unknown,
        )
    if tokens.limit is not None and len(ids) > tokens.limit:
        yield Flag(
            "cut",
            f"The tokenizer's own maximum is {tokens.limit:,} tokens, and this text has {len(ids):,}: "
            "nothing is cut here, but a program that truncates would keep only the first.",
            tokens.limit,
            (tokens.limit,),
        )


def _visible(text: str) -> str:
    """Text in which every character can be seen: ␣, ⏎, ␀, a ring under a lone accent, U+200D for one without shape."""
    shown = []
    last = len(text) - 1
    for k, c in enumerate(text):
        kind = unicodedata.category(c)
        if c in NAMED:
            shown.append(NAMED[c])
        elif c in BIDI or c == "�" or kind in ("Cc", "Zl", "Zp", "Zs", "Cs", "Co", "Cn"):
            shown.append(f"U+{ord(c):04X}")
        elif kind == "Cf" or "\ufe00" <= c <= "\ufe0f":  # joiners and variation selectors do their work between others
            shown.append(c if k > 0 and (k < last or kind != "Cf") else f"U+{ord(c):04X}")
        elif kind in ("Mn", "Me") and k == 0:
            shown.append("◌" + c)
        else:
            shown.append(c)
    return "".join(shown)


def label_of(piece: str) -> str:
    """A piece of the vocabulary as it is shown: never blank, never long."""
    return _crop(_visible(piece) or "(empty)")


def _crop(text: str) -> str:
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"
