r"""Sinusoidal positions: a fixed vector of sines and cosines, added to each token's embedding.

Vaswani et al. 2017, "Attention Is All You Need", section 3.5 (https://arxiv.org/abs/1706.03762):

    PE(pos, 2i)     = sin(pos / 10000^(2i / d_model))
    PE(pos, 2i + 1) = cos(pos / 10000^(2i / d_model))

Each pair (sine, cosine) is a hand that turns by a fixed angle from one position to the next; a shift of all positions
turns every pair by a constant, so it is a linear map. Published models lay the pairs out in different ways:

    interleaved   sin cos sin cos ...   the paper, XLM, DistilBERT, Flaubert
    halves        sin sin ... cos cos   Marian, Pegasus, CTRL
    whisper       sin sin ... cos cos   tensor2tensor, M2M-100, XGLM, Whisper: the last frequency is exactly 1 / base
    musicgen      cos cos ... sin sin   MusicGen's decoder, with the same spacing
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .coverage import Coverage, turned
from .effects import Add, Effect
from .spelling import D_MODEL, pick, size, text_part

__all__ = [
    "LAYOUTS",
    "coverage",
    "exponent",
    "formula",
    "frequencies",
    "layout_of",
    "notice",
    "predict",
    "recognise",
    "table",
    "variants",
    "wavelengths",
]

NAME = "sinusoidal"
LABEL = "Sinusoidal"
COLOUR = "#0072B2"
INJECTION = "added to the embedding"
FORMULA = (
    r"\mathrm{PE}_{p,\,2i} = \sin\!\left(p / 10000^{2i/d}\right), \quad"
    r" \mathrm{PE}_{p,\,2i+1} = \cos\!\left(p / 10000^{2i/d}\right)"
)
PAPER = "Vaswani et al. 2017, section 3.5"

LAYOUTS = ("interleaved", "halves", "whisper", "musicgen")


def frequencies(width: int, base: float = 10000.0, layout: str = "interleaved") -> Tensor:
    """The angle by which each pair turns from one position to the next, in radians: (pair,), float64, falling.

    width: the size of the vector, any number from 1 (an odd width ends with a lone sine, or with a zero)
    base: 10000 in every published model
    layout: one of LAYOUTS; the last two spread the frequencies so that the last is 1 / base
    Raises ValueError for an unknown layout. Source: Vaswani et al. 2017, section 3.5; tensor2tensor for the spacing.
    """
    _check(width, layout)
    if layout in ("interleaved", "halves"):
        pair = torch.arange((width + 1) // 2, dtype=torch.float64)
        return base ** (-2 * pair / width)
    pair = torch.arange(width // 2, dtype=torch.float64)
    return base ** (-pair / max(len(pair) - 1, 1))


def exponent(base: float = 10000.0, layout: str = "interleaved") -> str:
    """LaTeX of what pair i's position is divided by: `frequencies` upside down, for a vector of an even width d."""
    _check(1, layout)
    power = "2i/d" if layout in ("interleaved", "halves") else "i/(d/2-1)"
    return f"{base:.10g}^{{{power}}}"


def formula(base: float = 10000.0, layout: str = "interleaved") -> str:
    """LaTeX of a layout's vectors: FORMULA is the paper's. Raises ValueError for an unknown layout."""
    under = exponent(base, layout)
    if layout == "interleaved":
        return FORMULA.replace(exponent(), under)
    first, second = (r"\cos", r"\sin") if layout == "musicgen" else (r"\sin", r"\cos")
    return (
        rf"\mathrm{{PE}}_{{p,\,i}} = {first}(p\,\omega_i), \quad"
        rf" \mathrm{{PE}}_{{p,\,d/2+i}} = {second}(p\,\omega_i), \quad \omega_i = 1 / {under}"
    )


def layout_of(vectors: Tensor, config: Mapping[str, Any], positions: Tensor) -> str:
    """The layout whose vectors come nearest to recorded ones; the first 32 positions tell.

    vectors: (seq, width); positions: (seq,) int64, as the model counts them before any offset
    """
    seen = vectors[:32].to(torch.float64)
    off = {
        name: float((table(positions[:32], seen.shape[1], **choice) - seen).abs().max())
        for name, choice in _choices(config).items()
    }
    return str(_choices(config)[min(off, key=off.__getitem__)]["layout"])


def wavelengths(width: int, base: float = 10000.0, layout: str = "interleaved") -> Tensor:
    """How many tokens each pair needs for a full turn: (pair,), float64, rising from 2 pi."""
    return 2 * math.pi / frequencies(width, base, layout)


