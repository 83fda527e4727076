"""transformers' own module for a model, ready to run once with no weight loaded but what the run touches.

The real class is built on `meta` at full depth (a 405B in seconds, no memory). Each run gets a copy in which every
parameter is a placeholder: the right shape, dtype and device, one NaN in memory. When an operation takes a placeholder
as an argument, `Placeholders.resolve` puts the real tensor there: whole, or for an embedding only the rows of the ids
at hand. A value that got past it would be NaN, and is caught.

With `read=False` nothing is read: results that would need a weight are random numbers of the right shape. That is
enough to see how data flows, at any size.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import inspect
import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tinput.errors import BadFile, BadIds, BadModel, NotRecorded, Unknown
from tinput.models.copying import copied
from tinput.models.named import ModuleWeights, Source
from tinput.models.tree import map_tensors, tensors_in

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["LOCK", "Placeholders", "Skeleton", "undisturbed"]

# Building a module sets torch's default dtype for the whole process, so nothing else may build or run meanwhile.
LOCK = threading.RLock()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """For building and running: alone, and without the garbage collector.

    Both make many small objects, and for them the collector would walk all of transformers, for 0.2 seconds each time.
    """
    with LOCK:
        collects = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()


# A placeholder this small is filled in rather than worked around when no weight is read.
_SMALL = 1 << 14
_HUGE = 1 << 19
_POOL = 1 << 17
_INITIALISERS = ("uniform_", "normal_", "kaiming_uniform_", "xavier_uniform_", "xavier_normal_", "zeros_", "ones_")
_LOOKUPS = frozenset(["embedding", "index_select"])


class Skeleton:
    """A model's module on `meta`, and where its tensors come from.

    config: transformers' configuration object; model: the module; weights: ModuleWeights or None (none to be read)
    """

    def __init__(self, config: Any, weights: Source | None, dtype: torch.dtype = torch.float32):
        self.config = config
        self.dtype = dtype
        with undisturbed():
            self.model = _build(config, dtype)
            self.weights = None if weights is None else ModuleWeights(weights, self.model)
            self._fill_buffers()
        self._buffers: dict[str, Tensor | None] = {}  # those that a file holds, as they are read
        self._persistent = self.model.state_dict().keys() - dict(self.model.named_parameters()).keys()
        self.parameters = dict(inspect.signature(self.model.forward).parameters)

    def _fill_buffers(self) -> None:
        """Buffers get real values: rotary frequencies and masks, which no file holds."""
        for module in self.model.modules():
            for key, buffer in module._buffers.items():
                if buffer is not None and buffer.is_meta:
                    module._buffers[key] = torch.empty_like(buffer, device="cpu")
            for key, parameter in module._parameters.items():  # some classes ignore `meta`
                if parameter is not None and not parameter.is_meta:
                    module._parameters[key] = nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)
        for parameter in self.model.parameters():
            parameter._is_hf_initialized = True  # type: ignore[attr-defined] - on meta there is nothing to draw
        self.model.initialize_weights()  # buffers are computed

    def _read_buffers(self, model: nn.Module) -> None:
        """The buffers that a file holds, of the modules that a run gets to."""
        for prefix, module in model.named_modules():
            for key, buffer in module._buffers.items():
                name = f"{prefix}.{key}" if prefix else key
                if buffer is None or name not in self._persistent or self.weights is None:
                    continue
                if name not in self._buffers:
                    held = self.weights.tensor(name).to(buffer.dtype).clone() if self.weights.has(name) else None
                    self._buffers[name] = held
                if (held := self._buffers[name]) is not None:
                    module._buffers[key] = held.clone()

    @property
    def vocab_size(self) -> int:
        """How many ids there are embeddings for."""
        table = getattr(self.model.get_input_embeddings(), "weight", None)
        said = getattr(self.config, "vocab_size", None)
        return int(table.shape[0]) if table is not None and table.ndim == 2 else int(said or 100)

    def copy(
        self, read: bool, leave_out: Iterable[str] = (), only: Collection[str] | None = None
    ) -> tuple[PreTrainedModel, Placeholders]:
        """A fresh module (its state is its own: dynamic frequencies start anew) and its placeholders.

        leave_out: paths of modules that the run will not get to; they are not copied
        only: the parameters that may be read; what comes of others is NaN
        """
        absent: dict[nn.Module, nn.Module] = {}
        for module in map(self.model.get_submodule, leave_out):
            absent[module] = Absent(module)
        model = copied(self.model, absent)
        if read:
            self._read_buffers(model)
        return model, Placeholders(self, model, read, only)

    def without_weights(self) -> Skeleton:
        """The same module, with no weights to be read."""
        bare = copy.copy(self)
        bare.weights, bare._buffers = None, {}
        return bare

    def require(self, names: Iterable[str]) -> None:
        """Raises BadFile for a parameter that is in no file, by its name alone, and not computed by the class."""
        assert self.weights is not None
        for name in names:
            if (reason := self.weights.lacking(name)) is not None and self.initial(name) is None:
                raise BadFile(reason)

    def initial(self, name: str) -> Tensor | None:
        """The value that the class itself computes for a parameter; None for one that starts at random or constant.

        A sinusoidal table that is kept in no file comes from here, and that a table is computed at all is known
        from it: a learned one starts elsewhere with another seed.
        """
        with LOCK, torch.random.fork_rng(devices=[]), torch.no_grad():
            with contextlib.suppress(RuntimeError, ValueError, IndexError):  # a class may insist on the whole table
                first, second = (self._started(name, seed, rows=4) for seed in (1, 2))
                if first is None or second is None or not torch.equal(first, second):
                    return None
            first, second = (self._started(name, seed) for seed in (1, 2))
        if first is None or second is None:
            return None
        varies = first.ndim > 1 and len(first) > 1 and not torch.equal(first[1:], first[:-1])
        return first if varies and torch.equal(first, second) else None

    def _started(self, name: str, seed: int, rows: int | None = None) -> Tensor | None:
        """What the class puts into a parameter, or into one of so many rows; None for the model's own parameters."""
        path, _, key = name.rpartition(".")
        owner_path, _, _ = path.rpartition(".")
        if not path:
            return None
        torch.default_generator.manual_seed(seed)  # the others' generators have no part in it, and take longer
        parent = copied(self.model.get_submodule(owner_path))
        module = parent.get_submodule(path[len(owner_path) :].lstrip("."))
        if (parameter := module._parameters.get(key)) is None:
            return None
        value = torch.full_like(parameter[:rows] if parameter.ndim else parameter, torch.nan, device="cpu")
        module._parameters[key] = nn.Parameter(value, requires_grad=False)
        self.model._init_weights(module)
        self.model._init_weights(parent)
        made = module._parameters[key]
        return None if made is None else made.data


