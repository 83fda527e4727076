"""The twins' tokenizer: byte-level BPE (Sennrich et al. 2016; the byte alphabet of GPT-2, Radford et al. 2019).

256 bytes, the merges that shorten the training text most, and one special token, which starts a document in training
and which `encode` does not add by itself. Any text at all can be encoded, and decoded back exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["START", "train_tokenizer"]

START = "<|start|>"


def train_tokenizer(texts: Iterable[str], vocab_size: int = 1024) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of at most `vocab_size` pieces.

    It names no longest text: how far a model reads past the length that it was trained at is what one wants to see.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[START],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=START,
        eos_token=START,
        clean_up_tokenization_spaces=False,
    )
