"""What of a scheme a training has shown: each rule against values worked out by hand, or by turning every angle."""

from __future__ import annotations

import math

import pytest
import torch

from tinput.positions import SCHEMES, alibi, learned, relative_bias, rope, sinusoidal
from tinput.positions.coverage import BLANK, MISSING, NEW, SEEN, coarse, spread, turned

HEAD = {"hidden_size": 128, "num_attention_heads": 4, "rope_theta": 10_000.0}  # heads of 32: 16 pairs
FAR = torch.arange(1024)


def by_hand(now, trained, length, places):
    """A pair at a place: whether some angle that training met lies within a step of the one met here."""
    out = []
    for new, old in zip(now, trained, strict=True):
        if length * old >= 2 * math.pi:
            out.append([False] * len(places))
        else:
            met = [p * old for p in range(length)]
            out.append([min(abs(p * new - angle) for angle in met) >= old * (1 - 1e-6) for p in places])
    return torch.tensor(out)


@pytest.mark.parametrize("name", ["as trained", "linear", "ntk", "yarn", "llama3"])
def test_angles_that_training_never_showed(name):
    plain = [10_000 ** (-i / 16) for i in range(16)]
    now = rope.frequencies(rope.stretched(HEAD, 64, 4.0)[name]).inv_freq.tolist() if name != "as trained" else plain
    places = [*torch.arange(0, 256, 5).tolist(), 255]
    found = rope.coverage(HEAD, torch.tensor(places), 64)[name]
    expected = by_hand(now, plain, 64, places)
    assert torch.equal(found.state == NEW, expected)
    assert found.new == int(expected.any(1).sum())


def test_nothing_is_new_within_the_training():
    for name, found in rope.coverage(HEAD, torch.arange(256), 256).items():
        assert found.new == 0, name
    assert sinusoidal.coverage(HEAD, torch.arange(256), 256)[""].new == 0
    assert alibi.coverage(HEAD, torch.arange(256), 256)[""].new == 0


def test_interpolation_brings_every_angle_back_and_a_larger_theta_does_not():
    found = rope.coverage(HEAD, FAR, 256)
    slow = sum(2 * math.pi * 10_000 ** (i / 16) > 256 for i in range(16))  # longer wavelengths than the training
    assert found["as trained"].new == slow == 9
    assert found["linear"].new == 0
    assert 0 < found["ntk"].new < slow  # only the slowest pair is squeezed by the whole factor
    assert found["dynamic"].new == found["ntk"].new  # at its full length it is the same base


def test_ntk_is_dynamic_at_the_full_length_and_each_way_keeps_the_part_that_turns():
    config = {"hidden_size": 64, "num_attention_heads": 2, "partial_rotary_factor": 0.5, "rope_theta": 500.0}
    ways = rope.stretched(config, 32, 4.0, divisors=[1.0, 1, 1, 1, 2, 2, 3, 4])
    assert list(ways) == ["linear", "ntk", "dynamic", "yarn", "llama3", "longrope"]
    frequencies = {name: rope.frequencies(way, seq_len=128).inv_freq for name, way in ways.items()}
    torch.testing.assert_close(frequencies["ntk"], frequencies["dynamic"])
    plain = 500.0 ** (-torch.arange(8, dtype=torch.float64) / 8)
    torch.testing.assert_close(frequencies["linear"], plain / 4)
    torch.testing.assert_close(frequencies["longrope"], plain / torch.tensor([1, 1, 1, 1, 2, 2, 3, 4]))
    torch.testing.assert_close(rope.frequencies(ways["longrope"], seq_len=32).inv_freq, plain)
    assert all(len(found) == 8 for found in frequencies.values())
    assert "longrope" not in rope.stretched(config, 32, 4.0)


def test_a_single_pair_is_the_fastest_and_only_interpolation_slows_it():
    one = {"head_dim": 2, "rope_theta": 10_000.0}
    found = {
        name: float(rope.frequencies(way, seq_len=128).inv_freq) for name, way in rope.stretched(one, 32, 4.0).items()
    }
    assert found == {"linear": 0.25, "ntk": 1, "dynamic": 1, "yarn": 1, "llama3": 1}


def test_a_configured_scaling_is_a_way_of_its_own():
    llama = HEAD | {
        "max_position_embeddings": 4096,
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 10_000.0, "factor": 16.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 256,
        },
    }  # fmt: skip
    found = rope.coverage(llama, torch.tensor([0, 4095]), 256)
    assert found["as configured"].new == 0
    assert found["as trained"].new == 9
    assert "as configured" not in rope.coverage(HEAD, FAR, 256)


