"""A rotated score by frequency pair: the parts sum to it, and are what the pair alone gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.surgery.tools import IDS
from tinput import surgery
from tinput.errors import NotRecorded

PAIRED = {  # name: (pairs, dimensions that are not turned, d of b^(-2i/d), b)
    "tinput/rope": (16, 0, 32, 10_000.0),
    "llama": (8, 0, 16, 10_000.0),  # grouped queries
    "gptj": (4, 8, 8, 10_000.0),  # neighbours are paired, half of the head
    "gpt_neox": (2, 12, 4, 10_000.0),  # a quarter of the head
    "deepseek_v3": (4, 16, 8, 10_000.0),  # the last dimensions
    "falcon": (8, 0, 16, 10_000.0),  # one head of k
    "smollm3": (8, 0, 16, 2e6),
}


@pytest.mark.parametrize("name", PAIRED)
def test_the_parts_sum_to_the_score(opened, name):
    model, trace = opened(name)
    pairs, rest, width, theta = PAIRED[name]
    found, scores = surgery.split(model, trace), trace.attention.scores.tensor()
    assert (len(found.wavelengths), len(found.rest)) == (pairs, rest)
    np.testing.assert_allclose(
        found.wavelengths, 2 * np.pi * theta ** (2 * np.arange(pairs) / width), rtol=1e-6
    )  # Su et al. 2021
    for head in range(trace.attention.heads):
        for query in range(len(IDS)):
            for key in range(len(IDS)):
                parts = found.parts(head, query, key)
                assert float(parts.sum()) == pytest.approx(float(scores[head, query, key]), abs=1e-5)
    fields = [found.field(1, pair) for pair in (*range(pairs), None)]
    torch.testing.assert_close(sum(f.tensor() for f in fields), scores[1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["tinput/rope", "gptj", "llama"])
def test_a_part_is_what_its_pair_alone_gives(opened, name):
    """Each pair's part of a score is Re(z_q conj(z_k)) of q and k before the rotation, turned by the distance."""
    model, trace = opened(name)
    found, attention = surgery.split(model, trace), trace.attention
    group = attention.heads // attention.kv_heads
    q, k = attention.q_before.double().numpy(), attention.k_before.double().numpy()
    a, b = found.first.numpy(), found.second.numpy()
    for head, query, key in ((0, 9, 2), (1, 5, 5), (3, 8, 0)):
        zq = q[head, query, a] + 1j * q[head, query, b]
        zk = k[head // group, key, a] + 1j * k[head // group, key, b]
        turn = np.exp(1j * (query - key) * 2 * np.pi / found.wavelengths.numpy())
        want = attention.scale * (zq * turn * zk.conj()).real
        np.testing.assert_allclose(found.parts(head, query, key)[:-1].numpy(), want, atol=1e-5)


@pytest.mark.parametrize("name", ["tinput/rope", "gptj", "modernbert"])
def test_shares_are_covariances_over_the_variance(opened, name):
    model, trace = opened(name)
    found, attention = surgery.split(model, trace), trace.attention
    shares = found.shares().numpy()
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-5)
    seen = (attention.mask.tensor() == 0).numpy()
    for head in range(attention.heads):
        parts = np.stack([found.field(head, pair).tensor().double().numpy() for pair in range(len(found.first))])
        score = attention.scores.tensor()[head].double().numpy()

        def around(values, head=head):
            """What is left of each row once its mean over the keys that are seen is gone."""
            rows = [row[see] - row[see].mean() for row, see in zip(values, seen[head], strict=True)]
            return np.concatenate(rows)

        want = [around(part) @ around(score) / (around(score) @ around(score)) for part in parts]
        np.testing.assert_allclose(shares[head, :-1], want, atol=1e-5)


def test_without_a_rotation_there_is_nothing_to_split(opened):
    model, trace = opened("tinput/alibi")
    with pytest.raises(NotRecorded, match="tinput/alibi does not rotate q and k in layer 0"):
        surgery.split(model, trace)
