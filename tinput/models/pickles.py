"""Weights in PyTorch's own format, for whoever asks for them: mapped where the file allows it, and tensors alone.

A pickle can run code as it is read. `torch.load(weights_only=True)` makes tensors and plain containers and refuses
anything else; even so it is read only when a caller says `allow_pickle=True`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tinput.errors import BadFile
from tinput.models.headers import DTYPES, TensorInfo, check_rows

__all__ = ["PickledWeights", "pickles_of"]

SINGLE = "pytorch_model.bin"
INDEX = "pytorch_model.bin.index.json"
SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")
NAMES = {dtype: name for name, (_, dtype) in DTYPES.items() if dtype is not None}
NO_WEIGHTS = ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "optimizer.bin")


def pickles_of(names: Iterable[str]) -> list[str]:
    """Which files of a folder or a repo are read: pytorch_model.bin, the shards with their index, or the only one."""
    names = sorted(name for name in names if "/" not in name)
    if SINGLE in names:
        return [SINGLE]
    if INDEX in names:
        return [INDEX, *(name for name in names if name.startswith("pytorch_model-") and name.endswith(".bin"))]
    found = [name for name in names if name.endswith(SUFFIXES) and name not in NO_WEIGHTS]
    return found[:1]


class PickledWeights:
    """What `Weights` is to safetensors: the same methods. Shards are read when one of their tensors is asked for.

    files: name -> path; place: what to call where they are
    """

    remote = False

    def __init__(self, files: dict[str, Path], place: str):
        self.place = place
        self._files = files
        self._loaded: dict[str, dict[str, Tensor]] = {}
        self._shards: dict[str, str] | None = None
        self._lock = threading.RLock()

    def __deepcopy__(self, memo: dict) -> PickledWeights:
        return self

    @property
    def names(self) -> Collection[str]:
        """Every tensor's name."""
        return self._where.keys()

    @property
    def _where(self) -> dict[str, str]:
        with self._lock:
            if self._shards is None:
                if INDEX in self._files:
                    self._shards = _index(self._files[INDEX])
                else:
                    file = next(iter(self._files))
                    self._shards = dict.fromkeys(self._tensors(file), file)
            return self._shards

    def _tensors(self, file: str) -> dict[str, Tensor]:
        with self._lock:
            if file not in self._loaded:
                if file not in self._files:
                    raise BadFile(f"{file} is missing in {self.place}, though {INDEX} names it; download the rest.")
                self._loaded[file] = _load(self._files[file])
            return self._loaded[file]

    def info(self, name: str) -> TensorInfo:
        """A tensor's shape and dtype; `start` and `stop` give its size alone. Raises BadFile if no file holds it."""
        found, file = self._tensor(name), self._where[name]
        return TensorInfo(tuple(found.shape), NAMES.get(found.dtype, str(found.dtype)), file, 0, found.nbytes)

    def infos_at_hand(self) -> dict[str, TensorInfo]:
        """All tensors of the files that were read."""
        return {name: self.info(name) for name, file in self._where.items() if file in self._loaded}

    def _tensor(self, name: str) -> Tensor:
        if (file := self._where.get(name)) is None:
            raise BadFile(f"Tensor {name!r} is in no file of {self.place}.")
        if (found := self._tensors(file).get(name)) is None:
            raise BadFile(f"{file} in {self.place} does not hold tensor {name!r}, though {INDEX} says so.")
        return found

    def dtype(self, name: str) -> torch.dtype:
        """A tensor's dtype."""
        return self._tensor(name).dtype

    def tensor(self, name: str) -> Tensor:
        """A tensor: others share its memory, so do not write to it."""
        return self._tensor(name)

    def rows(self, name: str, index: Tensor) -> Tensor:
        """Rows of a tensor (n, ...), index (n,) int64. Raises BadIds for a row that it lacks."""
        found = self._tensor(name)
        check_rows(name, index, tuple(found.shape))
        return found[index]


def _load(path: Path) -> dict[str, Tensor]:
    import pickle

    problem = ""
    for mapped in (True, False):  # files from before torch 1.6 cannot be mapped
        try:
            found: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
            break
        except pickle.UnpicklingError:
            raise BadFile(
                f"{path} holds more than tensors, which could run code, so it is not read; "
                "look for a conversion to safetensors."
            ) from None
        except (RuntimeError, ValueError, EOFError, OSError, KeyError, AttributeError, TypeError) as error:
            problem = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    else:
        raise BadFile(f"{path} cannot be read as a pickle of tensors ({problem}); download it again.")
    for key in ("state_dict", "model"):
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    if not isinstance(found, dict) or not any(isinstance(value, Tensor) for value in found.values()):
        raise BadFile(f"{path} holds no tensors by name; look for a conversion to safetensors.")
    return {str(name): value for name, value in found.items() if isinstance(value, Tensor)}


def _index(path: Path) -> dict[str, str]:
    try:
        return {str(name): str(file) for name, file in json.loads(path.read_bytes())["weight_map"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadFile(f'{path} is no index of shards: it has no JSON object with a "weight_map".') from None
