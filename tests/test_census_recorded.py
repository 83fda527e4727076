"""The census with weights: the block input of every second one, bit for bit, and the formula beside it."""

import pytest

from tests import census


@pytest.mark.parametrize("kind", census.ENTRIES[::2])
def test_recorded(kind):
    census.check(kind)
