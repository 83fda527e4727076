"""What a survey need not run again: modules after a block's attention that are like one that has run.

A survey reads what each block's attention is given. The rest of a block is run so that the next one is given
something, and in a large model it is most of the work: 256 experts a layer. So a module there is run once for each
kind, and after that random numbers stand in for its result, which depend on the same inputs.

Two modules are of one kind when nothing could tell them apart as they run: same classes, parameters of the same
shapes, equal attributes (a layer's number is one, and what is shared is compared by its own attributes as well), no
buffers, no forward of their own, and arguments alike. And the one that ran must have shown that there is nothing to
see: everything it was given and returned is content, it computed nothing from positions alone, and it is no attention.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tinput.models.tree import map_tensors, tensors_in
from tinput.record.tape import Flow

if TYPE_CHECKING:
    from tinput.record.front import Front

__all__ = ["Repeats"]

_FEW = 4  # operations: a module with no more is run rather than compared
_PLAIN = frozenset([type(None), bool, int, float, str, torch.dtype, torch.device, torch.Size])


class Repeats:
    """The kinds of modules that one run has seen after an attention."""

    def __init__(self) -> None:
        self._results: dict[Hashable, Any] = {}  # kind -> the result on `meta`; None: is to be run each time
        self._slight: set[type] = set()

    def call(self, front: Front, module: nn.Module, forward: Callable, args: tuple, kwargs: dict) -> Any:
        """The module's result, or one that stands in for it."""
        given = tensors_in((args, kwargs))
        tape = front.tape
        if type(module) in self._slight or not all(tape.flow_of(tensor) & Flow.CONTENT for tensor in given):
            return forward(*args, **kwargs)
        try:
            kind = (_module(module, forward), _argument(args), _argument(kwargs))
        except _NotComparable:
            return forward(*args, **kwargs)
        if (result := self._results.get(kind)) is not None:

            def stand_in(*_: Tensor) -> Any:
                with torch._C.DisableTorchFunction():
                    return map_tensors(front.placeholders.random_like, result)

            return tape.record(stand_in, "stand_in", tuple(given), {})
        start, attentions = len(tape.ops), len(front.attentions)
        out = forward(*args, **kwargs)
        if len(tape.ops) - start <= _FEW:
            self._slight.add(type(module))
        elif kind not in self._results:
            seen = tape.ops[start:]
            plain = len(front.attentions) == attentions and not any(op.position_only for op in seen)
            plain = plain and _is_content(front, out)
            with torch._C.DisableTorchFunction():
                self._results[kind] = map_tensors(_on_meta, out) if plain else None
        return out


def _is_content(front: Front, out: Any) -> bool:
    """Whether a result is a tensor, or several, each of numbers that depend on content."""
    if isinstance(out, (tuple, list)):
        return bool(out) and all(_is_content(front, item) for item in out)
    return isinstance(out, Tensor) and out.is_floating_point() and bool(front.tape.flow_of(out) & Flow.CONTENT)


def _on_meta(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


# --- what tells two modules apart


class _NotComparable(Exception):
    """Something that might tell them apart, and cannot be looked into."""


def _module(module: nn.Module, forward: Callable) -> Hashable:
    if (
        getattr(forward, "__func__", None) is not type(module).forward
        or getattr(forward, "__self__", None) is not module
    ):
        raise _NotComparable
    parts: list[Hashable] = [type(module)]
    for name, value in vars(module).items():
        if name == "_parameters":
            parts += [(key, None if p is None else (p.shape, p.dtype)) for key, p in value.items()]
        elif name == "_buffers":
            if any(buffer is not None for buffer in value.values()):
                raise _NotComparable
        elif name == "_modules":
            parts += [(key, child and _module(child, _inner(child))) for key, child in value.items()]
        elif name != "forward":
            parts.append((name, value if type(value) in _PLAIN else _attribute(value)))
    return tuple(parts)


def _inner(module: nn.Module) -> Callable:
    """A module's own forward, inside the run's wrapper."""
    return getattr(module.forward, "__wrapped__", module.forward)


def _attribute(value: Any) -> Hashable:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, Tensor):
        raise _NotComparable
    if isinstance(value, dict):
        return (kind, tuple((key, _attribute(item)) for key, item in value.items()))
    if isinstance(value, (tuple, list, set, frozenset)):
        return (kind, tuple(map(_attribute, value)))
    own = getattr(value, "__dict__", {})  # an object that is shared may have changed meanwhile
    return (id(value), tuple((name, item) for name, item in own.items() if type(item) in _PLAIN))


def _argument(value: Any) -> Hashable:
    if isinstance(value, Tensor):
        return (value.shape, value.dtype)
    if type(value) in (tuple, list):
        return tuple(map(_argument, value))
    if type(value) is dict:
        return tuple((key, _argument(item)) for key, item in value.items())
    if type(value) in _PLAIN:
        return value
    raise _NotComparable
