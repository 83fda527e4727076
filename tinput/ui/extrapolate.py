"""How well the twins read on, as a page shows it: their curves, bundled or computed here, in pictures and words."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import streamlit as st

from tinput import figures
from tinput.errors import TinputError
from tinput.positions import SCHEMES
from tinput.twins import NAMES, TwinConfig, extrapolate, folder, reader
from tinput.twins.extrapolate import BIN, Curve, Losses, Plan
from tinput.twins.reader import Variant
from tinput.ui import kit, literal

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = [
    "FORMULA",
    "SOURCES",
    "Measured",
    "Source",
    "band",
    "changeable",
    "curves",
    "how",
    "of_the_twins",
    "picture",
    "said",
    "scheme_of",
    "source",
    "too_long",
    "what_if",
]

NOVEL, AGAIN, OWN = "the novel", "the novel, live", "your text"  # bundled numbers; the same computed here; at the left
SOURCES = (NOVEL, AGAIN, OWN)
_OWN_WINDOWS = 8
FORMULA = (
    r"\ell_L = \frac{-\sum_t \ln p(x_t \mid x_{t-k} \dots x_{t-1})}{\sum_t \mathrm{bytes}(x_t)}, \quad"
    r" \tfrac{L}{2} \le k < L"
)
_HOW = {
    True: "At length L, each token is predicted from at least L/2 and fewer than L tokens before it, numbered from 0. "
    "The same tokens are predicted at every length, by every model.",
    False: f"All tokens of the longest windows, by their place; a point is the mean over {BIN} positions.",
}
_ORIGIN = (
    "The novel: the opening of Pride and Prejudice, which none was trained on. Its numbers are bundled ({}); “live” "
    "computes them here."
)


@functools.cache
def scheme_of(name: str) -> Any:
    """The scheme's module of a bundled model; reads no weights."""
    return SCHEMES[TwinConfig.from_pretrained(folder(name)).scheme]


# --- the numbers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Source:
    """Which text is read, and the plan for it; `trouble` says why there is none."""

    name: str
    plan: Plan | None
    text: str = ""
    trouble: str = ""

    @property
    def what(self) -> str:
        """The text, in words."""
        return "your text" if self.name == OWN else "the held-out novel"

    @property
    def code(self) -> str:
        """The Python that makes `plan`, and loads what is bundled as `curves`."""
        ids = f"reader.encode(text), windows={_OWN_WINDOWS}" if self.name == OWN else "extrapolate.novel()"
        loaded = "curves = extrapolate.load()\n" if self.name == NOVEL else ""
        return (
            "import math\n\nfrom tinput import figures\nfrom tinput.positions import SCHEMES\n"
            "from tinput.twins import NAMES, extrapolate, reader\n\n"
            f"plan = extrapolate.plan({ids})\n{loaded}"
        )

    def curve(self, bundled: bool) -> str:
        """The Python that is the curve of `variant`; bundled: whether all that are asked for are."""
        measured = "extrapolate.measure(variant, plan)"
        if self.name != NOVEL:
            return measured
        return "curves[variant]" if bundled else f"(curves.get(variant) or {measured})"


def source(name: str, text: str) -> Source:
    """One of SOURCES, with a plan where its text is long enough."""
    own = text if name == OWN else ""
    try:
        return Source(name, _plan(own), own)
    except TinputError as error:
        return Source(name, None, trouble=str(error))


@st.cache_resource(max_entries=8, show_spinner=False)
def _plan(own: str) -> Plan:
    if own:
        return extrapolate.plan(reader.encode(own), windows=_OWN_WINDOWS)
    return extrapolate.plan(extrapolate.novel())


@st.cache_resource(max_entries=64, show_spinner=False)
def _losses(name: str, change: str, factor: int, own: str) -> Losses:
    return Losses(Variant(name, change, factor), _plan(own))


def curves(found: Source, variants: Sequence[Variant]) -> tuple[dict[Variant, Curve], list[Losses]]:
    """What is known of each variant on a text, and the jobs that compute it; no job for what is bundled."""
    kept = extrapolate.load() if found.name == NOVEL else {}
    jobs = {one: _losses(one.name, one.change, one.factor, found.text) for one in variants if one not in kept}
    return {one: kept.get(one) or jobs[one].curve() for one in variants}, list(jobs.values())


def changeable() -> dict[str, str]:
    """The twins of which something can be changed: label -> name."""
    return {scheme_of(name).LABEL: name for name in reader.CHANGES}


def what_if(name: str, factor: int) -> str:
    """What is changed about a model, in a sentence."""
    return f"{name} is read in ways that it was not trained for. {reader.ABOUT[name].format(factor=factor)}"


