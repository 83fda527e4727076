"""A module's copy: its own state, the same parameters, and what stands instead of a part."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from tests import tiny
from tests.oracle import checkpoint
from tinput.models.copying import copied


class Odd(nn.Module):
    """Refers to itself, to its parts and to what can change, in every way that deepcopy follows."""

    def __init__(self):
        super().__init__()
        self.part = nn.Linear(2, 2)
        self.twice = self.part
        self.listed = [self.part, {"again": self.part}]
        self.bound = self.forward
        self.state = {"longest": 4}
        self.register_buffer("count", torch.arange(3))

    def forward(self, x):
        self.state["longest"] = len(x)
        return self.part(x)


def test_a_copy_follows_its_own_parts_and_keeps_its_own_state():
    odd = Odd()
    made = copied(odd)
    assert made.part is not odd.part
    assert made.twice is made.part
    assert made.listed[0] is made.part
    assert made.listed[1]["again"] is made.part
    assert made.bound.__self__ is made
    assert made.part.weight is odd.part.weight
    made.bound(torch.ones(9, 2))
    made.count += 1
    assert (odd.state, made.state) == ({"longest": 4}, {"longest": 9})
    assert odd.count.tolist() == [0, 1, 2]  # pyright: ignore[reportCallIssue]
    made.register_forward_hook(lambda *_: None)
    made.part._parameters["bias"] = None
    assert not odd._forward_hooks
    assert odd.part.bias is not None


def test_a_class_with_a_deepcopy_of_its_own_is_asked():
    class Own(nn.Module):
        def __deepcopy__(self, memo):
            return "its own"

    holder = nn.Sequential(nn.Linear(1, 1))
    holder.kept = [Own()]  # pyright: ignore[reportArgumentType] - torch takes any attribute
    assert copied(holder).kept == ["its own"]


def test_what_stands_instead_is_not_copied():
    model, other = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)), nn.Identity()
    made = copied(model, {model[1]: other})
    assert made[1] is other
    assert made[0] is not model[0]


@pytest.mark.parametrize("name", tiny.CONFIGS)
def test_as_deepcopy_copies(name):
    model = checkpoint(name).full
    made, expected = copied(model), copy.deepcopy(model)
    for (path, one), (_, other), original in zip(
        made.named_modules(), expected.named_modules(), model.modules(), strict=True
    ):
        assert type(one) is type(other), path
        assert one is not original
        assert vars(one).keys() == vars(other).keys(), path
        for key, value in vars(other).items():
            if isinstance(value, (bool, int, float, str, type(None))):
                assert vars(one)[key] == value, (path, key)
    assert all(a is b for a, b in zip(made.parameters(), model.parameters(), strict=True))
    assert made.config is not model.config
    assert made.config.to_dict() == model.config.to_dict()
