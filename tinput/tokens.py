"""From text to tokens: ids, pieces, bytes, spans, specials, and what each stage of the tokenizer did.

A piece is the vocabulary's own string ("Ġthe", "▁the", "##ing", "<0xF0>"); bytes are what it stands for; a span is
where it came from in the text. Several tokens may hold the bytes of one character: they share its span, and a `Group`
holds the text once. Nothing is ever cut or padded, and a tokenizer that others use is never changed: a private copy
of it is asked.
"""

from __future__ import annotations

import itertools
import re
import threading
import unicodedata
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tinput.errors import BadText

__all__ = ["Flag", "Group", "TokenStage", "Tokens", "stages", "tokenize", "vocabulary_labels"]

Span = tuple[int, int]

LONGEST_LABEL = 32  # characters; longer ones end in an ellipsis
SURROGATE = re.compile("[\ud800-\udfff]")
BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
UNDERLINE = "▁"  # SentencePiece's space, U+2581
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
            return _crop(_visible(piece) or "(empty)")
        if piece.startswith("##") and raw == piece[2:].encode(errors="surrogatepass"):
            return _crop(_visible(piece))
        try:
            return _crop(_visible(raw.decode()))
        except UnicodeDecodeError:
            return piece if BYTE_PIECE.fullmatch(piece) else _crop(_visible(raw.decode(errors="backslashreplace")))

    @cached_property
    def _unknown(self) -> frozenset[int]:
        return frozenset(self.unknown)


@dataclass(frozen=True)
class TokenStage:
    """What one stage of a tokenizer made of the text. what: the stage's parts, in words; pieces: the text after it."""

    name: str
    what: str
    pieces: tuple[str, ...]


def tokenize(tokenizer: Any, text: str, *, add_special_tokens: bool = True) -> Tokens:
    """The tokens of a text, as the tokenizer makes them (a transformers or a `tokenizers` one), uncut and unpadded.

    An empty text gives the special tokens alone, or none. Safe from many threads on one tokenizer.
    Raises BadText for a lone surrogate, which no encoding can hold, naming it and its index.
    """
    check_text(text)
    kept = _kept(tokenizer)
    if kept is None:
        return _slow(tokenizer, text, add_special_tokens)
    found = kept.backend.encode(text, add_special_tokens=add_special_tokens)
    ids, offsets = found.ids, found.offsets
    added = [sequence is None for sequence in found.sequence_ids]  # by the post-processor, not from the text
    pieces = [kept.backend.id_to_token(i) or surface for i, surface in zip(ids, found.tokens, strict=True)]
    unknown = [
        k
        for k, (i, piece, surface) in enumerate(zip(ids, pieces, found.tokens, strict=True))
        if not added[k]
        and (i == kept.unknown_id or not _same(piece, surface))
        and not _same(piece, text[slice(*offsets[k])])
    ]
    lost = set(unknown)
    raw = [
        b"" if added[k] else text[slice(*offsets[k])].encode() if k in lost else kept.bytes_of(i, piece)
        for k, (i, piece) in enumerate(zip(ids, pieces, strict=True))
    ]
    spans = _spans_by_bytes(raw, added, text) if kept.byte_level else None
    if spans is None:
        takes_spaces = [i in kept.lstrip or piece.startswith(b" ") for i, piece in zip(ids, raw, strict=True)]
        spans = _spans_by_offsets(offsets, raw, added, takes_spaces, text)
    return Tokens(
        tuple(ids),
        tuple(pieces),
        tuple(raw),
        tuple(spans),
        tuple(added[k] or (i in kept.special and k not in lost) for k, i in enumerate(ids)),
        text,
        tuple(unknown),
        kept.limit,
    )


def _same(piece: str, surface: str) -> bool:
    """Whether an added token was typed: it may take the spaces beside it, and be matched after lower-casing."""
    return piece == surface or piece.strip().casefold() == surface.strip().casefold()


