"""The tensors of a checkpoint by the names of transformers' module, through its own renaming and conversion."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from tinput.errors import BadFile
from tinput.models.headers import CODES, DTYPES, check_rows
from tinput.models.pickles import PickledWeights
from tinput.models.remote import RemoteWeights
from tinput.models.scales import FP8, block_of, scale_of, scaled
from tinput.models.weights import Weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["ModuleWeights", "Source"]

Source = Weights | RemoteWeights | PickledWeights

STAND_IN = "77770000"  # a number in a key's place, followed by which one it is
LITERAL_NUMBER = re.compile(r"(?<![A-Za-z0-9_\\])[0-9]")  # in a pattern: "layers.0", not "w1" and not "\1"


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

    def __init__(self, weights: Source, model: PreTrainedModel):
        self.weights = weights
        self._shapes = {name: tuple(t.shape) for name, t in model.state_dict().items() if isinstance(t, Tensor)}
        self._floating = {
            name for name, t in model.state_dict().items() if isinstance(t, Tensor) and t.is_floating_point()
        }
        self._model = model
        self._quantised, self._block = _quantisation(model.config)
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

    def lacking(self, name: str) -> str | None:
        """Why a tensor is in no file, going by its name alone: no header is read. None if one should hold it."""
        try:
            self._source(name)
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
            return self._scaled(source.keys[0][0])
        return self._converted(name, source)

    def rows(self, name: str, index: Tensor) -> Tensor:
        """Rows of a tensor (n, ...), index (n,) int64; of a tensor that is merely renamed nothing else is read."""
        source = self._find(name)
        if source.converter is None:
            return self._scaled(source.keys[0][0], index)
        check_rows(name, index, self._shapes[name])
        return self._converted(name, source)[index]

    def _scaled(self, key: str, index: Tensor | None = None) -> Tensor:
        """A tensor of the file, or rows of it, as numbers: FP8 codes are multiplied by their scales."""
        found = self.weights.tensor(key) if index is None else self.weights.rows(key, index)
        info = self.weights.info(key)
        if info.dtype not in FP8 or (scale := scale_of(key, self.weights.names)) is None:
            return found
        return scaled(found, self.weights.tensor(scale), info.shape, self._block, index, key)

    @contextlib.contextmanager
    def holding(self, rows: Mapping[str, Tensor], whole: Iterable[str]) -> Iterator[None]:
        """Has rows (n,) int64 of tables and whole tensors at hand, where reading each by itself would take long."""
        if not isinstance(self.weights, RemoteWeights):
            yield
            return
        wanted: dict[str, Tensor | None] = {}
        for name, index in (*rows.items(), *((name, None) for name in whole)):
            try:
                source = self._source(name)
            except BadFile:  # what the class computes itself, or an error that names who wanted it
                continue
            if index is not None and source.converter is None:
                wanted.setdefault(source.keys[0][0], index)
            else:
                wanted |= dict.fromkeys((key for key, _ in source.keys), None)
        if self._quantised:
            wanted |= dict.fromkeys((s for key in wanted if (s := scale_of(key, self.weights.names))), None)
        with self.weights.holding(wanted):
            yield

    def size(self, names: Iterable[str]) -> int:
        """How many bytes of files tensors take, read whole. No header is read: another shard's are reckoned."""
        known, total = self.weights.infos_at_hand(), 0
        largest = max(known.values(), key=lambda info: info.stop - info.start, default=None)
        itemsize = 2 if largest is None else max(1, DTYPES[largest.dtype][0] // 8)
        counted = set()
        for name in names:
            try:
                keys = [key for key, _ in self._source(name).keys]
            except BadFile:
                continue
            held = [known[key] for key in keys if key in known and key not in counted]
            total += sum(info.stop - info.start for info in held)
            if not all(key in known for key in keys):
                total += math.prod(self._shapes[name]) * itemsize
            counted.update(keys)
        return total

    def _source(self, name: str) -> _Source:
        """Where a module's tensor comes from, by the names alone. Raises BadFile if no file holds it."""
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
            why = "check that config.json and the weights are of one model"
            if self._quantised:
                why = f"the checkpoint is quantised ({self._quantised}) and may hold only codes for it: choose another"
            raise BadFile(f"Tensor {name!r} is not in the files of {self.weights.place}; {why}.")
        return source

    def _find(self, name: str) -> _Source:
        """Where a module's tensor comes from, checked. Raises BadFile with the reason why not."""
        source = self._source(name)
        infos = [self.weights.info(key) for key, _ in source.keys]
        for (key, _), info in zip(source.keys, infos, strict=True):
            coded = info.dtype in CODES or (self._quantised and DTYPES[info.dtype][0] <= 8)
            scales = info.dtype in FP8 and scale_of(key, self.weights.names)
            if name in self._floating and coded and not scales:
                raise BadFile(
                    f"Tensor {key!r} of {info.file} holds {info.dtype} codes ({self._quantised or 'quantised'}), "
                    "which tinput does not dequantise; look for the model in bfloat16."
                )
        if source.converter is None and infos[0].shape != self._shapes[name]:
            raise BadFile(
                f"Tensor {source.keys[0][0]!r} of {infos[0].file} has shape {list(infos[0].shape)}, "
                f"and the model that config.json describes wants {list(self._shapes[name])}; "
                "check that both are of one model."
            )
        return source

    def _converted(self, name: str, source: _Source) -> Tensor:
        from transformers.core_model_loading import dot_natural_key

        converter = copy.deepcopy(source.converter)  # it collects tensors: one for each use
        for key, pattern in sorted(source.keys, key=lambda part: dot_natural_key(part[0])):  # expert 2 before 10
            converter.add_tensor(source.first, key, pattern, functools.partial(self._scaled, key))
        try:
            made = converter.convert(source.first, model=self._model, config=self._model.config)
        except Exception as error:  # transformers' operations raise whatever torch does
            keys = ", ".join(key for key, _ in source.keys[:3])
            raise BadFile(
                f"Tensor {name!r} could not be put together from {keys} of {self.weights.place}: {error}"
            ) from error
        wanted = [name, *(self._twins or {}).get(name, ())]
        value = next((made[n] for n in wanted if n in made), None)
        value = value[0] if isinstance(value, list) else value
        if value is None or tuple(value.shape) != self._shapes[name]:
            shape = None if value is None else list(value.shape)
            raise BadFile(
                f"Tensor {name!r} comes out of {source.keys[0][0]!r} in {self.weights.place} with shape {shape}, "
                f"and the model that config.json describes wants {list(self._shapes[name])}."
            )
        return value


def _sources(model: PreTrainedModel, weights: Source, wanted: dict[str, Any]) -> dict[str, _Source]:
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


def _quantisation(config: Any) -> tuple[str, tuple[int, int] | None]:
    """The method by its name, empty if there is none, and the size of a block that has a scale."""
    found = getattr(config, "quantization_config", None)
    if found is None:
        return "", None
    found = found if isinstance(found, dict) else getattr(found, "to_dict", dict)()
    return str(found.get("quant_method") or "unknown method"), block_of(found)
