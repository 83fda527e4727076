"""Tokenizers that are Python code: the same answers, without offsets to go by."""

from transformers import PreTrainedTokenizer

from tinput.tokens import stages, tokenize, vocabulary_labels


class Spelled(PreTrainedTokenizer):
    """A tokenizer in Python, without offsets: letters, and <unk> for digits."""

    def __init__(self):
        self.letters = {c: k + 2 for k, c in enumerate("abcdefghijklmnopqrstuvwxyz ")} | {"<unk>": 0, "<e>": 1}
        super().__init__(unk_token="<unk>", eos_token="<e>")

    @property
    def vocab_size(self):
        return len(self.letters)

    def get_vocab(self):
        return dict(self.letters)

    def _tokenize(self, text, **_):
        return list(text.lower())

    def _convert_token_to_id(self, token):
        return self.letters.get(token, 0)

    def _convert_id_to_token(self, index):
        return next(c for c, k in self.letters.items() if k == index)

    def build_inputs_with_special_tokens(self, ids, pair=None):  # noqa: ARG002 - transformers' signature
        return [*ids, 1]


def test_a_slow_tokenizer():
    slow = Spelled()
    tokens = tokenize(slow, "Ab 7c")
    assert list(tokens.ids) == slow("Ab 7c")["input_ids"]
    assert tokens.pieces[:6] == ("a", "b", " ", "<unk>", "c", "<e>")
    assert tokens.spans[:3] == ((0, 1), (1, 2), (2, 3))
    assert tokens.spans[4] == (4, 5)
    assert tokens.spans[5] is None
    assert tokens.unknown == (3,)
    assert tokens.special[5]
    (stage,) = stages(slow, "Ab")
    assert "Spelled is Python code" in stage.what
    assert vocabulary_labels(slow, [2, 0, 28]) == ("a", "<unk>", "␣")
