"""The atlas: how every text architecture of transformers tells positions apart, recorded, one row each.

    python -m tinput.atlas      # writes tinput/atlas.json anew (some minutes)

Each architecture is built on `meta` from the defaults of its configuration class, which are the sizes of a published
model, and run without weights. Nothing in a row is typed by hand: schemes, pairing, rotated part, theta, offset and the
steps before the first block are read off that run; heads, context and the name of a scaling are what the configuration
says. A row that cannot be had says why in `reason`, and is null elsewhere.

    version, rows = atlas.load()
    atlas.table(atlas.matching(rows, "interleaved"))        # as the Architectures page shows it
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tinput.errors import TinputError
from tinput.models.skeleton import Skeleton
from tinput.open import scheme_of
from tinput.positions import SCHEMES, label
from tinput.positions.effects import Add, Rotate
from tinput.positions.spelling import CONTEXT, HEADS, pick, text_part
from tinput.record.anatomy import Injection, Stack, find, survey
from tinput.record.front import Front, run
from tinput.record.injection import in_attention, pairs, query_and_key
from tinput.record.layouts import by_position
from tinput.record.stages import Stage, stages_of
from tinput.record.tape import Op

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["FILE", "counts", "kinds", "load", "matching", "row", "short", "shown", "table", "write"]

FILE = Path(__file__).with_name("atlas.json")
_TASKS = ("MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "CAUSAL_LM")
_IDS = torch.arange(5, 18)  # thirteen made-up ids
_FARTHEST = 8  # the last layer that is run once more for its rotation
_PAIRING = {"half": "half-split", "interleaved": "interleaved"}
_NOT_HAD, _GREY = "not recorded", "#999999"

Row = Mapping[str, Any]


@functools.cache
def load() -> tuple[str, tuple[dict[str, Any], ...]]:
    """What is bundled: the version of transformers that it was recorded from, and the rows, by model type."""
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    return kept["transformers"], tuple({"model_type": kind, **row} for kind, row in kept["architectures"].items())


# --- as it is read ----------------------------------------------------------------------------------------------------


def shown(row: Row) -> dict[str, Any]:
    """A row of the atlas as it is read: column -> a word or a number, None where there is nothing to say."""
    if "reason" in row:
        return {"architecture": row["model_type"], "scheme": _NOT_HAD, "why not": row["reason"]}
    ways = row["injections"]
    turned = [way for way in ways if "layout" in way]
    tables = [way for way in ways if way.get("rows")]
    return {
        "architecture": row["model_type"],
        "scheme": " | ".join(map(_named, row["stacks"])),
        "pairing": _each(turned, lambda way: _PAIRING.get(way["layout"])),
        "turned": _each(turned, lambda way: _part(way, row["d_head"])),
        "theta": _each(turned, lambda way: f"{way['theta']:,.10g}" if way["theta"] else None),
        "in layers": _each(turned, lambda way: way["layers"]) if len(turned) > 1 else None,
        "scaling": row["scaling"],
        "table rows": _each(tables, lambda way: f"{way['rows']:,}"),
        "first row": _each(tables, lambda way: str(way["first_row"])),
        "embedding scale": row["scale"],
        "norm before block 1": row["norm"],
        "projection": row["projection"],
        "layers": row["layers"],
        "layers with attention": row["attention_layers"],
        "width": row["width"],
        "heads": row["heads"],
        "heads of k and v": row["kv_heads"],
        "d_head": row["d_head"],
        "context": row["context"],
        "class": row["class"],
        "why not": row["note"] or None,
    }


def _named(stack: str) -> str:
    """ "rope in 24 of 32 layers" -> "RoPE in 24 of 32 layers"."""
    parts = (part.partition(" ") for part in stack.split(" + "))
    return " + ".join(f"{label(name)}{blank}{rest}" for name, blank, rest in parts)


def _part(way: Row, d_head: int | None) -> str | None:
    if way["rotated"] is None:
        return None
    start = f" from {way['start']}" if way["start"] else ""
    return f"{way['rotated']} of {d_head}{start}" if d_head and d_head >= way["rotated"] else str(way["rotated"])


def _each(ways: Sequence[Row], of: Callable[[Row], str | None]) -> str | None:
    """What is said of each way in; once where all are the same."""
    said = [of(way) or "?" for way in ways]
    return "; ".join(said if len(set(said)) > 1 else said[:1]) or None


def matching(rows: Sequence[Row], find: str) -> list[Row]:
    """The rows in which every word of `find` stands somewhere."""
    wanted = find.casefold().split()
    return [row for row in rows if all(word in _text(row) for word in wanted)]


def _text(row: Row) -> str:
    said = " ".join(f"{name} {value}" for name, value in shown(row).items() if value is not None)
    return f"{said} {' '.join(row.get('schemes', ()))}".casefold()


def short(name: str) -> str:
    """A scheme's name as it fits under a bar: "Relative bias" for "Relative bias (T5)"."""
    return name.split(" (")[0].removesuffix(" table")


