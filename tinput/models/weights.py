"""Which bytes of a checkpoint hold which tensor, under the file's names and under the module's.

`Weights` reads the headers of *.safetensors and maps the files: a tensor costs what is looked at, and the rows of an
embedding cost only these rows. `ModuleWeights` answers to the names of transformers' module, through transformers'
own renaming and conversion.

The format: https://huggingface.co/docs/safetensors/index#format
    8 bytes        n, the length of the header, little-endian
    n bytes        JSON: {name: {"dtype", "shape", "data_offsets": [start, stop]}, "__metadata__": {...}}
    the rest       the tensors, row-major; offsets count from here
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from tinput.errors import BadFile, BadIds

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["ModuleWeights", "TensorInfo", "Weights", "read_header"]

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
LONGEST_HEADER = 100_000_000  # bytes; what the safetensors library itself accepts. A 405B model has 0.2 MB
POINTER = b"version https://git-lfs.github.com"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")

DTYPES: dict[str, tuple[int, torch.dtype | None]] = {  # name: (bits an element, torch's dtype if there is one)
    "F64": (64, torch.float64),
    "F32": (32, torch.float32),
    "F16": (16, torch.float16),
    "BF16": (16, torch.bfloat16),
    "F8_E4M3": (8, torch.float8_e4m3fn),
    "F8_E5M2": (8, torch.float8_e5m2),
    "F8_E4M3FNUZ": (8, torch.float8_e4m3fnuz),
    "F8_E5M2FNUZ": (8, torch.float8_e5m2fnuz),
    "F8_E8M0": (8, torch.float8_e8m0fnu),
    "I64": (64, torch.int64),
    "I32": (32, torch.int32),
    "I16": (16, torch.int16),
    "I8": (8, torch.int8),
    "U64": (64, torch.uint64),
    "U32": (32, torch.uint32),
    "U16": (16, torch.uint16),
    "U8": (8, torch.uint8),
    "BOOL": (8, torch.bool),
    "C64": (64, torch.complex64),
    "F4": (4, None),
    "F6_E2M3": (6, None),
    "F6_E3M2": (6, None),
}
STAND_IN = "77770000"  # a number in a key's place, followed by which one it is
LITERAL_NUMBER = re.compile(r"(?<![A-Za-z0-9_\\])[0-9]")  # in a pattern: "layers.0", not "w1" and not "\1"
CODES = {"I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL", "F4", "F6_E2M3", "F6_E3M2", "F8_E8M0"}


class TensorInfo(NamedTuple):
    """Where a tensor lies: `start` and `stop` are byte offsets in `file`, counted from the file's beginning."""

    shape: tuple[int, ...]
    dtype: str  # safetensors' name: "F32", "BF16", ...
    file: Path
    start: int
    stop: int


def read_header(file: Path) -> dict[str, TensorInfo]:
    """What a safetensors file holds, by name. Raises BadFile, naming the file; a bad length allocates nothing."""
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size

            # 1. the length, checked before anything of that length is asked for
            first = stream.read(8)
            if len(first) < 8:
                raise BadFile(f"{file} is cut short: it has {size} bytes and not even a header; download it again.")
            length = int.from_bytes(first, "little")
            if length > size - 8 or length > LONGEST_HEADER:
                stream.seek(0)
                if stream.read(len(POINTER)) == POINTER:
                    raise BadFile(
                        f"{file} is a git-lfs pointer of {size} bytes in place of the weights; "
                        "run `git lfs pull` in its folder, or download the file itself."
                    )
                raise BadFile(
                    f"{file} is no safetensors file, or is cut short: "
                    f"its header claims {length:,} bytes and the file has {size:,}."
                )

            # 2. the JSON
            try:
                header = json.loads(stream.read(length))
            except (ValueError, RecursionError) as error:
                raise BadFile(f"{file} has a header that is no JSON ({error}); download it again.") from None
    except OSError as error:
        raise BadFile(f"{file} cannot be read: {error.strerror or error}.") from None
    if not isinstance(header, dict):
        raise BadFile(f"{file} has a header that is no JSON object; download it again.")

    # 3. every entry against the file
    header.pop("__metadata__", None)
    begin, found = 8 + length, {}
    for name, entry in header.items():
        try:
            dtype, shape = entry["dtype"], tuple(entry["shape"])
            start, stop = entry["data_offsets"]
            bits = DTYPES[dtype][0]
            sane = all(type(n) is int and n >= 0 for n in (*shape, start, stop))
        except (KeyError, TypeError, ValueError):
            raise BadFile(f"{file}: the entry of tensor {name!r} cannot be understood: {str(entry)[:200]}.") from None
        if not sane or (stop - start) * 8 != math.prod(shape) * bits:
            raise BadFile(f"{file}: tensor {name!r} says {dtype} {list(shape)} but lies in bytes {start} to {stop}.")
        if begin + stop > size:
            raise BadFile(
                f"{file} is cut short: tensor {name!r} ends at byte {begin + stop:,} and the file at {size:,}; "
                "download it again."
            )
        found[name] = TensorInfo(shape, dtype, file, begin + start, begin + stop)
    return found


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
        self._maps: dict[Path, Tensor] = {}
        self._read_only: set[Path] = set()
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: dict) -> Weights:  # nothing in it ever changes, and a copy would read whole files
        return self

    def __reduce__(self):
        return Weights, (self.folder,)

    def info(self, name: str) -> TensorInfo:
        """Where a tensor lies. Raises BadFile if no file holds it."""
        if (info := self.names.get(name)) is None:
            raise BadFile(f"Tensor {name!r} is in no file of {self.folder}.")
        return info

    def dtype(self, name: str) -> torch.dtype:
        """A tensor's dtype. Raises BadFile for one that torch does not have."""
        info = self.info(name)
        if (dtype := DTYPES[info.dtype][1]) is None:
            raise BadFile(f"Tensor {name!r} of {info.file} is stored as {info.dtype}, which torch cannot hold.")
        return dtype

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
        _check_rows(name, index, info.shape)
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


