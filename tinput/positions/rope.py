r"""RoPE: q and k are rotated, pair of dimensions by pair, by an angle that grows with the position.

Su et al. 2021, "RoFormer" (https://arxiv.org/abs/2104.09864), equations 14 and 15: pair i of position p turns by

    p * theta_i,    theta_i = b^(-2i / d),    b = 10000

so the score of a query at m and a key at n depends on m - n alone (equation 16). What published models vary:

    pairing     "half": dimension i with i + d/2 (GPT-NeoX, Llama); "interleaved": 2i with 2i + 1 (the paper, GPT-J)
    part        the whole head, its first dimensions, or a slice (DeepSeek: the last)
    theta       the base b, as configurations call it; in some models one for local and one for global layers
    scaling     how a model trained on short texts is stretched to long ones: SCALINGS
    magnitude   cos and sin times a factor (YaRN's attention_factor), which is no part of the angle

How fast a pair turns, by what a configuration says: `frequencies.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .coverage import Coverage, turned
from .effects import Effect, Nothing, Rotate
from .frequencies import (
    SCALINGS,
    Frequencies,
    Parameters,
    frequencies,
    layer_types,
    parse,
    powers,
    rotated_layers,
    stretched,
    wavelengths,
)

__all__ = [
    "SCALINGS",
    "Frequencies",
    "Parameters",
    "angles",
    "coverage",
    "frequencies",
    "layer_types",
    "layers",
    "notice",
    "parse",
    "predict",
    "recognise",
    "rotate",
    "rotate_by",
    "rotated_layers",
    "stretched",
    "variants",
    "wavelengths",
]

NAME = "rope"
LABEL = "RoPE"
COLOUR = "#CC79A7"
INJECTION = "rotation of q and k"
FORMULA = (
    r"x'_a = x_a \cos p\theta_i - x_b \sin p\theta_i, \quad x'_b = x_b \cos p\theta_i + x_a \sin p\theta_i, \quad"
    r" \theta_i = b^{-2i/d}, \quad i = 0, \dots, \tfrac{d}{2} - 1, \quad"
    r" b = \text{rope theta (paper: } 10^4)"
)
PAPER = "Su et al. 2021, equations 14 to 16"


# The rotation


def angles(positions: Tensor, inv_freq: Tensor) -> Tensor:
    """How far each pair is turned at each position: (seq, pair), radians, in the dtype of inv_freq.

    positions: (seq,), in tokens; inv_freq: (pair,), radians a token. Source: Su et al. 2021, equation 15.
    """
    return positions[:, None].to(inv_freq.dtype) * inv_freq.to(positions.device)


def rotate(x: Tensor, angles: Tensor, layout: str = "half", start: int = 0, magnitude: float = 1.0) -> Tensor:
    """Turn pairs of dimensions of q or k: same shape and dtype as x.

    x: (..., seq, d_head); angles: (seq, pair), radians; the 2 * pair dimensions from `start` turn, the others pass
    layout: "half" or "interleaved", how the dimensions are paired
    magnitude: what the turned dimensions are multiplied by besides (`Frequencies.attention_factor`)
    Raises ValueError for another layout, or more pairs than the head has. Source: Su et al. 2021, equation 14.
    """
    return rotate_by(x, magnitude * angles.cos(), magnitude * angles.sin(), layout, start)


def rotate_by(x: Tensor, cos: Tensor, sin: Tensor, layout: str = "half", start: int = 0) -> Tensor:
    """`rotate` by cosines and sines that are there already: (seq, pair) each, the magnitude included."""
    stop = start + 2 * cos.shape[-1]
    if layout not in ("half", "interleaved"):
        raise ValueError(f"unknown layout {layout!r}: 'half' or 'interleaved'")
    if stop > x.shape[-1]:
        raise ValueError(f"{cos.shape[-1]} pairs from dimension {start} do not fit in a head of {x.shape[-1]}")
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)  # cast last: a frequency in bfloat16 points elsewhere at 4,000 tokens
    part = x[..., start:stop]
    if layout == "half":
        a, b = part.chunk(2, dim=-1)  # (..., seq, pair) each
        part = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    else:
        a, b = part[..., 0::2], part[..., 1::2]
        part = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
    return torch.cat((x[..., :start], part, x[..., stop:]), dim=-1)


# The effect


def recognise(effect: type, looked_up: bool = False, bend: float | None = None) -> bool:  # noqa: ARG001
    """Whether what was found in a model is this scheme.

    effect: the class of what is injected; looked_up: in a learned table; bend: how far a bias is from linear, relative
    """
    return effect is Rotate


def variants(config: Mapping[str, Any]) -> tuple[str, ...]:  # noqa: ARG001 - one signature for all schemes
    """Nothing is left open but the pairing, which the configuration does not hold: ("",)."""
    return ("",)


def layers(config: Mapping[str, Any]) -> tuple[bool, ...] | None:
    """For each layer, whether it rotates, or None where the configuration does not say."""
    return rotated_layers(config)


def predict(
    config: Mapping[str, Any],
    positions: Tensor,
    *,
    variant: str = "",  # noqa: ARG001
    layer_type: str | None = None,
    layer: int | None = None,
    layout: str = "half",
    **_: Any,
) -> Rotate | Nothing:
    """The rotation of some positions: `Rotate`, or `Nothing` where layers of this type do not rotate.

    positions: (seq,) int64; on a text the three positions of a multimodal rotation are equal, so one is enough
    layer: its number, where the configuration names a theta for each
    layout: "half" or "interleaved", for the record; the angles do not depend on it
    Raises ValueError as `frequencies` does. Source: Su et al. 2021, equations 14 and 15.
    """
    thetas = config.get("layer_rope_theta")
    if layer is not None and isinstance(thetas, (list, tuple)):  # Granite with sliding windows: a theta a layer, or 0
        if not thetas[layer]:
            return Nothing()
        config = {**config, "rope_parameters": {**(config.get("rope_parameters") or {}), "rope_theta": thetas[layer]}}
    p = parse(config, layer_type)
    if p is None:
        return Nothing()
    seq_len = int(positions.max()) + 1 if len(positions) else None
    found = frequencies(config, layer_type=layer_type, seq_len=seq_len)
    turned = angles(positions, found.inv_freq)  # (seq, pair), float64
    return Rotate(
        cos=(turned.cos() * found.attention_factor).to(torch.float32),
        sin=(turned.sin() * found.attention_factor).to(torch.float32),
        angles=turned.to(torch.float32),
        layout=layout,
        start=p.start,
    )


def coverage(
    config: Mapping[str, Any], places: Tensor, trained: int, *, layer_type: str | None = None, **_: Any
) -> dict[str, Coverage]:
    """Which pairs turn further than training ever turned them, as the model is and with each way to stretch it.

    places: distances of a key, (n,) int64; trained: tokens. Every way stretches as far as the largest place asks for.
    layer_type: as of `frequencies`. Empty where such layers do not rotate. Raises ValueError as `frequencies` does.
    """
    p = parse(config, layer_type)
    if p is None:
        return {}
    length, plain = int(places.max()) + 1, powers(p)
    now = {"as trained": plain}
    if p.rope_type != "default":
        now["as configured"] = frequencies(config, layer_type=layer_type, seq_len=length).inv_freq
    for name, way in stretched(config, trained, max(1.0, length / trained), layer_type=layer_type).items():
        now[name] = frequencies(way, seq_len=length).inv_freq
    return {name: turned(inv_freq, plain, places, trained, "distance") for name, inv_freq in now.items()}


def notice(effect: Effect, positions: Tensor) -> list[str]:
    """What to see in a rotation: two or three sentences with its own numbers."""
    if not isinstance(effect, Rotate) or effect.angles.shape[0] == 0:
        return ["These layers do not rotate q and k."]
    farthest = int(positions.max())
    first, last = effect.angles[int(positions.argmax())][[0, -1]].tolist()
    pairs = effect.angles.shape[1]
    out = [
        f"{pairs} pairs of dimensions turn: {effect.rotary_dim} dimensions of each head, from {effect.start}; "
        "their lengths stay, only their directions change.",
    ]
    if farthest > 0:
        turns, degrees = first / (2 * math.pi), math.degrees(last)
        out.append(
            f"At position {farthest:,} the fastest pair has turned {turns:,.1f} times, the slowest by {degrees:.3g}°."
        )
    magnitude = float(torch.hypot(effect.cos, effect.sin).mean())
    if abs(magnitude - 1) > 1e-4:
        out.append(f"cos and sin are multiplied by {magnitude:.4g}, so q and k become longer too.")
    else:
        out.append("A shift of all positions by the same number leaves every score as it is.")
    return out
