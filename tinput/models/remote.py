"""The tensors of a repo on the Hub by the names in its files: headers, and rows of what is asked for, and no more."""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from tinput.errors import BadFile
from tinput.models.headers import TensorInfo, check_rows, dtype_of, read_index
from tinput.models.hub import Hub
from tinput.models.ranges import RemoteFile, Span
from tinput.models.store import Store, shared

__all__ = ["RemoteWeights"]

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PIECE = 4_000_000  # bytes of a large tensor that are kept together


class RemoteWeights:
    """What `Weights` is to a folder: the same methods. Safe to share among threads; holds no weights.

    The names are known from the index alone; a shard's header is read when one of its tensors is first asked for.
    single: the file's name where there is one and no index
    """

    remote = True

    def __init__(self, hub: Hub, store: Store | None = None, single: str = SINGLE):
        self.hub, self._store, self._single = hub, store or shared(), single
        self._files: dict[str, RemoteFile] = {}
        self._shards: dict[str, str] | None = None  # tensor -> file
        self._lock = threading.RLock()

    def __deepcopy__(self, memo: dict) -> RemoteWeights:
        return self

    @property
    def place(self) -> str:
        """Where the tensors are, for a sentence."""
        return self.hub.name

    @property
    def names(self) -> Collection[str]:
        """Every tensor's name."""
        return self._where.keys()

    @property
    def _where(self) -> Mapping[str, str]:
        with self._lock:
            if self._shards is None:
                index = [] if self.hub.has(self._single) else self.hub.download([INDEX])
                if index:
                    self._shards = read_index(index[0], f"{self.hub.name}/{INDEX}")
                else:
                    self._shards = dict.fromkeys(self._file(self._single).header(), self._single)
            return self._shards

    def _file(self, name: str) -> RemoteFile:
        with self._lock:
            if name not in self._files:
                self._files[name] = RemoteFile(self.hub, name, self._store)
            return self._files[name]

    def info(self, name: str) -> TensorInfo:
        """Where a tensor lies. Reads the header of its shard, once. Raises BadFile if no file holds it."""
        file = self._file_of(name)
        found = file.header().get(name)
        if found is None:
            raise BadFile(f"{file} does not hold tensor {name!r}, though {INDEX} says so; choose another revision.")
        return found

    def _file_of(self, name: str) -> RemoteFile:
        if (shard := self._where.get(name)) is None:
            raise BadFile(f"Tensor {name!r} is in no file of {self.place}.")
        if shard not in self._files and self.hub.has(shard) is False:
            raise BadFile(f"{self.place}/{shard} is missing, though {INDEX} names it; choose another revision.")
        return self._file(shard)

    def infos_at_hand(self) -> dict[str, TensorInfo]:
        """Those that are known without another request: of the shards whose headers were read."""
        found = {}
        for name, shard in self._where.items():
            header = self._files[shard].known_header if shard in self._files else None
            if header and name in header:
                found[name] = header[name]
        return found

    def dtype(self, name: str) -> torch.dtype:
        """A tensor's dtype. Raises BadFile for one that torch does not have."""
        return dtype_of(name, self.info(name))

    def tensor(self, name: str) -> Tensor:
        """A tensor in its own shape and dtype, read whole."""
        info, dtype = self.info(name), self.dtype(name)
        spans = [(at, min(at + PIECE, info.stop)) for at in range(info.start, info.stop, PIECE)]
        return self._read(name, spans, f"{name}, {' × '.join(map(str, info.shape))}").view(dtype).view(info.shape)

    def rows(self, name: str, index: Tensor) -> Tensor:
        """Rows of a tensor (n, ...), index (n,) int64, reading only these. Raises BadIds for a row that it lacks."""
        info, dtype = self.info(name), self.dtype(name)
        check_rows(name, index, info.shape)
        stride = math.prod(info.shape[1:]) * dtype.itemsize
        if not stride or not len(index):
            return torch.empty((len(index), *info.shape[1:]), dtype=dtype)
        distinct, inverse = torch.unique(index, return_inverse=True)
        spans = [(info.start + row * stride, info.start + (row + 1) * stride) for row in distinct.tolist()]
        raw = self._read(name, spans, f"{len(spans):,} row{'s' * (len(spans) > 1)} of {name}")
        return raw.view(len(spans), stride)[inverse].view(dtype).view(len(index), *info.shape[1:])

    def _read(self, name: str, spans: list[Span], step: str) -> Tensor:
        """The bytes (n,) uint8 of spans of one tensor."""
        raw = torch.empty(sum(stop - start for start, stop in spans), dtype=torch.uint8)
        self._file_of(name).read(spans, memoryview(raw.numpy()), step)
        return raw
