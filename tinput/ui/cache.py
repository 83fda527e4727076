"""Models and traces, shared by all sessions, within bounds.

A key holds all that changes the result: the model's files (name, size, time of change), revision, text or ids,
positions, dtype, stack. Only plain values are keys: Streamlit hashes nested dataclasses by their fields alone, so two
of different class with equal fields would collide. What comes out is shared between threads: read it, never write.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

import tinput
from tinput.models import files

if TYPE_CHECKING:
    from tinput.models import Model
    from tinput.record import Trace
    from tinput.tokens import Tokens

__all__ = ["model", "stamp", "stamp_of", "tokens", "trace"]

# A model is a map of files and a skeleton, little memory. A trace of 2,048 tokens at width 768 is about 50 MB.
MODELS, TRACES, TOKENS = 8, 24, 64

Stamp = tuple[tuple[str, int, int], ...]


def stamp_of(folder: Path) -> Stamp:
    """(name, size, time of change in ns) of each file right in the folder."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.is_file():
            status = path.stat()
            found.append((path.name, status.st_size, status.st_mtime_ns))
    return tuple(found)


def stamp(name: str, revision: str | None = None) -> Stamp:
    """The stamp of a model's folder. Raises what `tinput.models.files.find` raises."""
    return stamp_of(files.find(name, revision).folder)


@st.cache_resource(max_entries=MODELS, show_spinner=False)
def model(name: str, files: Stamp, revision: str | None = None) -> Model:  # noqa: ARG001 - `files` is part of the key
    """The opened model."""
    return tinput.open_model(name, revision=revision)


@st.cache_resource(max_entries=TOKENS, show_spinner=False)
def tokens(name: str, files: Stamp, text: str, revision: str | None = None) -> Tokens:
    """The text's tokens."""
    return model(name, files, revision).tokenize(text)


@st.cache_resource(max_entries=TRACES, show_spinner=False)
def trace(
    name: str,
    files: Stamp,
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
    return model(name, files, revision).trace(**{key: value for key, value in given.items() if value is not None})
