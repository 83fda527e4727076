"""Tokenizations of one text, aligned by bytes: the segments divide the text, and are the finest that all share."""

import math
from itertools import permutations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import app, makers
from tinput import align, measure
from tinput.tokens import Tokens, tokenize

TEXTS = [
    *app.HOSTILE,
    "the cat sat on the mat",
    "unhappy, unhappier",
    "Café  CAFÉ e\u0301e\u0301 ça",
    "🦙🦙 a ⭢ b",
    "  two  blanks  ",
    "\u200d\u0301",
    "[CLS] the [MASK] cat <mask> <s>",
    "깰 깰, 猫",
]
LETTERS = [*"the catsun.,é \n🦙깰\0", "\u0301", "\u200d", "##", "[UNK]", "<s>"]
TEXT = st.one_of(
    st.sampled_from(TEXTS),
    st.lists(st.sampled_from(LETTERS), max_size=24).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=16),
)
KINDS = st.lists(st.sampled_from(sorted(makers.ALL)), min_size=1, max_size=4)
any_text = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def tokens_of(kinds: list[str], text: str) -> list[Tokens]:
    return [tokenize(makers.ALL[kind](), text) for kind in kinds]


def made(text: str, *pieces: tuple[str, int, int]) -> Tokens:
    """Tokens by hand: (piece, start, stop) in characters; start -1 for an added special token."""
    spans = tuple(None if a < 0 else (a, b) for _, a, b in pieces)
    return Tokens(
        tuple(range(len(pieces))),
        tuple(piece for piece, *_ in pieces),
        tuple(b"" if span is None else text[slice(*span)].encode() for span in spans),
        spans,
        tuple(span is None for span in spans),
        text,
    )


def divided(common: align.Alignment) -> list[tuple[str, tuple[align.Range, ...]]]:
    return [(segment.text.decode(), segment.tokens) for segment in common.segments]


# --- by hand


def test_three_tokens_stand_under_one():
    text = "unhappy cat"
    one = made(text, ("unhappy", 0, 7), (" cat", 7, 11))
    many = made(
        text, ("[CLS]", -1, -1), ("un", 0, 2), ("##hap", 2, 5), ("##py", 5, 7), ("cat", 8, 11), ("[SEP]", -1, -1)
    )
    common = align.align(one, many)
    assert divided(common) == [("unhappy", ((0, 1), (1, 4))), (" cat", ((1, 2), (4, 5)))]
    assert (common.before, common.after) == (((0, 0), (0, 1)), ((2, 2), (5, 6)))
    assert common.labels == ("(start)", "unhappy", "␣cat", "(end)")


def test_cuts_that_only_one_has_do_not_count():
    text = "abcdef"
    common = align.align(made(text, ("abc", 0, 3), ("def", 3, 6)), made(text, ("ab", 0, 2), ("cd", 2, 4), ("ef", 4, 6)))
    assert divided(common) == [("abcdef", ((0, 2), (0, 3)))]


def test_a_dropped_blank_goes_to_what_follows_and_stands_alone_where_another_has_a_token_for_it():
    text = "a b "
    drops = made(text, ("a", 0, 1), ("b", 2, 3))
    assert divided(align.align(drops)) == [("a", ((0, 1),)), (" b ", ((1, 2),))]
    keeps = made(text, ("a", 0, 1), (" ", 1, 2), ("b", 2, 3), (" ", 3, 4))
    assert divided(align.align(drops, keeps)) == [
        ("a", ((0, 1), (0, 1))),
        (" ", ((1, 1), (1, 2))),
        ("b", ((1, 2), (2, 3))),
        (" ", ((2, 2), (3, 4))),
    ]
    joins = made(text, ("a", 0, 1), (" b", 1, 3), (" ", 3, 4))
    assert divided(align.align(keeps, joins, drops))[1] == (" b", ((1, 3), (1, 2), (1, 2)))


def test_bytes_of_one_character_have_their_own_places():
    llama = tokenize(makers.byte_level(), "🦙")
    assert len(llama) > 1
    assert [segment.tokens for segment in align.align(llama, llama).segments] == [
        ((k, k + 1), (k, k + 1)) for k in range(len(llama))
    ]
    unknown = tokenize(makers.wordpiece(), "🦙")
    (segment,) = align.align(llama, unknown).segments
    assert (segment.text.decode(), segment.tokens) == ("🦙", ((0, len(llama)), (1, 2)))


def test_tokens_that_overlap_or_stand_out_of_order_are_not_parted():
    text = "abcd"
    odd = made(text, ("x", 2, 4), ("y", 0, 1), ("z", 1, 1), ("w", 3, 4))
    assert divided(align.align(odd, made(text, *((c, k, k + 1) for k, c in enumerate(text))))) == [
        ("abcd", ((0, 4), (0, 4)))
    ]


