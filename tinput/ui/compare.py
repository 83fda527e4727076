"""Several models and one text: the columns, what is common to them, and the same picture of each, linked.

A `Together` is the first column's page, so that it is shown and exported as every page is, and knows the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from tinput import figures, measure
from tinput.align import Alignment, Part, correlation, pool, pool_weights
from tinput.figures import Ruler
from tinput.positions import Add, Bias, Content, Rotate
from tinput.ui import given, kit, literal, words

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from torch import Tensor

    from tinput.positions import Effect

__all__ = ["Column", "Seen", "Together"]

NOTHING = Alignment((), (), (), 0)
ROUNDING = 1e-6  # of the largest singular value: what is smaller is float32's noise


@dataclass(frozen=True, eq=False)
class Column:
    """One model of a comparison. page: the text through it; name: what it is called here, unlike all others"""

    page: kit.Page
    name: str
    stack: str | None = None

    @cached_property
    def inputs(self) -> Tensor | None:
        """The block input, (seq, width); None where its rows are no tokens."""
        values = self.page.matrix(self.page.trace.block_input)
        return values if len(values) == self.page.seq else None


@dataclass(frozen=True, eq=False)
class Together(kit.Page):
    """The text through all columns. common: the alignment of their tokens; first, stop: which of its parts are shown"""

    columns: tuple[Column, ...] = ()
    common: Alignment = NOTHING
    first: int = 0
    stop: int = 0

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def unit(self) -> str:
        """What a row is called: a token where each part of the text is one in every column, else a part."""
        alone = all(stop - start == 1 for part in self.common.parts for start, stop in part.tokens)
        return "token" if alone else "part"

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that are shown."""
        return self.common.parts[self.first : self.stop]

    @property
    def part_labels(self) -> Sequence[str]:
        return self.common.labels[self.first : self.stop]

    def ranges(self, number: int) -> list[tuple[int, int]]:
        """The tokens of one column for each part shown."""
        return [part.tokens[number] for part in self.parts]

    def ruler(self, chosen: Sequence[int]) -> Ruler:
        """Tokens of some columns, aligned."""
        pages = [self.columns[k].page for k in chosen]
        return Ruler(
            self.part_labels, [self.ranges(k) for k in chosen], [p.labels for p in pages], [p.place for p in pages],
            self.first,
        )  # fmt: skip

    @property
    def note(self) -> str:
        """What is left out of the pictures, if anything."""
        every = len(self.common.parts)
        shown = self.stop - self.first
        return f"{self.unit}s {self.first:,} to {self.stop - 1:,} of {every:,}" if shown < every else ""

    @property
    def source(self) -> dict[str, object]:
        first = super().source
        names = [f"{c.page.trace.model} ({c.page.trace.stack}, {c.page.seq:,} tokens)" for c in self.columns]
        return {**first, "model": ", ".join(names), "tokens": first["tokens"] if self.cut else "all"}

    def lines(self, prefix: str = "") -> str:  # noqa: ARG002 - the other models are in a list
        """Those that make `traces` and `common` out of `text`."""
        stacks = [column.stack for column in self.columns]
        pages = [column.page for column in self.columns]
        asked = [None if page.asked is None else page.asked.attention for page in pages]  # True: q and k too
        more = {"stack": ("stacks", stacks), "attention": ("asked", asked)}
        more = {option: named for option, named in more.items() if any(named[1])}
        options = "".join(f", {option}={name}[k]" for option, (name, _) in more.items())
        opened = [(page.name, page.key.revision) if page.key.revision else (page.name,) for page in pages]
        return "\n".join([
            f"names = {self.names!r}",
            f"models = [tinput.open_model(*each) for each in {opened!r}]",
            "tokens = [model.tokenize(text) for model in models]",
            f"lengths = {[page.seq for page in pages]!r}",
            *(f"{name} = {values!r}" for name, values in more.values()),
            f"traces = [models[k].trace(ids=tokens[k].ids[: lengths[k]]{options}) "
            "for k in range(len(models))]",
            "common = tinput.align.align(*tokens, lengths=lengths)",
            f"ranges = [common.ranges(k){self._window} for k in range(len(models))]",
            f"labels = common.labels{self._window}",
        ])  # fmt: skip

    @property
    def _window(self) -> str:
        return f"[{self.first}:{self.stop}]" if self.note else ""

    # --- where they part

    def apart(self, what: Callable[[Column], Sequence[Any]], tolerance: float = 0.0) -> int | None:
        """The number of the first part where something that each token has differs between any two columns."""
        return self.common.first_apart([what(column) for column in self.columns], tolerance=tolerance)

    def first_apart(self) -> list[str]:
        """Where pieces, ids, positions and norms first differ, in sentences."""
        different: dict[str, list[str]] = {}
        same = []
        for word, what, tolerance in (
            ("pieces", lambda c: c.page.tokens.pieces, 0.0),
            ("ids", lambda c: c.page.tokens.ids, 0.0),
            ("positions", lambda c: () if c.page.trace.positions is None else c.page.place, 0.0),
            ("norms", lambda c: () if c.inputs is None else measure.norms(c.inputs).tolist(), 1e-6),
        ):
            given_ = [what(column) for column in self.columns]
            if not all(len(values) == column.page.seq for values, column in zip(given_, self.columns, strict=True)):
                continue  # a model without positions has none that could differ
            found = self.common.first_apart(given_, tolerance=tolerance)
            if found is None:
                same.append(word)
            else:
                different.setdefault(f"{self.unit} {found}, {self.common.labels[found]}", []).append(word)
        said = [f"{_listed(what).capitalize()} first differ at {place}." for place, what in different.items()]
        return said + ([f"{_listed(same).capitalize()} are the same throughout."] if same else [])

    # --- by part, so that it can be compared

    @cached_property
    def similarities(self) -> list[Tensor | None]:
        """The cosine of each part's mean block input with each, (parts, parts); None where rows are no tokens."""
        return [
            None if column.inputs is None else measure.cosine(pool(column.inputs, self.ranges(k)))
            for k, column in enumerate(self.columns)
        ]

    @cached_property
    def norms(self) -> dict[str, Tensor]:
        """The norms of the block input, each part's mean: name -> (parts,)."""
        return {
            column.name: pool(measure.norms(column.inputs), self.ranges(k))
            for k, column in enumerate(self.columns)
            if column.inputs is not None
        }

    @cached_property
    def spectra(self) -> dict[str, Tensor]:
        """The singular values of the block input over the largest, without those that are rounding: name -> (n,)."""
        found = {}
        for column in self.columns:
            if column.inputs is not None:
                page = column.page
                key = (*page.key, page.text, column.stack or "", page.seq, "block input")
                values = given.looked_at(key, "singular values", column.inputs, page.positions)
                values = values[values > ROUNDING * values[0]]
                if len(values):
                    found[column.name] = values / values[0]
        return found

    def weights(self, head: int | None) -> list[Tensor | None]:
        """First layer's attention from part to part, (parts, parts); head None: the mean over heads."""
        found: list[Tensor | None] = []
        for k, column in enumerate(self.columns):
            attention = column.page.trace.attention
            if attention is None or attention.weights.shape[-2:] != (column.page.seq, column.page.seq):
                found.append(None)
                continue
            chosen = range(attention.heads) if head is None else [head]
            total = torch.zeros(attention.weights.shape[-2:])
            for each in chosen:
                total += attention.weights[each].tensor().float()
            found.append(pool_weights(total / len(chosen), self.ranges(k), attention.mask[0].tensor()))
        return found

    def offer_attention(self) -> None:
        """For each column whose q and k were left out for their size: a sentence that says so, and a button."""
        for k, column in enumerate(self.columns):
            column.page.offers_attention(column.name, f"column {k}")

    def without_attention(self, weights: Sequence[Tensor | None]) -> list[str]:
        """Why columns have no attention weights, a sentence each; of those that can be read, `offer_attention` says."""
        return [
            f"{column.name} is not shown: {column.page.trace.attention_reason or 'its keys are not the tokens'}."
            for column, found in zip(self.columns, weights, strict=True)
            if found is None and not column.page.left_out
        ]

    @cached_property
    def correlations(self) -> dict[tuple[int, int], float]:
        """How alike the similarity matrices of two columns are: (number, number) -> r, the smaller number first."""
        return {
            (i, j): correlation(a, b)
            for i, a in enumerate(self.similarities)
            for j, b in enumerate(self.similarities)
            if i < j and a is not None and b is not None
        }

    def correlated(self) -> list[str]:
        """The same in a sentence."""
        found = {pair: r for pair, r in self.correlations.items() if not math.isnan(r)}
        if not found:
            return [f"There are too few {self.unit}s, or too equal ones, for a correlation."]
        said = {pair: f"{self.names[pair[0]]} and {self.names[pair[1]]}, r = {r:.3f}" for pair, r in found.items()}
        most, least = (choose(found, key=found.__getitem__) for choose in (max, min))
        if len(found) == 1:
            return [f"Over all pairs of different {self.unit}s, the two matrices correlate with r = {found[most]:.3f}."]
        return [f"Over all pairs of different {self.unit}s, most alike are {said[most]}, least {said[least]}."]

    def correlation_table(self) -> str:
        """HTML of all correlations, a row and a column a model."""
        pairs, count = self.correlations, len(self.columns)
        rows = [
            (self.names[i], *(f"{pairs[min(i, j), max(i, j)]:.3f}" if (min(i, j), max(i, j)) in pairs else ""
                              for j in range(count)))
            for i in range(count)
        ]  # fmt: skip
        return literal.table(("r", *self.names), rows, [False] * count)

    # --- pictures

    def picture(self, matrices: Sequence[Tensor | None], call: str, *, minus: bool, **options: Any) -> Seen:
        """Squares of parts by parts, linked; minus: of all but the first, less the first.

        call: Python of that of column k
        """
        chosen = [k for k, matrix in enumerate(matrices) if matrix is not None]
        shown = {k: matrix for k in chosen if (matrix := matrices[k]) is not None}
        return self._linked(shown, Ruler(self.part_labels, first=self.first), call, minus, square=True, **options)

    def block_inputs(self, minus: bool) -> Seen:
        """What enters the first block, token by token; minus: by part, less the first, where widths agree."""
        call = "traces[k].block_input.flatten(1)"
        if not minus:
            shown = {k: c.inputs for k, c in enumerate(self.columns) if c.inputs is not None}
            return self._linked(shown, self.ruler(list(shown)), call, False)
        first = self.columns[0].inputs
        pooled = {
            k: pool(c.inputs, self.ranges(k))
            for k, c in enumerate(self.columns)
            if c.inputs is not None and first is not None and c.inputs.shape[1] == first.shape[1]
        }
        call = "tinput.align.pool(traces[k].block_input.flatten(1), ranges[k])"
        return self._linked(pooled, Ruler(self.part_labels, first=self.first), call, True)

    def _linked(
        self, shown: dict[int, Tensor], ruler: Ruler, call: str, minus: bool, *, square: bool = False,
        names: Sequence[str] = (), **options: Any,
    ) -> Seen:  # fmt: skip
        """shown: column number -> matrix. call: Python of that of column k; names: the columns' if left out."""
        chosen, first = list(shown), shown.get(0)
        if minus:
            chosen = [k for k in chosen if k and first is not None]
            shown = {k: shown[k] - first for k in chosen if first is not None}
        if not chosen:
            return Seen(None, "", chosen)
        names = names or [self.names[k] for k in chosen]
        if minus:
            options = {**options, "value_title": "difference", "scale": "diverging", "limits": None, "quantile": 1.0}
        options = {name: value for name, value in options.items() if value not in (None, 1.0)}
        titles = {"row_title": self.unit, "column_title": self.unit} if square else (
            {"row_title": self.unit} if ruler.ranges is None else {}
        )  # fmt: skip
        titles = {**titles, **{k: options.pop(k) for k in ("row_title", "column_title") if k in options}}
        figure = figures.linked(
            list(shown.values()), names, ruler, ruler if square else None, **titles, **options,
            dtype=self.columns[chosen[0]].page.trace.dtype, note=self.note, large=kit.large(),
        )  # fmt: skip
        numbers = f"{chosen!r}" if len(chosen) < len(self.columns) else "range(len(models))"
        rulers = "tinput.figures.Ruler(labels)" if ruler.ranges is None else (
            f"tinput.figures.Ruler(labels, [ranges[k] for k in {numbers}], [tokens[k].labels for k in {numbers}])"
        )  # fmt: skip
        more = "".join(f", {name}={value!r}" for name, value in {**titles, **options}.items())
        code = (
            f"def matrix(k):\n    return {call}\n\n"
            f"shown = [matrix(k){' - matrix(0)' if minus else ''} for k in {numbers}]\n"
            f"ruler = {rulers}\n"
            f"tinput.figures.linked(shown, [names[k] for k in {numbers}], ruler{', ruler' if square else ''}{more})"
        )
        return Seen(figure, code, chosen)

    def effects(self, kind: type, instead: Sequence[tuple[str, Effect | None]]) -> dict[int, tuple[str, Effect]]:
        """What the columns inject of one kind: number -> (scheme, effect), the first of a column that has several.

        instead: for each column a what-if's scheme and effect; ("", None) for what was recorded
        """
        found = {}
        for k, (column, (scheme, effect)) in enumerate(zip(self.columns, instead, strict=True)):
            own = [] if scheme else [(item.scheme, item.effect) for item in column.page.trace.effects]
            each = next((pair for pair in own or [(scheme, effect)] if isinstance(pair[1], kind)), None)
            if each is not None:
                found[k] = each
        return found

    def named(self, number: int, scheme: str) -> str:
        """A column's name, with its what-if."""
        return self.names[number] + (f", as if {words.label(scheme)}" if scheme else "")

    def heads(self, effects: Iterable[tuple[str, Effect]]) -> int:
        """How many heads all of some effects on scores have; 0 where none of them is one."""
        scores = [effect.scores for _, effect in effects if isinstance(effect, Bias | Content)]
        return min((len(each) for each in scores if each is not None), default=0)

    def injected(
        self, effects: dict[int, tuple[str, Effect]], head: int, instead: Sequence[tuple[str, Effect | None]]
    ) -> Seen:
        """What some columns inject, all of one kind, token by token; a bias by one head.

        instead: as `effects` has it; a what-if is named so, and has no code, as no trace holds it
        """
        shown, options, square = {}, {}, False
        for k, (_, effect) in effects.items():
            page = self.columns[k].page
            if isinstance(effect, Add):
                shown[k] = page.matrix(effect.vectors)
            elif isinstance(effect, Rotate):
                shown[k] = effect.angles.double() % (2 * math.pi)
                options = {"column_title": "pair", "value_title": "angle (rad)", "scale": "cyclic"}
            elif isinstance(effect, Bias | Content) and effect.scores is not None:
                square = True
                shown[k] = _visible(page, effect.scores[head])
                options = {"row_title": "query", "column_title": "key", "value_title": "bias"}
        shown = {k: values for k, values in shown.items() if len(values) == self.columns[k].page.seq}
        if not shown:
            return Seen(None, "", [])
        call = _call(effects[next(iter(shown))][1], head)
        names = [self.named(k, instead[k][0]) for k in shown]
        seen = self._linked(shown, self.ruler(list(shown)), call, False, square=square, names=names, **options)
        return replace(seen, code="") if any(instead[k][0] for k in shown) else seen


@dataclass(frozen=True, eq=False)
class Seen:
    """A picture, the Python that makes it, and which columns are on it; without a figure there is nothing to show."""

    figure: Figure | None
    code: str
    chosen: list[int]


def _visible(page: kit.Page, scores: Tensor) -> Tensor:
    """A bias (query, key) without the cells that the model's mask hides."""
    attention = page.trace.attention
    if attention is None or attention.mask.shape[-2:] != scores.shape:
        return scores.float()
    return scores.float().masked_fill(attention.mask[0].tensor() < 0, -math.inf)


def _call(effect: Effect, head: int) -> str:
    """Python of what column k injects, of the same kind as `effect`."""
    kind = type(effect).__name__
    found = f"next(e.effect for e in traces[k].effects if type(e.effect).__name__ == {kind!r})"
    if isinstance(effect, Add):
        return f"{found}.vectors.flatten(1)"
    if isinstance(effect, Rotate):
        return f"{found}.angles.double() % 6.283185307179586"
    return f"{found}.scores[{head}].masked_fill(\n        traces[k].attention.mask[0].tensor() < 0, float('-inf'))"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
