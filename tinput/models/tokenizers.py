"""The tokenizer in a model's folder, read by transformers from local files alone; no code of the folder is ever run."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

__all__ = ["load"]

VOCABULARIES = (  # one of these holds a vocabulary that the installed libraries read by themselves
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "tekken.json",
)
SENTENCEPIECE = ("*.model", "*.spm")


def load(folder: Path) -> tuple[Any | None, str]:
    """(tokenizer, "") or (None, the reason in a sentence). Local files only; nothing is raised for a bad file."""
    if not any((folder / name).is_file() for name in VOCABULARIES):
        pieces = sorted(f.name for pattern in SENTENCEPIECE for f in folder.glob(pattern))
        if not pieces:  # without a vocabulary transformers would make an empty tokenizer, and every text be unknown
            return (
                None,
                f"{folder} has no tokenizer: no {', no '.join(VOCABULARIES[:3])}; give token ids instead of text.",
            )
        if not _has("sentencepiece"):
            return None, (
                f"{folder} has its vocabulary as {pieces[0]} only, which wants the package sentencepiece; install it, "
                "or save a tokenizer.json with transformers' AutoTokenizer where it is installed."
            )
    if reason := _remote(folder):
        return None, reason
    from transformers import AutoTokenizer

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # whatever transformers and its parsers make of a broken file
        return None, f"The tokenizer in {folder} cannot be read: {_short(error)}."
    if tokenizer is None or len(tokenizer) == 0:
        return None, f"The tokenizer in {folder} has an empty vocabulary; download its files again."
    return tokenizer, ""


def _remote(folder: Path) -> str:
    """Why a tokenizer that comes as code cannot be used; empty if it does not, or transformers has it anyway."""
    try:
        settings = json.loads((folder / "tokenizer_config.json").read_bytes())
    except OSError:
        return ""
    except (ValueError, RecursionError) as error:
        return f"{folder / 'tokenizer_config.json'} is no JSON ({_short(error)}); download it again."
    if not isinstance(settings, dict):
        return f"{folder / 'tokenizer_config.json'} holds no JSON object; download it again."
    coded = settings.get("auto_map")
    coded = coded.get("AutoTokenizer") if isinstance(coded, dict) else coded
    if coded and not (folder / "tokenizer.json").is_file():
        return f"The tokenizer in {folder} is code that comes with the checkpoint, which is never run here."
    return ""


def _has(package: str) -> bool:
    from importlib.util import find_spec

    return find_spec(package) is not None


def _short(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200].rstrip(".")