def stages(tokenizer: Any, text: str) -> tuple[TokenStage, ...]:
    """What normaliser, pre-tokenizer, model and post-processor each make of a text.

    Added tokens typed in the text ("[CLS]") are taken out before the first of them, and pass through whole.
    Raises BadText as `tokenize` does.
    """
    check_text(text)
    kept = _kept(tokenizer)
    if kept is None:
        tokens = _slow(tokenizer, text, True)
        what = f"{type(tokenizer).__name__} is Python code that does everything in one step"
        return (TokenStage("tokenizer", what, tokens.pieces),)
    backend = kept.backend
    plain, full = (backend.encode(text, add_special_tokens=special) for special in (False, True))
    taken = [
        (span, piece)
        for i, span, piece in zip(plain.ids, plain.offsets, plain.tokens, strict=True)
        if i in kept.added and _same(kept.added[i], text[slice(*span)])  # not for a piece that it lacks
    ]
    split = f"; {len(taken)} added token(s) typed in the text are taken out first" if taken else ""

    from tokenizers import PreTokenizedString

    # the stretches between added tokens, each knowing its place: a Metaspace marks only the first as a start
    rest = PreTokenizedString(text)
    edges = [0, *(edge for span, _ in taken for edge in span), len(text)]
    cuts = [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]
    if taken:
        rest.split(lambda _, whole: [whole[a:b] for a, b in cuts])

    def now() -> tuple[str, ...]:
        parts = [(span[0], piece) for piece, span, _ in rest.get_splits("original", "char")] if cuts else []
        return tuple(
            piece for _, piece in sorted(parts + [(span[0], piece) for span, piece in taken], key=lambda p: p[0])
        )

    if backend.normalizer is not None and cuts:
        rest.normalize(backend.normalizer.normalize)
    first = TokenStage("normaliser", (_parts(backend.normalizer) or "none: the text stays as it is") + split, now())
    if backend.pre_tokenizer is not None and cuts:
        backend.pre_tokenizer.pre_tokenize(rest)
    second = TokenStage("pre-tokenizer", _parts(backend.pre_tokenizer) or "none: the model gets the whole text", now())
    model = type(backend.model).__name__
    size = f"{model}, {backend.get_vocab_size(True):,} pieces"
    pieces = tuple(backend.id_to_token(i) or surface for i, surface in zip(plain.ids, plain.tokens, strict=True))
    third = TokenStage("model", size, pieces)
    whole = tuple(backend.id_to_token(i) or surface for i, surface in zip(full.ids, full.tokens, strict=True))
    extra = len(full.ids) - len(plain.ids)
    does = f"{_parts(backend.post_processor) or 'none'}: adds {extra} special token(s)"
    return first, second, third, TokenStage("post-processor", does, whole)


def vocabulary_labels(tokenizer: Any, ids: Sequence[int]) -> tuple[str, ...]:
    """What to show for entries of the vocabulary, as `Tokens.labels` shows them; #id for an id without one."""
    kept = _kept(tokenizer)
    if kept is None:
        with _slow_lock:
            pieces = [str(piece) for piece in tokenizer.convert_ids_to_tokens(list(ids))]
        return tuple(_crop(_visible(piece) or "(empty)") for piece in pieces)
    names = [kept.backend.id_to_token(i) for i in ids]
    pieces = tuple(name if name is not None else f"#{i}" for i, name in zip(ids, names, strict=True))
    raw = tuple(b"" if name is None else kept.bytes_of(i, name) for i, name in zip(ids, names, strict=True))
    return Tokens(tuple(ids), pieces, raw, (None,) * len(ids), tuple(i in kept.special for i in ids)).labels


def check_text(text: str) -> None:
    """Raises BadText for what no tokenizer can take: a lone surrogate, with its index, or what is no string."""
    if not isinstance(text, str):
        raise BadText(f"The text is a {type(text).__name__}; give a string.")
    if found := SURROGATE.search(text):
        raise BadText(
            f"The text has half a character (the lone surrogate U+{ord(found[0]):04X}) at index {found.start()}, "
            "which cannot be encoded; remove it, or paste the text again."
        )


