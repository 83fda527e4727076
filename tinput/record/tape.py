"""The tape: every tensor operation of a forward pass, in order, with what each result depends on.

A `TorchFunctionMode` sees each call of torch's API before it runs. `Tape` writes it down as an `Op`: the function,
its arguments, its result, the module it ran in, and the operations that made its arguments. From that one record
everything else is read: the stages, where positions enter, q and k before and after.

Writes in place are followed by storage: an operation that reads a tensor depends on what made the tensor and on
every later write into the same memory.

What a result depends on is kept as flags (`Flow`), which is how positions are told from content without a name:
ids that are looked up or computed with are CONTENT; a range, a running count or a buffer that counts is POSITION;
the outcome of a comparison is only a MASK (so a causal mask, made of positions, is not a position scheme, and
"is this a pad?" is not content). What stands in for a part that is not run is ABSENT: no value of it may be shown.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor, peek_interpreter_stack
from torch.overrides import TorchFunctionMode

from tinput.models.tree import map_tensors, tensors_in

__all__ = ["LAYOUT", "CannotReplay", "Flow", "Op", "Stop", "Tape"]


class Flow:
    """What a value depends on: flags. Plain numbers, since an enum's `|` costs as much as a tensor operation."""

    CONST: Final = 0
    CONTENT: Final = 1
    POSITION: Final = 2
    MASK: Final = 4
    ABSENT: Final = 8


# Calls that look at a tensor's shape or type, never at its values.
_NO_VALUE = frozenset(
    "size dim numel ndimension stride is_floating_point is_complex element_size is_contiguous __len__ storage_offset "
    "get_device is_signed data_ptr nelement untyped_storage type has_names is_inference".split()
)
# New tensors that take only shape, type and device from an argument.
_FRESH = frozenset(
    "zeros_like ones_like empty_like full_like rand_like randn_like new_zeros new_ones new_empty new_full "
    "zeros ones empty full".split()
)
_COUNTS = frozenset(["arange", "cumsum", "linspace", "range"])
_TRIANGLES = frozenset(["triu", "tril", "triu_", "tril_"])
# Calls that take only shape or type from their second tensor.
_LIKE = frozenset(["expand_as", "view_as", "reshape_as", "type_as"])
_PICKS = frozenset(["gather", "index_select", "take_along_dim", "__getitem__"])
_IN_PLACE = frozenset("__setitem__ __iadd__ __isub__ __imul__ __itruediv__ __iand__ __ior__ __ixor__".split())
# The same memory or the same numbers in another arrangement: no step of the pipeline.
LAYOUT = frozenset(
    "view reshape transpose permute contiguous unsqueeze squeeze expand expand_as clone to type_as float double half "
    "bfloat16 detach __getitem__ flatten unflatten chunk split unbind narrow select view_as repeat_interleave swapaxes "
    "movedim __get__ t numpy cpu alias requires_grad_ repeat broadcast_to atleast_2d tensor_split select_scatter "
    "long int _to_copy adjoint".split()
)


class Stop(Exception):
    """Ends the forward pass once what is wanted is on the tape."""


class CannotReplay(Exception):
    """A value cannot be computed again from the tape."""


@dataclass(slots=True, eq=False)
class Op:
    """One call. `out` is its result (the written tensor for a write in place)."""

    index: int
    name: str
    func: Callable
    args: tuple
    kwargs: dict
    out: Any
    module: str  # the path of the innermost module that was running
    flow: int
    reads: dict[int, tuple[int, ...]]  # id of each tensor argument -> what made it, then the writes into its memory
    writes: Tensor | None = None  # the tensor written in place, with its geometry
    saved: Any = None  # the result as it was, when a later write in place changed it

    @property
    def inputs(self) -> tuple[int, ...]:
        """The operations that made the arguments, writes included."""
        return tuple(dict.fromkeys(index for makers in self.reads.values() for index in makers))

    @property
    def value(self) -> Tensor:
        """The result at the time, whatever was written into it later."""
        return self.out if self.saved is None else self.saved

    def has(self, flow: int) -> bool:
        return bool(self.flow & flow)

    @property
    def position_only(self) -> bool:
        """Computed from positions (and parameters) alone."""
        return self.has(Flow.POSITION) and not self.has(Flow.CONTENT)


