"""The census with weights: the block input of every second type, bit for bit, and the formula beside it."""

import pytest

from tests import census


@pytest.mark.parametrize("kind", census.TYPES[::2])
def test_recorded(kind):
    census.check(kind)
