"""Past the length that they were trained at: how well the twins predict a long text, as they are and with a change.

    python -m tinput.twins.extrapolate      # computes weights/extrapolate.json anew (some minutes)

**Loss at length L**: chosen tokens of the text, the same for every length and every model, are each predicted from at
least L / 2 and fewer than L tokens before them, by a model that sees a window of L tokens and numbers it from 0. So
lengths differ in nothing but how much is read (Press et al. 2022, https://arxiv.org/abs/2108.12409, section 2, compare
a length's windows in the same way). The sum of these losses over the bytes of these tokens is in nats a byte: it does
not depend on the tokenizer. **Loss at a position**: of the longest windows, all tokens, by their place.
"""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tinput.errors import BadText, TooLong
from tinput.positions import rope
from tinput.twins import HELD_OUT, NAMES, WEIGHTS, TwinConfig, folder
from tinput.twins.reader import DIVISORS, Reader, Variant, divisors, encode, sizes, twin, variants

__all__ = [
    "BIN",
    "FACTORS",
    "FILE",
    "Curve",
    "Losses",
    "Plan",
    "context",
    "load",
    "measure",
    "novel",
    "plan",
    "versions",
    "write",
]

FILE = WEIGHTS / "extrapolate.json"
SHORTEST, TIMES = 16, 16  # tokens; the longest length, in training contexts
SCORED = 256  # tokens that are predicted in each window
WINDOWS = 16  # spread over the text
BIN = 64  # positions that one point of a curve by position is the mean of
FACTORS = (16, 4)  # how many times longer a context is made
SEARCHED = 8_192  # tokens of the novel that divisors are searched on; no loss is measured there


# --- a text, and what of it is predicted ------------------------------------------------------------------------------


@functools.cache
def context() -> int:
    """How many tokens the twins were trained on."""
    return TwinConfig.from_pretrained(folder(NAMES[0])).max_position_embeddings


@functools.cache
def novel() -> Tensor:
    """The held-out novel's opening, without the part that was searched on: (seq,) int64."""
    return encode(HELD_OUT.read_text(encoding="utf-8"))[SEARCHED:]


