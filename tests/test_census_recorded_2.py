"""The census with weights: the block input of the other half, bit for bit, and the formula beside it."""

import pytest

from tests import census


@pytest.mark.parametrize("kind", census.ENTRIES[1::2])
def test_recorded(kind):
    census.check(kind)
