"""What a page is made of. A page asks one question; it holds words and controls, no maths and no plotly:

    from tinput import figures, measure
    from tinput.positions import alibi
    from tinput.ui import kit

    page = kit.start("How does a score fall with distance?", about=alibi)  # question, tokens, badges, or what to do
    bias = page.trace.effect.scores
    with kit.panel("The bias of one head") as panel:                       # the picture's column; words go beside it
        head = kit.number("Head", key="head", high=len(bias) - 1)          # in the address bar, above its picture
        figure = figures.heatmap(bias[head], rows=page.labels, columns=page.labels, large=kit.large())
        page.show(figure, "alibi-bias", code=f"tinput.figures.heatmap(trace.effect.scores[{head}])")
        panel.say(*alibi.notice(page.trace.effect, page.positions), formula=alibi.FORMULA)

`kit.start` ends the page by itself when there is nothing to show (no text, a model that cannot be opened). Controls
are `choose`, `toggle`, `number`, `slider`, `token`, `query_and_key`: each is bound to the address bar under its `key`,
so keys are short, unique over all pages unless the control means the same on each, and a default never depends on the
model. Choose the picture with `kit.choose`, not with tabs: tabs send every picture. Literal text goes through
`kit.sentences`, `kit.note` or `panel.say`, never through Markdown. `page.what_if(scheme)` marks a page whose scheme
the model does not have. What is put on the screen through here is noted (`takeaway`), and stands in the page's one
file and its notebook; HTML of a page's own goes through `kit.html` for that, never straight to `st.html`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import streamlit as st

from tinput.errors import BadModel, NoWeights, Pickled, TinputError, TooLong
from tinput.record.sparing import FREE
from tinput.ui import badges, cache, configuration, literal, loading, opening, sources, takeaway, words
from tinput.ui.badges import GREY
from tinput.ui.controls import choose, line, model_choice, number, query_and_key, slider, toggle, token
from tinput.ui.place import Ended, Panel, columns, details, empty, html, note, panel, sentences, stop, trouble
from tinput.ui.shows import Shows, large, presenting

if TYPE_CHECKING:
    from torch import Tensor

    from tinput.open import Model
    from tinput.record import Trace
    from tinput.tokens import Tokens

__all__ = [
    "DEFAULT_TEXT",
    "GREY",
    "LIMIT",
    "Ended",
    "Page",
    "Panel",
    "Shows",
    "choose",
    "columns",
    "details",
    "empty",
    "header",
    "html",
    "large",
    "line",
    "may_type_paths",
    "model_choice",
    "note",
    "number",
    "open_page",
    "panel",
    "presenting",
    "query_and_key",
    "sentences",
    "slider",
    "start",
    "stop",
    "title",
    "toggle",
    "token",
    "trouble",
]

LIMIT = 2_048  # tokens that are traced; more would be minutes of work and no picture shows them
DEFAULT_TEXT = "The old man saw the young man, and the young man saw the old man."  # only order tells who saw whom
T = TypeVar("T")


# --- one text through one model ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Page(Shows):
    """One text through one model: what a page shows. Made by `start`.

    name: the model's name or folder; text: as typed; tokens: of what is traced; cut: what was left out, in a sentence
    """

    name: str
    model: Model
    text: str
    tokens: Tokens
    trace: Trace
    cut: str = ""
    ids: tuple[int, ...] | None = None
    key: cache.Key = field(default=cache.Key("", ()), repr=False)
    asked: opening.Asked | None = field(default=None, repr=False)

    @property
    def labels(self) -> Sequence[str]:
        """What to call each token, literal, one a token. Figures escape them."""
        return self.tokens.labels

    @property
    def seq(self) -> int:
        """How many tokens are traced."""
        return len(self.tokens.ids)

    @cached_property
    def positions(self) -> Tensor:
        """(seq,) int64: the positions that the model used; counted from 0 where it uses none."""
        import torch

        found = self.trace.positions
        return torch.arange(self.seq) if found is None else found

    def effect_of(self, kind: type[T]) -> T | None:
        """The first recorded effect of a kind (Add, Rotate, Bias ...), or None."""
        return next((item.effect for item in self.trace.effects if isinstance(item.effect, kind)), None)

    def has(self, scheme: str) -> bool:
        """Whether the model uses the scheme, alone or among others."""
        return scheme in self.model.schemes

    @cached_property
    def left_out(self) -> int:
        """How many bytes the q and k take that were left out for their size; 0 where they were not."""
        remote = self.model.remote and self.asked is not None and self.asked.attention is None
        if not remote or self.trace.attention is not None:
            return 0
        size = cache.attention_bytes(self.key, self.trace.stack)
        return size if size > FREE else 0  # less would have been read: it has no attention to read

    def offers_attention(self, name: str = "", place: str = "page") -> bool:
        """Where q and k were left out for their size: say so, with a button that reads them. Else False.

        name: what the model is called here; place: ours, tells two such buttons of one page apart
        """
        if self.left_out and self.asked is not None:
            name = name or self.name
            sentences(opening.left_out(name, self.left_out), paper=opening.left_out(name, self.left_out, press=False))
            opening.with_attention(self.asked.typed, self.left_out, place)
        return bool(self.left_out)

    def retrace(
        self, *, positions: Sequence[int] | None = None, dtype: str | None = None, stack: str | None = None
    ) -> Trace:
        """The same text through the same model with something else set (cached)."""
        return cache.trace(
            self.key,
            None if self.ids is not None else self.text,
            ids=self.ids,
            positions=None if positions is None else tuple(int(position) for position in positions),
            dtype=dtype,
            stack=stack,
            attention=None if self.asked is None else self.asked.attention,
        )

    def what_if(self, scheme: Any, learned_by: str = "") -> bool:
        """Say that the model does not have this scheme (a module of `positions`); True when it does not.

        learned_by: the other model whose learned numbers are shown, since no formula gives them
        """
        if self.has(scheme.NAME) and not learned_by:
            return False
        own = " and ".join(words.label(name) for name in self.model.schemes)
        shown = f"what {scheme.LABEL} would do at its sizes"
        if learned_by:
            own += ", in no single table" if self.has(scheme.NAME) else ""
            shown = f"what {learned_by} learned: no formula gives such numbers"
        html(
            f'<div class="whatif">{literal.inline("What if: ")}<b>{literal.inline(self.name)}</b>'
            f"{literal.inline(f' has {own}. The pictures show {shown}.')}</div>"
        )
        return True

    @property
    def place(self) -> list[int]:
        """`positions` as plain numbers, for a figure's hover boxes."""
        return self.positions.tolist()

    def matrix(self, values: Tensor) -> Tensor:
        """Recorded values as rows and columns, (seq, width): what a model keeps in more axes is laid side by side."""
        return values.flatten(1) if values.ndim > 1 and len(values) == self.seq else values.reshape(1, -1)

    def rows(self, values: Tensor) -> Sequence[str] | None:
        """The token labels for rows of a matrix, or None where a row is no token."""
        return self.labels if len(values) == self.seq else None

    @property
    def dtype_note(self) -> str:
        """In which dtype the numbers are, and in which the checkpoint holds them."""
        return f"Run in {self.trace.dtype}; the checkpoint holds {self.trace.checkpoint_dtype}."

    @property
    def source(self) -> dict[str, object]:
        """Where the numbers are from: the first lines of each export."""
        trace = self.trace
        versions = ", ".join(f"{name} {version}" for name, version in trace.versions.items())
        return {
            "model": trace.model,
            "revision": trace.revision or "none",
            "dtype": f"{trace.dtype} (checkpoint: {trace.checkpoint_dtype})",
            "versions": versions,
            "tokens": f"{self.seq}{f' ({self.cut})' if self.cut else ''}",
        }

    @property
    def code(self) -> str:
        """The lines of Python that make `model`, `text`, `trace` and `labels`, as they run in a notebook."""
        if len(self.text) <= 4_000:
            return self.preamble
        text = 'text = open("text.txt", encoding="utf-8").read()  # the text of the sidebar, saved'
        return f"import tinput\n\n{text}\n{self.lines()}"

    @property
    def preamble(self) -> str:
        """The same with the text whole, however long it is."""
        return f"import tinput\n\ntext = {self.text!r}\n{self.lines()}"

    def lines(self, prefix: str = "") -> str:
        """Those that make `model`, `trace` and `labels` out of `text`; a prefix tells a second model's apart."""
        at = "" if self.key.revision is None else f", revision={self.key.revision!r}"
        more = "" if self.asked is None or self.asked.attention is None else ", attention=True"
        lines = [f"{prefix}model = tinput.open_model({self.name!r}{at})"]
        if self.ids is None:
            lines.append(f"{prefix}trace = {prefix}model.trace(text{more})")
            lines.append(f"{prefix}labels = {prefix}trace.tokens.labels")
        else:
            lines.append(f"{prefix}tokens = {prefix}model.tokenize(text)")
            lines.append(f"{prefix}trace = {prefix}model.trace(ids={prefix}tokens.ids[:{len(self.ids)}]{more})")
            lines.append(f"{prefix}labels = {prefix}tokens.labels[:{len(self.ids)}]")
        return "\n".join(lines)

    def nearest(self, token: int, k: int = 12) -> list[tuple[str, float]]:
        """The k tokens of the vocabulary whose rows point most nearly where one token's does: (label, cosine)."""
        return cache.nearest(self.key, int(self.tokens.ids[token]), k)


