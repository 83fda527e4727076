"""What callers hand over, checked: each error is a sentence that says what to give instead."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tinput.errors import BadIds

__all__ = ["count", "flag", "whole_numbers"]


def flag(value: Any, name: str) -> bool:
    """True or False. Raises BadIds: "no" would count as yes."""
    if not isinstance(value, bool):
        raise BadIds(f"{name} is True or False, not {value!r}.")
    return value


def count(value: Any, what: str) -> int:
    """A whole number, one at the least. Raises BadIds."""
    whole = isinstance(value, int) or (isinstance(value, Tensor) and value.ndim == 0 and not value.is_floating_point())
    if isinstance(value, bool) or not whole or int(value) < 1:
        raise BadIds(f"The number of {what} must be whole and at least 1, and is {value!r}.")
    return int(value)


def whole_numbers(values: Any, what: str) -> Tensor:
    """(n,) int64. Raises BadIds for what is no row of whole numbers, none of them negative."""
    try:
        numbers = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise BadIds(f"The {what} must be whole numbers, one a token ({error}).") from None
    if numbers.numel() and (numbers.is_floating_point() or numbers.dtype == torch.bool):
        raise BadIds(f"The {what} must be whole numbers, and these are {str(numbers.dtype).removeprefix('torch.')}.")
    if numbers.ndim != 1:
        raise BadIds(f"The {what} must be whole numbers in one row, and these have the shape {tuple(numbers.shape)}.")
    numbers = numbers.to(torch.int64).clone()
    if len(numbers) and int(numbers.min()) < 0:
        raise BadIds(f"There is no negative number among {what}; {int(numbers.min())} is one.")
    return numbers
