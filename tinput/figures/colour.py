"""Which colours stand for which values: signed, magnitudes, angles.

Signed values get a diverging scale centred on zero, magnitudes a sequential one, angles a cyclic one. All three are
made for colour-blind eyes: after Crameri's vik (2018), Cividis (Nunez et al. 2018), and twilight (Bechtold 2017).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["CYCLIC", "DIVERGING", "GREY", "OKABE_ITO", "SCALES", "SEQUENTIAL", "choose", "limits", "on"]

DIVERGING = ("#001261", "#033e7d", "#1e6f9d", "#71a8c4", "#c9dde7", "#f2ebe6", "#eacebd", "#d39774", "#be6533",
             "#8b2706", "#590008")  # fmt: skip
SEQUENTIAL = ("#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55",
              "#fee838")  # fmt: skip
CYCLIC = ("#e2d9e2", "#9ebbc9", "#6785be", "#5e43a5", "#421257", "#471340", "#8e2c50", "#ba6657", "#ceac94",
          "#e2d9e2")  # fmt: skip
SCALES = {"diverging": DIVERGING, "sequential": SEQUENTIAL, "cyclic": CYCLIC}

OKABE_ITO = ("#0072B2", "#E69F00", "#CC79A7", "#009E73", "#56B4E9", "#D55E00", "#999999")
GREY = "#808495"  # lines and marks that must show on white and on black


def choose(values: NDArray[np.float32]) -> str:
    """ "diverging" where some finite value is negative, else "sequential"."""
    finite = values[np.isfinite(values)]
    return "diverging" if finite.size and finite.min() < 0 else "sequential"


def limits(*arrays, scale: str | None = None, quantile: float = 1.0) -> tuple[float, float]:
    """One pair of colour limits for all `arrays`, from their finite values alone.

    scale: "diverging" gives (-m, m), "sequential" (low, high), "cyclic" (0, 2 pi); None chooses
    quantile: below 1, that share of the magnitudes sets the limits, so that an outlier does not hide the rest
    """
    from tinput.figures.style import as_array

    flat = np.concatenate([as_array(array).ravel() for array in arrays])
    flat = flat[np.isfinite(flat) & (flat > MASKED)]
    scale = scale or choose(flat)
    if scale == "cyclic":
        return 0.0, 2 * np.pi
    if not flat.size:
        return (-1.0, 1.0) if scale == "diverging" else (0.0, 1.0)
    if scale == "diverging":
        bound = float(np.quantile(np.abs(flat), quantile))
        return (-bound, bound) if bound > 0 else (-1.0, 1.0)
    low, high = float(flat.min()), float(np.quantile(flat, quantile))
    if low >= 0 and low < 0.5 * high:
        low = 0.0  # a magnitude starts at nothing, unless all the values lie close together
    return (low, high) if high > low else (min(low, 0.0), high if high > 0 else 1.0)


MASKED = -1e30  # a mask is -inf, or the most negative number of its dtype


def on(colour: str) -> str:
    """Black or white, whichever is easier to read on `colour` (WCAG's relative luminance)."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if luminance > 0.179 else "#ffffff"