def how(found: Source, by_length: bool) -> str:
    """What a point of the curves is, and where the numbers are from."""
    origin = "" if found.name == OWN else f" {_ORIGIN.format(extrapolate.versions())}"
    return _HOW[by_length] + origin


def too_long(known: Mapping[Variant, Curve]) -> str:
    """What a model says itself where it could not read on; empty where all could."""
    return next((curve.too_long for curve in known.values() if curve.too_long), "")


# --- in a picture and in words ----------------------------------------------------------------------------------------


def _values(known: Mapping[Variant, Curve], by_length: bool, bits: bool) -> dict[str, list[float]]:
    """A line for each variant, by what it is called; NaN where there is no number."""
    changed = any(variant.change for variant in known)
    unit = math.log(2) if bits else 1.0
    found = {}
    for variant, curve in known.items():
        name = variant.words if changed else scheme_of(variant.name).LABEL
        line = curve.by_length if by_length else curve.by_position
        found[name] = [math.nan if one is None else one / unit for one in line]
    return found


def picture(found: Source, known: Mapping[Variant, Curve], *, by_length: bool, bits: bool) -> tuple[Figure | None, str]:
    """The curves of some variants, and the Python that makes them; no picture while nothing is computed.

    by_length: a point for each length, with its standard error; else one for each bin of the longest windows
    """
    plan, values = found.plan, _values(known, by_length, bits)
    assert plan is not None
    if not any(math.isfinite(one) for line in values.values() for one in line):
        return None, ""
    values = {name: line or [math.nan] for name, line in values.items()}
    changed = any(variant.change for variant in known)
    titles: dict[str, Any] = {
        "x_title": "text read (tokens)" if by_length else "position in the text",
        "y_title": f"loss ({'bits' if bits else 'nats'} a byte)",
    }
    windows = f"{len(plan.ends)} {'window' if len(plan.ends) == 1 else 'windows'}"
    bands = _bands(known, values, math.log(2) if bits else 1.0) if by_length and not changed else {}
    figure = figures.lines(
        values,
        plan.lengths if by_length else {name: plan.middles(len(line)) for name, line in values.items()},
        **titles,
        colours=_colours(known),
        dashes=_dashes(known) if changed else None,
        bands=bands,
        marks=[(plan.context, f"trained on {plan.context:,}")] if plan.longest > plan.context else [],
        log_x=by_length,
        ticks=plan.lengths if by_length else None,
        points=by_length,
        note=f"{found.what}, {windows}" + (", band: 1 standard error" if bands else ""),
        large=kit.large(),
        height=520 if kit.large() else 440,
    )
    return figure, _code(found, list(known), by_length, bits, titles)


def _bands(known: Mapping[Variant, Curve], values: Mapping[str, list[float]], unit: float) -> dict[str, Any]:
    bands = {}
    for (name, line), curve in zip(values.items(), known.values(), strict=True):
        if any(error is not None for error in curve.error):
            both = [(one, (error or 0) / unit) for one, error in zip(line, curve.error, strict=True)]
            bands[name] = ([one - error for one, error in both], [one + error for one, error in both])
    return bands


def _colours(known: Iterable[Variant]) -> list[str]:
    taken = {scheme_of(variant.name).COLOUR for variant in known if not variant.change}
    others = iter([colour for colour in figures.OKABE_ITO if colour not in taken] * 2)
    return [next(others) if variant.change else scheme_of(variant.name).COLOUR for variant in known]


def _dashes(known: Iterable[Variant]) -> list[str]:
    """Whole as it was trained; what is changed is dashed, and dotted where that colour is used up."""
    return ["dot" if one.change == reader.THETA else "dash" if one.change else "solid" for one in known]


def _code(found: Source, variants: Sequence[Variant], by_length: bool, bits: bool, titles: Mapping[str, str]) -> str:
    """The Python of `picture`: a line for each variant."""
    made, called = "map(reader.Variant, NAMES)", "SCHEMES[variant.name.split('/')[1]].LABEL"
    changed = any(variant.change for variant in variants)
    if changed:
        listed = ",\n    ".join(map(repr, variants)).replace("Variant(", "reader.Variant(")
        made, called = f"[\n    {listed},\n]", "variant.words"
    curve = found.curve(all(variant in extrapolate.load() for variant in variants))
    line = f"curve.{'by_length' if by_length else 'by_position'}"
    places = "plan.lengths" if by_length else "{name: plan.middles(len(line)) for name, line in values.items()}"
    said = ", ".join(f"{key}={value!r}" for key, value in titles.items()) + f", colours={_colours(variants)!r}"
    said += f",\n              dashes={_dashes(variants)!r}" * changed
    said += ",\n              bands=bands" * (by_length and not changed)
    said += ", log_x=True, ticks=plan.lengths" * by_length
    return (
        f"{found.code}unit = {'math.log(2)' if bits else '1'}  # nats in one of what is shown\n"
        f"found = {{{called}: {curve} for variant in {made}}}\n"
        f"values = {{name: [one and one / unit for one in {line}] for name, curve in found.items()}}\n"
        f"{_BANDS * (by_length and not changed)}figures.lines(values, {places},\n              {said})"
    )


