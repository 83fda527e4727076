"""Models and traces, shared by all sessions, within bounds.

A key holds all that changes the result: the model's files (name, size, time of change), revision, text or ids,
positions, dtype, stack. Only plain values are keys: Streamlit hashes nested dataclasses by their fields alone, so two
of different class with equal fields would collide. What comes out is shared between threads: read it, never write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import streamlit as st
import torch

from tinput import measure
from tinput.open import Model, open_model
from tinput.tokens import vocabulary_labels

if TYPE_CHECKING:
    from tinput.models.files import Checkpoint
    from tinput.record import Trace
    from tinput.tokens import Tokens

__all__ = ["Key", "Stamp", "attention_bytes", "model", "nearest", "tokens", "trace"]

# A model is a map of files and a skeleton, little memory. A trace of 2,048 tokens at width 768 is about 50 MB.
MODELS, TRACES, TOKENS = 8, 16, 64

Stamp = tuple[tuple[str, int, int], ...]


class Key(NamedTuple):
    """What tells one opened model from another.

    stamp: of its files, or its commit; revision: the commit, for a model on the Hub; token: False to ask without one
    allow_pickle: whether weights that are pickles alone were asked for
    """

    name: str
    stamp: Stamp
    revision: str | None = None
    token: bool | None = None
    allow_pickle: bool = False


@st.cache_resource(max_entries=MODELS, show_spinner=False)
def model(key: Key, _found: Checkpoint | None = None) -> Model:
    """The opened model. _found: its files, where they are known already; the key says the same."""
    if _found is not None:
        return Model(_found, allow_pickle=key.allow_pickle)
    return open_model(key.name, key.revision, token=key.token, allow_pickle=key.allow_pickle)


@st.cache_resource(max_entries=TOKENS, show_spinner=False)
def tokens(key: Key, text: str) -> Tokens:
    """The text's tokens."""
    return model(key).tokenize(text)


@st.cache_resource(max_entries=TRACES, show_spinner=False)
def trace(
    key: Key,
    text: str | None,
    *,
    ids: tuple[int, ...] | None = None,
    positions: tuple[int, ...] | None = None,
    dtype: str | None = None,
    stack: str | None = None,
    attention: bool | None = None,
) -> Trace:
    """A trace of `text`, or of `ids`. What is None is left to the model."""
    given = {"text": text, "ids": ids, "positions": positions, "dtype": dtype, "stack": stack, "attention": attention}
    return model(key).trace(**{name: value for name, value in given.items() if value is not None})


@st.cache_data(max_entries=64, show_spinner=False)
def attention_bytes(key: Key, stack: str | None = None) -> int:
    """How many bytes q and k of the first attention layer take, where they are read over the network."""
    return model(key).attention_bytes(stack)


@st.cache_data(max_entries=256, show_spinner=False)
def nearest(key: Key, token_id: int, k: int) -> list[tuple[str, float]]:
    """The k tokens of the vocabulary nearest to one by cosine of their raw rows: (label, cosine), nearest first."""
    opened = model(key)
    vector = opened.embedding_rows(torch.tensor([token_id]))[0]
    found = measure.nearest(opened.embedding_rows, vector, k, count=opened.vocab_size, without=token_id)
    labels = vocabulary_labels(opened.tokenizer, found.index.tolist())
    return list(zip(labels, found.cosine.tolist(), strict=True))
