"""The rotation of q and k, and what stretches it to longer texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tinput.errors import TinputError
from tinput.positions import Rotate
from tinput.ui.given.sizes import context, n_heads, width_of

if TYPE_CHECKING:
    from tinput.ui.kit import Page


@dataclass(frozen=True, eq=False)
class Rotation:
    """How q and k are turned: angles (seq, pair), frequencies (pair,) float64, and q and k before and after.

    q_before, q: (heads, seq, d_head), k_before, k: (kv_heads, seq, d_head); None where they could not be recorded
    """

    own: bool
    angles: Tensor
    frequencies: Tensor
    layout: str
    start: int
    magnitude: float
    scale: float
    q_before: Tensor | None
    q: Tensor | None
    k_before: Tensor | None
    k: Tensor | None
    reason: str
    rotate: Callable[..., Tensor]

    @property
    def d_head(self) -> int:
        return self.start + 2 * self.angles.shape[-1] if self.q is None else int(self.q.shape[-1])

    def key_head(self, head: int) -> int:
        """The head of k that a head of q looks at."""
        assert self.q is not None
        assert self.k is not None
        return head // (self.q.shape[0] // self.k.shape[0])

    def scores(self, page: Page, head: int, shift: int) -> Tensor | None:
        """scale q kT of one head, (query, key), all positions moved by `shift`; None where that cannot be had.

        Recorded anew from the model if the rotation is its own, else computed from its q and k. Masked cells are -inf.
        """
        if page.trace.attention is None:
            return None
        mask = page.trace.attention.mask[head].tensor()
        if self.own:
            try:
                trace = page.retrace(positions=(page.positions + shift).tolist()) if shift else page.trace
            except TinputError:
                return None
            return None if trace.attention is None else trace.attention.scores[head].tensor().float() + mask
        if self.q_before is None or self.k_before is None:
            return None
        positions = page.positions
        turned = (positions + shift).double()[:, None] * self.frequencies
        q, k = (
            self.rotate(x.double(), turned, self.layout, self.start, self.magnitude)
            for x in (self.q_before[head], self.k_before[self.key_head(head)])
        )
        return (self.scale * q @ k.T).float() + mask


def rotation(page: Page, scheme: Any) -> Rotation:
    """The model's rotation as recorded, or the paper's on the model's own q and k."""
    attention, recorded = page.trace.attention, page.effect_of(Rotate)
    q, k, scale = (None, None, 1.0) if attention is None else (attention.q, attention.k, attention.scale)
    if isinstance(recorded, Rotate):
        before = (None, None) if attention is None else (attention.q_before, attention.k_before)
        reason = page.trace.attention_reason if attention is None else attention.before_reason
        if any(x is not None and x.shape != y.shape for x, y in zip(before, (q, k), strict=True) if y is not None):
            before, reason = (None, None), "a part of each head alone is turned, and it was recorded by itself"
        magnitude = float(torch.hypot(recorded.cos.double(), recorded.sin.double()).mean())
        return Rotation(
            True, recorded.angles, _frequencies(page, scheme, recorded), recorded.layout, recorded.start,
            round(magnitude, 6), scale, before[0], q, before[1], k, reason, scheme.rotate,
        )  # fmt: skip
    found = scheme.frequencies(turning(page, scheme))
    angles = scheme.angles(page.positions, found.inv_freq)
    turned = (None, None) if q is None or k is None else tuple(scheme.rotate(x, angles) for x in (q, k))
    return Rotation(
        False, angles.float(), found.inv_freq, "half", 0, 1.0, scale, q, turned[0], k, turned[1],
        page.trace.attention_reason, scheme.rotate,
    )  # fmt: skip


def _frequencies(page: Page, scheme: Any, recorded: Rotate) -> Tensor:
    """The formula's frequencies of the layers that were recorded; from the angles where it has none: (pair,)."""
    positions, config = page.positions, page.model.config
    farthest = int(positions.argmax())
    measured = recorded.angles[farthest].double() / max(1, int(positions[farthest]))
    best, error = measured, float("inf")
    for kind in dict.fromkeys([None, *scheme.layer_types(config)]):
        try:
            found = scheme.frequencies(config, layer_type=kind, seq_len=page.seq).inv_freq
        except (ValueError, KeyError):
            continue
        if found.shape == measured.shape:
            off = float((scheme.angles(positions, found) - recorded.angles.double()).abs().max())
            if off < error:
                best, error = found, off
    return best


def turning(page: Page, scheme: Any) -> dict[str, Any]:
    """The width that turns in each head, and its theta, as a configuration says them: the model's, or the paper's."""
    recorded, attention = page.effect_of(Rotate), page.trace.attention
    if isinstance(recorded, Rotate):
        return {"head_dim": recorded.rotary_dim, "rope_theta": _theta(page, scheme)}
    d_head = int(attention.q.shape[-1]) if attention is not None else max(2, width_of(page) // n_heads(page))
    return {"head_dim": d_head - d_head % 2, "rope_theta": 10_000.0}


def scalings(page: Page, scheme: Any, factor: int) -> dict[str, Tensor]:
    """The frequencies that turn a part of this width without scaling ("default"), and with each published way to make
    the model's context `factor` times as long: name -> (pair,) float64."""
    sizes, length = turning(page, scheme), context(page) or 2048
    ways = {"default": sizes, **scheme.stretched(sizes, length, factor)}
    return {name: scheme.frequencies(way, seq_len=factor * length).inv_freq for name, way in ways.items()}


def _theta(page: Page, scheme: Any) -> float:
    """The base of the model's own rotation; the paper's 10,000 where the configuration does not say."""
    try:
        found = scheme.parse(page.model.config)
    except (ValueError, KeyError):
        return 10_000.0
    return 10_000.0 if found is None else found.theta


def pairings(turned: Rotation, layouts: Sequence[str]) -> Tensor:
    """The pair that each dimension of a head belongs to, (layout, d_head) int64; -1 for one that does not turn."""
    number = torch.arange(turned.angles.shape[-1])
    index = torch.full((len(layouts), turned.d_head), -1)
    for row, layout in enumerate(layouts):
        pair = torch.cat((number, number)) if layout == "half" else number.repeat_interleave(2)
        index[row, turned.start : turned.start + len(pair)] = pair
    return index
