"""A twin as a reader: it is given a text piece by piece, however long, and what its scheme injects can be changed.

The models themselves keep nothing between calls and make their bias whole, 268 MB at 4,096 tokens. Here keys and values
are kept, and a bias is made for one piece at a time; a test holds the logits against the model's own. What is changed
is a what-if (`CHANGES`): another scaling of a rotation, or other rows of a table that ends.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tinput.errors import BadText, TooLong
from tinput.pipeline import attend, merge_heads, split_heads
from tinput.positions import SCHEMES, Add, Bias, Nothing, Rotate, learned, rope
from tinput.positions.rope import rotate_by
from tinput.twins import NAMES, WEIGHTS, TwinForCausalLM, folder

__all__ = [
    "ABOUT",
    "CHANGES",
    "DIVISORS",
    "PIECE",
    "THETA",
    "Reader",
    "Variant",
    "Writing",
    "continuation",
    "decode",
    "divisors",
    "encode",
    "sizes",
    "stretches",
    "twin",
    "variants",
]

DIVISORS = WEIGHTS / "divisors.json"  # what `extrapolate.search` found
PIECE = 256  # tokens that a model is given at once: 16 MB of scores at 4,096 tokens


THETA = "theta"  # a change: another base of a rotation's frequencies


@dataclass(frozen=True)
class Variant:
    """A twin and what is changed about it.

    change: "" as it was trained, one of CHANGES, or THETA; factor: how far its context is stretched, or the theta
    """

    name: str
    change: str = ""
    factor: int = 1

    @property
    def words(self) -> str:
        """What it is called beside the others of the same twin."""
        return f"{THETA} {self.factor:,}" if self.change == THETA else self.change or "as trained"


CHANGES: dict[str, tuple[str, ...]] = {
    "tinput/rope": ("linear", "ntk", "dynamic", "yarn", "llama3", "longrope"),
    "tinput/learned": ("clamped", "wrapped"),
}


ABOUT = {  # what these changes are, in words
    "tinput/rope": "Each stretches the context {factor} times, dynamic as far as the text asks; ntk is a larger theta, "
    "and longrope's divisors come from a search of our own.",
    "tinput/learned": "Clamped: every later token gets the last row; wrapped: the table starts again.",
}


def stretches(name: str) -> bool:
    """Whether the changes of a twin stretch its context by a factor."""
    return name == f"tinput/{rope.NAME}"


def variants(name: str, factor: int) -> list[Variant]:
    """What can be changed about a twin; nothing for most."""
    return [Variant(name, change, factor if stretches(name) else 1) for change in CHANGES.get(name, ())]


@functools.lru_cache(maxsize=len(NAMES))
def twin(name: str) -> TwinForCausalLM:
    """A bundled model in float32, ready to read. Shared: nothing may write to it. Raises NotFound."""
    return TwinForCausalLM.from_pretrained(folder(name), dtype=torch.float32).eval()


class Reader:
    """A twin that is given a text piece by piece and keeps the keys and values: memory grows with the length alone.

    config: what the scheme is given in place of the model's own; positions: of the whole text, (length,) int64
    Gives the same logits as the model itself. Raises TooLong, the model's own, for a position that it has not got.
    """

    def __init__(self, model: TwinForCausalLM, config: Mapping[str, Any], positions: Tensor):
        model.model.check_positions(positions[None])
        self.model, self.config, self.positions = model, config, positions
        self.read = 0
        self.past: list[tuple[Tensor, Tensor]] = []
        # A number for each pair of tokens would be 268 MB at 4,096 tokens: only a piece is computed at a time.
        by_score = isinstance(self._predict(self.positions[:1]), Bias)
        self.whole = None if by_score else self._predict(self.positions)

    @classmethod
    def of(cls, variant: Variant, length: int) -> Reader:
        """A reader of a text of `length` tokens."""
        model, positions = twin(variant.name), torch.arange(length)
        config, context = model.config.to_dict(), model.config.max_position_embeddings
        if variant.change in learned.PAST:
            positions = learned.PAST[variant.change](positions, context)
        elif variant.change == THETA:
            config["rope_theta"] = variant.factor
        elif variant.change:
            ways = rope.stretched(config, context, variant.factor, divisors(variant.factor))
            config |= ways[variant.change]
        return cls(model, config, positions)

    @torch.inference_mode()
    def _predict(self, positions: Tensor, keys: int | None = None) -> Any:
        table, config = self.model.model.position_table, self.model.config
        return SCHEMES[config.scheme].predict(
            self.config,
            positions,
            keys=keys,
            rows=table,
            n_rows=None if table is None else table.num_embeddings,
            width=config.hidden_size,
            heads=config.num_attention_heads,
            stack="decoder",
        )

    @torch.inference_mode()
    def logits(self, ids: Tensor) -> Tensor:
        """The next piece of one or more texts, ids (batch, seq) -> (batch, seq, vocab)."""
        model, start, stop = self.model.model, self.read, self.read + ids.shape[1]
        here, effect = slice(start, stop), self.whole
        if effect is None:
            effect = self._predict(self.positions[here], keys=stop)
        x = model.embed_tokens(ids) * math.sqrt(model.config.hidden_size)  # (batch, seq, d_model)
        if isinstance(effect, Add):
            x = x + effect.vectors[here]
        mask = torch.full((stop - start, stop), -torch.inf).triu(start + 1)  # a token sees itself and what is before
        if isinstance(effect, Bias):
            mask = (mask + effect.scores)[None]  # (1, heads, query, key): of three axes, a slower attention is chosen
        blocks: Any = model.layers
        for number, layer in enumerate(blocks):
            attention = layer.self_attn
            y = layer.input_norm(x)
            q, k, v = (
                split_heads(project(y), attention.n_heads)
                for project in (attention.q_proj, attention.k_proj, attention.v_proj)
            )
            if isinstance(effect, Rotate):
                q, k = (rotate_by(z, effect.cos[here], effect.sin[here], effect.layout) for z in (q, k))
            k, v = self._keep(number, k, v)
            x = x + attention.o_proj(merge_heads(attend(q, k, v, Nothing(), causal=False, mask=mask)))
            x = x + layer.down_proj(F.gelu(layer.up_proj(layer.mlp_norm(x))))
        self.read = stop
        return self.model.lm_head(model.norm(x))

    def _keep(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of all that was read, this piece's included: (batch, heads, read, d_head)."""
        if layer == len(self.past):
            self.past.append((k, v))
        else:
            old_k, old_v = self.past[layer]
            self.past[layer] = torch.cat((old_k, k), dim=2), torch.cat((old_v, v), dim=2)
        return self.past[layer]

    def losses(self, ids: Tensor) -> Tensor:
        """What each next token costs, ids (batch, seq) -> (batch, seq - 1), nats a token."""
        found = []
        for piece in range(0, ids.shape[1] - 1, PIECE):
            given = ids[:, piece : min(piece + PIECE, ids.shape[1] - 1)]
            next_ids = ids[:, piece + 1 : piece + 1 + given.shape[1]]
            logits = self.logits(given)
            found.append(F.cross_entropy(logits.flatten(0, 1), next_ids.flatten(), reduction="none").view_as(given))
        return torch.cat(found, dim=1)


