"""What a change does: after minus before, and nothing larger than what is looked at."""

from __future__ import annotations

import pytest
import torch

from tests.surgery.tools import logits, open_model, own
from tinput import surgery
from tinput.window import Field


def test_a_change_is_after_minus_before(opened):
    model, trace = opened("tinput/learned")
    change = surgery.Change(trace.attention, surgery.move(model, trace, own(trace) + 30))
    for head in range(4):
        one, other = logits(change.before)[head], logits(change.after)[head]
        before, after, difference = change.scores(head)
        past = torch.ones(10, 10).tril() > 0
        torch.testing.assert_close(difference.values[past], (other - one)[past])
        assert bool((difference.values[~past] == -torch.inf).all())
        torch.testing.assert_close(after.values[past] - before.values[past], difference.values[past])
        weights = change.after.weights.tensor()[head] - change.before.weights.tensor()[head]
        torch.testing.assert_close(change.weights(head)[2].values[past], weights[past])
        assert change.largest(head) == pytest.approx((float((other - one).abs().max()), float(weights.abs().max())))
        assert change.size(head) == pytest.approx(float(one.abs().max()))
        assert float(change.moved()[head]) == pytest.approx(float(weights.abs().sum(-1).mean() / 2), rel=1e-5)


def test_at_2048_tokens_nothing_is_made_for_all_heads_and_cells(monkeypatch):
    model = open_model("tinput/none")
    trace = model.trace(ids=torch.arange(2048) % 900 + 20)
    monkeypatch.setattr(Field, "tensor", lambda *_: pytest.fail("a whole field was asked for"))
    biggest = 0
    softmax = torch.softmax

    def watched(values, dim):
        nonlocal biggest
        biggest = max(biggest, values.numel())
        return softmax(values, dim=dim)

    monkeypatch.setattr(torch, "softmax", watched)
    change = surgery.Change(trace.attention, surgery.swap(model, trace, "rope"))
    before, _, difference = change.weights(3)
    assert before.values.shape == difference.values.shape == (256, 256)
    assert change.step == 4
    assert max(change.largest(3)) > 0.1
    assert 0 < float(change.moved().max()) <= 1
    assert biggest <= 256 * 2048