def counts(rows: Sequence[Row]) -> tuple[list[str], list[int], list[str]]:
    """Short label, number and colour of each scheme that a row is named by, most first; what is not had comes last."""
    number = Counter(row["schemes"][0] for row in rows if "reason" not in row)
    ranked = [name for name, _ in number.most_common()]
    labels, values = [short(label(name)) for name in ranked], [number[name] for name in ranked]
    colours = [SCHEMES[name].COLOUR if name in SCHEMES else _GREY for name in ranked]
    if missing := sum("reason" in row for row in rows):
        labels, values, colours = [*labels, _NOT_HAD], [*values, missing], [*colours, _GREY]
    return labels, values, colours


def table(rows: Iterable[Row]) -> DataFrame:
    """`shown` of each row, one column for each thing that some row says."""
    import pandas

    frame = pandas.DataFrame([shown(row) for row in rows]).dropna(axis="columns", how="all")
    whole = frame.select_dtypes("number").columns
    frame[whole] = frame[whole].astype("Int64")  # a missing number would make the others 12.0
    return frame


# --- as it is recorded ------------------------------------------------------------------------------------------------


def kinds() -> dict[str, str]:
    """Model type -> class, of all text models of transformers: masked where there is one, else sequence-to-sequence,
    else causal, as the published models of a type with several mostly are.
    """
    from transformers.models.auto import modeling_auto as auto

    mappings = [getattr(auto, f"MODEL_FOR_{task}_MAPPING_NAMES") for task in _TASKS]
    return {kind: next(m[kind] for m in mappings if kind in m) for kind in sorted({k for m in mappings for k in m})}


def row(kind: str) -> dict[str, Any]:
    """What is recorded of one architecture at its default size.

    class: the module's; stacks: the schemes of each stack of blocks, with the layers that they reach
    schemes, layers, width, heads, kv_heads, d_head, context: of the first stack; injections: each of its ways in
    scale, norm, projection, segments: the steps between the token embedding and its first block
    """
    from transformers import CONFIG_MAPPING

    try:
        config = CONFIG_MAPPING[kind]()
        config.architectures = [kinds()[kind]]
        skeleton = Skeleton(config, None)
        anatomy = survey(skeleton)
        if not anatomy.stacks:
            return {"reason": f"no block is reached with ids alone: {anatomy.error}"}
        first = anatomy.stacks[0]
        front = run(skeleton, _IDS % skeleton.vocab_size, read=False, done=functools.partial(_far_enough, first))
    except TinputError as error:
        return {"reason": str(error)}
    except Exception as error:  # a configuration's defaults may be refused by its own class
        return {"reason": f"its defaults are refused: {' '.join(str(error).split())[:200]}"}
    block = next(block for block in front.blocks if block.stack == first.path)
    stages = stages_of(front, block)
    call = next((call for call in front.attentions if call.block and call.block.stack == first.path), None)
    said = text_part(config.to_dict())
    heads = pick(said, *HEADS)
    return {
        "class": type(skeleton.model).__name__,
        "stacks": [_summary(stack) for stack in anatomy.stacks],
        "schemes": list(dict.fromkeys(map(scheme_of, first.injections or [None]))),
        "layers": first.n_layers,
        "attention_layers": len(first.attention_layers),
        "injections": [_injection(front, injection, first) for injection in first.injections],
        "scaling": _scaling(said),
        "scale": _names(stages, "scale"),
        "norm": _names(stages, "norm"),
        "projection": _names(stages, "projection"),
        "segments": any(stage.role == "segment" for stage in stages),
        "width": int(block.input.shape[-1]),
        "heads": heads,
        "kv_heads": pick(said, "num_key_value_heads", "num_kv_heads", "multi_query_group_num") or heads,
        "d_head": None if call is None else int(query_and_key(call)[0].shape[-1]),
        "context": pick(said, *CONTEXT),
        "vocabulary": skeleton.vocab_size,
        "note": anatomy.error,
    }


def write(only: Iterable[str] | None = None, file: Path = FILE) -> Path:
    """Records all architectures, or some beside those that the file holds, and writes the file."""
    import transformers

    kept = {} if only is None else json.loads(file.read_text(encoding="utf-8"))["architectures"]
    for kind in kinds() if only is None else only:
        kept[kind] = row(kind)
        print(f"{kind}: {kept[kind].get('reason') or ' | '.join(kept[kind]['stacks'])}", flush=True)
    lines = ",\n".join(f"{json.dumps(kind)}: {json.dumps(kept[kind], ensure_ascii=False)}" for kind in sorted(kept))
    head = f'{{"transformers": {json.dumps(transformers.__version__)}, "architectures": {{'
    file.write_text(f"{head}\n{lines}\n}}}}\n", encoding="utf-8")
    return file


