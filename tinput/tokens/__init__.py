"""From text to tokens: ids, pieces, bytes, spans, specials, and what each stage of the tokenizer did.

A piece is the vocabulary's own string ("Ġthe", "▁the", "##ing", "<0xF0>"); bytes are what it stands for; a span is
where it came from in the text. Several tokens may hold the bytes of one character: they share its span, and a `Group`
holds the text once. Nothing is ever cut or padded, and a tokenizer that others use is never changed: a private copy
of it is asked.

result.py      Tokens: what comes out, and how to show it
tokenizing.py  what may be asked: tokenize, stages, vocabulary_labels
fast.py        a tokenizer of the `tokenizers` library
slow.py        one that is Python code
"""

from tinput.tokens.result import Flag, Group, Tokens
from tinput.tokens.tokenizing import TokenStage, stages, tokenize, vocabulary_labels

__all__ = ["Flag", "Group", "TokenStage", "Tokens", "stages", "tokenize", "vocabulary_labels"]