# ---- one tokenizer, as we keep it -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Kept:
    """A private copy of a fast tokenizer, without truncation and padding, and how its pieces spell bytes."""

    backend: Any  # tokenizers.Tokenizer
    state: tuple  # of the original when it was copied
    added: dict[int, str]  # id -> content
    lstrip: frozenset[int]  # those that take the spaces before them
    special: frozenset[int]
    unknown_id: int | None
    limit: int | None
    byte_level: bool  # pieces are GPT-2's printable stand-ins for bytes
    byte_fallback: bool  # "<0xF0>" is the byte F0
    underline: bool  # ▁ is a space
    prefix: str  # WordPiece's "##", taken off
    suffix: str  # "</w>", taken off

    def bytes_of(self, id_: int, piece: str) -> bytes:
        """What a piece stands for, as UTF-8."""
        if id_ in self.added:
            return self.added[id_].encode()
        if self.byte_fallback and (found := BYTE_PIECE.fullmatch(piece)):
            return bytes([int(found[1], 16)])
        piece = piece.removesuffix(self.suffix) if self.suffix else piece
        if self.byte_level:
            try:
                return bytes(BYTE_OF[c] for c in piece)
            except KeyError:  # a piece outside the alphabet stands for itself
                return piece.encode()
        if self.prefix and piece.startswith(self.prefix):
            piece = piece.removeprefix(self.prefix)
        return (piece.replace(UNDERLINE, " ") if self.underline else piece).encode()


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's stand-in characters: printable Latin-1 bytes are themselves, the rest follow from U+0100 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    rest = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + n): b for n, b in enumerate(rest)}


BYTE_OF = _byte_alphabet()
_cache: weakref.WeakKeyDictionary[Any, _Kept] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _kept(tokenizer: Any) -> _Kept | None:
    """What we know of a fast tokenizer, None for a slow one. Made anew when the original has changed."""
    from tokenizers import Tokenizer

    backend = tokenizer if isinstance(tokenizer, Tokenizer) else getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        return None
    with _lock:
        post = backend.post_processor
        split = bool(getattr(tokenizer, "split_special_tokens", False))
        state = (
            backend.get_vocab_size(True),
            None if post is None else post.__getstate__(),
            split,
            _limit(tokenizer),
        )
        kept = _cache.get(tokenizer)
        if kept is None or kept.state != state:
            kept = _cache[tokenizer] = _keep(tokenizer, backend, state)
        return kept


