"""The private copy of a fast tokenizer: it tells the same, and what is changed in it stays in it."""

import pytest
from tokenizers import Tokenizer

from tests import makers
from tinput.tokens.fast import _copy


@pytest.mark.parametrize(
    "make", [makers.byte_level, makers.byte_fallback, makers.unigram, makers.wordpiece, makers.words]
)
def test_the_copy_that_is_asked_tells_the_same_and_is_changed_alone(make):
    backend = make().backend_tokenizer
    copied = _copy(backend)
    assert copied.to_str() == Tokenizer.from_str(backend.to_str()).to_str()
    copied.enable_truncation(1)
    assert backend.truncation is None
    assert len(backend.encode("two words").ids) > 1
