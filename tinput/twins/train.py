"""Train the twins: python -m tinput.twins.train FOLDER --seed 0 --out tinput/twins/weights

FOLDER holds plain text files, one a document. The one named by --held-out is never trained on. Every twin gets the same
tokenizer, seed, batches in the same order and number of steps; only the position scheme differs. The two-dimensional
weights inside the blocks are trained with Muon (Jordan et al. 2024), all others with AdamW, as is usual with it.

Trains one after the other; to use two cores, make the tokenizer first and start one process for each:

    python -m tinput.twins.train FOLDER --out OUT --schemes none --steps 0
    python -m tinput.twins.train FOLDER --out OUT --schemes none learned alibi & ...
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tinput.twins import NAMES, TwinConfig, TwinForCausalLM
from tinput.twins.tokenizer import train_tokenizer

__all__ = ["Data", "evaluate", "main", "train"]

CONTEXT = 256  # tokens; about 700 bytes of English prose
BATCH = 8
STEPS = 1000
LEARNING_RATE = 1e-2  # of both optimizers: Muon's steps are scaled to the size of AdamW's
WARMUP = 60  # steps
HELD_OUT_BYTES = 96_000  # kept beside the weights: 6,000 to check them by, and long texts to read


@dataclass(frozen=True)
class Data:
    """train: (tokens,) every document in turn, each begun by the start token; held_out: (tokens,), and its bytes."""

    train: Tensor
    held_out: Tensor
    held_out_text: str


def read(folder: Path, held_out: str) -> tuple[dict[str, str], str]:
    """The texts of a folder by name, in order of name, and the one that is held out. Raises SystemExit, saying why."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))}
    if len(texts) < 2:
        raise SystemExit(f"{folder} needs two .txt files or more: one is held out, the others are trained on.")
    if held_out not in texts:
        raise SystemExit(f"{folder} has no {held_out}: choose --held-out from {', '.join(texts)}.")
    return texts, texts.pop(held_out)


def tokenizer_for(out: Path, texts: dict[str, str], vocab_size: int) -> PreTrainedTokenizerFast:
    """The tokenizer that lies in `out`; made from the training texts if there is none."""
    if not (out / "tokenizer.json").exists():
        train_tokenizer(texts.values(), vocab_size).save_pretrained(out)
    return AutoTokenizer.from_pretrained(out)


def encode(tokenizer: PreTrainedTokenizerFast, texts: dict[str, str], held_out: str) -> Data:
    def ids(text: str) -> list[int]:
        return tokenizer.backend_tokenizer.encode(text).ids

    start = tokenizer.bos_token_id
    train = torch.tensor([i for text in texts.values() for i in (start, *ids(text))])
    return Data(train, torch.tensor([start, *ids(held_out)]), held_out)


def batches(tokens: Tensor, seed: int) -> Iterator[Tensor]:
    """Windows from anywhere in the text, without end: (batch, context + 1). The order depends on the seed alone."""
    generator = torch.Generator().manual_seed(seed)
    offset = torch.arange(min(CONTEXT + 1, len(tokens)))
    while True:
        start = torch.randint(len(tokens) - len(offset) + 1, (BATCH, 1), generator=generator)
        yield tokens[start + offset]


def untrained(scheme: str, vocab_size: int, seed: int) -> TwinForCausalLM:
    """A twin before its first step. What it shares with the others starts the same in all of them."""
    sizes: dict[str, Any] = {"vocab_size": vocab_size, "max_position_embeddings": CONTEXT}
    torch.manual_seed(seed)
    common = TwinForCausalLM(TwinConfig(scheme="none", **sizes)).state_dict()
    model = TwinForCausalLM(TwinConfig(scheme=scheme, **sizes))
    model.load_state_dict(common, strict=False)  # a table of positions, which only some have, stays its own
    return model


