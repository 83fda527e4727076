"""Small tokenizers of each kind, made in memory."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

CORPUS = ["the cat sat on the mat, and the other cat sat there", "a café for the naïve", "unhappy, unhappier"] * 20


@cache
def byte_level(*, trim: bool = True, start: bool = False) -> PreTrainedTokenizerFast:
    """GPT-2's kind, or with `start` Llama 3's (a start token added in front)."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    specials = ["<|endoftext|>", AddedToken("<mask>", lstrip=True, special=True)]
    made.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, special_tokens=specials, show_progress=False),
    )
    made.post_processor = processors.ByteLevel(trim_offsets=trim)
    if start:
        template = processors.TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
        made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=trim), template])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<|endoftext|>", eos_token="<|endoftext|>", unk_token="<|endoftext|>"
    )


@cache
def byte_fallback() -> PreTrainedTokenizerFast:
    """Llama 2's kind: ▁ for a space, put before the text too; characters without a piece as bytes <0xF0>."""
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for piece in [*(f"<0x{b:02X}>" for b in range(256)), *"▁theca", "th", "the", "▁the", "▁a", "ca"]:
        vocabulary[piece] = len(vocabulary)
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("▁", "a"), ("c", "a")]
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    made.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in ("<unk>", "<s>", "</s>")])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


@cache
def unigram() -> PreTrainedTokenizerFast:
    """T5's kind, with an end token."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), ("▁the", -3.0), ("cat", -4.0), ("▁a", -3.0)]
    made = Tokenizer(models.Unigram([*pieces, *((c, -6.0) for c in "thecas")], unk_id=2, byte_fallback=False))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", unk_token="<unk>", pad_token="<pad>")


@cache
def sentencepiece(kind: str = "unigram", size: int = 300) -> bytes:
    """A file of the package sentencepiece's own ("unigram", "bpe"), trained on the text beside the bundled models."""
    import io

    import sentencepiece as library

    from tinput.twins import HELD_OUT

    lines = [line for line in HELD_OUT.read_text(encoding="utf-8")[:60_000].splitlines() if line.strip()]
    made = io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=made, vocab_size=size, model_type=kind, minloglevel=2
    )
    return made.getvalue()


def marian(folder: Path) -> Path:
    """Marian's files: a file of pieces for either language, and the ids of both in one list."""
    import sentencepiece as library

    raw = sentencepiece()
    pieces = library.SentencePieceProcessor(model_proto=raw)
    vocabulary = ["</s>", "<unk>", *(pieces.id_to_piece(n) for n in range(3, pieces.get_piece_size())), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: n for n, piece in enumerate(vocabulary)}))
    for file in ("source.spm", "target.spm"):
        (folder / file).write_bytes(raw)
    said = {"tokenizer_class": "MarianTokenizer", "source_lang": "eng", "target_lang": "deu"}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    return folder


@cache
def wordpiece() -> PreTrainedTokenizerFast:
    """BERT's kind: lower case, no accents, ## inside a word, [UNK] for a word that cannot be spelled."""
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "the",
        "cat",
        "sat",
        "un",
        "##happy",
        "##happi",
        "##er",
        "cafe",
        ",",
        ".",
    ]
    made = Tokenizer(models.WordPiece({w: k for k, w in enumerate(words)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=16, **names)


@cache
def words() -> PreTrainedTokenizerFast:
    """Whole words alone, as a test model may have."""
    made = Tokenizer(models.WordLevel({"[UNK]": 0, "the": 1, "cat": 2}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]")


ALL = {
    "byte_level": byte_level,
    "byte_level_untrimmed": lambda: byte_level(trim=False),
    "byte_level_start": lambda: byte_level(start=True),
    "byte_fallback": byte_fallback,
    "unigram": unigram,
    "wordpiece": wordpiece,
    "words": words,
}
