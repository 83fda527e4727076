"""A twin read piece by piece: its logits and losses are the model's own, its text is what transformers generates."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tinput import twins
from tinput.errors import BadText, TooLong
from tinput.positions import rope
from tinput.twins import extrapolate, reader
from tinput.twins.reader import Reader, Variant


@pytest.fixture(scope="module", params=twins.NAMES)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def model(name):
    return AutoModelForCausalLM.from_pretrained(twins.folder(name), dtype=torch.float32).eval()


def ids(n: int) -> torch.Tensor:
    return extrapolate.novel()[:n]


@torch.no_grad()
def test_pieces_give_the_model_s_own_logits(name, model):
    length = 256 if name == "tinput/learned" else 300  # past the training, where there is something past it
    given = torch.stack([ids(length), ids(length).flip(0)])
    own = model(given).logits
    read = Reader.of(Variant(name), length)
    found = torch.cat([read.logits(piece) for piece in given.split([1, 150, length - 151], dim=1)], dim=1)
    torch.testing.assert_close(found, own, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_losses_are_transformers_own(name, model):
    given = ids(100)[None]
    losses = Reader.of(Variant(name), 100).losses(given)
    assert losses.shape == (1, 99)
    torch.testing.assert_close(losses.mean(), model(given, labels=given).loss, atol=1e-5, rtol=1e-5)


def test_at_temperature_0_it_writes_what_transformers_generates(name, model):
    start = ids(40)
    own = model.generate(start[None], max_new_tokens=12, do_sample=False, pad_token_id=0)[0, 40:].tolist()
    assert list(reader.continuation(Reader.of(Variant(name), 52), start, 12, 0.0, 0))[: len(own)] == own


def test_a_seed_draws_as_the_probabilities_are():
    """Against the model's own softmax, by Pearson's chi squared over many seeds."""
    start, drawn = ids(30), []
    probability = Reader.of(Variant("tinput/rope"), 31).logits(start[None])[0, -1].double().div(0.7).softmax(-1)
    read = Reader.of(Variant("tinput/rope"), 31)

    class Once:  # the same logits for every seed, computed once
        positions, read = torch.arange(30), 30

        def __init__(self) -> None:
            self.answer = found

        def logits(self, _ids):
            return self.answer

    found = read.logits(start[None])
    drawn = torch.tensor([next(reader.continuation(Once(), start, 1, 0.7, seed)) for seed in range(600)])  # type: ignore[arg-type]
    common = probability.topk(6).indices
    seen = torch.stack([(drawn == token).sum() for token in common]).double()
    expected = 600 * probability[common]
    assert float(((seen - expected) ** 2 / expected).sum()) < 25  # 6 cells: beyond 25 once in 3,000
    again = [next(reader.continuation(Once(), start, 1, 0.7, seed)) for seed in range(20)]  # type: ignore[arg-type]
    assert again == drawn[:20].tolist()


def test_past_the_table_the_error_is_the_model_s_own():
    name = "tinput/learned"
    with pytest.raises(TooLong) as ours:
        Reader.of(Variant(name), 257)
    with pytest.raises(TooLong) as own:
        reader.twin(name)(torch.zeros(1, 257, dtype=torch.long))
    assert str(ours.value) == str(own.value)
    assert ours.value.usable == 256


@pytest.mark.parametrize("change", ["clamped", "wrapped"])
@torch.no_grad()
def test_what_if_rows_past_the_table(change):
    """The model itself, given the positions that the what-if stands for."""
    positions = {"clamped": [*range(256), *[255] * 44], "wrapped": [*range(256), *range(44)]}[change]
    own = reader.twin("tinput/learned")(ids(300)[None], position_ids=torch.tensor([positions])).logits
    read = Reader.of(Variant("tinput/learned", change), 300)
    found = torch.cat([read.logits(piece[None]) for piece in ids(300).split(256)], dim=1)
    torch.testing.assert_close(found, own, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("change", reader.CHANGES["tinput/rope"])
@torch.no_grad()
def test_what_if_another_scaling(change):
    """A twin whose configuration says so, made anew."""
    twin = reader.twin("tinput/rope")
    config = twins.TwinConfig.from_dict(twin.config.to_dict())
    other = twins.TwinForCausalLM(config).eval()
    other.load_state_dict(twin.state_dict())
    found = rope.stretched(config.to_dict(), 256, 4, reader.divisors(4))[change]
    other.config.rope_parameters = found["rope_parameters"]
    other.config.head_dim = found["head_dim"]
    own = other(ids(300)[None]).logits
    read = Reader.of(Variant("tinput/rope", change, 4), 300)
    read_logits = torch.cat([read.logits(piece[None]) for piece in ids(300).split(256)], dim=1)
    torch.testing.assert_close(read_logits, own, atol=1e-4, rtol=1e-4)
    plain = twin(ids(300)[None]).logits
    assert float((plain - own).abs().max()) > 0.1, "it changes something"


@torch.no_grad()
def test_what_if_another_theta():
    config = twins.TwinConfig.from_dict(reader.twin("tinput/rope").config.to_dict() | {"rope_theta": 500.0})
    other = twins.TwinForCausalLM(config).eval()
    other.load_state_dict(reader.twin("tinput/rope").state_dict())
    variant = Variant("tinput/rope", reader.THETA, 500)
    assert variant.words == "theta 500"
    found = Reader.of(variant, 200).logits(ids(200)[None])
    torch.testing.assert_close(found, other(ids(200)[None]).logits, atol=1e-4, rtol=1e-4)


def test_writing_goes_on_where_it_was_stopped():
    names = ("tinput/learned", "tinput/rope", "tinput/none")
    one = reader.Writing(names, ids(252), 5, 0.8, 3)
    while not one.finished:
        one.advance()
    assert one.done == one.steps == 15
    assert set(one.refused) == {"tinput/learned"}
    assert "has no row: the position table has 256" in one.refused["tinput/learned"]
    for name in names[1:]:
        read = Reader.of(Variant(name), 257)
        assert one.written[name] == list(reader.continuation(read, ids(252), 5, 0.8, 3))
    assert len({tuple(written) for written in one.written.values()}) == 2


def test_text_and_bytes():
    tokenizer = AutoTokenizer.from_pretrained(twins.folder("none"))
    text = "It is a truth: 🦙 naïve\n"
    found = reader.encode(text)
    assert found.tolist() == tokenizer.encode(text)
    assert reader.decode(found) == text
    assert int(reader.sizes()[found].sum()) == len(text.encode())
    assert int(reader.sizes()[0]) == 0  # the start token is no text
    with pytest.raises(BadText, match="half a character"):
        reader.encode("a \ud800 b")
