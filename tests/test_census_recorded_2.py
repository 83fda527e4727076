"""The census with weights: the block input of the other half of the types, bit for bit, and the formula beside it."""

import pytest

from tests import census


@pytest.mark.parametrize("kind", census.TYPES[1::2])
def test_recorded(kind):
    census.check(kind)