def test_sines_of_a_place_past_the_training():
    found = sinusoidal.coverage({"d_model": 8}, torch.tensor([0, 99, 100, 5000]), 100)[""]
    # wavelengths 6.3, 62.8, 628, 6283: two came full circle, two did not
    assert found.state.tolist() == [[SEEN] * 4, [SEEN] * 4, [SEEN, SEEN, NEW, NEW], [SEEN, SEEN, NEW, NEW]]
    assert found.place == "position"


def test_rows_that_do_not_exist():
    places = torch.tensor([0, 511, 512, 1023, 1024])
    found = learned.coverage({}, places, 512, usable=1024)[""]
    assert found.state.tolist() == [[SEEN, SEEN, NEW, NEW, MISSING]]
    assert "last 1 of these 1,025 tokens have no row" in found.said[0]
    assert "from 512 on are there" in found.said[1]
    assert torch.equal(learned.PAST["clamped"](torch.arange(5), 3), torch.tensor([0, 1, 2, 2, 2]))
    assert torch.equal(learned.PAST["wrapped"](torch.arange(5), 3), torch.tensor([0, 1, 2, 0, 1]))


def test_buckets_are_shared_from_the_largest_distance_on():
    found = relative_bias.coverage({}, FAR, 256, stack="decoder")[""]
    assert found.new == 0
    assert found.state.shape == (32, 1024)
    assert (found.state != BLANK).sum(0).tolist() == [1] * 1024  # a distance falls into one bucket
    assert (found.state[31, 128:] == SEEN).all()
    short = relative_bias.coverage({}, FAR, 20, stack="decoder")[""]  # training never got to the far buckets
    assert (short.state[:16, :16].diagonal() == SEEN).all()
    assert short.state[31, 500] == NEW
    assert relative_bias.coverage({}, FAR, 256, stack="encoder")[""].state.shape == (16, 1024)


def test_a_bias_lower_than_any_in_training():
    found = alibi.coverage({"n_head": 8}, torch.tensor([10, 99, 100]), 100)[""]
    assert found.state.tolist() == [[SEEN, SEEN, NEW]] * 8
    assert f"{math.exp(-100 / 256):.2g} of itself" in found.said[1]  # the flattest slope of 8 heads is 2^-8


def test_every_bundled_scheme_has_a_rule_and_says_something():
    for name in ("sinusoidal", "learned", "rope", "alibi", "relative_bias", "none"):
        for found in SCHEMES[name].coverage(HEAD, FAR, 256, stack="decoder").values():
            assert found.state.shape[-1] == len(FAR)
            assert all(found.said)


def test_a_pair_that_came_full_circle_has_met_every_angle():
    fast = torch.tensor([0.1])  # 63 tokens a turn
    assert turned(fast, fast, torch.tensor([10**6]), 64, "distance").new == 0
    assert turned(fast, fast, torch.tensor([10**6]), 62, "distance").new == 1


def test_a_picture_s_cell_is_the_newest_state_in_it():
    assert torch.equal(spread(100), torch.arange(100))
    places = spread(1_000_000)
    assert (len(places), int(places[0]), int(places[-1])) == (2048, 0, 999_999)
    state = torch.tensor([[SEEN, SEEN, NEW, SEEN, BLANK], [BLANK, MISSING, SEEN, BLANK, BLANK]])
    found, at = coarse(state, torch.arange(5), columns=3)
    assert found.tolist() == [[SEEN, NEW, BLANK], [MISSING, SEEN, BLANK]]
    assert at.tolist() == [0.5, 2.5, 4]
    same, at = coarse(state, torch.arange(5))
    assert torch.equal(same, state)
    assert at.tolist() == [0, 1, 2, 3, 4]


def test_layers_of_two_thetas():
    gemma = HEAD | {
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
        },
    }
    local, whole = (rope.coverage(gemma, FAR, 256, layer_type=kind) for kind in gemma["layer_types"])
    assert "as configured" not in local
    assert local["as trained"].new == sum(2 * math.pi * 10_000 ** (i / 16) > 256 for i in range(16))
    assert whole["as trained"].new == sum(2 * math.pi * 1_000_000 ** (i / 16) > 256 for i in range(16))
    assert whole["as configured"].new == 0  # 1,024 tokens are 4 times the training, and the factor is 8
