"""T5's buckets against T5's own function, and the bias against its own module."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tinput.positions import Bias, relative_bias


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(
    ("num_buckets", "max_distance"), [(32, 128), (32, 256), (32, 100), (16, 64), (64, 1000), (8, 20), (320, 800)]
)
def test_every_bucket_is_t5_s(bidirectional, num_buckets, max_distance):
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(-2500, 2500)
    theirs = T5Attention._relative_position_bucket(distance, bidirectional, num_buckets, max_distance)
    ours = relative_bias.buckets(
        distance, bidirectional=bidirectional, num_buckets=num_buckets, max_distance=max_distance
    )
    assert ours.dtype == torch.int64
    assert torch.equal(ours, theirs)


def test_a_few_buckets_by_hand():
    both = relative_bias.buckets(torch.tensor([0, -1, 1, -7, -8, -127, -128, 5000]), bidirectional=True)
    assert both.tolist() == [0, 1, 17, 7, 8, 15, 15, 31]
    past = relative_bias.buckets(torch.tensor([0, 1, 99, -1, -15, -16, -5000]), bidirectional=False)
    assert past.tolist() == [0, 0, 0, 1, 15, 16, 31]


@settings(max_examples=40, deadline=None)
@given(half=st.integers(2, 40), reach=st.integers(2, 40), bidirectional=st.booleans())
def test_buckets_grow_with_the_distance_and_stay_in_the_table(half, reach, bidirectional):
    num_buckets, max_distance = 4 * half, 4 * half * reach
    past = relative_bias.buckets(
        -torch.arange(2 * max_distance),
        bidirectional=bidirectional,
        num_buckets=num_buckets,
        max_distance=max_distance,
    )
    assert bool((past.diff() >= 0).all())
    assert int(past[0]) == 0
    assert int(past[-1]) == (num_buckets // 2 if bidirectional else num_buckets) - 1


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_the_bias_is_the_module_s(stack):
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(
        d_model=16,
        d_kv=4,
        num_heads=4,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=20,
        is_decoder=stack == "decoder",
    )
    module = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    table = module.relative_attention_bias.weight.detach()  # (bucket, heads)
    theirs = module.compute_bias(30, 30)[0]
    ours = relative_bias.predict(config.to_dict(), torch.arange(30), rows=lambda i: table[i], stack=stack)
    assert isinstance(ours, Bias)
    assert torch.equal(ours.scores, theirs)
    field = relative_bias.field(table, 30, 30, bidirectional=stack == "encoder", max_distance=20)
    assert torch.equal(field.tensor(), theirs)


def test_a_window_far_away():
    table = torch.arange(12.0).reshape(4, 3)  # bucket b of head h: 3 b + h
    field = relative_bias.field(table, 1_000_000, 1_000_000, bidirectional=False, max_distance=8)
    window = field.window(rows=(900_000, 900_003), columns=(899_999, 900_002))
    assert window.values[2].tolist() == [[5, 2, 2], [8, 5, 2], [8, 8, 5]]
    index = relative_bias.buckets(
        window.columns[None] - window.rows[:, None], bidirectional=False, num_buckets=4, max_distance=8
    )
    assert torch.equal(window.values, relative_bias.bias(table, index))


def test_cpm_ants_prompt_and_text_have_buckets_of_their_own():
    from transformers import CpmAntConfig
    from transformers.models.cpmant.modeling_cpmant import CpmAntSegmentPositionEmbedding

    config = CpmAntConfig(num_attention_heads=2, prompt_length=3, position_bias_num_buckets=16, segment_types=4)
    module = CpmAntSegmentPositionEmbedding(config)
    torch.nn.init.normal_(module.relative_attention_bias)
    places, segment = torch.arange(40)[None], torch.tensor([[0] * 3 + [2] * 37])
    own = module(places, places, segment, segment)[0]
    table = module.relative_attention_bias.detach()
    mine = relative_bias.predict(
        config.to_dict(), torch.arange(37), rows=table.__getitem__, n_rows=len(table), queries=40, keys=40
    )
    assert torch.equal(mine.scores, own)


def test_the_numbers_are_learned():
    with pytest.raises(ValueError, match="learned"):
        relative_bias.predict({}, torch.arange(3))


def test_notice_holds_this_effect_s_numbers():
    table = torch.zeros(32, 2)
    table[1, 1] = 2.5  # one token back
    here = torch.arange(6)
    effect = relative_bias.predict({}, here, rows=lambda i: table[i], stack="decoder")
    said = " ".join(relative_bias.notice(effect, here))
    assert "Head 1" in said
    assert "2.50" in said
    assert "the token before it" in said
