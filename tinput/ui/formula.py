"""Formulas: LaTeX as the page shows it, and as MathML, which browsers draw by themselves."""

from __future__ import annotations

import re

from tinput.ui import literal

__all__ = ["lines_of", "mathml"]


def _parts(formula: str) -> list[str]:
    return re.split(r",\s*\\quad\s*", formula)


def lines_of(formula: str) -> str:
    """LaTeX with a line for each part of a formula: the column beside a picture is narrow."""
    parts = _parts(formula)
    stacked = r" \\[.6em] ".join(parts)
    return formula if len(parts) == 1 else rf"\begin{{gathered}} {stacked} \end{{gathered}}"


def mathml(formula: str) -> str:
    """HTML of a formula without any library in the browser, a line for each part; as LaTeX where it has no MathML."""
    from latex2mathml.converter import convert

    try:
        drawn = "".join(convert(re.sub(r"\\\\\[[^\]]*\]", r"\\\\", part), display="block") for part in _parts(formula))
    except Exception:  # the converter raises a class of its own for each thing that it does not know
        drawn = f"<code>{literal.inline(formula)}</code>"
    return f'<div class="formula" title="{literal.inline(formula)}">{drawn}</div>'
