"""The tensors among a call's arguments, which may be nested in tuples, lists, dicts and slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

__all__ = ["map_tensors", "tensors_in"]

_PLAIN = frozenset([int, float, bool, str, type(None)])  # most arguments that are no tensor: not worth a call


def tensors_in(tree: Any) -> list[Tensor]:
    """Every tensor, in order."""
    found: list[Tensor] = []
    if isinstance(tree, Tensor):
        found.append(tree)
    else:
        _collect(tree, found)
    return found


def _collect(tree: Any, found: list[Tensor]) -> None:
    if isinstance(tree, (tuple, list)):
        for item in tree:
            if isinstance(item, Tensor):
                found.append(item)
            elif type(item) not in _PLAIN:
                _collect(item, found)
    elif isinstance(tree, dict):
        _collect(list(tree.values()), found)
    elif isinstance(tree, slice):
        _collect((tree.start, tree.stop, tree.step), found)


def map_tensors(change: Callable[[Tensor], Any], tree: Any) -> Any:
    """The same tree with each tensor changed."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_tensors(change, item) for item in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)([map_tensors(change, item) for item in tree])
    if isinstance(tree, dict):
        return {key: map_tensors(change, item) for key, item in tree.items()}
    if isinstance(tree, slice):
        return slice(*(map_tensors(change, item) for item in (tree.start, tree.stop, tree.step)))
    return tree
