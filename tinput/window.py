"""A huge array as a function: ask for ranges and a number of cells, get just those values.

A bias at a million positions has 10^12 values; a picture shows 256 x 256 of them. `Field` knows the shape and
how to compute any rows and columns; `window` computes only what is shown, and says what a cell stands for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Field", "Window"]

At = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Window:
    """The values of some rows and columns.

    values: (rows, columns) or (lead, rows, columns), float32
    rows, columns: (n,) int64, the index of each row and column shown
    row_step, column_step: how many rows or columns of the whole one cell stands for (1: nothing is left out)
    """

    values: Tensor
    rows: Tensor
    columns: Tensor
    row_step: int = 1
    column_step: int = 1

    @classmethod
    def stacked(cls, panels: list[Tensor], index: Tensor, step: int = 1) -> Window:
        """Square panels (n, n) of the same rows and columns, one a lead: (panel, n, n). index: (n,) int64."""
        return cls(torch.stack(panels), index, index, step, step)

    @property
    def note(self) -> str:
        """What was left out, in words; empty when nothing was."""
        if self.row_step == 1 and self.column_step == 1:
            return ""
        return f"every {_ordinal(self.row_step)} row and every {_ordinal(self.column_step)} column is shown"


class Field:
    """An array of shape (rows, columns) or (lead, rows, columns), known as a function.

    at: (rows (r,), columns (c,)) -> (r, c) or (lead, r, c), any float dtype
    one: for an index of the leading axis, the function of that one alone; without it `field[h]` computes all
    """

    def __init__(self, shape: tuple[int, ...], at: At, one: Callable[[int], At] | None = None):
        self.shape = tuple(shape)
        self.at = at
        self.whole: Tensor | None = None  # the values, where they exist anyway
        self._one = one

    @classmethod
    def of(cls, tensor: Tensor) -> Field:
        """A field over values that exist already."""
        field = cls(
            tuple(tensor.shape),
            lambda rows, columns: tensor[..., rows[:, None], columns[None, :]],
            lambda lead: lambda rows, columns: tensor[lead][rows[:, None], columns[None, :]],
        )
        field.whole = tensor
        return field

    def __repr__(self) -> str:
        return f"Field(shape={self.shape}): .tensor() is all of it, .window(rows, columns) a part"

    def __getitem__(self, lead: int) -> Field:
        """One (rows, columns) field out of (lead, rows, columns)."""
        if not isinstance(lead, int):
            raise TypeError("a field is indexed by its leading axis alone; .tensor() is a tensor, for any other index")
        if len(self.shape) != 3:
            raise IndexError(f"a field of shape {self.shape} has no leading axis to index; .tensor() is a tensor")
        if not -self.shape[0] <= lead < self.shape[0]:
            raise IndexError(f"index {lead} is outside the {self.shape[0]} of the leading axis")
        lead %= self.shape[0]
        if self._one is not None:
            return Field(self.shape[1:], self._one(lead))
        return Field(self.shape[1:], lambda rows, columns: self.at(rows, columns)[lead])

    def window(
        self,
        rows: tuple[int, int] | None = None,
        columns: tuple[int, int] | None = None,
        cells: int | tuple[int, int] = 256,
    ) -> Window:
        """The values of `rows` and `columns` (start, stop), at most `cells` of each, evenly spaced from the start.

        Nothing but the values returned is computed. Raises ValueError for an empty range.
        """
        row_cells, column_cells = (cells, cells) if isinstance(cells, int) else cells
        row_index, row_step = _spread(rows, self.shape[-2], row_cells)
        column_index, column_step = _spread(columns, self.shape[-1], column_cells)
        values = self.at(row_index, column_index).to(torch.float32)
        return Window(values, row_index, column_index, row_step, column_step)

    def tensor(self) -> Tensor:
        """All of it, in the dtype that it is computed in. For small fields."""
        if self.whole is not None:
            return self.whole
        return self.at(torch.arange(self.shape[-2]), torch.arange(self.shape[-1]))

    def __array__(self, dtype=None, copy=None):
        array = self.tensor().float().numpy()
        return array if dtype is None else array.astype(dtype)


def _spread(span: tuple[int, int] | None, size: int, cells: int) -> tuple[Tensor, int]:
    start, stop = (0, size) if span is None else (max(0, span[0]), min(size, span[1]))
    if stop <= start or cells < 1:
        raise ValueError(f"nothing to show: the range {span} of {size} holds no row or column")
    step = -(-(stop - start) // cells)
    return torch.arange(start, stop, step), step


def _ordinal(n: int) -> str:
    if n == 1:
        return "single"
    suffix = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n:,}{suffix}"