def continuation(reader: Reader, ids: Tensor, new: int, temperature: float, seed: int) -> Iterator[int]:
    """The next `new` tokens after ids (seq,), one by one; 0: always the likeliest.

    The same seed draws the same numbers whatever the model: what differs is what it thinks of the text.
    """
    draws = torch.rand(new, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for first in range(0, len(ids), PIECE):
        logits = reader.logits(ids[None, first : first + PIECE])[0, -1]
    for draw in draws:
        if temperature:
            summed = (logits.double() / temperature).softmax(-1).cumsum(-1)
            token = min(int(torch.searchsorted(summed, draw * summed[-1], right=True)), len(summed) - 1)
        else:
            token = int(logits.argmax())
        yield token
        if reader.read < len(reader.positions):
            logits = reader.logits(torch.tensor([[token]]))[0, -1]


@dataclass(eq=False)
class Writing:
    """Continuations of one text by several twins, a token a step: `advance` until `finished`. Stopping loses nothing.

    text: what is gone on from, ids (seq,); new: tokens to write; temperature: 0 always takes the likeliest
    written: name -> ids so far; refused: name -> the model's own sentence, where it has no positions for so many
    """

    names: tuple[str, ...]
    text: Tensor
    new: int
    temperature: float
    seed: int
    written: dict[str, list[int]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    _pen: Iterator[int] | None = None

    @property
    def steps(self) -> int:
        return len(self.names) * self.new

    @property
    def done(self) -> int:
        return sum(map(len, self.written.values())) + self.new * len(self.refused)

    @property
    def finished(self) -> bool:
        return self.done >= self.steps

    @property
    def current(self) -> str:
        """Whose turn it is."""
        return next(name for name in self.names if name not in self.refused and self._left(name))

    def _left(self, name: str) -> int:
        return self.new - len(self.written.get(name, ()))

    def advance(self) -> None:
        """One token more."""
        name = self.current
        if self._pen is None:
            try:
                reader = Reader.of(Variant(name), len(self.text) + self.new)
            except TooLong as error:
                self.refused[name] = str(error)
                return
            self._pen = continuation(reader, self.text, self.new, self.temperature, self.seed)
        self.written.setdefault(name, []).append(next(self._pen))
        if not self._left(name):
            self._pen = None


@functools.cache
def divisors(factor: int) -> tuple[float, ...] | None:
    """The divisor of each pair that a search found, for a context so many times longer; None where none was made."""
    found = json.loads(DIVISORS.read_text(encoding="utf-8")).get(str(factor))
    return None if found is None else tuple(found)


# --- its texts ---


@functools.cache
def _tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder(NAMES[0])).backend_tokenizer  # the six have the same


def encode(text: str) -> Tensor:
    """The ids of a text, (seq,) int64, without a start token: a window begins anywhere. Raises BadText."""
    try:
        return torch.tensor(_tokenizer().encode(text).ids, dtype=torch.int64)
    except TypeError:
        raise BadText("The text holds half a character (a lone surrogate): remove it.") from None


def decode(ids: Tensor) -> str:
    """The text of some ids; bytes that make no character show as U+FFFD."""
    return _tokenizer().decode(ids.tolist(), skip_special_tokens=False)


@functools.cache
def sizes() -> Tensor:
    """How many bytes each token of the vocabulary stands for: (vocab,); each character of a piece is a byte."""
    tokenizer = _tokenizer()
    sizes = [len(tokenizer.id_to_token(i)) for i in range(tokenizer.get_vocab_size())]
    return torch.tensor([0 if tokenizer.decode([i]) == "" else size for i, size in enumerate(sizes)])