def title(question: str) -> None:
    """The question that a page asks, at its top. `start` does it too."""
    takeaway.current().question = question
    st.html(f'<h1 class="question">{literal.inline(question)}</h1>')


def start(question: str, *, about: Any = None, head: bool = True) -> Page:
    """The top of a page: the question, the tokens, the badges, and the text's trace through the chosen model.

    about: the scheme module (of `tinput.positions`) that the page is about; says so when the model does not have it.
    head: whether to show tokens and badges; a page of several models shows its own
    Ends the page with a sentence on what to do when there is no text or the model cannot take it.
    """
    title(question)
    place = st.empty()
    text = st.session_state.get("text", DEFAULT_TEXT)
    name = st.session_state.get("model") or sources.DEFAULT_MODEL
    page = open_page(name, text)
    if head:
        takeaway.current().add(takeaway.Setting("Model", page.name))
        top = header(page)
        with place.container():
            html(top)
            _offer_attention(page)
    if about is not None:
        page.what_if(about)
    return page


def open_page(name: str, text: str) -> Page:
    """`text` through the model `name`, or the page ends with what to do. For pages with a second model."""
    if not text.strip():
        st.html('<div class="empty"><p>Type a sentence at the left, or choose one of the examples there.</p></div>')
        stop()
    if loading.stopped(name):
        trouble(f"Reading {name} was stopped. What was read by then is kept.")
        loading.go_on()
        stop()
    try:
        asked = opening.asked(name, may_type_paths())
        work = lambda: _trace(asked, text)  # noqa: E731
        page = loading.run(name, work) if asked.may_take_long else work()
    except NoWeights as error:
        _without_weights(name, error)
        stop()
    except BadModel as error:
        opening.remember(name, error)
        trouble(str(error), "Choose another model, or correct its name: the text stays as it is.")
        opening.again(name)
        if said := configuration.of_architecture(error):
            html(said)
        stop()
    except TinputError as error:
        stop(str(error), "Change the text, or choose another model.")
    # As `_trace` asked for it: kept in the cache and not here, where each session would hold it.
    again = partial(cache.trace, page.key, None if page.ids else text, ids=page.ids, attention=asked.attention)
    takeaway.current().of(text, page.source, again)
    return page


