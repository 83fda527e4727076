"""What positions alone give where scores mix content and distance, against transformers' own functions and by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tinput.positions import relative

predict: Callable[..., Any] = relative.predict  # untyped: each test knows which part of the effect it asked for


@pytest.mark.parametrize(("count", "farthest"), [(8, 128), (256, 512), (10, 40), (32, 2048)])
def test_the_buckets_are_debertas(count, farthest):
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    distance = torch.arange(-farthest + 1, farthest)
    assert torch.equal(
        relative.buckets(distance, count, farthest), make_log_bucket_position(distance, count, farthest).long()
    )


def test_near_distances_are_their_own_bucket():
    """Worked out by hand, 8 buckets up to 128: 4 each way near, then ceil(log(d / 4) / log(127 / 4) * 3) + 4."""
    distance = torch.tensor([-5, -4, 0, 3, 4, 5, 12, 13, 40, 41, 127])
    assert relative.buckets(distance, 8, 128).tolist() == [-5, -4, 0, 3, 4, 5, 5, 6, 6, 7, 7]


def test_rows_are_clamped_at_both_ends():
    config = {"max_relative_positions": 2, "max_position_embeddings": 64}
    rows = predict(config, torch.arange(4), variant="row by distance").rows
    assert rows.tolist() == [[2, 1, 0, 0], [3, 2, 1, 0], [3, 3, 2, 1], [3, 3, 3, 2]]
    only_p2c = predict(config | {"pos_att_type": ["p2c"]}, torch.arange(4), variant="row by distance").rows
    assert torch.equal(only_p2c, rows.T)


def test_a_profile_looks_back_alone():
    config = {"rel_extent": 3, "sliding_window_size": 2}
    rows = predict(config, torch.arange(4), variant="profile by distance").rows
    assert rows.tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [2, 1, 0, 0], [2, 2, 1, 0]]
    near = predict(config, torch.arange(4), variant="profile by distance", layer_type="hybrid_sliding").rows
    assert int(near.max()) == 1


@pytest.mark.parametrize("kind", ["bi", "uni"])
@pytest.mark.parametrize("farthest", [-1, 3])
def test_the_sines_of_distances_are_xlnets(kind, farthest):
    from transformers import XLNetConfig, XLNetModel

    config = XLNetConfig(vocab_size=9, d_model=16, n_layer=1, n_head=2, d_inner=8, attn_type=kind, clamp_len=farthest)
    own = XLNetModel(config).relative_positional_encoding(7, 7, bsz=1)[:, 0]
    mine = predict(config.to_dict(), torch.arange(7), variant="sines of the distance").vectors
    torch.testing.assert_close(mine, own, atol=2e-6, rtol=0)


def test_the_sines_of_keys_are_funnels():
    from transformers import FunnelConfig
    from transformers.models.funnel.modeling_funnel import FunnelAttentionStructure

    config = FunnelConfig(d_model=16, attention_type="factorized")
    own: Any = FunnelAttentionStructure(config).eval().get_position_embeds(7, torch.float32, torch.device("cpu"))
    mine = predict(config.to_dict(), torch.arange(7), variant="sines of the key").vectors
    torch.testing.assert_close(mine, own[2], atol=2e-6, rtol=0)


def test_the_rows_of_prophetnet_are_its_buckets():
    from transformers.models.prophetnet.modeling_prophetnet import compute_all_stream_relative_buckets

    own, _ = compute_all_stream_relative_buckets(16, 40, torch.arange(60)[None])
    config = {"num_buckets": 16, "relative_max_distance": 40}
    mine = predict(config, torch.arange(60), variant="bucket by distance").rows
    assert torch.equal(mine, own[0].long())


def test_what_cannot_be_said_is_refused():
    assert predict({}, torch.arange(3)) is None
    with pytest.raises(ValueError, match="how far a profile reaches"):
        predict({}, torch.arange(3), variant="profile by distance")
    with pytest.raises(ValueError, match="unknown variant"):
        predict({}, torch.arange(3), variant="by colour")
