"""Sinusoids against the tables that published models build, and against values worked out before."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tinput.positions import Add, sinusoidal

EIGHT = {  # width 8, position 1
    "interleaved": [0.8415, 0.5403, 0.0998, 0.9950, 0.0100, 0.9999, 0.0010, 1.0],
    "halves": [0.8415, 0.0998, 0.0100, 0.0010, 0.5403, 0.9950, 0.9999, 1.0],
    "whisper": [0.8415, 0.0464, 0.0022, 0.0001, 0.5403, 0.9989, 1.0, 1.0],
    "musicgen": [0.5403, 0.9989, 1.0, 1.0, 0.8415, 0.0464, 0.0022, 0.0001],
}


@pytest.mark.parametrize(("layout", "expected"), EIGHT.items())
def test_the_first_position_after_zero(layout, expected):
    row = sinusoidal.table(torch.tensor([1]), 8, layout=layout)[0]
    torch.testing.assert_close(row, torch.tensor(expected), atol=6e-5, rtol=0)


def library_table(kind: str, rows: int, width: int) -> torch.Tensor:
    """What transformers builds: (rows, width)."""
    if kind in ("xlm", "distilbert"):
        from transformers.models.distilbert import modeling_distilbert
        from transformers.models.xlm import modeling_xlm

        out = torch.empty(rows, width)
        if kind == "xlm":
            return modeling_xlm.create_sinusoidal_embeddings(rows, width, out)
        modeling_distilbert._create_sinusoidal_embeddings(rows, width, out)
        return out
    if kind == "marian":
        from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

        return MarianSinusoidalPositionalEmbedding(rows, width).create_weight()
    if kind == "ctrl":
        from transformers.models.ctrl.modeling_ctrl import positional_encoding

        return positional_encoding(rows, width, torch.float32)
    if kind == "whisper":
        from transformers.models.whisper.modeling_whisper import sinusoids

        return sinusoids(rows, width)
    if kind == "musicgen":
        from transformers.models.musicgen.modeling_musicgen import MusicgenSinusoidalPositionalEmbedding

        return MusicgenSinusoidalPositionalEmbedding.get_embedding(rows, width)
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding

    return M2M100SinusoidalPositionalEmbedding.get_embedding(rows, width)


@pytest.mark.parametrize(
    ("kind", "layout", "widths"),
    [
        ("xlm", "interleaved", (8, 64)),
        ("distilbert", "interleaved", (8, 64)),
        ("marian", "halves", (8, 9, 64)),
        ("ctrl", "halves", (8, 9, 64)),
        ("whisper", "whisper", (8, 64)),
        ("m2m_100", "whisper", (8, 9, 64)),
        ("musicgen", "musicgen", (8, 9, 64)),
    ],
)
def test_each_layout_is_the_library_s(kind, layout, widths):
    for width in widths:
        theirs = library_table(kind, 200, width)
        ours = sinusoidal.table(torch.arange(200), width, layout=layout)
        assert ours.dtype == torch.float32
        assert float((ours - theirs).abs().max()) <= 1e-6 + 200 * 2**-23


@pytest.mark.parametrize("kind", ["xlm", "marian", "whisper", "musicgen"])
@pytest.mark.parametrize("offset", [0, 2])
def test_the_layout_of_recorded_vectors_is_found(kind, offset):
    layout = {"xlm": "interleaved", "marian": "halves"}.get(kind, kind)
    recorded = library_table(kind, 40, 64)[offset:]
    assert sinusoidal.layout_of(recorded, {"pad_token_id": 1}, torch.arange(40 - offset)) == layout


def test_the_offset_and_the_zero_row_of_the_pad():
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding

    module = M2M100SinusoidalPositionalEmbedding(16, 12, padding_idx=1)
    ids = torch.tensor([[5, 6, 1, 7]])  # a pad in the middle keeps the pad's row
    theirs = module(ids)[0]
    ours = sinusoidal.table(torch.tensor([2, 3, 1, 4]), 12, layout="whisper", zero_at=1)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    assert not ours[2].any()
    by_offset = sinusoidal.table(torch.tensor([0, 1]), 12, layout="whisper", offset=2)
    assert torch.equal(by_offset, ours[:2])


def test_frequencies_at_the_ends():
    assert sinusoidal.frequencies(8).tolist() == pytest.approx([1, 0.1, 0.01, 0.001], rel=1e-12)
    assert sinusoidal.frequencies(8, layout="whisper")[-1].item() == pytest.approx(1e-4, rel=1e-12)
    assert sinusoidal.frequencies(5).shape == (3,)
    assert sinusoidal.frequencies(2, layout="whisper").tolist() == [1.0]
    assert sinusoidal.wavelengths(8, base=16.0)[1].item() == pytest.approx(2 * math.pi * 2, rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(
    width=st.integers(1, 24).map(lambda n: 2 * n),
    layout=st.sampled_from(sinusoidal.LAYOUTS),
    a=st.integers(0, 400),
    b=st.integers(0, 400),
    shift=st.integers(0, 400),
)
def test_similarity_depends_on_the_distance_alone(width, layout, a, b, shift):
    here = sinusoidal.table(torch.tensor([a, b]), width, layout=layout).double()
    there = sinusoidal.table(torch.tensor([a + shift, b + shift]), width, layout=layout).double()
    assert float((here[0] @ here[1] - there[0] @ there[1]).abs()) < 1e-5 * width
    assert float(here[0].norm()) == pytest.approx(math.sqrt(width / 2), rel=1e-5)


def test_predict_offers_what_a_configuration_leaves_open():
    config = {"d_model": 8, "pad_token_id": 1}
    variants = sinusoidal.variants(config)
    assert {"interleaved", "halves", "whisper", "musicgen", "whisper + 2", "whisper, zero at 1"} <= set(variants)
    positions = torch.tensor([1])
    effect = sinusoidal.predict(config, positions, variant="halves")
    assert isinstance(effect, Add)
    assert effect.vectors[0, 1].item() == pytest.approx(0.0998, abs=5e-5)
    assert not sinusoidal.predict(config, positions, variant="whisper, zero at 1").vectors.any()
    assert sinusoidal.predict({}, positions, width=6).vectors.shape == (1, 6)
    with pytest.raises(ValueError, match="spiral"):
        sinusoidal.predict(config, positions, variant="spiral")
    with pytest.raises(ValueError, match="hidden_size"):
        sinusoidal.predict({}, positions)


def test_bad_layout_and_width():
    with pytest.raises(ValueError, match="spiral"):
        sinusoidal.table(torch.arange(2), 8, layout="spiral")
    with pytest.raises(ValueError, match="width"):
        sinusoidal.table(torch.arange(2), 0)


def test_notice_holds_this_effect_s_numbers():
    positions = torch.arange(10)
    said = " ".join(sinusoidal.notice(sinusoidal.predict({"d_model": 50}, positions), positions))
    assert "5" in said
    assert "√(50/2) = 5" in said
    assert "position 9" in said