@dataclass(frozen=True, eq=False)
class Plan:
    """Which tokens of a text are predicted, and from how many.

    ids: (seq,) int64; lengths: in tokens, doubling; scored: how many tokens at the end of each window
    ends: where the windows end, the same for all lengths
    """

    ids: Tensor
    lengths: tuple[int, ...]
    scored: int
    ends: tuple[int, ...]

    @property
    def longest(self) -> int:
        return self.lengths[-1]

    @property
    def tokens(self) -> int:
        """How many tokens a loss is the mean of."""
        return self.scored * len(self.ends)

    @property
    def context(self) -> int:
        """How many tokens the twins were trained on."""
        return context()

    def middles(self, bins: int) -> list[float]:
        """The position in the middle of each bin of a curve by position; a token at 0 is not predicted."""
        edges = [1 + BIN * i for i in range(bins)]
        return [(edge + min(edge + BIN, self.longest) - 1) / 2 for edge in edges]

    def windows(self, end: int, length: int) -> tuple[Tensor, int]:
        """The windows (n, length) whose last `take` tokens are together the scored ones before `end`, and `take`."""
        take = min(self.scored, length // 2)
        stops = range(end - self.scored + take, end + 1, take)
        return torch.stack([self.ids[stop - length : stop] for stop in stops]), take


def plan(ids: Tensor, *, windows: int = WINDOWS, longest: int = 0) -> Plan:
    """A plan for a text: lengths of 16 tokens up to the longest power of two that fits, at most 16 times the context.

    Raises BadText for fewer than 64 tokens.
    """
    most = longest or TIMES * context()
    if len(ids) < 4 * SHORTEST:
        raise BadText(
            f"The text has {len(ids):,} tokens, and a curve needs {4 * SHORTEST}: type or paste a longer one."
        )
    lengths = tuple(2**n for n in range(SHORTEST.bit_length() - 1, 32) if 2**n <= min(most, len(ids)))
    scored = min(SCORED, lengths[-1] // 2)
    free = len(ids) - lengths[-1]  # tokens that the first window may move by
    count = min(windows, 1 + free // scored)
    return Plan(ids, lengths, scored, tuple(lengths[-1] + free * i // max(1, count - 1) for i in range(count)))


# --- the losses -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """What was measured of a variant, in nats a byte.

    by_length: one a length, None where the model cannot read so much (`too_long` is its own sentence)
    error: the standard error of each, over the windows; much of it is the text's, so the same for all models
    by_position: the mean of each `BIN` positions of the longest windows, as far as the model reads
    """

    by_length: tuple[float | None, ...]
    error: tuple[float | None, ...]
    by_position: tuple[float, ...]
    too_long: str = ""


@dataclass(eq=False)
class Losses:
    """The losses of one variant on a plan, step by step: `advance` until `done` is `steps`. Stopping loses nothing."""

    variant: Variant
    plan: Plan
    done: int = 0
    too_long: str = ""
    _sums: dict[tuple[int, int], float] = field(default_factory=dict)  # (length, window) -> nats
    _places: dict[int, Tensor] = field(default_factory=dict)  # window -> nats at each position

    @property
    def steps(self) -> int:
        return len(self.plan.lengths) * len(self.plan.ends)

    @property
    def finished(self) -> bool:
        return self.done >= self.steps

    @property
    def current(self) -> str:
        """What comes next, in words."""
        return f"{self.variant.name}, {self.plan.lengths[self.done // len(self.plan.ends)]:,} tokens"

    def advance(self) -> None:
        """One window at one length, short ones first; a second at most."""
        length = self.plan.lengths[self.done // len(self.plan.ends)]
        window = self.done % len(self.plan.ends)
        ids, take = self.plan.windows(self.plan.ends[window], length)
        try:
            losses = Reader.of(self.variant, length).losses(ids)
        except TooLong as error:
            self.too_long = str(error)
            self._places = dict(enumerate(self._starts(error.usable)))
            self.done = self.steps
            return
        self._sums[length, window] = float(losses[:, -take:].double().sum())
        self._places[window] = losses[-1].double()  # the longest that could be read stays
        self.done += 1

    def _starts(self, length: int) -> Tensor:
        """The losses of the first `length` tokens of each of the longest windows: (window, length - 1)."""
        starts = [end - self.plan.longest for end in self.plan.ends]
        ids = torch.stack([self.plan.ids[start : start + length] for start in starts])
        return Reader.of(self.variant, length).losses(ids).double()

    def curve(self) -> Curve:
        """What is known once it is finished; before, of the lengths that are."""
        count, size = len(self.plan.ends), sizes()[self.plan.ids]  # bytes of each token
        scored = torch.stack([size[end - self.plan.scored : end].sum() for end in self.plan.ends]).double()
        means: list[float | None] = []
        errors: list[float | None] = []
        for length in self.plan.lengths:
            nats = [self._sums.get((length, window)) for window in range(count)]
            if any(one is None for one in nats):
                means, errors = [*means, None], [*errors, None]
                continue
            each = torch.tensor(nats, dtype=torch.float64)
            mean = float(each.sum() / scored.sum())
            apart = (each - mean * scored).square().sum() * count / max(1, count - 1)
            means.append(mean)
            errors.append(float(apart.sqrt() / scored.sum()) if count > 1 else None)
        return Curve(tuple(means), tuple(errors), self._by_position(size) if self.finished else (), self.too_long)

    def _by_position(self, size: Tensor) -> tuple[float, ...]:
        starts = [end - self.plan.longest for end in self.plan.ends]
        nats = torch.stack([self._places[window] for window in range(len(starts))]).sum(0)  # (position - 1,)
        reach = len(nats) + 1
        size = torch.stack([size[start + 1 : start + reach] for start in starts]).sum(0)
        bins = [(nats[i : i + BIN].sum(), size[i : i + BIN].sum()) for i in range(0, reach - 1, BIN)]
        return tuple(float(one / many) for one, many in bins)


def measure(variant: Variant, plan: Plan) -> Curve:
    """All steps of `Losses` at once: up to half a minute for a long text."""
    losses = Losses(variant, plan)
    while not losses.finished:
        losses.advance()
    return losses.curve()


# --- what is bundled --------------------------------------------------------------------------------------------------


@functools.cache
def load() -> dict[Variant, Curve]:
    """The curves of all variants on the novel's opening, as `write` measured them."""
    return {
        Variant(one["name"], one["change"], one["factor"]): Curve(
            tuple(one["by_length"]), tuple(one["error"]), tuple(one["by_position"]), one["too_long"]
        )
        for one in _file()["curves"]
    }


def versions() -> str:
    """What the bundled curves were computed with."""
    return ", ".join(f"{name} {version}" for name, version in _file()["versions"].items())


@functools.cache
def _file() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))


def search(factor: int, tries: int = 150, seed: int = 0) -> list[float]:
    """A divisor for each pair, rising, that makes a text of so many contexts cheapest: (pair,).

    A small version of the search of Ding et al. 2024, section 3.3: from the published ways' own divisors on, the best
    are changed at random, and kept where the loss past the context falls. Read is a part of the novel on which nothing
    else is measured.
    """
    model = twin(f"tinput/{rope.NAME}")
    config, context = model.config.to_dict(), model.config.max_position_embeddings
    length = factor * context
    text = encode(HELD_OUT.read_text(encoding="utf-8"))[:SEARCHED]
    windows = text[: len(text) // length * length].view(-1, length)[:4]

    def tried(divisors: Tensor) -> tuple[float, list[float]]:
        chosen = [round(float(one), 4) for one in divisors]
        way = rope.stretched(config, context, factor, chosen)["longrope"]
        losses = Reader(model, config | way, torch.arange(length)).losses(windows)
        return float(losses[:, context:].mean()), chosen

    generator = torch.Generator().manual_seed(seed)
    plain, ways = rope.frequencies(config).inv_freq, rope.stretched(config, context, factor)
    best = sorted(tried(plain / rope.frequencies(way, seq_len=length).inv_freq) for way in ways.values())
    for _ in range(tries):
        parent = torch.tensor(best[int(torch.randint(min(4, len(best)), (1,), generator=generator))][1])
        changed = torch.rand(len(parent), generator=generator) < 0.3
        step = (0.3 * torch.randn(len(parent), generator=generator) * changed).exp()
        best = sorted([*best, tried((parent * step).clamp(1, 1.25 * factor).cummax(0).values)])[:16]
    print(f"{factor} times: {best[0][0]:.4f} nats a token past the context after {tries} tries", flush=True)
    return best[0][1]


def write(file: Path = FILE) -> Path:
    """Measures all variants on the novel's opening, and writes the file."""
    import transformers

    found = {str(factor): search(factor) for factor in FACTORS}
    DIVISORS.write_text(json.dumps(found) + "\n", encoding="utf-8")
    divisors.cache_clear()
    curves = []
    everything = [Variant(name) for name in NAMES]
    everything += dict.fromkeys(variant for factor in FACTORS for name in NAMES for variant in variants(name, factor))
    for variant in everything:
        curve = measure(variant, plan(novel()))
        print(variant, [one and round(one, 3) for one in curve.by_length], flush=True)
        curves.append(json.dumps(asdict(variant) | asdict(curve)))
    made_with = json.dumps({"torch": torch.__version__, "transformers": transformers.__version__})
    lines = ",\n".join(curves)
    file.write_text(f'{{"versions": {made_with}, "curves": [\n{lines}\n]}}\n', encoding="utf-8")
    for cached in (_file, load):
        cached.cache_clear()
    return file


if __name__ == "__main__":
    torch.set_num_threads(1)
    write()