class Absent(nn.Module):
    """Stands where a module was left out of a copy: it can be asked about, but not run."""

    def __init__(self, original: nn.Module):
        super().__init__()
        self.__dict__["_original"] = original  # not as a child: its parameters are none of the copy's

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_original"], name)

    def forward(self, *_: Any, **__: Any) -> Any:
        raise NotRecorded("The forward pass went on to a module that was left out.")


class Placeholders:
    """What stands in a run's module for its parameters, and what was read in their place.

    names: id of a placeholder -> the parameter's name; touched: the names read (whole, or some rows)
    """

    def __init__(self, skeleton: Skeleton, model: PreTrainedModel, read: bool, only: Collection[str] | None = None):
        self._skeleton = skeleton
        self._read, self._only = read, only
        self._loaded: dict[int, Tensor] = {}
        self._pool: Tensor | None = None
        self._drawn = 0
        self._random = torch.Generator().manual_seed(0)
        self.names: dict[int, str] = {}
        self.touched: set[str] = set()
        self._kept: list[Tensor] = []
        made: dict[int, nn.Parameter] = {}
        for prefix, module in model.named_modules():
            for key, parameter in module._parameters.items():
                if parameter is None:
                    continue
                if id(parameter) not in made:
                    made[id(parameter)] = nn.Parameter(_hollow(parameter.shape, parameter.dtype), requires_grad=False)
                    self.names[id(made[id(parameter)])] = f"{prefix}.{key}" if prefix else key
                    self._kept.append(parameter)
                module._parameters[key] = made[id(parameter)]
        self._kept.extend(made.values())

    def resolve(
        self, func: Callable, name: str, args: tuple, kwargs: dict, tensors: list[Tensor]
    ) -> tuple[Callable, tuple, dict] | None:
        """The call to make instead, with what its placeholders stand for; None where there are none. For `Tape`."""
        hollow = [tensor for tensor in tensors if id(tensor) in self.names]
        if not hollow:
            return None
        if name in _LOOKUPS and len(hollow) == 1 and id(hollow[0]) not in self._loaded:
            return self._lookup(name, hollow[0]), args, kwargs  # the placeholder stays, to tell which table it was
        if self._only is not None and any(self.names[id(tensor)] not in self._only for tensor in hollow):
            return self._without_weights(func, name), args, kwargs
        if not self._read and any(tensor.numel() > _SMALL for tensor in hollow):
            return self._without_weights(func, name), args, kwargs
        return func, map_tensors(self._whole, args), map_tensors(self._whole, kwargs)

    def name_of(self, tensor: Tensor) -> str | None:
        """The parameter's name, for a placeholder or for what was read in its place."""
        if id(tensor) in self.names:
            return self.names[id(tensor)]
        return next((self.names[key] for key, value in self._loaded.items() if value is tensor), None)

    def _whole(self, tensor: Tensor) -> Tensor:
        if (name := self.names.get(id(tensor))) is None:
            return tensor
        if id(tensor) not in self._loaded:
            self._loaded[id(tensor)] = self._values(name, tensor)
            self.touched.add(name)
        return self._loaded[id(tensor)]

    def _values(self, name: str, tensor: Tensor) -> Tensor:
        if not self._read:
            return self._window(tensor.shape).to(tensor.dtype)
        weights = self._skeleton.weights
        if (weights is None or not weights.has(name)) and (initial := self._skeleton.initial(name)) is not None:
            return initial.to(tensor.dtype)
        assert weights is not None
        return weights.tensor(name).to(tensor.dtype)

    def _lookup(self, name: str, table: Tensor) -> Callable:
        """Reads the rows of a table that a look-up asks for, and no others."""
        parameter = self.names[id(table)]

        def rows(*args: Any, **kwargs: Any) -> Tensor:
            if name == "embedding":
                index = args[0] if args else kwargs["input"]
            else:
                index = args[2] if len(args) > 2 else kwargs["index"]
            if index.numel() and (int(index.min()) < 0 or int(index.max()) >= table.shape[0]):
                bad = int(index.max()) if int(index.max()) >= table.shape[0] else int(index.min())
                raise BadIds(
                    f"There is no row {bad} in {parameter}, which has {table.shape[0]:,} rows; choose other ids."
                )
            return self._rows(parameter, table, index)

        rows.left_out = self._only is not None and parameter not in self._only  # type: ignore[attr-defined]
        return rows

    def _rows(self, name: str, table: Tensor, index: Tensor) -> Tensor:
        shape = (*index.shape, *table.shape[1:])
        if not self._read:
            return self._numbers(shape).to(table.dtype)
        if self._only is not None and name not in self._only:
            return torch.full(shape, torch.nan, dtype=table.dtype)
        self.touched.add(name)
        weights = self._skeleton.weights
        if (weights is None or not weights.has(name)) and (initial := self._skeleton.initial(name)) is not None:
            return initial[index].to(table.dtype)
        assert weights is not None
        distinct, inverse = torch.unique(index, return_inverse=True)
        return weights.rows(name, distinct)[inverse].reshape(shape).to(table.dtype)

    def _without_weights(self, func: Callable, name: str) -> Callable:
        """The same call with random numbers (or NaN) for a result: the shapes are right, and nothing large is made."""

        def pretend(*args: Any, **kwargs: Any) -> Any:
            if name.endswith("_") and not name.endswith("__"):
                return args[0].fill_(torch.nan) if self._read and id(args[0]) not in self.names else args[0]
            if name == "linear" and len(args) > 1 and id(args[0]) not in self.names:  # what most calls are
                return self.random_like(args[0].new_empty(()).expand(*args[0].shape[:-1], args[1].shape[0]))
            mixed = any(id(t) not in self.names and t.is_floating_point() for t in tensors_in((args, kwargs)))
            try:  # an index of one element is read as a number, which meta tensors cannot be
                on_meta = func(*map_tensors(_floats_to_meta, args), **map_tensors(_floats_to_meta, kwargs))
            except RuntimeError:
                try:
                    on_meta = func(*map_tensors(_to_meta, args), **map_tensors(_to_meta, kwargs))
                except NotImplementedError:  # to another device, where there is nothing to take: a dtype at most
                    dtypes = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.dtype)]
                    moved: Tensor = next(iter(args))
                    on_meta = torch.empty(moved.shape, dtype=(dtypes or [moved.dtype])[0], device="meta")
            return map_tensors(lambda t: self.random_like(t) if mixed else self._hollow_like(t), on_meta)

        pretend.left_out = self._read  # type: ignore[attr-defined] - for whoever asks what a result was made of
        return pretend

    def random_like(self, tensor: Tensor) -> Tensor:
        """Made-up numbers of a tensor's shape and dtype; NaN in a run whose other numbers are real."""
        if not tensor.is_floating_point():
            return torch.zeros(tensor.shape, dtype=tensor.dtype)
        if self._read:
            return torch.full(tensor.shape, torch.nan, dtype=tensor.dtype)
        if tensor.numel() > _HUGE:  # logits: nobody looks, and memory that is not written costs nothing
            return torch.empty(tensor.shape, dtype=tensor.dtype)
        return self._numbers(tensor.shape).to(tensor.dtype)

    def _numbers(self, shape: Sequence[int]) -> Tensor:
        """Made-up numbers, each call's others than the last's."""
        if math.prod(shape) > _HUGE:  # a pool would be twice as large, beside it
            return torch.empty(shape).uniform_(-1, 1, generator=self._random)
        return self._window(shape).clone()

    def _window(self, shape: Sequence[int]) -> Tensor:
        """Windows of one pool, which is quicker than drawing, and takes no memory where nobody writes."""
        size = math.prod(shape)
        if self._pool is None or len(self._pool) < 2 * size:
            self._pool = torch.randn(max(_POOL, 2 * size), generator=self._random).mul_(0.5)
        self._drawn = (self._drawn + 7919) % (len(self._pool) - size)
        return self._pool[self._drawn : self._drawn + size].view(shape)

    def _hollow_like(self, tensor: Tensor) -> Tensor:
        made = _hollow(tensor.shape, tensor.dtype)
        self.names[id(made)] = ""
        self._kept.append(made)
        return made


