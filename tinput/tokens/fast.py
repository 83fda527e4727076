"""Fast tokenizers, those of the `tokenizers` library: a private copy of one, what its pieces spell, where they lie."""

from __future__ import annotations

import itertools
import re
import threading
import unicodedata
import weakref
from dataclasses import dataclass
from typing import Any

from tinput.tokens.result import BYTE_PIECE, Span, Tokens

UNDERLINE = "▁"  # SentencePiece's space, U+2581


@dataclass(frozen=True, eq=False)
class Kept:
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
_cache: weakref.WeakKeyDictionary[Any, Kept] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def kept_of(tokenizer: Any) -> Kept | None:
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
            limit(tokenizer),
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


def _keep(tokenizer: Any, backend: Any, state: tuple) -> Kept:
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
    return Kept(
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


def limit(tokenizer: Any) -> int | None:
    """The most tokens that the tokenizer's own settings speak of; transformers writes 1e30 for none."""
    named = getattr(tokenizer, "model_max_length", None)
    return int(named) if named is not None and named < 1e9 else None


def tokens_of(kept: Kept, text: str, add_special_tokens: bool) -> Tokens:
    """The tokens of a text that can be encoded, uncut and unpadded."""
    found = kept.backend.encode(text, add_special_tokens=add_special_tokens)
    ids, offsets = found.ids, found.offsets
    added = [sequence is None for sequence in found.sequence_ids]  # by the post-processor, not from the text
    pieces = [kept.backend.id_to_token(i) or surface for i, surface in zip(ids, found.tokens, strict=True)]
    unknown = [
        k
        for k, (i, piece, surface) in enumerate(zip(ids, pieces, found.tokens, strict=True))
        if not added[k]
        and (i == kept.unknown_id or not same(piece, surface))
        and not same(piece, text[slice(*offsets[k])])
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


def same(piece: str, surface: str) -> bool:
    """Whether an added token was typed: it may take the spaces beside it, and be matched after lower-casing."""
    return piece == surface or piece.strip().casefold() == surface.strip().casefold()


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
        until, covered = next(following), text[start:stop]
        if takes and end < start and text[end:start].isspace():
            start = end
        elif piece and not piece.strip(b" ") and covered and not covered.isspace() and UNDERLINE not in covered:
            stop = start  # a space put before the text: no part of it
        while start < stop < until and unicodedata.category(text[stop]) in ("Mn", "Me"):
            stop += 1
        spans.append((start, stop))
        end = max(end, stop)
    return spans
