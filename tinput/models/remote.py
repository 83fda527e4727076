"""The tensors of a repo on the Hub by the names in its files: headers, and rows of what is asked for, and no more."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from tinput.errors import BadFile
from tinput.models import progress
from tinput.models.headers import TensorInfo, check_rows, dtype_of, read_index
from tinput.models.hub import Hub
from tinput.models.progress import Meter
from tinput.models.ranges import RemoteFile
from tinput.models.spans import Span
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
        self._local = threading.local()  # what a thread holds while it runs the model

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
        if (held := self._held.get(name)) is not None and held.index is None:
            return held.values
        return self._read({name: None})[name].values

    def rows(self, name: str, index: Tensor) -> Tensor:
        """Rows of a tensor (n, ...), index (n,) int64, reading only these. Raises BadIds for a row that it lacks."""
        check_rows(name, index, self.info(name).shape)
        held = self._held.get(name)
        if held is None or (held.index is not None and not bool(torch.isin(index, held.index).all())):
            held = self._read({name: index})[name]
        return held.values[index if held.index is None else torch.searchsorted(held.index, index)]

    @contextlib.contextmanager
    def holding(self, wanted: Mapping[str, Tensor | None]) -> Iterator[None]:
        """Reads tensors (None) and rows (index (n,) int64) of others at once, and has them at hand in this thread."""
        before = self._held
        self._local.held = before | self._read(wanted)
        try:
            yield
        finally:
            self._local.held = before

    @property
    def _held(self) -> dict[str, _Held]:
        return getattr(self._local, "held", {})

    def _read(self, wanted: Mapping[str, Tensor | None]) -> dict[str, _Held]:
        """All of it in as few requests as there are runs of bytes, in parallel."""
        files = {name: self._file_of(name) for name in wanted}
        new = [file for file in dict.fromkeys(files.values()) if file.known_header is None]
        if len(new) > 1:
            meter = Meter(f"headers of {len(new)} files of {self.place}")
            progress.run(meter, [file.header for file in new])
        found: dict[str, _Held] = {}
        parts: dict[RemoteFile, list[tuple[Span, memoryview]]] = {}
        for name, index in wanted.items():
            info, dtype = self.info(name), self.dtype(name)
            if index is not None:
                check_rows(name, index, info.shape)
                index = torch.unique(index)
                stride = math.prod(info.shape[1:]) * dtype.itemsize
                spans = [(info.start + row * stride, info.start + (row + 1) * stride) for row in index.tolist()]
            else:
                spans = [(at, min(at + PIECE, info.stop)) for at in range(info.start, info.stop, PIECE)]
            raw = torch.empty(sum(stop - start for start, stop in spans), dtype=torch.uint8)
            shape = info.shape if index is None else (len(index), *info.shape[1:])
            values = raw.view(dtype).view(shape) if len(raw) else torch.empty(shape, dtype=dtype)
            found[name] = _Held(index, values)
            view, at = memoryview(raw.numpy().data), 0
            for start, stop in spans if len(raw) else ():
                parts.setdefault(files[name], []).append(((start, stop), view[at : at + stop - start]))
                at += stop - start
        meter = Meter(f"{_said(wanted)} of {self.place}")
        readings = [file.reading(spans, meter) for file, spans in parts.items()]
        progress.run(meter, [job for reading in readings for job in reading.many()])
        progress.run(meter, [job for reading in readings for job in reading.singly()])
        return found


class _Held(NamedTuple):
    """Values that are at hand: of a whole tensor, or of the rows `index`, sorted."""

    index: Tensor | None
    values: Tensor


def _said(wanted: Mapping[str, Tensor | None]) -> str:
    """What is read, in a few words."""
    rows = sum(len(index) for index in wanted.values() if index is not None)
    tables = [name for name, index in wanted.items() if index is not None]
    whole = [name for name, index in wanted.items() if index is None]
    said = [f"{rows:,} row{'s' * (rows != 1)} of {', '.join(tables[:2])}"] if tables else []
    return "; ".join([*said, *([f"{', '.join(whole[:2])}{' …' * (len(whole) > 2)}"] if whole else [])])
