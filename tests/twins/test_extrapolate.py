"""Losses by length and by position against transformers' own, and the bundled numbers against the same again."""

from __future__ import annotations

import dataclasses
import json
import os

import pytest
import torch
import torch.nn.functional as F
import transformers
from transformers import AutoModelForCausalLM

from tinput import twins
from tinput.errors import BadText
from tinput.positions import rope
from tinput.twins import extrapolate, reader
from tinput.twins.extrapolate import Losses
from tinput.twins.reader import Variant

WHOLE = bool(os.environ.get("TINPUT_WHOLE_EXTRAPOLATE"))  # every bundled number again: some minutes


@pytest.fixture(scope="module")
def plan():
    return extrapolate.plan(extrapolate.novel()[:700], windows=3, longest=256)


def test_every_length_predicts_the_same_tokens(plan):
    assert plan.lengths == (16, 32, 64, 128, 256)
    assert (plan.scored, plan.ends) == (128, (256, 478, 700))
    place = torch.arange(len(plan.ids))
    where = dataclasses.replace(plan, ids=place)  # a text whose ids are their places
    for end in plan.ends:
        for length in plan.lengths:
            windows, take = where.windows(end, length)
            assert windows.shape == (128 // take, length)
            assert windows[:, -take:].flatten().tolist() == list(range(end - 128, end))
            assert length // 2 <= length - take  # each from at least half of the window ...
            assert (windows.diff(dim=1) == 1).all()  # ... and a window is a stretch of the text


def test_a_text_sets_how_far_its_curve_goes():
    assert extrapolate.plan(extrapolate.novel()).lengths[-1] == 16 * extrapolate.context() == 4096
    short = extrapolate.plan(torch.zeros(100, dtype=torch.long))
    assert (short.lengths, short.scored, short.ends) == ((16, 32, 64), 32, (64, 100))
    with pytest.raises(BadText, match="has 63 tokens, and a curve needs 64"):
        extrapolate.plan(torch.zeros(63, dtype=torch.long))
    for n in (64, 300, 5000):
        made = extrapolate.plan(torch.zeros(n, dtype=torch.long), windows=8)
        assert made.ends[0] == made.longest
        assert len(made.ends) == 1 or made.ends[-1] == n
        assert all(b - a >= made.scored for a, b in zip(made.ends, made.ends[1:], strict=False)), (
            "no token counts twice"
        )


@pytest.mark.parametrize("name", ["tinput/rope", "tinput/relative_bias"])
@torch.no_grad()
def test_losses_by_length_are_transformers_own(plan, name):
    model = AutoModelForCausalLM.from_pretrained(twins.folder(name), dtype=torch.float32).eval()
    curve = extrapolate.measure(Variant(name), plan)
    size = sum(len(reader.decode(plan.ids[end - 128 : end]).encode()) for end in plan.ends)
    for at, length in enumerate(plan.lengths):
        nats = 0.0
        step = length // 2
        for end in plan.ends:
            for stop in range(end, end - 128, -min(step, 128)):
                window = plan.ids[stop - length : stop]
                logits = model(window[None]).logits[0]
                take = min(step, 128)
                nats += float(F.cross_entropy(logits[-take - 1 : -1], window[-take:], reduction="sum"))
        assert curve.by_length[at] == pytest.approx(nats / size, rel=1e-4)
    assert curve.too_long == ""
    assert all(error is not None and 0 < error < 0.3 for error in curve.error)


@torch.no_grad()
def test_losses_by_position_are_transformers_own(plan):
    name = "tinput/alibi"
    model = AutoModelForCausalLM.from_pretrained(twins.folder(name), dtype=torch.float32).eval()
    windows = torch.stack([plan.ids[end - 256 : end] for end in plan.ends])
    losses = F.cross_entropy(model(windows).logits[:, :-1].transpose(1, 2), windows[:, 1:], reduction="none")
    sizes = torch.tensor([[len(reader.decode(token[None]).encode("utf-8")) for token in w[1:]] for w in windows])
    found = extrapolate.measure(Variant(name), plan).by_position
    assert len(found) == 4
    for i, one in enumerate(found):
        here = slice(64 * i, 64 * (i + 1))
        assert one == pytest.approx(float(losses[:, here].sum() / sizes[:, here].sum()), rel=0.02)  # sizes of halves of
        # a character are its mark's here
    assert plan.middles(4)[0] == sum(range(1, 65)) / 64


def test_where_a_table_ends_the_curve_does_and_the_model_says_why():
    plan = extrapolate.plan(extrapolate.novel()[:1100], windows=2, longest=512)
    learned = extrapolate.measure(Variant("tinput/learned"), plan)
    assert learned.by_length[-1] is None
    assert all(learned.by_length[:-1])
    assert "has no row: the position table has 256" in learned.too_long
    assert len(learned.by_position) == 4  # of the same windows' first 256 tokens
    clamped = extrapolate.measure(Variant("tinput/learned", "clamped"), plan)
    assert clamped.by_length[:-1] == pytest.approx(learned.by_length[:-1])
    assert clamped.by_length[-1] is not None
    assert clamped.by_position[:3] == pytest.approx(learned.by_position[:3], rel=1e-5)
    assert len(clamped.by_position) == 8


def test_stopped_and_gone_on_with_it_is_the_same(plan):
    losses, whole = Losses(Variant("tinput/none"), plan), extrapolate.measure(Variant("tinput/none"), plan)
    assert (losses.done, losses.steps) == (0, 15)
    for _ in range(4):
        losses.advance()
    half = losses.curve()
    assert half.by_length[0] == whole.by_length[0]
    assert half.by_length[1:] == (None,) * 4  # one window of three does not count
    assert half.by_position == ()
    while not losses.finished:
        losses.advance()
    assert losses.curve() == whole


# --- what is bundled


def test_the_bundled_numbers_are_of_the_installed_versions_and_of_every_variant():
    kept = json.loads(extrapolate.FILE.read_text(encoding="utf-8"))
    assert kept["versions"]["transformers"] == transformers.__version__
    made_with = kept["versions"]["torch"].split("+")[0]
    assert made_with == torch.__version__.split("+")[0], "write it anew: python -m tinput.twins.extrapolate"
    every = {Variant(name) for name in twins.NAMES}
    every |= {v for name in twins.NAMES for factor in extrapolate.FACTORS for v in reader.variants(name, factor)}
    assert set(extrapolate.load()) == every
    assert len(kept["curves"]) == len(every)


CELLS = [
    *((Variant(name), length) for name in twins.NAMES for length in (16, 256)),
    (Variant("tinput/sinusoidal"), 512),
    (Variant("tinput/learned", "wrapped"), 512),
    *((variant, 512) for variant in reader.variants("tinput/rope", 16)),
    (Variant("tinput/rope", "longrope", 4), 1024),
]


@pytest.mark.parametrize(("variant", "length"), CELLS, ids=str)
def test_computed_again_it_is_the_same(variant, length):
    plan = extrapolate.plan(extrapolate.novel())
    again = extrapolate.measure(variant, dataclasses.replace(plan, lengths=(length,)))
    at = plan.lengths.index(length)
    kept = extrapolate.load()[variant]
    assert again.by_length[0] == pytest.approx(kept.by_length[at], rel=1e-4)
    assert again.error[0] == pytest.approx(kept.error[at], rel=1e-2)


@pytest.mark.skipif(not WHOLE, reason="some minutes: TINPUT_WHOLE_EXTRAPOLATE=1")
def test_all_of_it_computed_again():
    plan = extrapolate.plan(extrapolate.novel())
    for variant, kept in extrapolate.load().items():
        again = extrapolate.measure(variant, plan)
        assert [one or 0 for one in again.by_length] == pytest.approx([one or 0 for one in kept.by_length], rel=1e-4)
        assert again.by_position == pytest.approx(kept.by_position, rel=1e-3)


def test_what_they_show():
    """The claims that are known of these schemes (Press et al. 2022, figure 1; Chen et al. 2023; Peng et al. 2023)."""
    plan, curves = extrapolate.plan(extrapolate.novel()), extrapolate.load()
    inside, end = plan.lengths.index(256), -1

    def rise(variant: Variant) -> float:
        return curves[variant].by_length[end] - curves[variant].by_length[inside]  # type: ignore[operator]

    assert abs(rise(Variant("tinput/alibi"))) < 0.02
    assert rise(Variant("tinput/sinusoidal")) > 0.2
    assert rise(Variant("tinput/rope")) > 0.2
    yarn = Variant("tinput/rope", "yarn", 16)
    assert rise(yarn) < 0.05
    linear = curves[Variant("tinput/rope", "linear", 16)]
    assert linear.by_length[0] > curves[yarn].by_length[0] + 0.1  # type: ignore[operator] - neighbours are squeezed too


def test_divisors_rise_and_stay_in_the_paper_s_bounds(capsys):
    for factor in extrapolate.FACTORS:
        found = reader.divisors(factor)
        assert found is not None
        assert len(found) == 16
        assert list(found) == sorted(found)
        assert 1 <= found[0] <= found[-1] <= 1.25 * factor
    start = extrapolate.search(4, tries=0)
    ways = rope.stretched(reader.twin("tinput/rope").config.to_dict(), 256, 4)
    plain = 10_000 ** (-torch.arange(16, dtype=torch.float64) / 16)
    known = [plain / rope.frequencies(way, seq_len=1024).inv_freq for way in ways.values()]
    assert any(torch.allclose(torch.tensor(start, dtype=torch.float64), way, atol=1e-4) for way in known)
    assert "after 0 tries" in capsys.readouterr().out
    assert reader.divisors(2) is None