def _offer_attention(page: Page) -> None:
    """A button that reads q and k of a model on the Hub, where they were left out for their size."""
    if page.left_out and page.asked is not None:
        opening.with_attention(page.asked.typed, page.left_out, "top")


def _without_weights(name: str, error: NoWeights) -> None:
    """What is left to show, and how to go on."""
    below = "What follows from the configuration alone is below."
    if isinstance(error, Pickled) and may_type_paths():  # gigabytes, on this person's own machine
        trouble(opening.pickled(error), below, paper=f"{error.fact}.")
        opening.with_pickles(name, error)
    else:
        trouble(str(error), below)
    _, model = opening.opened(opening.asked(name, may_type_paths()))
    shown = [badges.scheme(scheme, model.reason) for scheme in model.schemes]
    html(badges.row(*shown, badges.plain("from the configuration alone: nothing is recorded")))
    sentences(model.reason)
    configuration.draw_outline(model)
    if said := configuration.sizes(model.config):
        html(said)


def _trace(asked: opening.Asked, text: str) -> Page:
    key, model = opening.opened(asked)
    if model.no_weights is not None:
        raise model.no_weights
    tokens = cache.tokens(key, text)
    total, usable, why = len(tokens.ids), LIMIT, f"the app traces at most {LIMIT:,} tokens"
    ids = tuple(int(i) for i in tokens.ids[:usable]) if total > usable else None
    try:
        trace = cache.trace(key, None if ids else text, ids=ids, attention=asked.attention)
    except TooLong as error:
        if not 0 < error.usable < (len(ids) if ids else total):
            raise
        usable, why = error.usable, f"the model's position table ends after {error.usable:,}"
        ids = tuple(int(i) for i in tokens.ids[:usable])
        trace = cache.trace(key, None, ids=ids, attention=asked.attention)
    if ids is None:
        return Page(key.name, model, text, tokens, trace, key=key, asked=asked)
    cut = f"the first {len(ids):,} of {total:,} tokens: {why}"
    return Page(key.name, model, text, _first(tokens, len(ids)), trace, cut=cut, ids=ids, key=key, asked=asked)