def test_a_token_without_width_stands_with_what_follows():
    text = "ab"
    mark = made(text, ("▁", 0, 0), ("a", 0, 1), ("▁", 1, 1), ("b", 1, 2), ("▁", 2, 2))
    assert divided(align.align(mark)) == [("a", ((0, 2),)), ("b", ((2, 5),))]


def test_what_cannot_be_aligned():
    with pytest.raises(ValueError, match="at least one"):
        align.align()
    with pytest.raises(ValueError, match="different texts"):
        align.align(made("a", ("a", 0, 1)), made("b", ("b", 0, 1)))


def test_texts_that_no_tokenizer_has_a_token_for():
    text = " \u200d "
    nothing = made(text, ("[CLS]", -1, -1), ("[SEP]", -1, -1))
    common = align.align(nothing, nothing)
    assert divided(common) == [(text, ((2, 2), (2, 2)))]
    assert common.before == ((0, 2), (0, 2))
    assert align.align(made("")).segments == ()


def test_a_cut_text_ends_with_the_last_whole_segment():
    text = "abcdef"
    one, two = made(text, *((c, k, k + 1) for k, c in enumerate(text))), made(text, ("abc", 0, 3), ("def", 3, 6))
    common = align.align(one, two, lengths=[5, 2])
    assert divided(common) == [("abc", ((0, 3), (0, 1)))]
    assert (common.stop, common.size) == (3, 6)
    assert all(a == b for a, b in common.after)


# --- for any text


@any_text
@given(kinds=KINDS, text=TEXT)
def test_segments_divide_text_and_tokens(kinds, text):
    every = tokens_of(kinds, text)
    common = align.align(*every)
    assert b"".join(segment.text for segment in common.segments) == text.encode()
    end = 0
    for segment in common.segments:
        assert segment.start == end < segment.stop
        end = segment.stop
        assert any(b > a for a, b in segment.tokens) or len(common.segments) == 1
    assert end == common.stop == common.size == len(text.encode())
    for number, tokens in enumerate(every):
        ranges = common.ranges(number)
        assert [k for a, b in ranges for k in range(a, b)] == list(range(len(tokens)))
    assert len(common.labels) == len(common.parts)
    assert all(label.strip() for label in common.labels)


@any_text
@given(kinds=KINDS, text=TEXT)
def test_each_token_lies_in_the_segment_that_it_is_counted_to(kinds, text):
    every = tokens_of(kinds, text)
    common = align.align(*every)
    byte = [0]
    for character in text:
        byte.append(byte[-1] + len(character.encode()))
    for number, tokens in enumerate(every):
        for segment in common.segments:
            for k in range(*segment.tokens[number]):
                span = tokens.spans[k]
                if span is None:
                    continue
                inside = segment.start <= byte[span[0]] and byte[span[1]] <= segment.stop
                shares = tokens.spans.count(span) > 1 or any(
                    other and other != span and other[0] < span[1] and span[0] < other[1] for other in tokens.spans
                )
                assert inside or shares  # bytes of one character may part inside it


@any_text
@given(kinds=KINDS, text=TEXT)
def test_no_segment_can_be_divided_further(kinds, text):
    """Against a search of every byte and every way to part the tokens there, by the spans alone."""
    every = [tokens for tokens in tokens_of(kinds, text) if len(tokens.ids)]
    if not every or any(g.stop - g.start > 1 for tokens in every for g in tokens.groups):
        return  # tokens that share characters are parted by their bytes, which spans do not say
    common = align.align(*every)
    byte = [0]
    for character in text:
        byte.append(byte[-1] + len(character.encode()))

    def ways(tokens: Tokens, segment: align.Part, number: int, at: int) -> list[int]:
        first, stop = segment.tokens[number]
        spans = [(byte[s[0]], byte[s[1]]) if s else None for s in tokens.spans]
        return [
            k
            for k in range(first, stop + 1)
            if all(s is None or s[1] <= at for s in spans[first:k])
            and all(s is None or s[0] >= at for s in spans[k:stop])
        ]

    for segment in common.segments:
        for at in range(segment.start + 1, segment.stop):
            found = [ways(tokens, segment, number, at) for number, tokens in enumerate(every)]
            if all(found):  # then one of the two sides has no token at all
                ranges = [(min(k), max(k), *segment.tokens[n]) for n, k in enumerate(found)]
                assert all(low == first for low, _, first, _ in ranges) or all(
                    high == stop for _, high, _, stop in ranges
                )


@any_text
@given(kinds=KINDS, text=TEXT)
def test_the_order_does_not_matter(kinds, text):
    every = tokens_of(kinds, text)
    common = align.align(*every)
    for order in list(permutations(range(len(every))))[:6]:
        other = align.align(*(every[k] for k in order))
        assert [s.text for s in other.segments] == [s.text for s in common.segments]
        assert [s.tokens for s in other.parts] == [tuple(s.tokens[k] for k in order) for s in common.parts]


