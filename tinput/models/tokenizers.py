"""The tokenizer in a model's folder, read by transformers from local files alone; no code of the folder is ever run.

Of a model on the Hub these files are fetched first.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinput.models.memory import hand_back

if TYPE_CHECKING:
    from tinput.models.hub import Hub

__all__ = ["load"]

VOCABULARIES = (  # one of these holds a vocabulary that the installed libraries read by themselves
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "tekken.json",
)
WHOLE = "tokenizer.json"
SENTENCEPIECE = ("*.model", "*.spm")
DESCRIBED = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
SETTINGS = (*DESCRIBED, "merges.txt", "bpe.codes")
PIECES = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model", "source.spm", "target.spm")


def load(folder: Path, hub: Hub | None = None) -> tuple[Any | None, str]:
    """(tokenizer, "") or (None, the reason in a sentence). Nothing is raised for a bad file.

    hub: where the folder's files are from, and those that it lacks; raises what reading from there may
    """
    if hub is not None:
        tokenizer, reason = None, ""
        for files in _wanted(hub.files):
            hub.download(files)
            tokenizer, reason = _load(folder)
            if tokenizer is not None:
                break
        return tokenizer, reason.replace(str(folder), hub.name)
    return _load(folder)


def _wanted(files: tuple[str, ...] | None) -> list[list[str]]:
    """Those of a repo's files that a tokenizer is made of; where there is no list of them, those that it may be.

    More than one list: the first nearly always does, and the next is for when it does not.
    """
    names = [*VOCABULARIES, *SETTINGS]
    if files is None:
        return [[*names, *PIECES]]
    here = [name for name in names if name in files]
    if WHOLE in here:  # says all that the others do, to every class but the few that are written in Python
        least = [name for name in here if name in (WHOLE, *DESCRIBED)]
        return [least, here] if least != here else [least]
    return [[*here, *(file for file in files if "/" not in file and any(Path(file).match(p) for p in SENTENCEPIECE))]]


def _load(folder: Path) -> tuple[Any | None, str]:
    pieces = sorted(f.name for pattern in SENTENCEPIECE for f in folder.glob(pattern))
    lacking = "" if not pieces or _has("sentencepiece") else (
        f"{folder} has its vocabulary as {pieces[0]}, which wants the package sentencepiece; install it, "
        "or save a tokenizer.json with transformers' AutoTokenizer where it is installed."
    )  # fmt: skip
    if not any((folder / name).is_file() for name in VOCABULARIES):
        if not pieces:  # without a vocabulary transformers would make an empty tokenizer, and every text be unknown
            return (
                None,
                f"{folder} has no tokenizer: no {', no '.join(VOCABULARIES[:3])}; "
                "put the tokenizer's files beside the model's, or, in Python, use trace(ids=[...]).",
            )
        if lacking:
            return None, lacking
    settings = _settings(folder)
    if isinstance(settings, str):
        return None, settings
    coded = settings.get("auto_map")
    coded = coded.get("AutoTokenizer") if isinstance(coded, dict) else coded
    if coded and not (folder / "tokenizer.json").is_file():
        return None, f"The tokenizer in {folder} is code that comes with the checkpoint, which is never run here."
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    kind = PreTrainedTokenizerFast if coded else AutoTokenizer  # tokenizer.json says it all without the code
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tokenizer = kind.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # whatever transformers and its parsers make of a broken file
        if lacking:  # beside a list of pieces, as Marian's
            return None, lacking
        return None, f"The tokenizer in {folder} cannot be read: {_short(error)}; download its files again."
    finally:
        hand_back()
    if tokenizer is None or len(tokenizer) <= len(set(tokenizer.all_special_ids)):
        return None, f"The tokenizer in {folder} has an empty vocabulary; download its files again."
    return tokenizer, ""


def _settings(folder: Path) -> dict[str, Any] | str:
    """tokenizer_config.json, empty if there is none; a sentence if it cannot be understood."""
    path = folder / "tokenizer_config.json"
    try:
        settings = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}."
    except (ValueError, RecursionError) as error:
        return f"{path} is no JSON ({_short(error)}); download it again."
    return settings if isinstance(settings, dict) else f"{path} holds no JSON object; download it again."


def _has(package: str) -> bool:
    from importlib.util import find_spec

    return find_spec(package) is not None


def _short(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200].rstrip(".")
