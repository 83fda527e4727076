"""The tape alone: small functions of tensors, and what is read off the record of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tinput.record.tape import CannotReplay, Flow, Op, Stop, Tape


def recorded(function, *inputs: tuple[Tensor, int]) -> tuple[Tape, Tensor]:
    """A function run on a tape: the tape and the result."""
    tape = Tape()
    for tensor, flow in inputs:
        tape.source(tensor, flow)
    with torch.no_grad(), tape:
        out = function(*(tensor for tensor, _ in inputs))
    return tape, out


def names(ops: list[Op]) -> list[str]:
    return [op.name for op in ops]


IDS = torch.tensor([[5, 0, 7, 5]])
X = torch.arange(12.0).reshape(1, 4, 3)


# --- what is written down


def test_calls_in_order_with_their_results():
    tape, out = recorded(lambda x: torch.relu(x + 1).sum(-1), (X, Flow.CONTENT))
    assert names(tape.ops) == ["add", "relu", "sum"]
    assert [op.index for op in tape.ops] == [0, 1, 2]
    assert tape.ops[1].inputs == (0,)
    assert torch.equal(tape.ops[0].value, X + 1)
    assert tape.last(out) is tape.ops[2]
    assert names(tape.back(tape.ops[2])) == ["add", "relu", "sum"]


def test_back_leaves_out_what_does_not_matter():
    def function(x):
        y = x * 2
        torch.exp(x)
        return y + 1

    tape, out = recorded(function, (X, Flow.CONTENT))
    found = tape.last(out)
    assert found is not None
    assert names(tape.back(found)) == ["mul", "add"]


def test_results_in_a_tuple():
    def function(x):
        first, second = x.chunk(2, dim=1)
        return first * second

    tape, _ = recorded(function, (X, Flow.CONTENT))
    assert names(tape.ops) == ["chunk", "mul"]
    assert tape.ops[1].inputs == (0,)


def test_dropout_that_returns_its_argument_is_a_step_of_its_own():
    tape, out = recorded(lambda x: F.dropout(x + 1, 0.1, training=False) * 2, (X, Flow.CONTENT))
    assert names(tape.ops)[:2] == ["add", "dropout"]
    assert tape.ops[-1].inputs == (1,)
    assert torch.equal(out, (X + 1) * 2)


def test_on_op_may_stop_the_run():
    tape = Tape()

    def stop(op):
        if op.name == "mul":
            raise Stop

    tape.on_op = stop
    with pytest.raises(Stop), tape:
        torch.exp((X + 1) * 2)
    assert names(tape.ops) == ["add", "mul"]
    assert torch.overrides._get_current_function_mode_stack() == []


def test_asking_for_a_shape_is_no_step():
    tape, _ = recorded(lambda x: x.size(0) + x.dim() + x.shape[1] + x.numel() + len(x), (X, Flow.CONTENT))
    assert tape.ops == []


# --- writes in place


def test_a_write_through_a_view_reaches_the_whole():
    def function(x):
        y = x * 1
        y[..., :2].mul_(10)
        return y + 0

    tape, out = recorded(function, (X, Flow.CONTENT))
    found = tape.last(out)
    assert found is not None
    assert names(tape.back(found)) == ["mul", "__getitem__", "mul_", "add"]
    assert torch.equal(out[..., :2], X[..., :2] * 10)
    assert torch.equal(tape.ops[0].value, X)  # the result at the time, not what was written into it later


def test_setitem():
    def function(x):
        y = x.clone()
        y[:, 1] = 0
        return y * 1

    tape, out = recorded(function, (X, Flow.CONTENT))
    found = tape.last(out)
    assert found is not None
    assert names(tape.back(found)) == ["clone", "__setitem__", "mul"]
    assert torch.equal(tape.ops[0].value, X)
    assert (tape.ops[1].value[:, 1] == 0).all()


def test_a_new_tensor_filled_in_pieces():
    def function(x):
        new = x.new_empty(1, 4, 6)
        new[..., :3].copy_(x)
        new[..., 3:].copy_(x + 1)
        return new.transpose(0, 1)

    tape, out = recorded(function, (X, Flow.CONTENT))
    assert tape.flow_of(out) == Flow.CONTENT
    found = tape.last(out)
    assert found is not None
    assert names(tape.back(found)).count("copy_") == 2
    assert not tape.ops[0].flow  # an empty tensor depends on nothing


def test_out_and_augmented_assignment():
    def function(x):
        y = torch.empty_like(x)
        torch.add(x, 1, out=y)
        y += 2
        return y * 1

    tape, out = recorded(function, (X, Flow.CONTENT))
    found = tape.last(out)
    assert found is not None
    assert torch.equal(out, X + 3)
    assert {"add", "add_", "mul"} <= set(names(tape.back(found)))
    assert tape.flow_of(out) == Flow.CONTENT


def test_a_write_after_a_read_does_not_change_what_was_read():
    def function(x):
        y = x * 1
        before = y + 0
        y.add_(100)
        return before * 1

    tape, out = recorded(function, (X, Flow.CONTENT))
    found = tape.last(out)
    assert found is not None
    assert "add_" not in names(tape.back(found))


# --- what a result depends on


@pytest.mark.parametrize(
    ("function", "flow"),
    [
        (lambda ids: torch.arange(ids.shape[1]), Flow.POSITION),
        (lambda ids: torch.arange(ids.shape[1]).float().cos() * 3, Flow.POSITION),
        (lambda ids: ids != 1, Flow.MASK),
        (lambda ids: (ids != 1).int(), Flow.MASK),
        (lambda ids: torch.cumsum(ids != 1, dim=1), Flow.POSITION | Flow.MASK),  # how RoBERTa counts
        (lambda ids: torch.cumsum(torch.ones_like(ids), dim=1), Flow.POSITION),
        (lambda ids: torch.cumsum(ids, dim=1), Flow.CONTENT),
        (lambda ids: F.embedding(ids, torch.ones(10, 3)), Flow.CONTENT),
        (lambda ids: F.embedding(torch.arange(ids.shape[1]), torch.ones(10, 3)), Flow.POSITION),
        (lambda ids: torch.zeros_like(ids), Flow.CONST),
        (lambda ids: ids.new_zeros(4), Flow.CONST),
        (lambda _: torch.arange(4)[:, None] >= torch.arange(4)[None, :], Flow.MASK),  # a causal mask is no position
        (lambda ids: ids.shape[1] * torch.ones(3), Flow.CONST),
        (lambda ids: F.embedding(ids, torch.ones(10, 3)) + torch.arange(4)[:, None], Flow.CONTENT | Flow.POSITION),
    ],
)
def test_flow(function, flow):
    tape, out = recorded(function, (IDS, Flow.CONTENT))
    assert tape.flow_of(out) == flow


def test_a_triangle_of_ones_is_a_mask_and_of_positions_still_both():
    tape, out = recorded(lambda: torch.triu(torch.ones(4, 4)))
    assert tape.flow_of(out) == Flow.MASK
    tape, out = recorded(lambda: torch.triu(torch.arange(16.0).reshape(4, 4)))
    assert tape.flow_of(out) == Flow.MASK | Flow.POSITION


def test_position_only():
    tape, _ = recorded(
        lambda ids: F.embedding(ids, torch.ones(10, 3)) + torch.arange(4.0)[:, None], (IDS, Flow.CONTENT)
    )
    only = {op.name: op.position_only for op in tape.ops}
    assert only["arange"]
    assert not only["embedding"]
    assert not only["add"]


def test_equal_numbers_picked_by_position_are_constant():
    """Token types: a buffer of zeros, cut to the length of the text, or picked by position ids."""
    types = torch.zeros(1, 10, dtype=torch.long)
    tape, out = recorded(lambda: types.gather(1, torch.arange(4)[None]))
    assert tape.flow_of(out) == Flow.CONST


# --- replay


def test_replay_with_another_result():
    def function(x):
        cosine = torch.arange(4.0).cos()[:, None]
        return (x * cosine + 1).transpose(1, 2)

    tape, out = recorded(function, (X, Flow.CONTENT))
    before = [op.value.clone() for op in tape.ops]
    cosine = next(op for op in tape.ops if op.name == "cos")
    target = tape.last(out)
    assert target is not None
    again = tape.replay(target, {cosine.index: torch.ones(4)})
    assert torch.equal(again, (X + 1).transpose(1, 2))
    assert torch.equal(tape.replay(target, {}), out)
    assert all(torch.equal(op.value, value) for op, value in zip(tape.ops, before, strict=True))  # nothing is changed


def test_replay_through_writes_in_place():
    def function(x):
        turned = x * torch.arange(4.0).cos()[:, None]
        new = x.new_empty(1, 4, 6)
        new[..., :3].copy_(x)
        new[..., 3:].copy_(turned)
        new.mul_(2)
        return new + 1

    tape, out = recorded(function, (X, Flow.CONTENT))
    kept = out.clone()
    cosine = next(op for op in tape.ops if op.name == "cos")
    target = tape.last(out)
    assert target is not None
    again = tape.replay(target, {cosine.index: torch.zeros(4)})
    assert torch.equal(again[..., :3], 2 * X + 1)
    assert torch.equal(again[..., 3:], torch.ones_like(X))
    assert torch.equal(out, kept)


def test_an_argument_written_in_pieces_is_replayed_whole():
    """DeepSeek's k: the last operation on it filled a part, and attention reads all of it."""

    def function(x):
        new = x.new_empty(1, 4, 6)
        new[..., :3].copy_(x)
        new[..., 3:].copy_(x * torch.arange(4.0).cos()[:, None])
        return torch.exp(new)

    tape, _ = recorded(function, (X, Flow.CONTENT))
    cosine, reader = (next(op for op in tape.ops if op.name == name) for name in ("cos", "exp"))
    whole = reader.args[0]
    again = tape.replay_argument(reader, whole, {cosine.index: torch.ones(4)})
    assert torch.equal(again, torch.cat([X, X], dim=-1))
    assert torch.equal(tape.replay_argument(reader, whole, {}), whole)


def test_replay_of_one_of_several_results():
    def function(x):
        first, second = (x + torch.arange(4.0)[:, None]).split([1, 2], dim=-1)
        return second - first

    tape, out = recorded(function, (X, Flow.CONTENT))
    steps, target = tape.ops[0], tape.last(out)
    assert target is not None
    assert torch.equal(tape.replay(target, {steps.index: torch.zeros(4)}), X[..., 1:] - X[..., :1])


def test_what_cannot_be_replayed_says_so():
    tape, out = recorded(lambda x: (x + 1).reshape(3, 4), (X, Flow.CONTENT))
    target = tape.last(out)
    assert target is not None
    with pytest.raises(CannotReplay, match="reshape"):
        tape.replay(target, {0: torch.zeros(5)})
