"""What can be said of several models and their traces of one text, line by line, and in which lines they differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tinput.positions import SCHEMES, Add, Bias, Rotate
from tinput.positions.spelling import HEADS, pick, text_part
from tinput.ui import given, literal, words

if TYPE_CHECKING:
    from tinput.record import LayerEffect
    from tinput.ui.kit import Page

__all__ = ["Fact", "facts", "table"]

NOT_SAID = "not said"
_UNSAID = ("transformers_version", "name_or_path")  # say nothing of the model


@dataclass(frozen=True)
class Fact:
    """One line of a comparison: what, and what it is for each of the models."""

    what: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


def facts(pages: Sequence[Page]) -> list[Fact]:
    """What is recorded, line by line; then each entry of the models' settings."""
    columns = [dict(_said(page)) for page in pages]
    lines = [Fact(what, tuple(column[what] for column in columns)) for what in columns[0]]
    settings = [_flat(page.model.config) for page in pages]
    keys = sorted({key for each in settings for key in each if not key.startswith("_") and key not in _UNSAID})
    return lines + [Fact(f"config: {key}", tuple(each.get(key, "not set") for each in settings)) for key in keys]


def table(shown: Sequence[Fact], names: Sequence[str]) -> str:
    """HTML of the facts, those that differ marked."""
    rows = [(fact.what, *fact.values) for fact in shown]
    return literal.table(("", *names), rows, [fact.differs for fact in shown])


def _said(page: Page) -> Iterator[tuple[str, str]]:
    trace, model, attention = page.trace, page.model, page.trace.attention
    effects = [item for item in trace.effects if item.scheme in SCHEMES]
    schemes = list(dict.fromkeys(item.scheme for item in effects)) or list(model.schemes)
    yield "position scheme", " and ".join(map(words.label, schemes))
    yield "where it enters", " and ".join(SCHEMES[name].INJECTION for name in schemes if name in SCHEMES)
    yield "as recorded", "; ".join(dict.fromkeys(parameters(item) for item in effects)) or "none"
    yield "tokens of this text", f"{page.seq:,}"
    yield "vocabulary", f"{model.vocab_size:,}"
    yield "width", f"{trace.block_input.shape[-1]:,}"
    config = text_part(model.config)
    heads = pick(config, *HEADS) if attention is None else attention.heads
    groups = pick(config, "num_key_value_heads") or heads if attention is None else attention.kv_heads
    yield "heads", str(heads or NOT_SAID)
    yield "key and value heads", str(groups or NOT_SAID)
    context = given.context(page)
    yield "context length", f"{context:,}" if context else NOT_SAID
    yield "embedding scale", _stages(page, "scale")
    yield "norm before block 1", _stages(page, "norm")
    yield "steps before block 1", " → ".join(stage.name for stage in trace.stages)
    yield "block input", words.shape(trace.block_input)
    yield "dtype of the checkpoint", trace.checkpoint_dtype
    yield "number of parameters", _counted(page, lambda tensor: math.prod(tensor.shape), lambda total: f"{total:,}")
    yield "weights in the files", _counted(page, lambda tensor: tensor.stop - tensor.start, _size)


def _counted(page: Page, measure: Callable[[Any], int], say: Callable[[int], str]) -> str:
    """A sum over the checkpoint's tensors; of a model on the Hub the headers of some shards alone may be read."""
    weights = page.model.weights
    if weights is None:
        return NOT_SAID
    known, every = weights.infos_at_hand(), len(weights.names)
    total = say(sum(map(measure, known.values())))
    return total if len(known) == every else f"{total} in the {len(known):,} of {every:,} tensors looked at"


def _stages(page: Page, role: str) -> str:
    found = [
        f"{stage.name}{f' ({stage.note})' if stage.note else ''}" for stage in page.trace.stages if stage.role == role
    ]
    return ", ".join(found) or "none"


def parameters(item: LayerEffect) -> str:
    """What a scheme's recorded effect says of itself: sizes, wavelengths, what a step back costs."""
    effect = item.effect
    if isinstance(effect, Add):
        made = f"rows of {item.table}" if item.table else "computed from the position"
        return f"{made}; {float(effect.vectors.float().norm(dim=-1).mean()):.3g} long on average"
    if isinstance(effect, Rotate):
        said = f"{effect.angles.shape[-1]} pairs, {'halves' if effect.layout == 'half' else effect.layout}"
        farthest = 0 if item.positions is None else int(item.positions.max())
        if not farthest:
            return said
        assert item.positions is not None
        turned = effect.angles[int(item.positions.argmax())].double().abs()
        turns = 2 * math.pi * farthest / turned[turned > 0]
        return f"{said}; a full turn takes {float(turns.min()):.3g} to {float(turns.max()):,.0f} tokens"
    if isinstance(effect, Bias):
        heads, queries, keys = effect.scores.shape
        if queries < 2 or keys < 2:
            return f"{heads} heads"
        step = (effect.scores[:, -1, -2] - effect.scores[:, -1, -1]).float().tolist()
        shown = ", ".join(f"{value:.3g}" for value in step[:8]) + (", …" if heads > 8 else "")
        return f"{heads} heads; one token back adds {shown}"
    return "none"


def _size(size: int) -> str:
    unit, name = (1e9, "GB") if size >= 1e9 else (1e6, "MB")
    return f"{size:,} bytes ({size / unit:.3g} {name})"


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A nested configuration as dotted names and short texts; long lists (labels) are only counted."""
    found: dict[str, str] = {}
    for name, value in config.items():
        key = str(name)
        if isinstance(value, Mapping) and len(value) <= 24:
            found |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, Mapping):
            found[prefix + key] = f"{len(value)} entries"
        else:
            text = str(value)
            found[prefix + key] = text if len(text) <= 120 else f"{text[:117]}…"
    return found