def _build(config: Any, dtype: torch.dtype) -> PreTrainedModel:
    cls = model_class(config)
    try:
        with torch.device("meta"), _nothing_to_draw():
            # experts come after the attention that is recorded; "eager" is the one way of theirs that runs on any dtype
            return cls._from_config(copy.deepcopy(config), dtype=dtype, experts_implementation="eager").eval()
    except (ImportError, ValueError, TypeError, KeyError, AttributeError, RuntimeError, ZeroDivisionError) as error:
        raise BadModel(
            f"transformers cannot build {cls.__name__} from this config.json ({_first_line(error)}); check its numbers."
        ) from error


@contextlib.contextmanager
def _nothing_to_draw() -> Iterator[None]:
    """torch's own initialisers leave tensors on `meta` alone, which have no numbers, but for which they take long."""
    kept = {name: getattr(nn.init, name) for name in _INITIALISERS}

    def unless_meta(draw: Callable) -> Callable:
        @functools.wraps(draw)
        def initialise(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            return tensor if tensor.is_meta else draw(tensor, *args, **kwargs)

        return initialise

    for name, draw in kept.items():
        setattr(nn.init, name, unless_meta(draw))
    try:
        yield
    finally:
        for name, draw in kept.items():
            setattr(nn.init, name, draw)


def model_class(config: Any) -> type[PreTrainedModel]:
    """The class that config.json names, or transformers' for its model type. Raises Unknown."""
    import transformers
    from transformers.models.auto import modeling_auto as auto

    mappings = [
        getattr(auto, name)
        for name in (
            "MODEL_FOR_CAUSAL_LM_MAPPING",
            "MODEL_FOR_MASKED_LM_MAPPING",
            "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
            "MODEL_MAPPING",
        )
    ]
    named = (getattr(config, "architectures", None) or [""])[0]
    found = []
    for mapping in mappings:
        try:
            classes = mapping[type(config)]
        except KeyError:
            continue
        found += list(classes) if isinstance(classes, (tuple, list)) else [classes]
    for cls in found:
        if cls.__name__ == named:
            return cls
    other = getattr(transformers, named, None) if named else None
    if isinstance(other, type) and getattr(other, "config_class", None) is type(config):
        return other
    if not found:
        raise Unknown(
            f"transformers {transformers.__version__} has no text model for the type {config.model_type!r}; "
            "choose another model, or a newer transformers."
        )
    return found[0]


def _hollow(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    value = torch.full((), torch.nan if dtype.is_floating_point or dtype.is_complex else 0, dtype=dtype)
    return value.expand(shape)


def _to_meta(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def _floats_to_meta(tensor: Tensor) -> Tensor:
    return _to_meta(tensor) if tensor.is_floating_point() else tensor


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
