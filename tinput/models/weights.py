"""The tensors of a folder by the names in its files.

The files are mapped: a tensor costs what is looked at, and the rows of an embedding cost only these rows.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
from pathlib import Path

import torch
from torch import Tensor

from tinput.errors import BadFile
from tinput.models.headers import TensorInfo, check_rows, dtype_of, read_header, read_index

__all__ = ["Weights"]

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


class Weights:
    """The tensors of a folder by the names in its files. Safe to share among threads; holds no open files.

    names: every tensor, name -> TensorInfo
    Raises BadFile for a file that is missing, cut short or something else, when it is opened.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.names: dict[str, TensorInfo] = {}
        index = self.folder / INDEX
        if (self.folder / SINGLE).exists():  # transformers' order: one file first, then the index
            self.names = read_header(self.folder / SINGLE)
        elif index.exists():
            self.names = _sharded(index)
        else:
            self.names = read_header(_only_file(self.folder))
        self._maps: dict[Path | str, Tensor] = {}
        self._read_only: set[Path | str] = set()
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: dict) -> Weights:  # nothing in it ever changes, and a copy would read whole files
        return self

    def __reduce__(self):
        return Weights, (self.folder,)

    remote = False

    def infos_at_hand(self) -> dict[str, TensorInfo]:
        """What is known of tensors without reading any: all of them."""
        return self.names

    @property
    def place(self) -> str:
        """Where the tensors are, for a sentence."""
        return str(self.folder)

    def info(self, name: str) -> TensorInfo:
        """Where a tensor lies. Raises BadFile if no file holds it."""
        if (info := self.names.get(name)) is None:
            raise BadFile(f"Tensor {name!r} is in no file of {self.folder}.")
        return info

    def dtype(self, name: str) -> torch.dtype:
        """A tensor's dtype. Raises BadFile for one that torch does not have."""
        return dtype_of(name, self.info(name))

    def tensor(self, name: str) -> Tensor:
        """A tensor in its own shape and dtype, on the CPU: a view of the mapped file, read when it is looked at.

        Writing to it changes memory, never the file; do not: others share it.
        """
        info, dtype = self.info(name), self.dtype(name)
        if info.start == info.stop:
            return torch.empty(info.shape, dtype=dtype)
        raw = self._map(info)[info.start : info.stop]  # (bytes,)
        # an odd header length (torch wants aligned elements), or a map in which a write would end the process
        if info.start % dtype.itemsize or info.file in self._read_only:
            raw = raw.clone()
        return raw.view(dtype).view(info.shape)

    def rows(self, name: str, index: Tensor) -> Tensor:
        """Rows of a tensor (n, ...), index (n,) int64, reading only these. Raises BadIds for a row that it lacks."""
        info, dtype = self.info(name), self.dtype(name)
        check_rows(name, index, info.shape)
        width = math.prod(info.shape[1:])
        if not width or not info.shape[0]:
            return torch.empty((len(index), *info.shape[1:]), dtype=dtype)
        # read, not looked up in the map: there each row would bring its neighbours along, up to 2 MB of them
        stride = width * dtype.itemsize
        raw = torch.empty((len(index), stride), dtype=torch.uint8)
        ends = [0, *((index.diff() != 1).nonzero().flatten() + 1).tolist(), len(index)]  # of runs of neighbouring rows
        try:
            with open(info.file, "rb") as file:
                for first, last in itertools.pairwise(ends) if len(index) else ():
                    file.seek(info.start + int(index[first]) * stride)
                    if file.readinto(raw[first:last].numpy().data) != (last - first) * stride:
                        raise BadFile(f"{info.file} has changed since it was opened; open the model again.")
        except OSError as error:
            raise BadFile(f"{info.file} cannot be read any more: {error.strerror or error}.") from None
        return raw.view(dtype).view(len(index), *info.shape[1:])

    def _map(self, info: TensorInfo) -> Tensor:
        """The file's bytes (size,) uint8, mapped for as long as this object lives."""
        try:
            size = os.stat(info.file).st_size
        except OSError as error:
            raise BadFile(f"{info.file} cannot be read any more: {error.strerror or error}.") from None
        with self._lock:
            whole = self._maps.get(info.file)
            if whole is None and size >= info.stop:
                try:  # a private, writable map; torch closes the file, where Python's mmap would keep it open
                    whole = torch.from_file(str(info.file), shared=False, size=size, dtype=torch.uint8)
                except RuntimeError:  # Linux gives no writable map of a file larger than its memory
                    whole = _read_only(info.file)
                    self._read_only.add(info.file)
                self._maps[info.file] = whole
        if whole is None or size != len(whole):  # reading past the end of a mapped file kills the process
            raise BadFile(f"{info.file} has changed since it was opened; open the model again.")
        return whole


def _read_only(file: Path | str) -> Tensor:
    """A file's bytes (size,) uint8 as a map that must not be written to."""
    import warnings

    import numpy as np

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's word on arrays that cannot be written; `tensor` copies these
        return torch.from_numpy(np.memmap(file, dtype=np.uint8, mode="r"))


def _sharded(index: Path) -> dict[str, TensorInfo]:
    folder, headers, listed = index.parent, {}, read_index(index, index)
    for part in dict.fromkeys(listed.values()):
        if not (folder / part).exists():
            raise BadFile(f"{folder / part} is missing, though {INDEX} names it; download the rest of the model.")
        headers[part] = read_header(folder / part)
    found = {}
    for name, part in listed.items():
        if name not in headers[part]:
            raise BadFile(f"{folder / part} does not hold tensor {name!r}, though {INDEX} says so.")
        found[name] = headers[part][name]
    return found


def _only_file(folder: Path) -> Path:
    """The one safetensors file of a folder, under another name. Raises BadFile, saying what is there instead."""
    files = sorted(f for f in folder.glob("*.safetensors") if not f.name.startswith("adapter_"))
    if len(files) == 1:
        return files[0]
    if files:
        raise BadFile(f"{folder} has {len(files)} safetensors files but no {INDEX} that says which tensor is where.")
    pickles = sorted(f.name for pattern in PICKLES for f in folder.glob(pattern))
    if pickles:
        raise BadFile(
            f"{folder / pickles[0]} is a pickle, which could run code and is never loaded here; convert it once where "
            "you trust it: AutoModel.from_pretrained(folder).save_pretrained(new_folder) writes safetensors."
        )
    adapters = sorted(folder.glob("adapter_*.safetensors"))
    if adapters:
        raise BadFile(f"{adapters[0]} is an adapter, not a model; open the model that it adapts, or merge the two.")
    raise BadFile(f"{folder} has no weights: no {SINGLE} and no {INDEX}.")
