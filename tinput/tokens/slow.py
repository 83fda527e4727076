"""Slow tokenizers, those that are Python code and keep no offsets: a span is found by looking for the piece."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from tinput.tokens.fast import UNDERLINE, limit
from tinput.tokens.result import Span, Tokens

_lock = threading.RLock()  # they make no promise about threads


def pieces_of(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The vocabulary's strings for some ids."""
    with _lock:
        return [str(piece) for piece in tokenizer.convert_ids_to_tokens(list(ids))]


def tokens_of(tokenizer: Any, text: str, add_special_tokens: bool) -> Tokens:
    """The tokens of a text; each piece is looked for in it from left to right."""
    with _lock:
        ids = list(tokenizer.encode(text, add_special_tokens=add_special_tokens))
        plain = list(tokenizer.encode(text, add_special_tokens=False)) if add_special_tokens else ids
        pieces = pieces_of(tokenizer, ids)
        specials = set(tokenizer.all_special_ids)
        unknown_id = getattr(tokenizer, "unk_token_id", None)
        most = limit(tokenizer)
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
    return Tokens(tuple(ids), tuple(pieces), tuple(raw), tuple(spans), special, text, tuple(unknown), most)


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