@any_text
@given(kind=st.sampled_from(sorted(makers.ALL)), text=TEXT)
def test_a_tokenization_beside_itself_does_not_differ(kind, text):
    tokens = tokens_of([kind], text)[0]
    common = align.align(tokens, tokens)
    assert all(one == two for one, two in (part.tokens for part in common.parts))
    assert common.first_apart([tokens.ids] * 2) is None
    whole = [g for g in tokens.groups if g.span]
    if all(g.stop - g.start == 1 for g in whole) and all(g.span and g.span[0] < g.span[1] for g in whole) and whole:
        assert len(common.segments) == len(whole)  # one token a segment


@any_text
@given(kinds=KINDS, text=TEXT, keep=st.integers(0, 20))
def test_a_cut_text_has_the_first_segments_of_the_whole(kinds, text, keep):
    every = tokens_of(kinds, text)
    whole, cut = align.align(*every), align.align(*every, lengths=[min(keep, len(t)) for t in every])
    assert cut.segments == whole.segments[: len(cut.segments)]
    for number in range(len(every)):
        assert all(b <= keep for _, b in cut.ranges(number))


def test_the_first_part_that_differs():
    text = "a b c"
    one = made(text, ("[CLS]", -1, -1), ("a", 0, 1), ("b", 2, 3), ("c", 4, 5))
    common = align.align(one, one)
    assert common.first_apart([[0, 1, 2, 3], [0, 1, 9, 3]]) == 2  # (start), a, b
    assert common.first_apart([[9, 1, 2, 3], [0, 1, 9, 3]]) == 0
    assert common.first_apart([[1.0, 1, 1, 1], [1.0, 1, 1, 1 + 1e-8]], tolerance=1e-6) is None
    assert common.first_apart([[1.0, 1, 1, 1], [1.0, 1, 1, 1.1]], tolerance=1e-6) == 3


# --- values by part


def test_a_part_has_the_mean_of_its_tokens():
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]])
    pooled = align.pool(values, [(0, 2), (2, 2), (2, 3)])
    torch.testing.assert_close(pooled, torch.tensor([[2.0, 3.0], [math.nan, math.nan], [5.0, 9.0]]), equal_nan=True)


def test_a_part_of_one_token_has_its_values_bit_for_bit():
    values = torch.randn(50, 7, generator=torch.Generator().manual_seed(0)) * 1e6
    assert torch.equal(align.pool(values, [(k, k + 1) for k in range(50)]), values)


def test_weights_from_part_to_part_still_sum_to_one():
    weights = torch.rand(6, 6, generator=torch.Generator().manual_seed(1)).softmax(dim=-1)
    ranges = [(0, 1), (1, 4), (4, 4), (4, 6)]
    pooled = align.pool_weights(weights, ranges)
    torch.testing.assert_close(pooled[1, 3], weights[1:4, 4:6].sum(dim=1).mean())
    torch.testing.assert_close(pooled.nansum(dim=1), torch.tensor([1.0, 1.0, 0.0, 1.0]))
    assert pooled[2].isnan().all()
    assert pooled[:, 2].isnan().all()


def test_what_a_mask_hides_whole_has_no_weight():
    mask = torch.full((6, 6), -math.inf).triu(1)
    weights = torch.rand(6, 6, generator=torch.Generator().manual_seed(1)).add(mask).softmax(dim=-1)
    pooled = align.pool_weights(weights, [(0, 1), (1, 4), (4, 6)], mask)
    assert pooled.isnan().tolist() == [[False, True, True], [False, False, True], [False, False, False]]
    torch.testing.assert_close(pooled.nansum(dim=1), torch.ones(3))


@given(seed=st.integers(0, 99), n=st.integers(3, 8))
@settings(deadline=None, max_examples=20)
def test_similarities_correlate_with_themselves_and_either_way(seed, n):
    made = torch.Generator().manual_seed(seed)
    a, b = (measure.cosine(torch.randn(n, 5, generator=made)) for _ in range(2))
    assert align.correlation(a, a) == pytest.approx(1)
    assert align.correlation(a, b) == pytest.approx(align.correlation(b, a))
    assert align.correlation(a, -a) == pytest.approx(-1)
    assert abs(align.correlation(a, b)) <= 1 + 1e-9


def test_the_correlation_leaves_out_the_diagonal_and_what_one_of_them_lacks():
    a = torch.tensor([[1.0, 0.1, 0.2], [0.1, 1.0, 0.3], [0.2, 0.3, 1.0]])
    b = torch.tensor([[1.0, 0.3, 0.2], [0.3, 1.0, 0.1], [0.2, 0.1, 1.0]])
    assert align.correlation(a, b) == pytest.approx(-1)  # with the diagonal it would be positive
    b[2] = b[:, 2] = math.nan
    assert math.isnan(align.correlation(a, b))  # one pair is left
    with pytest.raises(ValueError, match="pool both"):
        align.correlation(a, a[:2, :2])
