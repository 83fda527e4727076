"""The twins' continuations of a text, as a page shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st
import torch

from tinput.errors import BadText
from tinput.twins import NAMES, extrapolate, reader
from tinput.twins.reader import Writing
from tinput.ui import kit, literal
from tinput.ui.extrapolate import scheme_of

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["NEW", "code", "html", "writing"]

NEW = 64  # tokens that each of the six writes
_TAIL = 24  # tokens of what was given that are shown


def _prompt(own: str | None, length: int) -> Tensor:
    """What is gone on from, (seq,) int64: the end of a text, or the novel's opening. Raises BadText."""
    ids = extrapolate.novel() if own is None else reader.encode(own)
    if len(ids) < length:
        count = f"{len(ids):,} token{'' if len(ids) == 1 else 's'}"
        then = "type more, choose fewer, or go on from the novel"
        raise BadText(f"The text at the left has {count}, and {length:,} are to be given: {then}.")
    return ids[:length] if own is None else ids[-length:]


@st.cache_resource(max_entries=16, show_spinner=False)
def writing(own: str | None, length: int, temperature: float, seed: int) -> Writing:
    """The six's continuations, kept for all sessions as far as they are written; own: a text, the novel if None."""
    return Writing(NAMES, _prompt(own, length), NEW, temperature, seed)


def html(found: Writing, *, of_the_novel: bool) -> str:
    """What each has written so far after the last words that it was given, and how the novel itself goes on."""
    tail = reader.decode(found.text[-_TAIL:])
    rows = []
    for name in NAMES:
        scheme, new = scheme_of(name), found.written.get(name, [])
        if name in found.refused:
            body = literal.paragraphs([found.refused[name]], "trouble")
        else:
            body = _written(tail, reader.decode(torch.tensor(new, dtype=torch.int64)))
        rows.append((literal.badge(scheme.LABEL, scheme.COLOUR), body))
    if not found.done:  # nothing is written yet: what is given once, not six times
        rows = [(literal.badge("given to each of the six", kit.GREY), _written(tail, ""))]
    if of_the_novel:
        real = extrapolate.novel()[len(found.text) : len(found.text) + NEW]
        rows.append((literal.badge("the novel itself", kit.GREY), _written(tail, reader.decode(real))))
    return "".join(f'<div class="continuation">{badge}{body}</div>' for badge, body in rows)


def _written(tail: str, new: str) -> str:
    return f'<p class="written"><span>… {_flowing(tail)}</span><b>{_flowing(new)}</b></p>'


def _flowing(text: str) -> str:
    """HTML in which lines end where they do; every other control character shows as its picture."""
    return "\n".join(map(literal.inline, text.split("\n")))


def code(own: bool, length: int, temperature: float, seed: int) -> str:
    """The Python that writes the same."""
    given = f"reader.encode(text)[-{length}:]" if own else f"extrapolate.novel()[:{length}]"
    return (
        "from tinput.twins import NAMES, extrapolate, reader\n\n"
        f"writing = reader.Writing(NAMES, {given}, {NEW}, {temperature}, {seed})\n"
        "while not writing.finished:\n    writing.advance()\n"
        "{name: reader.decode(torch.tensor(ids)) for name, ids in writing.written.items()}"
    ).replace("from tinput.twins", "import torch\nfrom tinput.twins", 1)
