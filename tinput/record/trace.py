"""What was recorded for one text and one model, as values: a Trace outlives the model that made it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tinput.positions.effects import Effect, Nothing
from tinput.record.anatomy import Stack
from tinput.record.attention import Attention
from tinput.record.stages import Stage

if TYPE_CHECKING:
    from tinput.agree import Agreement
    from tinput.tokens import Tokens

__all__ = ["LayerEffect", "Recording", "Trace"]


@dataclass(frozen=True, eq=False)
class LayerEffect:
    """What positions inject, and into which layers.

    table: the parameter in which positions were looked up, or None; scheme: how the textbook calls it
    reason: why `effect` is None where it could not be recorded
    positions: (seq,) int64, those that this effect is made of, or None where none are seen: MPNet's table counts past
    pads, its bias does not
    factors: the parameters of a table that is kept in several
    stored: the dtype in which the file holds a table of computed vectors, where it holds one
    """

    layers: tuple[int, ...]
    effect: Effect | None
    scheme: str = ""
    table: str | None = None
    reason: str = ""
    positions: Tensor | None = None
    stored: torch.dtype | None = None
    factors: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Trace:
    """All that was recorded for one text and one model, and the textbook's answer beside it.

    ids: (seq,) int64; tokens: None when ids were given; positions: (seq,) int64 as the model used them, or None
    stages: from the ids to the first block; block_input: (seq, d_model), or (seq, ...) where a model has another shape
    effects: what positions inject, in the order in which it enters; attention: the first attention layer, or a later
    one if only that has positions; None with `attention_reason` where there is none to be had
    textbook: the same effects from the formulas, one an effect (None where there is no formula), or None altogether
    with `textbook_reason`; agreement: how far the two are apart
    """

    model: str
    revision: str | None
    dtype: str
    checkpoint_dtype: str
    stack: str
    ids: Tensor
    tokens: Tokens | None
    positions: Tensor | None
    stages: tuple[Stage, ...]
    block_input: Tensor
    effects: tuple[LayerEffect, ...]
    attention: Attention | None
    attention_reason: str = ""
    textbook: tuple[Effect | None, ...] | None = None
    textbook_reason: str = ""
    agreement: Agreement = None  # type: ignore[assignment] - always set by the one who compares
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    causal: bool | None = None  # whether attention sees the past alone; None where that was not seen

    def __repr__(self) -> str:  # the numbers would fill the screen
        return f"Trace({self.model!r}, {len(self.ids)} tokens, {' → '.join(stage.name for stage in self.stages)})"

    @property
    def effect(self) -> Effect:
        """The first of the effects that was recorded; Nothing where no position enters."""
        return next((found.effect for found in self.effects if found.effect is not None), Nothing())

    @property
    def schemes(self) -> tuple[str, ...]:
        """The schemes of the effects, each once, in the order in which they enter."""
        return tuple(dict.fromkeys(found.scheme for found in self.effects))

    @property
    def scheme(self) -> str:
        """The scheme that the model is named by: the first."""
        return self.schemes[0]

    def arrays(self) -> dict[str, Any]:
        """Every tensor as a numpy array under a plain name; low precision as float32."""
        found: dict[str, Tensor | None] = {
            "ids": self.ids,
            "positions": self.positions,
            "block_input": self.block_input,
        }
        for place, stage in enumerate(self.stages):
            found[f"stage_{place:02}_{stage.op}"] = stage.value
        for side, effects in (("recorded", [e.effect for e in self.effects]), ("textbook", self.textbook or ())):
            for place, effect in enumerate(effects):
                for name, value in vars(effect).items() if effect is not None else ():
                    if isinstance(value, Tensor):
                        found[f"{side}_{place}_{name}"] = value
        if self.attention is not None:
            for name in ("q_before", "q", "k_before", "k", "sinks"):
                found[f"attention_{name}"] = getattr(self.attention, name)
            for name in ("scores", "bias", "mask", "weights", "other"):
                field = getattr(self.attention, name)
                found[f"attention_{name}"] = None if field is None else field.tensor()
        return {
            name: (value.float() if value.is_floating_point() else value).numpy()
            for name, value in found.items()
            if value is not None
        }

    def provenance(self) -> dict[str, Any]:
        """Where the numbers are from: model, revision, dtypes, text, versions."""
        return {
            "model": self.model,
            "revision": self.revision,
            "dtype": self.dtype,
            "checkpoint_dtype": self.checkpoint_dtype,
            "stack": self.stack,
            "text": self.tokens.text if self.tokens is not None else None,
            "pieces": list(self.tokens.pieces) if self.tokens is not None else None,
            "schemes": list(self.schemes),
            "stages": [[stage.name, stage.op, stage.module, stage.note] for stage in self.stages],
            "agreement": self.agreement.message,
            "notes": list(self.notes),
            "versions": self.versions,
        }

    def save(self, path: str | Path) -> Path:
        """Writes everything to an .npz: the arrays, and `provenance` as JSON text. Returns the path."""
        import numpy as np

        path = Path(path)
        arrays = self.arrays()
        np.savez_compressed(path, provenance=np.array(json.dumps(self.provenance())), **arrays)
        return path if path.suffix == ".npz" else path.with_name(path.name + ".npz")


@dataclass(frozen=True, eq=False)
class Recording:
    """A Trace's recorded half: what `record` hands to whoever compares it with the textbook.

    causal: whether attention sees the past alone, None where that was not seen
    """

    stack: Stack
    positions: Tensor | None
    stages: tuple[Stage, ...]
    block_input: Tensor
    effects: tuple[LayerEffect, ...]
    attention: Attention | None
    attention_reason: str
    notes: tuple[str, ...]
    causal: bool | None = None