def train(scheme: str, data: Data, vocab_size: int, steps: int, seed: int) -> TwinForCausalLM:
    """A twin after `steps` steps, printing its loss on the way."""
    model = untrained(scheme, vocab_size, seed).train()
    named = list(model.named_parameters())
    inside = [p for name, p in named if ".layers." in name and p.ndim == 2]
    others = [p for name, p in named if not (".layers." in name and p.ndim == 2)]
    optimizers = (
        torch.optim.Muon(inside, lr=LEARNING_RATE, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.0),
    )
    began, total = time.monotonic(), 0.0
    for step, batch in zip(range(steps), batches(data.train, seed), strict=False):
        for group in (g for optimizer in optimizers for g in optimizer.param_groups):
            group["lr"] = LEARNING_RATE * schedule(step, steps)
        logits = model(batch[:, :-1]).logits  # (batch, context, vocab)
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())  # nats a token
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        total += loss.item()
        if (step + 1) % 100 == 0 or step + 1 == steps:
            done = step % 100 + 1
            seconds = time.monotonic() - began
            print(
                f"{scheme}: step {step + 1} of {steps}, loss {total / done:.3f} nats a token,"
                f" {seconds:.0f} s, {(step + 1) * BATCH * CONTEXT / seconds:,.0f} tokens a second",
                flush=True,
            )
            total = 0.0
    return model


def schedule(step: int, steps: int) -> float:
    """The share of the learning rate: a linear start, then a cosine down to 2 %."""
    return min(1.0, (step + 1) / WARMUP) * (0.02 + 0.49 * (1 + math.cos(math.pi * step / steps)))


@torch.no_grad()
def evaluate(model: TwinForCausalLM, tokens: Tensor, length: int, total: int = 32 * 1024) -> float | None:
    """The mean loss of the text's first `total` tokens cut in pieces of `length`, in nats a token.

    None where the model's position table is shorter than that. Each piece is predicted from its second token on.
    """
    config = model.config
    if config.scheme == "learned" and length > config.max_position_embeddings:
        return None
    model.eval()
    length = min(length, len(tokens))
    pieces = tokens[: min(total, len(tokens)) // length * length].view(-1, length)
    losses = [model(piece[None], labels=piece[None]).loss.item() for piece in pieces]
    return sum(losses) / len(losses)


def report(scheme: str, model: TwinForCausalLM, data: Data, seconds: float, steps: int, seed: int) -> dict:
    """What the README states, as plain numbers."""
    bytes_a_token = len(data.held_out_text.encode()) / len(data.held_out)
    losses = {}
    for length in (CONTEXT // 2, CONTEXT, 2 * CONTEXT, 4 * CONTEXT, 8 * CONTEXT):
        nats = evaluate(model, data.held_out, length)
        losses[str(length)] = nats and {
            "nats_a_token": round(nats, 4),
            "nats_a_byte": round(nats / bytes_a_token, 4),
        }
    return {
        "scheme": scheme,
        "seed": seed,
        "steps": steps,
        "tokens_seen": steps * BATCH * CONTEXT,
        "seconds": round(seconds),
        "parameters": sum(p.numel() for p in model.parameters()),
        "bytes_a_token": round(bytes_a_token, 3),
        "held_out_loss": losses,
    }


def main(argv: list[str] | None = None) -> None:
    schemes = [name.removeprefix("tinput/") for name in NAMES]
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="plain text files (.txt), one a document")
    parser.add_argument("--out", type=Path, default=Path("twins"), help="where a folder for each scheme is written")
    parser.add_argument("--held-out", default="pride-and-prejudice.txt", help="the file that is not trained on")
    parser.add_argument("--schemes", nargs="+", default=schemes, choices=schemes, metavar="SCHEME")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--vocab-size", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args(argv)
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)  # far weights of a biased score are so small that a CPU would crawl

    texts, held_out = read(arguments.folder, arguments.held_out)
    arguments.out.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizer_for(arguments.out, texts, arguments.vocab_size)
    data = encode(tokenizer, texts, held_out)
    (arguments.out / "heldout.txt").write_text(held_out.encode()[:HELD_OUT_BYTES].decode(errors="ignore"), "utf-8")
    print(f"{len(data.train):,} tokens to train on, {len(data.held_out):,} held out", flush=True)
    for scheme in arguments.schemes:
        began = time.monotonic()
        model = train(scheme, data, len(tokenizer), arguments.steps, arguments.seed)
        seconds = time.monotonic() - began
        folder = arguments.out / scheme
        model.half().save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        # Measured on what is stored
        model = TwinForCausalLM.from_pretrained(folder, dtype=torch.float32)
        facts = report(scheme, model, data, seconds, arguments.steps, arguments.seed)
        (folder / "training.json").write_text(json.dumps(facts, indent=2) + "\n", "utf-8")
        print(json.dumps(facts["held_out_loss"]), flush=True)


if __name__ == "__main__":
    main()
