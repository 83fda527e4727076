"""From what is typed as a model to one that is opened, and what to do where it cannot be.

A model on the Hub is pinned for a session at the commit that it had when it was first asked for. What failed is not
tried again by itself, since each try may take seconds: the page offers to.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st

from tinput.errors import BadModel, Pickled
from tinput.models import files
from tinput.models.sources import bytes_said
from tinput.ui import cache

if TYPE_CHECKING:
    from tinput.open import Model

__all__ = ["Asked", "again", "asked", "left_out", "opened", "pickled", "remember", "with_attention",
           "with_pickles"]  # fmt: skip

# What a session remembers, by the model's name as typed: a commit, a failure, and what was asked for besides.
_PINNED, _FAILED, _PICKLES, _ATTENTION = "pinned", "failed", "pickles", "q_and_k"
_READ_TOO = "Read q and k too"  # of the button


@dataclass(frozen=True)
class Asked:
    """What is asked for, with all that a thread without a session needs to open it.

    name, revision: as typed ("gpt2", "owner/name@revision"); loopback: whether this machine alone is served
    pickle: read weights that are pickles alone; attention: True to read q and k, None to read them if that is little
    """

    typed: str
    name: str
    revision: str | None
    loopback: bool
    pickle: bool
    attention: bool | None
    pinned: dict[str, files.Checkpoint]

    @property
    def may_take_long(self) -> bool:
        """Whether it may be read over the network."""
        return files.HUB_ID.fullmatch(self.name) is not None and files.bundled(self.name) is None


def asked(typed: str, loopback: bool) -> Asked:
    """What this session asks for by a name. Raises the BadModel with which it failed before, if nothing changed."""
    if (error := _of(_FAILED).get(typed)) is not None:
        raise error
    name, revision = (typed, None) if loopback and os.path.isdir(typed) else files.named(typed.strip())
    return Asked(
        typed,
        name,
        revision,
        loopback,
        pickle=typed in _of(_PICKLES),
        attention=True if typed in _of(_ATTENTION) else None,
        pinned=_of(_PINNED),
    )


def opened(what: Asked) -> tuple[cache.Key, Model]:
    """The model. Raises BadModel."""
    found = what.pinned.get(what.typed)
    if found is None:
        found = files.find(what.name, what.revision, typed=True, loopback=what.loopback)
        if found.hub is not None:
            what.pinned[what.typed] = found
    token = None if found.hub is None else found.hub.token
    key = cache.Key(found.name, found.stamp, found.revision, token, what.pickle)
    return key, cache.model(key, found)


def remember(typed: str, error: BadModel) -> None:
    """This model could not be opened: it is not tried again until `again` is pressed."""
    if files.HUB_ID.fullmatch(files.named(typed.strip())[0]):
        _of(_FAILED)[typed] = error.with_traceback(None)


def again(typed: str) -> None:
    """A button that tries a model again that could not be opened."""
    if typed in _of(_FAILED):
        st.button("Try again", on_click=_of(_FAILED).pop, args=(typed, None), key=f"again-{typed}", type="primary")


def with_pickles(typed: str, error: Pickled) -> None:
    """A button that reads weights which are pickles alone; the error says how large they are."""
    if typed not in _of(_PICKLES):
        help_ = "As tensors alone: no other object is made of what the file holds"
        st.button(
            _read(error), on_click=_add, args=(_PICKLES, typed), key=f"pickle-{typed}", type="primary", help=help_
        )


def pickled(error: Pickled) -> str:
    """That weights are pickles alone, and what to press, in a sentence."""
    return f"{error.fact}: press “{_read(error)}”, which {error.then}."


def with_attention(typed: str, size: int, place: str) -> None:
    """A button that reads q and k of the first attention layer too. size: bytes, said first.

    place: one page may offer it for one model at several places
    """
    label = f"{_READ_TOO}: {bytes_said(size)}"
    st.button(label, on_click=_add, args=(_ATTENTION, typed), key=f"attention-{place}-{typed}", type="tertiary",
              icon=":material/download:")  # fmt: skip


def left_out(name: str, size: int, *, press: bool = True) -> str:
    """That a model's q and k were not read, why, and what to press, in a sentence. press: False for paper"""
    fact = f"q and k of {name} were left out for their size ({bytes_said(size)})"
    return f"{fact}: press “{_READ_TOO}”." if press else f"{fact}."


def _read(error: Pickled) -> str:
    return f"Read it: {bytes_said(error.size)}" if error.size else "Read it"


def _of(what: str) -> dict[str, Any]:
    return st.session_state.setdefault(f"opening_{what}", {})


def _add(what: str, typed: str) -> None:
    _of(what)[typed] = True
