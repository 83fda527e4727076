"""Models and traces, shared by all sessions, within bounds.

A key holds all that changes the result: the model's files (name, size, time of change), revision, text or ids,
positions, dtype, stack. Only plain values are keys: Streamlit hashes nested dataclasses by their fields alone, so two
of different class with equal fields would collide. What comes out is shared between threads: read it, never write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st
import torch

from tinput import measure
from tinput.open import open_model
from tinput.tokens import vocabulary_labels

if TYPE_CHECKING:
    from tinput.open import Model
    from tinput.record import Trace
    from tinput.tokens import Tokens

__all__ = ["Stamp", "model", "nearest", "tokens", "trace"]

# A model is a map of files and a skeleton, little memory. A trace of 2,048 tokens at width 768 is about 50 MB.
MODELS, TRACES, TOKENS = 8, 16, 64

Stamp = tuple[tuple[str, int, int], ...]


@st.cache_resource(max_entries=MODELS, show_spinner=False)
def model(name: str, stamp: Stamp, revision: str | None = None) -> Model:  # noqa: ARG001 - the stamp is for the key
    """The opened model."""
    return open_model(name, revision=revision)


@st.cache_resource(max_entries=TOKENS, show_spinner=False)
def tokens(name: str, stamp: Stamp, text: str, revision: str | None = None) -> Tokens:
    """The text's tokens."""
    return model(name, stamp, revision).tokenize(text)


@st.cache_resource(max_entries=TRACES, show_spinner=False)
def trace(
    name: str,
    stamp: Stamp,
    text: str | None,
    *,
    ids: tuple[int, ...] | None = None,
    positions: tuple[int, ...] | None = None,
    dtype: str | None = None,
    stack: str | None = None,
    revision: str | None = None,
) -> Trace:
    """A trace of `text`, or of `ids`. What is None is left to the model."""
    given = {"text": text, "ids": ids, "positions": positions, "dtype": dtype, "stack": stack}
    return model(name, stamp, revision).trace(**{key: value for key, value in given.items() if value is not None})


@st.cache_data(max_entries=256, show_spinner=False)
def nearest(name: str, stamp: Stamp, token_id: int, k: int, revision: str | None = None) -> list[tuple[str, float]]:
    """The k tokens of the vocabulary nearest to one by cosine of their raw rows: (label, cosine), nearest first."""
    opened = model(name, stamp, revision)
    vector = opened.embedding_rows(torch.tensor([token_id]))[0]
    found = measure.nearest(opened.embedding_rows, vector, k, count=opened.vocab_size, without=token_id)
    labels = vocabulary_labels(opened.tokenizer, found.index.tolist())
    return list(zip(labels, found.cosine.tolist(), strict=True))