def _first(tokens: Tokens, n: int) -> Tokens:
    """The first n tokens."""
    per_token = {name: getattr(tokens, name)[:n] for name in ("ids", "pieces", "bytes", "spans", "special")}
    return replace(tokens, unknown=tuple(i for i in tokens.unknown if i < n), **per_token)


def header(page: Page, *, strip: bool = True) -> str:
    """HTML of a text's tokens, its model's scheme and agreement as badges, and what was left out."""
    ids, positions = page.tokens.ids, page.place
    titles = [f"token {i} · id {ids[i]} · position {positions[i]}" for i in range(page.seq)]
    for i in page.tokens.unknown:  # its label is [UNK]: what it was stands in the hover text
        if span := page.tokens.spans[i]:
            titles[i] += f" · in the text: {page.tokens.text[slice(*span)]}"
    parts = [literal.strip(page.labels, titles, page.tokens.special)] if strip else []
    schemes = [badges.scheme(name, page.model.reason) for name in page.model.schemes]
    parts.append(badges.row(*schemes, badges.agreement(page.trace.agreement, page.trace.textbook_reason)))
    said = [f"Shown: {page.cut}."] if page.cut else []
    said += [*page.trace.notes, *(flag.message for flag in page.tokens.flags)]
    if said:
        parts.append(literal.paragraphs(said, "note"))
    return "".join(parts)


# --- this session -----------------------------------------------------------------------------------------------------


def may_type_paths() -> bool:
    """Whether this session may open any folder by its path: only while the server is this machine's alone."""
    from streamlit import config

    return sources.serves_this_machine_only(
        st.get_option("server.address"), getattr(config, "_server_mode", None), dict(st.context.headers)
    )
