"""One line of the result, and the table of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Row", "table"]


@dataclass(frozen=True)
class Row:
    """One measurement: ours, what it stands beside, and the ratio of the two that is aimed for.

    ours, beside: values in `unit`; aim: the largest ratio ours / beside that is good, None where none is set
    """

    what: str
    ours: float
    beside: float
    beside_what: str
    unit: str
    aim: float | None = None

    @property
    def ratio(self) -> float:
        return self.ours / self.beside

    @property
    def met(self) -> bool:
        return self.aim is None or self.ratio <= self.aim


def table(rows: Iterable[Row]) -> str:
    """The rows as aligned text."""
    cells = [("what", "tinput", "beside", "", "ratio", "aim", "")]
    for row in rows:
        ours, beside = (f"{value:,.{1 if value < 100 else 0}f} {row.unit}" for value in (row.ours, row.beside))
        aim, verdict = ("", "") if row.aim is None else (f"≤ {row.aim:g}", "met" if row.met else "NOT MET")
        cells.append((row.what, ours, beside, row.beside_what, f"{row.ratio:.2f}", aim, verdict))
    widths = [max(len(cell[column]) for cell in cells) for column in range(len(cells[0]))]
    right = {1, 2, 4, 5}  # the columns with numbers
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )
