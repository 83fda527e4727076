"""ALiBi against BLOOM's, MPT's and Falcon's own functions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tinput.positions import Bias, alibi


def test_slopes_of_head_counts_that_are_no_power_of_two_are_not_sorted():
    assert alibi.slopes(6).tolist() == [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    twelve = alibi.slopes(12).tolist()
    assert twelve[:8] == [2.0**-k for k in range(1, 9)]
    assert twelve[8:] == pytest.approx([0.70711, 0.35355, 0.17678, 0.08839], abs=5e-6)
    assert alibi.slopes(1).tolist() == [2.0**-8]
    with pytest.raises(ValueError, match="at least one head"):
        alibi.slopes(0)


def test_the_formula_counts_heads_from_0_as_the_pictures_do():
    assert r"m_h = 2^{-8(h+1)/H}, \quad h = 0, \dots, H - 1" in alibi.FORMULA
    assert alibi.slopes(8).tolist() == [2 ** (-8 * (h + 1) / 8) for h in range(8)]


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 6, 7, 8, 12, 14, 16, 20, 25, 32, 40, 71, 112])
def test_slopes_are_those_of_bloom_and_mpt(heads):
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    bloom = build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), heads, torch.float32)[:, 0, 1]
    mpt = -build_mpt_alibi_tensor(heads, 2)[:, 0, 0]
    torch.testing.assert_close(alibi.slopes(heads), bloom, rtol=2e-6, atol=0)
    torch.testing.assert_close(alibi.slopes(heads), mpt, rtol=1e-6, atol=0)


@pytest.mark.parametrize("bias_max", [4, 8, 10])
def test_mpt_s_bias_with_its_own_maximum(bias_max):
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    theirs = build_mpt_alibi_tensor(6, 9, alibi_bias_max=bias_max)  # (heads, 1, key)
    config = {"n_heads": 6, "d_model": 48, "attn_config": {"alibi_bias_max": bias_max}}
    ours = alibi.predict(config, torch.arange(9), variant="by_last_key")
    assert isinstance(ours, Bias)
    torch.testing.assert_close(ours.scores, theirs.expand(6, 9, 9), rtol=1e-6, atol=1e-6)


def test_bloom_s_bias():
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    theirs = build_alibi_tensor(torch.ones(1, 9, dtype=torch.long), 5, torch.float32)  # (heads, 1, key)
    ours = alibi.predict({"n_head": 5, "hidden_size": 40}, torch.arange(9), variant="by_key")
    torch.testing.assert_close(ours.scores, theirs.expand(5, 9, 9), rtol=1e-6, atol=1e-6)


def test_falcon_s_bias_is_rounded_and_divided():
    from transformers.models.falcon.modeling_falcon import build_alibi_tensor

    n = 300  # past 256, where bfloat16 no longer holds every integer
    theirs = build_alibi_tensor(torch.ones(1, n, dtype=torch.long), 6, torch.float32)
    config = {"num_attention_heads": 6, "hidden_size": 96, "alibi": True}
    eager = alibi.predict(config, torch.arange(n), variant="bfloat16")
    sdpa = alibi.predict(config, torch.arange(n), variant="bfloat16 / sqrt(d_head)")
    assert torch.equal(eager.scores[:, :1], theirs)
    assert torch.equal(sdpa.scores[:, :1], theirs / math.sqrt(16))


def test_two_conventions_of_four_tokens():
    four, slope = torch.arange(4), torch.tensor([0.25])
    assert alibi.bias(four, four, slope, "by_key")[0, 0].tolist() == [0, 0.25, 0.5, 0.75]
    assert alibi.bias(four, four, slope, "by_last_key")[0, 0].tolist() == [-0.75, -0.5, -0.25, 0]
    assert alibi.bias(four, four, slope)[0, 2].tolist() == [-0.5, -0.25, 0, 0.25]
    assert alibi.bias(four, four, slope, symmetric=True)[0, 2].tolist() == [-0.5, -0.25, 0, -0.25]


@settings(max_examples=30, deadline=None)
@given(heads=st.integers(1, 20), seq=st.integers(1, 12), seed=st.integers(0, 99))
def test_softmax_cannot_tell_the_conventions_apart(heads, seq, seed):
    scores = torch.randn(heads, seq, seq, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    mask = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    here, slopes = torch.arange(seq), alibi.slopes(heads)
    weights = [
        (scores + alibi.bias(here, here, slopes, convention)).masked_fill(mask, -torch.inf).softmax(-1)
        for convention in alibi.CONVENTIONS
    ]
    torch.testing.assert_close(weights[1], weights[0])
    torch.testing.assert_close(weights[2], weights[0])


@pytest.mark.parametrize(("convention", "symmetric"), [*((c, False) for c in alibi.CONVENTIONS), ("distance", True)])
def test_a_window_of_a_million_positions(convention, symmetric):
    slopes = alibi.slopes(6)
    field = alibi.field(slopes, 1_000_000, 1_000_000, convention, symmetric)
    assert field.shape == (6, 1_000_000, 1_000_000)
    window = field[3].window(rows=(999_000, 1_000_000), columns=(500_000, 600_000), cells=(10, 20))
    assert window.values.shape == (10, 20)
    q, k = int(window.rows[4]), int(window.columns[7])
    steps = {"distance": -abs(q - k) if symmetric else k - q, "by_key": k, "by_last_key": k - 999_999}[convention]
    assert window.values[4, 7].item() == pytest.approx(float(slopes[3]) * steps, rel=1e-6)


def test_a_small_field_is_the_whole_bias():
    slopes, here = alibi.slopes(3), torch.arange(7)
    for convention in alibi.CONVENTIONS:
        whole = alibi.field(slopes, 7, 7, convention).tensor()
        assert torch.equal(whole, alibi.bias(here, here, slopes, convention))
    last = alibi.field(slopes, 2, 7).tensor()  # two queries at the end of seven keys
    assert torch.equal(last, alibi.bias(here[5:], here, slopes))


def test_reach_is_where_one_percent_is_left():
    assert float(torch.exp(-torch.tensor(0.5) * alibi.reach(torch.tensor([0.5]))[0])) == pytest.approx(0.01)


def test_bad_conventions():
    four = torch.arange(4)
    with pytest.raises(ValueError, match="upside"):
        alibi.bias(four, four, alibi.slopes(2), "upside")
    with pytest.raises(ValueError, match="one-sided"):
        alibi.field(alibi.slopes(2), 4, 4, "by_key", symmetric=True)
    with pytest.raises(ValueError, match="how many heads"):
        alibi.predict({}, four)
    with pytest.raises(ValueError, match="unknown variant"):
        alibi.predict({"n_head": 2}, four, variant="upside")


def test_notice_holds_this_effect_s_numbers():
    here = torch.arange(20)
    for variant in ("by_key", "by_last_key", "distance", "symmetric"):
        said = " ".join(alibi.notice(alibi.predict({"n_head": 6}, here, variant=variant), here))
        assert "0.5 (head 4)" in said
        assert "9.2 tokens" in said  # ln(100) / 0.5
        assert "20" in said
