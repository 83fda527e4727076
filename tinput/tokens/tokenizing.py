"""A text and a tokenizer of either kind: its tokens, what each stage of the tokenizer did, a vocabulary's labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tinput.errors import BadText
from tinput.tokens import fast, slow
from tinput.tokens.result import Tokens, label_of

SURROGATE = re.compile("[\ud800-\udfff]")


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
    kept = fast.kept_of(tokenizer)
    if kept is None:
        return slow.tokens_of(tokenizer, text, add_special_tokens)
    return fast.tokens_of(kept, text, add_special_tokens)


def stages(tokenizer: Any, text: str) -> tuple[TokenStage, ...]:
    """What normaliser, pre-tokenizer, model and post-processor each make of a text.

    Added tokens typed in the text ("[CLS]") are taken out before the first of them, and pass through whole.
    Raises BadText as `tokenize` does.
    """
    check_text(text)
    kept = fast.kept_of(tokenizer)
    if kept is None:
        tokens = slow.tokens_of(tokenizer, text, True)
        what = f"{type(tokenizer).__name__} is Python code that does everything in one step"
        return (TokenStage("tokenizer", what, tokens.pieces),)
    backend = kept.backend
    plain, full = (backend.encode(text, add_special_tokens=special) for special in (False, True))
    taken = [
        (span, piece)
        for i, span, piece in zip(plain.ids, plain.offsets, plain.tokens, strict=True)
        if i in kept.added and fast.same(kept.added[i], text[slice(*span)])  # not for a piece that it lacks
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
    does = f"{_parts(backend.post_processor) or 'none'}: adds {extra or 'no'} special token{'' if extra == 1 else 's'}"
    return first, second, third, TokenStage("post-processor", does, whole)


def vocabulary_labels(tokenizer: Any, ids: Sequence[int]) -> tuple[str, ...]:
    """What to show for entries of the vocabulary, as `Tokens.labels` shows them; #id for an id without one."""
    kept = fast.kept_of(tokenizer)
    if kept is None:
        return tuple(label_of(piece) for piece in slow.pieces_of(tokenizer, ids))
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


def _parts(component: Any) -> str:
    """A component's class, and those of a sequence's members."""
    if component is None:
        return ""
    types = re.findall(r'"type":"(\w+)"', component.__getstate__().decode())
    return (
        ", ".join(dict.fromkeys(t for t in types if t not in ("Sequence", "String", "Regex")))
        or type(component).__name__
    )
