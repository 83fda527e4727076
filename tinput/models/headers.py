"""The header of a safetensors file: which bytes hold which tensor. Somebody else's text, checked against the file.

The format: https://huggingface.co/docs/safetensors/index#format
    8 bytes        n, the length of the header, little-endian
    n bytes        JSON: {name: {"dtype", "shape", "data_offsets": [start, stop]}, "__metadata__": {...}}
    the rest       the tensors, row-major; offsets count from here
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from tinput.errors import BadFile, BadIds

__all__ = [
    "CODES",
    "DTYPES",
    "TensorInfo",
    "check_rows",
    "dtype_of",
    "header_end",
    "parse_header",
    "read_header",
    "read_index",
]

LONGEST_HEADER = 100_000_000  # bytes; what the safetensors library itself accepts. A 405B model has 0.2 MB
POINTER = b"version https://git-lfs.github.com"

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
CODES = {"I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL", "F4", "F6_E2M3", "F6_E3M2", "F8_E8M0"}


class TensorInfo(NamedTuple):
    """Where a tensor lies: `start` and `stop` are byte offsets in `file`, counted from the file's beginning."""

    shape: tuple[int, ...]
    dtype: str  # safetensors' name: "F32", "BF16", ...
    file: Path | str  # of a folder, or what to call it where it is on the Hub
    start: int
    stop: int


def read_header(file: Path) -> dict[str, TensorInfo]:
    """What a safetensors file holds, by name. Raises BadFile, naming the file; a bad length allocates nothing."""
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            first = stream.read(max(8, len(POINTER)))
            end = header_end(first, size, file)  # before anything of that length is asked for
            stream.seek(0)
            return parse_header(stream.read(end), size, file)
    except OSError as error:
        raise BadFile(f"{file} cannot be read: {error.strerror or error}.") from None


def header_end(first: bytes, size: int, file: Path | str) -> int:
    """Where the header ends. first: the file's beginning, as many bytes as are at hand; size: of the file."""
    if len(first) < 8:
        raise BadFile(f"{file} is cut short: it has {size} bytes and not even a header; {_mend(file)}.")
    length = int.from_bytes(first[:8], "little")
    if length > size - 8 or length > LONGEST_HEADER:
        if first.startswith(POINTER):
            raise BadFile(
                f"{file} is a git-lfs pointer of {size} bytes in place of the weights; "
                f"{'run `git lfs pull` in its folder, or ' if isinstance(file, Path) else ''}{_mend(file)}."
            )
        raise BadFile(
            f"{file} is no safetensors file, or is cut short: "
            f"its header claims {length:,} bytes and the file has {size:,}; {_mend(file)}."
        )
    return 8 + length


def parse_header(raw: bytes, size: int, file: Path | str) -> dict[str, TensorInfo]:
    """The header of a file of `size` bytes that begins with `raw`, each entry checked against the file."""
    end = header_end(raw, size, file)
    try:
        header = json.loads(raw[8:end])
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{file} has a header that is no JSON ({error}); {_mend(file)}.") from None
    if not isinstance(header, dict):
        raise BadFile(f"{file} has a header that is no JSON object; {_mend(file)}.")
    header.pop("__metadata__", None)
    return {name: _checked(name, entry, end, size, file) for name, entry in header.items()}


def _checked(name: str, entry: dict, end: int, size: int, file: Path | str) -> TensorInfo:
    try:
        dtype, shape = entry["dtype"], tuple(entry["shape"])
        start, stop = entry["data_offsets"]
        bits = DTYPES[dtype][0]
        sane = all(type(n) is int and n >= 0 for n in (*shape, start, stop))
    except (KeyError, TypeError, ValueError):
        raise BadFile(
            f"{file}: the entry of tensor {name!r} cannot be understood: {str(entry)[:200]}; {_mend(file)}."
        ) from None
    if not sane or (stop - start) * 8 != math.prod(shape) * bits:
        raise BadFile(
            f"{file}: tensor {name!r} says {dtype} {list(shape)} but lies in bytes {start} to {stop}; {_mend(file)}."
        )
    if end + stop > size:
        raise BadFile(
            f"{file} is cut short: tensor {name!r} ends at byte {end + stop:,} and the file at {size:,}; {_mend(file)}."
        )
    return TensorInfo(shape, dtype, file, end + start, end + stop)


def _mend(file: Path | str) -> str:
    """What to do about a file that is not what it should be."""
    return "download it again" if isinstance(file, Path) else "choose another revision, or another model"


def read_index(index: Path, shown: Path | str) -> dict[str, str]:
    """Tensor -> file, of an index of shards. shown: what to call it. Raises BadFile."""
    try:
        listed = json.loads(index.read_bytes())["weight_map"]
        if not all(isinstance(part, str) for part in listed.values()):
            raise TypeError
    except OSError as error:
        raise BadFile(f"{shown} cannot be read: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadFile(
            f'{shown} is no index of shards: it has no JSON object with a "weight_map"; {_mend(shown)}.'
        ) from None
    for part in set(listed.values()):
        if Path(part).name != part or part in ("", ".", ".."):  # somebody else's text: no way out of its folder
            raise BadFile(f"{shown} names a shard outside its folder: {part!r}; choose another model.")
    return listed


def dtype_of(name: str, info: TensorInfo) -> torch.dtype:
    """A tensor's dtype. Raises BadFile for one that torch does not have."""
    if (dtype := DTYPES[info.dtype][1]) is None:
        raise BadFile(f"Tensor {name!r} of {info.file} is stored as {info.dtype}, which torch cannot hold.")
    return dtype


def check_rows(name: str, index: Tensor, shape: tuple[int, ...]) -> None:
    """Raises BadIds for a row, index (n,) int64, that a tensor of this shape lacks."""
    if not shape:
        raise BadIds(f"Tensor {name!r} is a single number and has no rows.")
    if len(index) and (bad := (index < 0) | (index >= shape[0])).any():
        raise BadIds(f"There is no row {int(index[bad][0])} in {name}: it has rows 0 to {shape[0] - 1}; choose others.")
