"""Colour scales: even for the colour-blind means that lightness alone tells the order."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false
import numpy as np
import pytest

from tinput.figures import limits
from tinput.figures.colour import CYCLIC, DIVERGING, SEQUENTIAL, choose, on
from tinput.positions import SCHEMES


def lightness(colour: str) -> float:
    """CIE L* of an sRGB colour."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def test_magnitudes_grow_lighter_all_the_way():
    steps = np.diff([lightness(c) for c in SEQUENTIAL])
    assert (steps > 0).all()


def test_signed_values_darken_on_both_sides_of_a_light_middle():
    light = [lightness(c) for c in DIVERGING]
    middle = len(light) // 2
    assert (np.diff(light[: middle + 1]) > 0).all()
    assert (np.diff(light[middle:]) < 0).all()
    assert light[middle] > 90
    # The two halves are told apart by blue against red, which colour-blind eyes keep: no green against red.
    assert all(int(c[5:7], 16) > int(c[1:3], 16) for c in DIVERGING[:middle])
    assert all(int(c[5:7], 16) < int(c[1:3], 16) for c in DIVERGING[middle + 1 :])


def test_angles_end_where_they_start():
    assert CYCLIC[0] == CYCLIC[-1]
    assert len(set(CYCLIC)) == len(CYCLIC) - 1


def test_limits_come_from_finite_unmasked_values():
    values = np.array([1.0, -2.0, np.nan, np.inf, -np.inf, np.finfo(np.float32).min], np.float32)
    assert limits(values) == (-2.0, 2.0)
    assert limits(np.abs(values[:2])) == (1.0, 2.0)
    assert limits(np.array([0.1, 2.0])) == (0.0, 2.0)
    assert limits(values, scale="cyclic") == (0.0, 2 * np.pi)


def test_one_pair_of_limits_for_two_models():
    assert limits([1.0, -1.0], [0.0, 5.0]) == (-5.0, 5.0)


def test_limits_without_any_range_are_still_a_range():
    for values in ([0.0, 0.0], [3.0, 3.0], [np.nan], [-1.0]):
        low, high = limits(np.array(values))
        assert low < high


def test_an_outlier_can_be_left_out_of_the_limits():
    values = np.append(np.ones(999), 1000.0) * np.resize([1, -1], 1000)
    assert limits(values, quantile=0.99) == (-1.0, 1.0)
    assert limits(values)[1] == 1000


def test_sign_chooses_the_scale():
    assert choose(np.array([1.0, np.nan, 0.0], np.float32)) == "sequential"
    assert choose(np.array([1.0, -1e-9], np.float32)) == "diverging"
    assert choose(np.array([1.0, -np.inf], np.float32)) == "sequential"


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_words_on_a_scheme_s_colour_can_be_read(scheme):
    def luminance(colour):
        value = lightness(colour)
        return ((value + 16) / 116) ** 3

    a, b = sorted([luminance(scheme.COLOUR), luminance(on(scheme.COLOUR)) if on(scheme.COLOUR) != "#000000" else 0.0])
    assert (b + 0.05) / (a + 0.05) >= 4.5  # WCAG AA