@dataclass(slots=True)
class _Made:
    tensor: weakref.ref  # an id may be used again once its tensor is gone
    op: int  # the operation that made the tensor
    storage: _Storage
    seen: int  # how many writes into its storage there were by then


@dataclass(slots=True)
class _Storage:
    writes: list[int] = field(default_factory=list)
    makers: list[int] = field(default_factory=list)


class Tape(TorchFunctionMode):
    """Records while it is entered. `on_op(op)`, if set, is called after each operation and may raise `Stop`.

    resolve: called as (func, name, args, kwargs, tensors) before an operation runs, tensors being all among the
    arguments; returns the (func, args, kwargs) to run and to write down, with parameters in place of placeholders,
    or None where there is nothing to replace.
    """

    def __init__(self, resolve: Callable | None = None):
        super().__init__()
        self.ops: list[Op] = []
        self.module = ""
        self._resolve = resolve
        self.on_op: Callable[[Op], None] | None = None
        self._made: dict[int, _Made] = {}
        self._storages: dict[int, _Storage] = {}
        self._sources: dict[int, int] = {}
        self._alive: list[Tensor] = []  # an id names one tensor while that is alive; operations keep their own
        self._released = False

    # --- what is there before the first operation

    def source(self, tensor: Tensor, flow: int) -> None:
        """Says what an input or a buffer is."""
        self._sources[id(tensor)] = flow
        self._alive.append(tensor)

    # --- recording

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(func, "__name__", None) or str(func)
        if name in _NO_VALUE:
            return func(*args, **kwargs)
        if name == "__get__" or name == "__set__":
            out = func(*args, **kwargs)
            if not isinstance(out, Tensor) or name == "__set__":
                return out
        return self.record(func, name, args, kwargs)

    def record(self, func: Callable, name: str, args: tuple, kwargs: dict) -> Any:
        """Makes a call and writes it down. Returns its result."""
        tensors = tensors_in((args, kwargs))
        if peek_interpreter_stack() is not None and any(map(is_functorch_wrapped_tensor, tensors)):
            return func(*args, **kwargs)  # inside vmap, where masks are made: the tensors there have no memory
        if self._resolve is not None and (resolved := self._resolve(func, name, args, kwargs, tensors)) is not None:
            func, args, kwargs = resolved
            tensors = tensors_in((args, kwargs))
        written = _written(name, args, kwargs)
        if written is not None:
            self._save_before_write(written)
        read = tensors[:1] if name in _LIKE else tensors
        reads = {id(tensor): self.makers(tensor) for tensor in read}
        out = func(*args, **kwargs)
        results = tensors_in(out)
        if not results and written is None:
            return out
        op = Op(
            index=len(self.ops),
            name=name,
            func=func,
            args=args,
            kwargs=kwargs,
            out=written if written is not None else out,
            module=self.module,
            flow=self._flow(name, read, reads, results or [written]),
            reads=reads,
            writes=written,
        )
        self.ops.append(op)
        storages = self._storages_of(results, tensors)
        if written is not None:
            self._storage(written).writes.append(op.index)
        for result, storage in zip(results, storages, strict=True):
            self._made[id(result)] = _Made(weakref.ref(result), op.index, storage, len(storage.writes))
            storage.makers.append(op.index)
        if self.on_op is not None:
            self.on_op(op)
        return out

    def _storages_of(self, results: list[Tensor], arguments: list[Tensor]) -> list[_Storage]:
        found: dict[int, _Storage] = {}
        keys = [_storage_key(result) for result in results]
        for key in keys:
            if key in found:
                continue
            storage = self._storages.get(key)
            if storage is not None and self._released and all(_storage_key(tensor) != key for tensor in arguments):
                storage = None  # memory of what was let go is used again: its history ends with it
            found[key] = self._storages[key] = storage or _Storage()
        return [found[key] for key in keys]

    def _storage(self, tensor: Tensor) -> _Storage:
        return self._storages.setdefault(_storage_key(tensor), _Storage())

    def _save_before_write(self, tensor: Tensor) -> None:
        storage = self._storage(tensor)
        for index in (*storage.makers, *storage.writes):
            op = self.ops[index]
            if op.saved is None and op.out is not None:
                op.saved = _cloned(op.out)

    def release(self, start: int, stop: int) -> None:
        """Lets go of the content among the operations from start to stop: what depends on what stays known.

        For a run through a whole model, whose tensors together would fill the memory.
        """
        self._released = True
        content = [op for op in self.ops[start:stop] if op.has(Flow.CONTENT) or self._holds_content(op)]
        for op in content:
            op.args, op.kwargs, op.out, op.saved, op.writes = (), {}, None, None, None

    def _holds_content(self, op: Op) -> bool:
        """Whether content was written into a result: memory that was made empty, to be filled."""
        return op.saved is not None and any(self.flow_of(tensor) & Flow.CONTENT for tensor in tensors_in(op.out))

    def makers(self, tensor: Tensor) -> tuple[int, ...]:
        """The operations behind a tensor as it is now: the one that made it, then the writes into its memory."""
        made = self._made.get(id(tensor))
        if made is None or made.tensor() is not tensor:
            return ()
        writes = made.storage.writes
        return (made.op, *writes[made.seen :]) if len(writes) > made.seen else (made.op,)

    def flow_of(self, tensor: Tensor) -> int:
        """What a tensor depends on, as it is now."""
        flow = self._sources.get(id(tensor), Flow.CONST)
        for index in self.makers(tensor):
            flow |= self.ops[index].flow
        return flow

    def _flow(self, name: str, tensors: list[Tensor], reads: dict[int, tuple[int, ...]], results: list) -> int:
        if name in _FRESH:
            return Flow.CONST
        flow = Flow.CONST
        for tensor in tensors:
            flow |= self._sources.get(id(tensor), Flow.CONST)
        for makers in reads.values():
            for index in makers:
                flow |= self.ops[index].flow
        if any(result.dtype == torch.bool for result in results):
            return Flow.MASK if flow else Flow.CONST
        if name in _TRIANGLES:
            flow |= Flow.MASK
        if name in _PICKS and not self.flow_of(tensors[0]) and _all_equal(tensors[0]):
            return Flow.CONST  # picked by position out of equal numbers (token types 0): nothing of it is left
        if name in _COUNTS and not flow & Flow.CONTENT:
            flow |= Flow.POSITION
        return flow

    # --- reading

    def last(self, tensor: Tensor) -> Op | None:
        """The operation whose result the tensor is now; None for one that was there before."""
        makers = self.makers(tensor)
        return self.ops[makers[-1]] if makers else None

    def back(self, start: Op, since: int = 0) -> list[Op]:
        """Everything that `start` depends on from operation `since` on, and itself, in order."""
        seen = {start.index}
        todo = [start.index]
        while todo:
            for index in self.ops[todo.pop()].inputs:
                if index >= since and index not in seen:
                    seen.add(index)
                    todo.append(index)
        return [self.ops[index] for index in sorted(seen)]

    def past_layout(self, op: Op) -> Op:
        """The operation behind pure rearrangements."""
        while op.name in LAYOUT and op.inputs:
            op = self.ops[op.inputs[-1]]
        return op

    def replay(self, target: Op, known: dict[int, Any]) -> Any:
        """The result of `target`, had some operations had other results (`known`, by index).

        Only what depends on them is computed again; nothing recorded is changed. Raises CannotReplay.
        """
        return self._with(self.back(target), known).get(target.index, target.value)

    def replay_argument(self, reader: Op, tensor: Tensor, known: dict[int, Any]) -> Tensor:
        """The same for an argument of `reader`: whole, where the last operation on it wrote into a part."""
        path: dict[int, Op] = {}
        for index in reader.reads.get(id(tensor), ()):
            path.update({op.index: op for op in self.back(self.ops[index])})
        return self._as_known(tensor, reader, self._with([path[index] for index in sorted(path)], known))

    def _with(self, path: list[Op], known: dict[int, Any]) -> dict[int, Any]:
        """The results of all on the path that are other than recorded."""
        known = dict(known)
        touched = set(known)
        for op in path:
            if op.index not in touched and any(index in touched for index in op.inputs):
                touched.add(op.index)
        for op in path:
            if op.index in touched and op.index not in known:
                known[op.index] = self._again(op, known)
        return known

    def _again(self, op: Op, known: dict[int, Any]) -> Any:
        memo: dict[int, Tensor] = {}

        def current(tensor: Tensor) -> Tensor:
            if id(tensor) not in memo:
                memo[id(tensor)] = self._as_known(tensor, op, known)
            return memo[id(tensor)]

        try:
            args, kwargs = map_tensors(current, op.args), map_tensors(current, op.kwargs)
            if op.writes is None:
                return op.func(*args, **kwargs)
            target = current(op.writes)
            fresh = target.clone(memory_format=torch.contiguous_format)
            args = tuple(fresh if arg is target else arg for arg in args)
            op.func(*args, **kwargs)
            return fresh
        except (RuntimeError, TypeError, IndexError) as error:
            raise CannotReplay(f"{op.name}: {error}") from error

    def _as_known(self, tensor: Tensor, op: Op, known: dict[int, Any]) -> Tensor:
        """An argument of `op` as it would be."""
        maker, *writes = op.reads.get(id(tensor), ()) or (None,)
        if maker is None:
            return tensor
        base = _result_like(self.ops[maker], tensor, known.get(maker, self.ops[maker].value))
        return self._written_over(tensor, base, writes, known) if writes else base

    def _written_over(self, tensor: Tensor, base: Tensor, writes: list[int], known: dict[int, Any]) -> Tensor:
        """A tensor after writes into its memory: the memory is laid out again and the writes applied in order."""
        memory = torch.zeros(tensor.untyped_storage().nbytes() // tensor.element_size(), dtype=tensor.dtype)
        memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(base)
        for index in writes:
            view = self.ops[index].writes
            assert view is not None
            value = known.get(index, self.ops[index].value)
            memory.as_strided(view.shape, view.stride(), view.storage_offset()).copy_(value)
        return memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _result_like(op: Op, tensor: Tensor, value: Any) -> Tensor:
    """The part of a result (which may be a tuple) that `tensor` was."""
    if isinstance(op.out, Tensor):
        return value
    for out, part in zip(tensors_in(op.out), tensors_in(value), strict=True):
        if out is tensor:
            return part
    raise CannotReplay(f"{op.name}: a part of the result is not found")


def _storage_key(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _written(name: str, args: tuple, kwargs: dict) -> Tensor | None:
    """The tensor that a call writes in place, or None."""
    if isinstance(kwargs.get("out"), Tensor):
        return kwargs["out"]
    in_place = name in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))
    if in_place and name != "requires_grad_" and args and isinstance(args[0], Tensor):
        return args[0]
    return None


def _all_equal(numbers: Tensor) -> bool:
    return not numbers.is_floating_point() and bool((numbers == numbers.flatten()[:1]).all())


def _cloned(tree: Any) -> Any:
    return map_tensors(lambda tensor: tensor.clone(), tree)
