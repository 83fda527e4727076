"""RoPE's frequencies: how fast each pair of dimensions turns, by what a configuration says, in any of its spellings.

Su et al. 2021, section 3.2.2: theta_i = b^(-2i / d) for pair i; the base b is `theta` here, as in configurations. A
method of SCALINGS stretches that to longer texts; a new one is a function and a line there. A configuration is read in
one place, `parse`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from . import unsaid
from .spelling import CONTEXT, D_MODEL, HEADS, pick, size, text_part

__all__ = [
    "SCALINGS",
    "Frequencies",
    "Parameters",
    "frequencies",
    "layer_types",
    "parse",
    "powers",
    "rotated_layers",
    "stretched",
    "wavelengths",
]


@dataclass(frozen=True, eq=False)
class Frequencies:
    """What a configuration says about the rotation of one kind of layer.

    inv_freq: (pair,), float64, radians a token
    attention_factor: cos and sin are multiplied by it
    rotary_dim: how many dimensions of a head turn
    rope_type: the scaling method, a key of SCALINGS
    softmax_scale_factor: what multiplies the scores besides 1 / sqrt(d_head): DeepSeek's second place for the magnitude
    """

    inv_freq: Tensor
    attention_factor: float
    rotary_dim: int
    rope_type: str
    softmax_scale_factor: float = 1.0


@dataclass(frozen=True)
class Parameters:
    """A configuration, read: what the formulas below need, in one spelling.

    theta: the base; dim: how many dimensions of the head are to turn (of `head_dim`, for "proportional")
    head_dim: size of the head, or of the slice that RoPE has to itself (DeepSeek); start: where that slice begins
    context: the longest text the model is made for, in tokens, 0 where it is not said
    original: the longest it was trained on before scaling
    options: everything else of the scaling method: factor, beta_fast, short_factor, ...
    """

    theta: float
    rope_type: str
    dim: int
    head_dim: int
    start: int = 0
    context: int = 0
    original: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


def frequencies(config: Mapping[str, Any], *, layer_type: str | None = None, seq_len: int | None = None) -> Frequencies:
    """The frequencies that a configuration asks for.

    config: a config.json as a mapping, in the old or the new spelling
    layer_type: "full_attention", "sliding_attention" ..., where they differ by layer; the first layer's if None
    seq_len: the largest position plus one, in tokens; "dynamic" and "longrope" depend on it
    Raises ValueError for what the configuration does not say, an unknown scaling, a layer type that does not rotate.
    """
    p = parse(config, layer_type)
    if p is None:
        raise ValueError(f"layers of type {layer_type!r} do not rotate")
    inv_freq, attention_factor = SCALINGS[p.rope_type](p, seq_len)
    scale = 1.0
    of_all = p.options.get("mscale_all_dim")
    if of_all and p.rope_type != "default" and pick(text_part(config), "qk_rope_head_dim"):
        scale = _yarn_magnitude(_factor(p, implied=True), of_all) ** 2  # DeepSeek-V2, its published code
    return Frequencies(inv_freq, attention_factor, 2 * len(inv_freq), p.rope_type, scale)


def wavelengths(inv_freq: Tensor) -> Tensor:
    """How many tokens each pair needs for a full turn: (pair,); infinite for a pair that does not turn."""
    return 2 * math.pi / inv_freq


def powers(p: Parameters, theta: float | None = None) -> Tensor:
    """b^(-2i / d) for each pair, b the base theta: (pair,), float64. Su et al. 2021, section 3.2.2."""
    return (theta or p.theta) ** (-torch.arange(0, p.dim, 2, dtype=torch.float64) / p.dim)


def _default(p: Parameters, seq_len: int | None) -> tuple[Tensor, float]:  # noqa: ARG001 - one signature for all
    return powers(p), 1.0


def _linear(p: Parameters, seq_len: int | None) -> tuple[Tensor, float]:  # noqa: ARG001
    """Chen et al. 2023, "Position Interpolation" (https://arxiv.org/abs/2306.15595), equation 4: squeezed positions."""
    return powers(p) / _factor(p), 1.0


def _dynamic(p: Parameters, seq_len: int | None) -> tuple[Tensor, float]:
    """NTK-aware: theta grows with the text once that is longer than the context (Peng et al. 2023, sections 3.1, 3.3).

    A fixed `alpha` in place of the length is HunYuan's.
    """
    if p.options.get("alpha"):
        stretch = p.options["alpha"]
    else:
        factor, context = _factor(p), p.context or _missing("max_position_embeddings")
        stretch = factor * max(seq_len or 0, context) / context - (factor - 1)
    return powers(p, _larger_theta(p, stretch)), 1.0


def _larger_theta(p: Parameters, stretch: float) -> float:
    """NTK-aware: d / (d - 2) squeezes the slowest pair by the whole factor and leaves the fastest as it is.

    A pair that is alone is the fastest: it turns by 1 whatever theta is.
    """
    return p.theta * stretch ** (p.dim / (p.dim - 2)) if p.dim > 2 else p.theta


def _yarn(p: Parameters, seq_len: int | None) -> tuple[Tensor, float]:  # noqa: ARG001
    """Peng et al. 2023, "YaRN" (https://arxiv.org/abs/2309.00071), sections 3.2 and 3.4: only slow pairs are squeezed.

    A pair that makes more than beta_fast turns within the original context is left; one with less than beta_slow
    is divided by the factor; between the two a ramp (equations 17 to 20). The magnitude is equation 22's.
    """
    factor, fast, slow = _factor(p, implied=True), p.options.get("beta_fast") or 32, p.options.get("beta_slow") or 1

    def pair_with(turns: float) -> float:  # the pair that turns so often in the original context
        return p.dim * math.log(p.original / (turns * 2 * math.pi)) / (2 * math.log(p.theta))

    low, high = pair_with(fast), pair_with(slow)
    if p.options.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, p.dim - 1)
    high = high + 0.001 if low == high else high
    pair = torch.arange((p.dim + 1) // 2, dtype=torch.float64)
    squeezed = ((pair - low) / (high - low)).clamp(0, 1)  # 0: left, 1: divided by the factor
    inv_freq = powers(p) * (1 - squeezed) + powers(p) / factor * squeezed

    magnitude, of_all = p.options.get("mscale"), p.options.get("mscale_all_dim")
    if p.options.get("attention_factor") is not None:
        return inv_freq, float(p.options["attention_factor"])
    if magnitude and of_all:
        return inv_freq, _yarn_magnitude(factor, magnitude) / _yarn_magnitude(factor, of_all)
    return inv_freq, _yarn_magnitude(factor)


def _yarn_magnitude(factor: float, mscale: float = 1.0) -> float:
    """Peng et al. 2023, equation 22: 0.1 ln(s) + 1."""
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _longrope(p: Parameters, seq_len: int | None) -> tuple[Tensor, float]:
    """Ding et al. 2024, "LongRoPE" (https://arxiv.org/abs/2402.13753): a divisor for each pair, found by search.

    One list for texts within the original context, another for longer ones.
    """
    long = (seq_len or 0) > p.original
    divisors = torch.tensor(p.options["long_factor" if long else "short_factor"], dtype=torch.float64)
    inv_freq = powers(p)
    if len(divisors) != len(inv_freq):
        raise ValueError(f"{len(divisors)} factors for {len(inv_freq)} pairs: the configuration contradicts itself")
    inv_freq = inv_freq / divisors

    of_length = p.options.get("long_mscale" if long else "short_mscale")  # Phi-3.5-MoE's
    if of_length is not None:
        return inv_freq, float(of_length)
    if p.options.get("attention_factor") is not None:
        return inv_freq, float(p.options["attention_factor"])
    factor = _factor(p, implied=True)
    return inv_freq, math.sqrt(1 + math.log(factor) / math.log(p.original)) if factor > 1 else 1.0


def _llama3(p: Parameters, seq_len: int | None) -> tuple[Tensor, float]:  # noqa: ARG001
    """Llama 3.1 (Grattafiori et al. 2024, https://arxiv.org/abs/2407.21783, section 3.4.2, and its published code).

    Three bands by wavelength: short ones as they are, long ones divided by the factor, a ramp between.
    """
    factor, low, high = _factor(p), p.options["low_freq_factor"], p.options["high_freq_factor"]
    inv_freq = powers(p)
    turns = p.original / wavelengths(inv_freq)  # within the original context
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return inv_freq * kept + inv_freq / factor * (1 - kept), 1.0


def _proportional(p: Parameters, seq_len: int | None) -> tuple[Tensor, float]:  # noqa: ARG001
    """Gemma 4: a part of the pairs turns, with the frequencies of the whole head; the others have frequency 0."""
    turning = p.dim // 2
    pair = torch.arange(p.head_dim // 2, dtype=torch.float64)
    inv_freq = p.theta ** (-2 * pair / p.head_dim) * (pair < turning)
    return inv_freq / (p.options.get("factor") or 1.0), 1.0


SCALINGS: dict[str, Callable[[Parameters, int | None], tuple[Tensor, float]]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": _proportional,
}


def stretched(
    config: Mapping[str, Any],
    trained: int,
    factor: float,
    divisors: Sequence[float] | None = None,
    layer_type: str | None = None,
) -> dict[str, dict[str, Any]]:
    """Each published way to read a text `factor` times as long as the `trained` tokens: name -> a configuration.

    Each is one of SCALINGS but "ntk", which is a larger theta: the base of "dynamic" at the full length, kept for all
    lengths (Peng et al. 2023, section 3.1). divisors: one a pair, for "longrope", which has no formula and is left out
    without them.
    """
    p = parse(config, layer_type)
    if p is None:
        return {}
    said = {"rope_theta": p.theta, "original_max_position_embeddings": trained}
    options: dict[str, dict[str, Any]] = {
        "linear": {"factor": factor},
        "ntk": {"rope_type": "default", "rope_theta": _larger_theta(p, factor)},
        "dynamic": {"factor": 1.0},  # 1: as much as the text at hand needs; transformers' `factor` stretches beyond
        "yarn": {"factor": factor},
        "llama3": {"factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0},  # Llama 3.1's
    }
    if divisors is not None:  # a magnitude of 1: the paper's; Phi-3 added one
        plain = [1.0] * len(divisors)
        options["longrope"] = {"short_factor": plain, "long_factor": list(divisors), "attention_factor": 1.0}
    sizes = {
        "head_dim": p.head_dim,
        "partial_rotary_factor": p.dim / p.head_dim,
        "max_position_embeddings": trained,
    }
    return {
        name: {**sizes, "rope_parameters": {**said, "rope_type": name, **chosen}} for name, chosen in options.items()
    }


def _factor(p: Parameters, implied: bool = False) -> float:
    """How many times longer the context has become; where `implied`, the ratio of the two lengths if not said."""
    if p.options.get("factor") is not None:
        return float(p.options["factor"])
    return p.context / p.original if implied and p.original else _missing("factor")


def _missing(key: str) -> Any:
    raise ValueError(f"the configuration does not say {key!r}, which this scaling needs")


# The configuration, at the border


def parse(config: Mapping[str, Any], layer_type: str | None = None) -> Parameters | None:
    """Read a configuration, old spelling or new; None where layers of this type do not rotate.

    New: `rope_parameters` holds theta, type and the rest, or such a dictionary for each layer type.
    Old: `rope_theta` (GPT-NeoX `rotary_emb_base`), `rope_scaling` with "type", `partial_rotary_factor` (`rotary_pct`,
    `rotary_dim`), and a second theta for local layers. Where both speak, the dictionary wins.
    Raises ValueError for what is not said and has no certain default.
    """
    config = text_part(config)
    kinds = layer_types(config)
    options = pick(config, "rope_parameters", "rope_scaling")
    name = config.get("model_type", "")
    if options is None and name in unsaid.UNCERTAIN:
        raise ValueError(f"the configuration has no rope_parameters, and {name} has no plain default")
    options = dict(options or {})

    nested = {key: value for key, value in options.items() if isinstance(value, Mapping) or key in kinds}
    layer_type = layer_type or next((kind for kind in kinds if kind in nested or not nested), next(iter(nested), None))
    local = layer_type == "sliding_attention"
    if nested:
        if {"main", "compress"} == set(nested):  # DeepSeek-V4's own labels: plain in the sliding layers
            layer_type = "main" if local else "compress"
        if layer_type not in nested:
            raise ValueError(f"no rotation for layers of type {layer_type!r}: there is {', '.join(nested)}")
        if nested[layer_type] is None:
            return None
        options = dict(nested[layer_type])
    elif local and pick(config, "rope_local_base_freq") is not None:
        options = {}  # Gemma 3: the scaling is the global layers' alone

    rope_type = options.get("rope_type") or options.get("type") or "default"
    rope_type = {"mrope": "default", "su": "longrope"}.get(rope_type, rope_type)  # older names of the same
    if "short_factor" in options and rope_type == "yarn":
        rope_type = "longrope"  # Phi-3's first checkpoints
    if rope_type not in SCALINGS:
        raise ValueError(f"unknown rope_type {rope_type!r}: there is {', '.join(SCALINGS)}")

    theta = pick(options, "rope_theta")
    if theta is None and local:
        theta = pick(config, *_LOCAL_THETA)
    if theta is None and not (local and name in unsaid.LOCAL_IS_PLAIN):
        theta = pick(config, *_THETA) or unsaid.THETAS.get(name)
    own = config.get("per_layer_config") or {}  # Gemma 4: wider heads in some layers
    if layer_type in kinds and own:
        config = {**config, **own.get(str(kinds.index(layer_type)), {})}
    head_dim, dim, start = _head(config, options)
    context = int(pick(config, *CONTEXT) or 0)
    original = pick(config, "original_max_position_embeddings") or pick(options, "original_max_position_embeddings")
    return Parameters(
        theta=float(theta or 10000.0),
        rope_type=rope_type,
        dim=dim,
        head_dim=head_dim,
        start=start,
        context=context,
        original=int(original or context),
        options=options,
    )


_THETA = ("rope_theta", "rotary_emb_base", "global_rope_theta")
_LOCAL_THETA = ("rope_local_base_freq", "local_rope_theta", "swa_rope_theta")


def _head(config: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[int, int, int]:
    """(size of the head or of its slice, dimensions that turn, first of them)."""
    slice_dim = pick(config, "qk_rope_head_dim")
    if slice_dim:
        start = pick(config, "qk_nope_head_dim")
        if start is None:  # DeepSeek-V4: the last dimensions of the head
            start = int(pick(config, "head_dim") or slice_dim) - int(slice_dim)
        of_slice = pick(options, "partial_rotary_factor") if options.get("rope_type") == "proportional" else 1.0
        return int(slice_dim), int(slice_dim * (of_slice or 1.0)), int(start)
    head_dim = pick(config, "head_dim", "attention_head_dim")
    if head_dim is None:
        head_dim = size(config, D_MODEL, "how wide the model is") // size(config, HEADS, "how many heads it has")
    head_dim = int(head_dim)
    part = pick(options, "partial_rotary_factor")
    if part is None:
        part = pick(config, "partial_rotary_factor", "rotary_pct")
    if part is not None:
        return head_dim, int(head_dim * part), 0
    name = config.get("model_type", "")
    dim = None
    if not config.get("rope_parameters"):  # they hold the part themselves: MiniMax-M3 ignores a rotary_dim beside them
        dim = pick(config, "rotary_dim") or unsaid.ROTARY_DIMS.get(name)  # GPT-J, CodeGen, MiniMax-M2
    return head_dim, int(dim or head_dim * unsaid.PARTS.get(name, 1.0)), 0


def layer_types(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The type of each layer, first to last, as its parameters are named; () where all are alike."""
    config = text_part(config)
    if config.get("layer_types"):
        return tuple(config["layer_types"])
    layers = int(pick(config, "num_hidden_layers", "n_layer", "n_layers") or 0)
    last_of, first_of = config.get("sliding_window_pattern"), config.get("global_attn_every_n_layers")
    if isinstance(last_of, int) and last_of > 0:  # Gemma 3, Cohere 2: the last of so many is global
        return tuple("sliding_attention" if (i + 1) % last_of else "full_attention" for i in range(layers))
    if isinstance(first_of, int) and first_of > 0:  # ModernBERT: the first of so many
        return tuple("sliding_attention" if i % first_of else "full_attention" for i in range(layers))
    return ()


def rotated_layers(config: Mapping[str, Any]) -> tuple[bool, ...] | None:
    """For each layer, whether it rotates (SmolLM3, Llama 4), or None where the configuration says nothing of it.

    `no_rope_layers` holds 1 where RoPE is used, against its name.
    """
    config = text_part(config)
    said = config.get("no_rope_layers")
    if said:
        return tuple(bool(uses) for uses in said)
    interval, layers = config.get("no_rope_layer_interval"), config.get("num_hidden_layers")
    if interval and layers:
        return tuple((i + 1) % interval != 0 for i in range(layers))
    return None