def _read_only(file: Path) -> Tensor:
    """A file's bytes (size,) uint8 as a map that must not be written to."""
    import warnings

    import numpy as np

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's word on arrays that cannot be written; `tensor` copies these
        return torch.from_numpy(np.memmap(file, dtype=np.uint8, mode="r"))


def _sharded(index: Path) -> dict[str, TensorInfo]:
    try:
        listed = json.loads(index.read_bytes())["weight_map"]
        if not all(isinstance(part, str) for part in listed.values()):
            raise TypeError
    except OSError as error:
        raise BadFile(f"{index} cannot be read: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadFile(f'{index} is no index of shards: it has no JSON object with a "weight_map".') from None
    folder, headers = index.parent, {}
    for part in dict.fromkeys(listed.values()):
        if Path(part).name != part or part in ("", ".", ".."):  # somebody else's text: no way out of its folder
            raise BadFile(f"{index} names a shard outside its folder: {part!r}.")
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


def _check_rows(name: str, index: Tensor, shape: tuple[int, ...]) -> None:
    if not shape:
        raise BadIds(f"Tensor {name!r} is a single number and has no rows.")
    if len(index) and (bad := (index < 0) | (index >= shape[0])).any():
        raise BadIds(f"There is no row {int(index[bad][0])} in {name}: it has rows 0 to {shape[0] - 1}.")


class _Source(NamedTuple):
    """How a module's tensor is had: from one tensor of the file, or from several through a converter."""

    keys: tuple[tuple[str, str], ...]  # (name in the file, converter's source pattern or "")
    converter: Any = None  # transformers' WeightConverter
    first: str = ""  # the first target's name, by which transformers knows the conversion


class ModuleWeights:
    """The tensors of a folder by the names of a transformers module built on `meta` (those of its `state_dict()`).

    Renamed and converted by transformers' own mapping; a tied tensor is its partner's, whichever of the two is in the
    file. The names are worked out once, when first asked for. Nothing is ever initialised: what is not in the files
    raises BadFile.
    """

    def __init__(self, weights: Weights, model: PreTrainedModel):
        self.weights = weights
        self._shapes = {name: tuple(t.shape) for name, t in model.state_dict().items() if isinstance(t, Tensor)}
        self._floating = {
            name for name, t in model.state_dict().items() if isinstance(t, Tensor) and t.is_floating_point()
        }
        self._model = model
        self._quantised = _quantisation(model.config)
        self._sources: dict[str, _Source] | None = None
        self._twins: dict[str, list[str]] | None = None
        self._lock = threading.Lock()

    def has(self, name: str) -> bool:
        """Whether `tensor(name)` gives the model's values."""
        return self.reason(name) is None

    def reason(self, name: str) -> str | None:
        """Why a tensor cannot be had, in a sentence; None if it can."""
        try:
            self._find(name)
        except BadFile as error:
            return str(error)
        return None

    def names_in_file(self, name: str) -> tuple[str, ...]:
        """The names in the files from which a module's tensor comes; several where it is put together of them."""
        return tuple(key for key, _ in self._find(name).keys)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that can be had. Raises BadFile as `tensor` does, and reads no weight."""
        self._find(name)
        return self._shapes[name]

    def dtype(self, name: str) -> torch.dtype:
        """The dtype in which the file holds a tensor."""
        return self.weights.dtype(self._find(name).keys[0][0])

    def tensor(self, name: str) -> Tensor:
        """A tensor in the module's shape and the file's dtype: mapped, or put together from the file's parts.

        Raises BadFile if it is not in the files, has another shape there, or only as codes that need dequantising.
        """
        source = self._find(name)
        if source.converter is None:
            return self.weights.tensor(source.keys[0][0])
        return self._converted(name, source)

    def rows(self, name: str, index: Tensor) -> Tensor:
        """Rows of a tensor (n, ...), index (n,) int64; of a tensor that is merely renamed nothing else is read."""
        source = self._find(name)
        if source.converter is None:
            return self.weights.rows(source.keys[0][0], index)
        _check_rows(name, index, self._shapes[name])
        return self._converted(name, source)[index]

    def _find(self, name: str) -> _Source:
        """Where a module's tensor comes from, checked. Raises BadFile with the reason why not."""
        if name not in self._shapes:
            raise BadFile(f"The model has no tensor {name!r}.")
        if self._sources is None or self._twins is None:
            with self._lock:
                if self._sources is None or self._twins is None:
                    self._twins = _tied(self._model)
                    self._sources = _sources(self._model, self.weights, self._shapes)
        sources = self._sources
        source = next((sources[n] for n in (name, *self._twins.get(name, ())) if n in sources), None)
        if source is None:
            quantised = f"; the checkpoint is quantised ({self._quantised}) and may hold only codes for it"
            raise BadFile(
                f"Tensor {name!r} is not in the files of {self.weights.folder}{quantised if self._quantised else ''}."
            )
        infos = [self.weights.info(key) for key, _ in source.keys]
        for (key, _), info in zip(source.keys, infos, strict=True):
            coded = info.dtype in CODES or (self._quantised and DTYPES[info.dtype][0] <= 8)
            if name in self._floating and coded:
                raise BadFile(
                    f"Tensor {key!r} of {info.file} holds {info.dtype} codes "
                    f"({self._quantised or 'quantised'}), which tinput does not dequantise."
                )
        if source.converter is None and infos[0].shape != self._shapes[name]:
            raise BadFile(
                f"Tensor {source.keys[0][0]!r} of {infos[0].file} has shape {list(infos[0].shape)}, "
                f"and the model that config.json describes wants {list(self._shapes[name])}."
            )
        return source

    def _converted(self, name: str, source: _Source) -> Tensor:
        from transformers.core_model_loading import dot_natural_key

        converter = copy.deepcopy(source.converter)  # it collects tensors: one for each use
        for key, pattern in sorted(source.keys, key=lambda part: dot_natural_key(part[0])):  # expert 2 before 10
            converter.add_tensor(source.first, key, pattern, _reader(self.weights, key))
        try:
            made = converter.convert(source.first, model=self._model, config=self._model.config)
        except Exception as error:  # transformers' operations raise whatever torch does
            keys = ", ".join(key for key, _ in source.keys[:3])
            raise BadFile(
                f"Tensor {name!r} could not be put together from {keys} of {self.weights.folder}: {error}"
            ) from error
        wanted = [name, *(self._twins or {}).get(name, ())]
        value = next((made[n] for n in wanted if n in made), None)
        value = value[0] if isinstance(value, list) else value
        if value is None or tuple(value.shape) != self._shapes[name]:
            shape = None if value is None else list(value.shape)
            raise BadFile(
                f"Tensor {name!r} comes out of {source.keys[0][0]!r} in {self.weights.folder} with shape {shape}, "
                f"and the model that config.json describes wants {list(self._shapes[name])}."
            )
        return value


def _reader(weights: Weights, key: str) -> Callable[[], Tensor]:
    return lambda: weights.tensor(key)


def _sources(model: PreTrainedModel, weights: Weights, wanted: dict[str, Any]) -> dict[str, _Source]:
    """Module name -> source, by the steps of transformers' convert_and_load_state_dict_in_model."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, dot_natural_key, rename_source_key

    mapping = get_model_conversion_mapping(model)
    renamings = [m for m in mapping if isinstance(m, WeightRenaming)]
    converters = [m for m in mapping if isinstance(m, WeightConverter)]
    by_pattern = {pattern: c for c in converters for pattern in c.source_patterns}
    prefix, state = model.base_model_prefix, model.state_dict()

    def rename(key: str) -> tuple[str, str | None]:
        return rename_source_key(key, renamings, converters)

    plain: dict[str, str] = {}
    parts: dict[str, tuple[Any, list[tuple[str, str]]]] = {}
    for key, name, pattern in _renamed(weights.names, rename, mapping):
        name, _ = rename_source_key(name, [], [], prefix, state)  # the base model's prefix, added or taken away
        if name not in wanted and key in wanted:  # known as it is: it should not have been renamed
            name, pattern = rename_source_key(key, [], [], prefix, state)
        if name not in wanted:
            continue
        if pattern is not None:
            parts.setdefault(name, (by_pattern[pattern], []))[1].append((key, pattern))
        elif name not in plain or dot_natural_key(key) < dot_natural_key(plain[name]):
            plain[name] = key

    found = {name: _Source(((key, ""),)) for name, key in plain.items()}
    for name, (converter, keys) in parts.items():
        source = _Source(tuple(keys), converter, name)
        found.setdefault(name, source)
        for target in converter.target_patterns[1:]:  # one to many: the others are known by their place in the name
            found.setdefault(name.replace(converter.target_patterns[0], target), source)
    return found


def _renamed(
    keys: Iterable[str], rename: Callable[[str], tuple[str, str | None]], mapping: list
) -> Iterator[tuple[str, str, str | None]]:
    """(key, new name, converter's pattern) of each key.

    DeepSeek-V3 has 90,000 keys that differ but in their numbers, and each costs a dozen regular expressions. Where no
    renaming looks at a number or remembers what it has seen, one key stands for all that differ in numbers alone.
    """
    from transformers.core_model_loading import PrefixChange, WeightConverter, WeightRenaming, dot_natural_key

    patterns = [p for m in mapping for p in (*m.source_patterns, *m.target_patterns)]
    stateless = all(type(m) in (WeightRenaming, PrefixChange, WeightConverter) for m in mapping)
    if not stateless or any(LITERAL_NUMBER.search(p) for p in patterns):
        for key in sorted(keys, key=dot_natural_key):  # the loader's order: some renamings remember what they have seen
            yield key, *rename(key)
        return
    known: dict[str, tuple[list[str], str | None]] = {}
    for key in keys:
        steps = key.split(".")
        numbers = [k for k, step in enumerate(steps) if step.isdecimal()]
        values = [steps[k] for k in numbers]
        for n, k in enumerate(numbers):
            steps[k] = f"{STAND_IN}{n:02}"
        shape = ".".join(steps)
        if shape not in known:
            name, pattern = rename(shape)
            known[shape] = re.split(rf"{STAND_IN}(\d\d)", name), pattern  # text and numbers' places, by turns
        found, pattern = known[shape]
        yield key, "".join(values[int(t)] if k % 2 else t for k, t in enumerate(found)), pattern


def _tied(model: PreTrainedModel) -> dict[str, list[str]]:
    """Each tied tensor's other names: what transformers ties by configuration, and what is one object in the module."""
    groups: dict[str, set[str]] = {}
    same: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        same.setdefault(id(parameter), set()).add(name)
    pairs = [sorted(names) for names in same.values() if len(names) > 1]
    pairs += [list(pair) for pair in (getattr(model, "all_tied_weights_keys", None) or {}).items()]
    for names in pairs:
        merged = set(names).union(*(groups.get(n, ()) for n in names))
        for n in merged:
            groups[n] = merged
    # the source (which most files hold) before the other targets, so that two names of one table never disagree
    first = set((getattr(model, "all_tied_weights_keys", None) or {}).values())
    return {n: sorted(names - {n}, key=lambda m: (m not in first, m)) for n, names in groups.items()}


def _quantisation(config: Any) -> str:
    found = getattr(config, "quantization_config", None)
    if found is None:
        return ""
    found = found if isinstance(found, dict) else getattr(found, "to_dict", dict)()
    return str(found.get("quant_method") or "unknown method")