def table(
    positions: Tensor,
    width: int,
    *,
    base: float = 10000.0,
    layout: str = "interleaved",
    offset: int = 0,
    zero_at: int | None = None,
) -> Tensor:
    """The vectors of some positions: (seq, width), float32, computed in float64.

    positions: (seq,), any integers, or fractions of a token
    offset: added to each position first (M2M-100 and XGLM: 2)
    zero_at: the position, offset included, whose vector is zero (M2M-100: the pad's)
    Raises ValueError for an unknown layout. Source: Vaswani et al. 2017, section 3.5.
    """
    moved = positions.to(torch.float64) + offset
    angle = moved[:, None] * frequencies(width, base, layout).to(positions.device)  # (seq, pair)
    sine, cosine = angle.sin(), angle.cos()
    if layout == "interleaved":
        out = torch.stack((sine, cosine), dim=-1).flatten(1)[:, :width]  # an odd width drops the last cosine
    elif layout == "halves":
        out = torch.cat((sine, cosine[:, : width // 2]), dim=1)
    else:
        first, second = (sine, cosine) if layout == "whisper" else (cosine, sine)
        out = torch.cat((first, second, angle.new_zeros(len(angle), width % 2)), dim=1)
    if zero_at is not None:
        out[moved == zero_at] = 0
    return out.to(torch.float32)


def _check(width: int, layout: str) -> None:
    if layout not in LAYOUTS:
        raise ValueError(f"unknown layout {layout!r}: choose one of {', '.join(LAYOUTS)}")
    if width < 1:
        raise ValueError(f"a vector needs a width of at least 1, not {width}")


def recognise(effect: type, looked_up: bool = False, bend: float | None = None) -> bool:  # noqa: ARG001
    """Whether what was found in a model is this scheme.

    effect: the class of what is injected; looked_up: in a learned table; bend: how far a bias is from linear, relative
    """
    return effect is Add and not looked_up


def variants(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What a configuration leaves open: the layout, the offset, and whether the pad's vector is zero."""
    return tuple(_choices(config))


def predict(
    config: Mapping[str, Any],
    positions: Tensor,
    *,
    variant: str = "",
    width: int | None = None,
    **_: Any,
) -> Add:
    """What is added to the embeddings: `Add`, (seq, width).

    positions: (seq,) int64; width: of the vectors, the configuration's model width if None
    variant: one of `variants(config)`; the paper's layout if ""
    Raises ValueError for another variant, or where no width is said. Source: Vaswani et al. 2017, section 3.5.
    """
    choices = {"": {}} | _choices(config)
    if variant not in choices:
        raise ValueError(f"unknown variant {variant!r}: choose one of {', '.join(choices)}")
    wide = width or size(text_part(config), D_MODEL, "how wide the model is")
    return Add(table(positions, wide, **choices[variant]))


def _choices(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each variant's name, and what `table` is given for it."""
    pad = pick(config, "pad_token_id")
    pads = [] if pad is None else [int(pad)]
    offsets = sorted({0, 2, *pads, *(p + 1 for p in pads)})  # FSMT counts from 1 and adds the pad's id
    out: dict[str, dict[str, Any]] = {}
    for layout in LAYOUTS:
        for offset in offsets:
            name = f"{layout} + {offset}" if offset else layout
            out[name] = {"layout": layout, "offset": offset}
            for p in pads:
                out[f"{name}, zero at {p}"] = {"layout": layout, "offset": offset, "zero_at": p}
    return out


def coverage(
    config: Mapping[str, Any], places: Tensor, trained: int, *, width: int | None = None, **_: Any
) -> dict[str, Coverage]:
    """Which pairs of sine and cosine stand at angles that training never showed.

    places: positions, (n,) int64; trained: tokens; width: the configuration's model width if None
    The spacing is the paper's; the other layouts' frequencies differ by less than one pair.
    """
    pair = frequencies(width or size(text_part(config), D_MODEL, "how wide the model is"))
    return {"": turned(pair, pair, places, trained, "position")}


def notice(effect: Effect, positions: Tensor) -> list[str]:
    """What to see in the vectors: two or three sentences with their own numbers."""
    if not isinstance(effect, Add) or len(effect.vectors) == 0:
        return []
    vectors = effect.vectors.float()
    width = vectors.shape[1]
    norms = vectors.norm(dim=1)
    out = [
        f"The vectors are {float(norms.mean()):.3g} long on average; sines and cosines in pairs make "
        f"√({width}/2) = {math.sqrt(width / 2):.3g} at every position."
    ]
    if len(vectors) > 1:
        cosine = torch.nn.functional.cosine_similarity(vectors[:1], vectors[1:])
        first, second, last = int(positions[0]), int(positions[1]), int(positions[-1])
        out.append(
            f"Position {first} has cosine {float(cosine[0]):.2f} with position {second} "
            f"and {float(cosine[-1]):.2f} with position {last}: near positions are alike."
        )
        out.append("The similarity depends on the distance alone, not on where in the text the two stand.")
    return out
