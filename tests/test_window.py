"""Fields and windows: only what is shown is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tinput.window import Field


def counting(shape):
    """A field of row * 1000 + column, and how many values it was asked for."""
    asked: list[int] = []

    def at(rows, columns):
        asked.append(len(rows) * len(columns))
        plane = rows[:, None] * 1000.0 + columns[None, :]
        return plane if len(shape) == 2 else torch.stack([plane + 10_000_000 * lead for lead in range(shape[0])])

    return Field(shape, at), asked


def test_a_window_computes_what_it_shows():
    field, asked = counting((10**6, 10**6))
    window = field.window(rows=(1000, 2000), columns=(0, 10**6), cells=100)
    assert window.values.shape == (100, 100)
    assert asked == [100 * 100]
    assert (window.row_step, window.column_step) == (10, 10_000)
    assert window.rows.tolist() == list(range(1000, 2000, 10))
    assert float(window.values[2, 3]) == 1020 * 1000 + 30_000
    assert window.values.dtype == torch.float32


def test_a_small_field_is_shown_whole():
    field, _ = counting((5, 7))
    window = field.window()
    assert torch.equal(window.values, field.tensor().float())
    assert window.note == ""
    assert window.rows.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("size", [255, 256, 257, 511, 512, 513, 1000, 65_537])
def test_never_more_cells_than_asked_for(size):
    field, _ = counting((size, 3))
    window = field.window()
    assert len(window.rows) <= 256
    assert window.rows[0] == 0
    assert window.rows[-1] < size
    assert len(window.rows) == -(-size // window.row_step)


def test_cells_by_axis_and_note():
    field, _ = counting((100, 90))
    window = field.window(cells=(10, 90))
    assert window.values.shape == (10, 90)
    assert window.note == "every 10th row and every single column is shown"
    assert field.window(cells=(50, 30)).note == "every 2nd row and every 3rd column is shown"
    assert field.window(cells=(9, 8)).note == "every 12th row and every 12th column is shown"
    long, _ = counting((1110, 1210))
    assert long.window(cells=10).note == "every 111th row and every 121st column is shown"


def test_ranges_are_cut_to_what_there_is():
    field, _ = counting((10, 10))
    assert field.window(rows=(-5, 100), columns=(8, 20)).values.shape == (10, 2)
    for bad in ((5, 5), (6, 5), (10, 20), (-3, 0)):
        with pytest.raises(ValueError, match="nothing to show"):
            field.window(rows=bad)
    with pytest.raises(ValueError, match="nothing to show"):
        field.window(cells=0)


def test_one_of_a_leading_axis():
    field, _ = counting((4, 6, 5))
    assert field[2].shape == (6, 5)
    assert torch.equal(field[2].tensor(), field.tensor()[2])
    assert torch.equal(field[-1].tensor(), field.tensor()[3])
    assert torch.equal(field[1].window(rows=(1, 3)).values, field.window(rows=(1, 3)).values[1])
    for bad in (4, -5):
        with pytest.raises(IndexError):
            field[bad]
    with pytest.raises(IndexError):
        field[0][0]


def test_one_alone_does_not_compute_the_others():
    asked = []

    def lead(index):
        asked.append(index)
        return lambda rows, columns: torch.full((len(rows), len(columns)), float(index))

    def never(*_):
        raise AssertionError("all heads were computed for one")

    field = Field((32, 10**6, 10**6), never, lead)
    assert float(field[7].window(cells=4).values[0, 0]) == 7
    assert asked == [7]


def test_values_that_are_there_anyway():
    values = torch.arange(24.0).reshape(2, 3, 4)
    field = Field.of(values)
    assert field.tensor() is values
    assert torch.equal(field.window().values, values)
    assert torch.equal(field[1].window(columns=(1, 3)).values, values[1][:, 1:3])
    assert torch.equal(Field.of(values[0]).tensor(), values[0])


def test_as_an_array():
    field = Field.of(torch.arange(6).reshape(2, 3).bfloat16())
    array = np.asarray(field)
    assert array.dtype == np.float32  # numpy has no bfloat16
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.asarray(field, dtype=np.float64).dtype == np.float64
    assert field.window().values.dtype == torch.float32


def test_a_field_says_how_to_be_read():
    """Whoever takes it for a tensor is told of `tensor()`."""
    field = Field.of(torch.zeros(2, 3, 3))
    assert "shape=(2, 3, 3)" in repr(field)
    assert ".tensor()" in repr(field)
    wrong: tuple[Any, ...] = (slice(None), (0, 1))
    for index in wrong:
        with pytest.raises(TypeError, match=r"\.tensor\(\)"):
            field[index]