def _copy(backend: Any) -> Any:
    """The same tokenizer with settings of its own. The vocabulary is shared: 128,000 pieces are 40 MB."""
    from tokenizers import Tokenizer

    mine = Tokenizer(backend.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        setattr(mine, part, getattr(backend, part))
    added = backend.get_added_tokens_decoder()
    for special, run in itertools.groupby((added[i] for i in sorted(added)), lambda token: token.special):
        (mine.add_special_tokens if special else mine.add_tokens)(list(run))
    told = mine.get_added_tokens_decoder()
    if {i: repr(token) for i, token in told.items()} == {i: repr(token) for i, token in added.items()}:
        return mine
    return Tokenizer.from_str(backend.to_str())  # ids out of their order: only the whole file tells


def _keep(tokenizer: Any, backend: Any, state: tuple) -> _Kept:
    mine = _copy(backend)
    mine.no_truncation()  # files carry settings (all-MiniLM: cut and pad to 128) that transformers drops at each call
    mine.no_padding()
    mine.encode_special_tokens = state[2]
    added = mine.get_added_tokens_decoder()
    spelled = "".join(
        p.__getstate__().decode() for p in (mine.decoder, mine.pre_tokenizer, mine.normalizer) if p is not None
    )
    types = set(re.findall(r'"type":"(\w+)"', spelled))
    model = mine.model
    unknown = getattr(model, "unk_token", None)
    if unknown is None and type(model).__name__ == "Unigram":
        unknown = getattr(tokenizer, "unk_token", None)
    return _Kept(
        mine,
        state,
        {i: token.content for i, token in added.items()},
        frozenset(i for i, token in added.items() if token.lstrip),
        frozenset(i for i, token in added.items() if token.special),
        None if unknown is None else mine.token_to_id(str(unknown)),
        state[3],
        "ByteLevel" in types,
        "ByteFallback" in types or bool(getattr(model, "byte_fallback", False)),
        UNDERLINE in spelled or "Metaspace" in types,
        getattr(model, "continuing_subword_prefix", None) or "",
        getattr(model, "end_of_word_suffix", None) or "",
    )


def _limit(tokenizer: Any) -> int | None:
    """The most tokens that the tokenizer's own settings speak of; transformers writes 1e30 for none."""
    named = getattr(tokenizer, "model_max_length", None)
    return int(named) if named is not None and named < 1e9 else None


# ---- spans ------------------------------------------------------------------------------------------------------


def _spans_by_bytes(raw: list[bytes], added: list[bool], text: str) -> list[Span | None] | None:
    """Spans where the tokens' bytes are the text's bytes, one for one; None where they are not (a normaliser)."""
    data = text.encode()
    if b"".join(raw) != data:
        return None
    char = (
        range(len(data)) if len(data) == len(text) else [k for k, c in enumerate(text) for _ in range(len(c.encode()))]
    )
    spans: list[Span | None] = []
    at = 0
    for piece, extra in zip(raw, added, strict=True):
        if extra:
            spans.append(None)
            continue
        start = char[at] if at < len(data) else len(text)
        at += len(piece)
        spans.append((start, char[at - 1] + 1) if piece else (start, start))
    return spans


def _spans_by_offsets(
    offsets: list[Span], raw: list[bytes], added: list[bool], takes_spaces: list[bool], text: str
) -> list[Span | None]:
    """The tokenizer's own offsets, with what they leave out though it belongs to a token: the spaces before it where it
    `takes_spaces` (trimmed off), and the accents after a letter (stripped)."""
    starts = [start for (start, _), extra in zip(offsets, added, strict=True) if not extra]
    following = iter([*starts[1:], len(text)])
    spans: list[Span | None] = []
    end = 0
    for (start, stop), piece, extra, takes in zip(offsets, raw, added, takes_spaces, strict=True):
        if extra:
            spans.append(None)
            continue
        limit, covered = next(following), text[start:stop]
        if takes and end < start and text[end:start].isspace():
            start = end
        elif piece and not piece.strip(b" ") and covered and not covered.isspace() and UNDERLINE not in covered:
            stop = start  # a space put before the text: no part of it
        while start < stop < limit and unicodedata.category(text[stop]) in ("Mn", "Me"):
            stop += 1
        spans.append((start, stop))
        end = max(end, stop)
    return spans


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


# ---- what to say and to show --------------------------------------------------------------------------------------


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


def _crop(text: str) -> str:
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


def _parts(component: Any) -> str:
    """A component's class, and those of a sequence's members."""
    if component is None:
        return ""
    types = re.findall(r'"type":"(\w+)"', component.__getstate__().decode())
    return (
        ", ".join(dict.fromkeys(t for t in types if t not in ("Sequence", "String", "Regex")))
        or type(component).__name__
    )


# ---- tokenizers that are Python code ------------------------------------------------------------------------------

_slow_lock = threading.Lock()  # they make no promise about threads


def _slow(tokenizer: Any, text: str, add_special_tokens: bool) -> Tokens:
    """A tokenizer without offsets: spans are found by looking for each piece in the text, from left to right."""
    with _slow_lock:
        ids = list(tokenizer.encode(text, add_special_tokens=add_special_tokens))
        plain = list(tokenizer.encode(text, add_special_tokens=False)) if add_special_tokens else ids
        pieces = [str(p) for p in tokenizer.convert_ids_to_tokens(ids)]
        specials = set(tokenizer.all_special_ids)
        unknown_id = getattr(tokenizer, "unk_token_id", None)
        limit = _limit(tokenizer)
    ahead = next((k for k in range(len(ids) - len(plain) + 1) if ids[k : k + len(plain)] == plain), 0)
    spans: list[Span | None] = []
    raw: list[bytes] = []
    unknown: list[int] = []
    end = 0
    for k, (i, piece) in enumerate(zip(ids, pieces, strict=True)):
        if not ahead <= k < ahead + len(plain):
            spans.append(None)
            raw.append(b"")
            continue
        surface = piece.replace(UNDERLINE, " ").removeprefix("##").removesuffix("</w>").removesuffix("@@")
        start, width = _look(surface, text, end)
        if i == unknown_id and text[start : start + len(piece)] != piece:
            unknown.append(k)
        spans.append((start, start + width))
        raw.append(surface.encode(errors="replace"))
        end = start + width
    special = tuple(i in specials or s is None for i, s in zip(ids, spans, strict=True))
    return Tokens(tuple(ids), tuple(pieces), tuple(raw), tuple(spans), special, text, tuple(unknown), limit)


def _look(surface: str, text: str, end: int) -> Span:
    """(start, width) of the next place of a piece in the text; (end, 0) if it is not found near."""
    near = text[end : end + len(surface) + 64]
    for wanted in (surface, surface.lstrip()):
        at = near.find(wanted)
        if at < 0 and len(near.lower()) == len(near):
            at = near.lower().find(wanted.lower())
        if wanted and at >= 0:
            return end + at, len(wanted)
    return end, 0