_BANDS = """bands = {}  # a standard error on both sides
for name, curve in found.items():
    if any(curve.error):
        pairs = [((one or math.nan) / unit, (error or 0) / unit) for one, error in zip(curve.by_length, curve.error)]
        bands[name] = [one - error for one, error in pairs], [one + error for one, error in pairs]
"""


def said(found: Source, known: Mapping[Variant, Curve], *, by_length: bool, bits: bool) -> list[str]:
    """What to see in the curves, with their own numbers."""
    plan, values = found.plan, _values(known, by_length, bits)
    assert plan is not None
    unit = "bits" if bits else "nats"
    out = [f"Each point is the mean over the same {plan.tokens:,} tokens of {found.what}." if by_length else ""]
    inside, end = _compared(plan, by_length)
    rises = {
        name: _mean(line[slice(*end)]) - _mean(line[slice(*inside)])
        for name, line in values.items()
        if len(line) >= end[1] and math.isfinite(line[-1])
    }
    if rises and plan.longest > plan.context:
        ranked = sorted(rises, key=lambda name: rises[name])
        listed = "; ".join(f"{name} {_signed(rises[name])}" for name in ranked)
        where = f"at {plan.longest:,} tokens against {plan.context:,}"
        if not by_length:
            where = f"over the last {4 * BIN} positions against those from {BIN + 1} to {plan.context}"
        out.append(f"In {unit} a byte, {where}: {listed}.")
    if too_long(known):
        who = next(scheme_of(variant.name).LABEL for variant, curve in known.items() if curve.too_long)
        out.append(f"{who} as trained ends at {plan.context:,}: it has no position for the next token.")
    if found.name == AGAIN and (apart := _apart_from_bundled(known)) is not None:
        out.append(f"Computed here and bundled are at most {apart:.1g} nats a byte apart.")
    if plan.longest <= plan.context:
        out.append(f"This text has {len(plan.ids):,} tokens, no more than the {plan.context:,} of the training.")
    return [sentence for sentence in out if sentence]


def _apart_from_bundled(known: Mapping[Variant, Curve]) -> float | None:
    """The largest difference of what is computed so far; None where nothing is."""
    kept = extrapolate.load()
    both = [
        abs(one - other)
        for variant, curve in known.items()
        if variant in kept
        for one, other in zip(curve.by_length, kept[variant].by_length, strict=True)
        if one is not None and other is not None
    ]
    return max(both) if both else None


def _compared(plan: Plan, by_length: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """Which points are inside the training and which at the end: the two lengths, or four bins each but the first."""
    if by_length:
        inside = plan.lengths.index(plan.context) if plan.context in plan.lengths else 0
        return (inside, inside + 1), (len(plan.lengths) - 1, len(plan.lengths))
    bins = plan.longest // BIN
    return (1, plan.context // BIN), (max(1, bins - 4), bins)


def _signed(value: float) -> str:
    return f"{value:+.2f}" if abs(value) >= 0.005 else "0.00"


def _mean(line: Sequence[float]) -> float:
    return sum(line) / len(line) if line else math.nan


def band(sentence: str) -> None:
    """A mark that what follows is a what-if."""
    kit.html(f'<div class="whatif">{literal.inline("What if: " + sentence)}</div>')


# --- where the numbers are from ---------------------------------------------------------------------------------------


class Measured(kit.Page):
    """A page whose pictures are of the six bundled models, not of the one that is chosen."""

    @property
    def source(self) -> dict[str, object]:
        return {
            "models": ", ".join(NAMES),
            "novel": "the opening of Pride and Prejudice, which none of them was trained on",
            "bundled numbers computed with": extrapolate.versions(),
        }

    @property
    def preamble(self) -> str:
        return f"text = {self.text!r}\n"

    @property
    def code(self) -> str:
        """As the kit's, without the model that is chosen."""
        if len(self.text) <= 4_000:
            return self.preamble
        return 'text = open("text.txt", encoding="utf-8").read()  # the text of the sidebar, saved\n'


def of_the_twins(page: kit.Page) -> Measured:
    """The same page, for pictures of the six."""
    return Measured(**{item.name: getattr(page, item.name) for item in fields(page)})
