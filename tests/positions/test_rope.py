"""RoPE's rotation of one tensor against transformers' own, and against values worked out before."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tinput.positions import rope

Q = torch.tensor([[1.0, 2.0, 3.0, 4.0]])  # (seq 1, d_head 4)


def test_two_pairings_of_the_same_angles():
    turned = rope.angles(torch.tensor([1]), torch.tensor([1.0, 0.01], dtype=torch.float64))
    half, interleaved = rope.rotate(Q, turned), rope.rotate(Q, turned, "interleaved")
    torch.testing.assert_close(half, torch.tensor([[-1.9841, 1.9599, 2.4624, 4.0198]]), atol=5e-5, rtol=0)
    torch.testing.assert_close(interleaved, torch.tensor([[-1.1426, 1.9221, 2.9599, 4.0298]]), atol=5e-5, rtol=0)


def test_rotations_are_the_library_s():
    from transformers.models.cohere.modeling_cohere import apply_rotary_pos_emb as cohere
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import apply_rotary_pos_emb_interleave as deepseek
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as llama

    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 2, 7, 8, generator=generator)  # (batch, heads, seq, d_head)
    k = torch.randn(1, 2, 7, 8, generator=generator)
    turned = rope.angles(torch.arange(7), rope.frequencies({"head_dim": 8}).inv_freq)
    cos, sin = turned.cos().float(), turned.sin().float()  # (seq, pair)

    twice = torch.cat((cos, cos), -1)[None], torch.cat((sin, sin), -1)[None]
    for ours, theirs in zip((rope.rotate(q, turned), rope.rotate(k, turned)), llama(q, k, *twice), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)

    each = cos.repeat_interleave(2, -1)[None], sin.repeat_interleave(2, -1)[None]
    torch.testing.assert_close(rope.rotate(q, turned, "interleaved"), cohere(q, k, *each)[0], atol=1e-6, rtol=1e-6)
    by_seq = gptj(q.transpose(1, 2), sin[None], cos[None]).transpose(1, 2)
    torch.testing.assert_close(rope.rotate(q, turned, "interleaved"), by_seq, atol=1e-6, rtol=1e-6)

    # DeepSeek reads interleaved pairs and stores the two halves one after the other: the same numbers, moved
    ours = rope.rotate(q, turned, "interleaved")
    stored = torch.cat((ours[..., 0::2], ours[..., 1::2]), -1)
    torch.testing.assert_close(stored, deepseek(q, k, *twice)[0], atol=1e-6, rtol=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    pairs=st.integers(1, 8),
    start=st.integers(0, 3),
    rest=st.integers(0, 3),
    layout=st.sampled_from(["half", "interleaved"]),
    shift=st.integers(-1000, 1000),
    seed=st.integers(0, 99),
)
def test_a_shift_of_all_positions_leaves_every_score(pairs, start, rest, layout, shift, seed):
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, 5, start + 2 * pairs + rest, generator=generator, dtype=torch.float64)
    inv_freq = rope.frequencies({"head_dim": 2 * pairs}).inv_freq

    def turn(x, positions):
        return rope.rotate(x, rope.angles(positions, inv_freq), layout, start)

    here = torch.arange(5)
    torch.testing.assert_close(turn(q, here) @ turn(k, here).T, turn(q, here + shift) @ turn(k, here + shift).T)
    turned = turn(q, here)
    torch.testing.assert_close(turned.norm(dim=-1), q.norm(dim=-1))
    assert torch.equal(turned[:, :start], q[:, :start])
    assert torch.equal(turned[:, start + 2 * pairs :], q[:, start + 2 * pairs :])
    torch.testing.assert_close(turn(turned, -here), q)  # turning back


def test_the_magnitude_lengthens_only_what_turns():
    turned = rope.angles(torch.tensor([3]), torch.tensor([0.5], dtype=torch.float64))
    out = rope.rotate(Q, turned, start=1, magnitude=2.0)
    assert out[0, [0, 3]].tolist() == [1.0, 4.0]
    assert float(out[0, 1:3].norm()) == pytest.approx(2 * math.hypot(2, 3), rel=1e-6)


def test_low_precision_is_cast_last():
    inv_freq = rope.frequencies({"head_dim": 64}).inv_freq
    position = torch.tensor([4095])
    assert rope.angles(position, inv_freq)[0, 1].cos().item() == pytest.approx(-0.0900, abs=2e-4)
    # with bfloat16 frequencies the same formula points elsewhere
    coarse = (position.float() * inv_freq.bfloat16().float()[1]).cos()
    assert coarse.item() == pytest.approx(0.3365, abs=5e-5)
    x = torch.zeros(1, 64, dtype=torch.bfloat16)
    x[0, 1] = 1
    out = rope.rotate(x, rope.angles(position, inv_freq))
    assert out.dtype == torch.bfloat16
    assert out[0, 1].item() == pytest.approx(-0.0900, abs=5e-4)


def test_bad_layouts_and_parts():
    turned = torch.zeros(1, 3)
    with pytest.raises(ValueError, match="spiral"):
        rope.rotate(Q, torch.zeros(1, 2), "spiral")
    with pytest.raises(ValueError, match="do not fit"):
        rope.rotate(Q, turned)


def test_notice_holds_this_effect_s_numbers():
    positions = torch.arange(101)
    said = " ".join(rope.notice(rope.predict({"head_dim": 4}, positions), positions))
    assert "2 pairs" in said
    assert "position 100" in said
    assert "15.9 times" in said  # 100 radians
    assert "57.3°" in said  # 1 radian
    long = {"head_dim": 4, "max_position_embeddings": 64, "rope_scaling": {"type": "yarn", "factor": 40.0}}
    assert "1.369" in " ".join(rope.notice(rope.predict(long, positions), positions))


def test_the_base_and_the_angles_have_letters_of_their_own():
    assert r"\theta_i = b^{-2i/d}" in rope.FORMULA
    assert r"b = \text{rope theta (paper: } 10^4)" in rope.FORMULA
    assert r"\theta^" not in rope.FORMULA