def _far_enough(stack: Stack, front: Front) -> bool:
    """Whether every way in was passed, or the last layer worth running again."""
    blocks = [block for block in front.blocks if block.stack == stack.path]
    farthest = max((injection.layers[0] for injection in stack.injections), default=0)
    return bool(blocks) and blocks[-1].stop is not None and blocks[-1].number >= min(farthest, _FARTHEST)


def _summary(stack: Stack) -> str:
    """ "learned", "rope in 24 of 32 layers": what enters a stack."""
    layers: dict[str, set[int]] = {}
    for injection in stack.injections:
        layers.setdefault(scheme_of(injection), set()).update(injection.layers)
    parts = [
        name if len(reached) == stack.n_layers else f"{name} in {len(reached)} of {stack.n_layers} layers"
        for name, reached in layers.items()
    ]
    return " + ".join(parts) or scheme_of(None)


def _injection(front: Front, injection: Injection, stack: Stack) -> dict[str, Any]:
    found: dict[str, Any] = {"scheme": scheme_of(injection), "layers": _layers(injection.layers, stack.n_layers)}
    if injection.effect is Add or injection.n_rows is not None:
        found |= {"rows": injection.n_rows, "first_row": injection.first_row}
    if injection.effect is Rotate:
        fit = injection.fit
        found |= {
            "layout": fit.layout if fit else None,
            "rotated": fit.rotary_dim if fit else None,
            "start": fit.start if fit else None,
            **_frequencies(front, injection, stack),
        }
    return found


def _layers(layers: Sequence[int], of: int) -> str:
    if len(layers) == of:
        return f"all {of}"
    return f"{len(layers)} of {of}: {', '.join(map(str, layers[:6]))}{', …' if len(layers) > 6 else ''}"


def _frequencies(front: Front, injection: Injection, stack: Stack) -> dict[str, Any]:
    """theta, from the angles at position 1: the pairs' frequencies fall by one factor, theta ** (-2 / rotated).

    slowed: how many times slower than 1 radian a token the fastest pair is; even: whether the factor is one
    """
    unknown = {"theta": None, "slowed": None, "even": None}
    turned = _cos_sin(front, injection, stack)
    if turned is None or injection.fit is None:
        return unknown
    rotary = injection.fit.rotary_dim
    try:
        cos, sin = (pairs(by_position(part, len(_IDS)), rotary)[1].double() for part in turned)
    except ValueError:
        return unknown
    angle = torch.atan2(sin, cos).abs()
    angle = angle[angle > 0]
    if len(angle) < 2:
        return unknown
    steps = angle[:-1] / angle[1:]
    even = bool((steps / steps[0] - 1).abs().max() < 1e-3)
    step = (angle[0] / angle[-1]) ** (1 / (len(angle) - 1)) if even else steps[0]
    return {
        "theta": _rounded(float(step) ** (rotary / 2), 6 if even else 3),
        "slowed": _rounded(1 / float(angle[0]), 4),
        "even": even,
    }


def _cos_sin(front: Front, injection: Injection, stack: Stack) -> tuple[Tensor, Tensor] | None:
    """The cosines and sines as this run made them: in one of the injection's layers, or ahead of all."""
    for call in front.attentions:
        if call.block is not None and call.block.stack == stack.path and call.block.number in injection.layers:
            entry = next((entry for entry in in_attention(front, call) if entry.kind is Rotate), None)
            if entry is not None:
                return _both(entry.carriers[0], entry.sines[0] if entry.sines else None)
    cosine, sine = (find(front, places[0]) if places else None for places in (injection.carriers, injection.sines))
    return None if cosine is None or not isinstance(cosine.out, Tensor) else _both(cosine, sine)


def _both(cosine: Op, sine: Op | None) -> tuple[Tensor, Tensor]:
    value = cosine.value
    return (value.real, value.imag) if sine is None else (value, sine.value)


def _rounded(number: float, digits: int) -> float:
    return float(f"{number:.{digits - 1}e}")


def _scaling(config: Mapping[str, Any]) -> str | None:
    """What the configuration calls its way to stretch the context, by layer type where it differs; None without."""
    said = pick(config, "rope_parameters", "rope_scaling")
    groups = [said, *said.values()] if isinstance(said, Mapping) else []
    kinds = [pick(group, "rope_type", "type") for group in groups if isinstance(group, Mapping)]
    return ", ".join(dict.fromkeys(kind for kind in kinds if isinstance(kind, str) and kind != "default")) or None


def _names(stages: Iterable[Stage], role: str) -> str | None:
    return ", ".join(stage.name for stage in stages if stage.role == role) or None


if __name__ == "__main__":
    write()
