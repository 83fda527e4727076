"""The tensors among a call's arguments, which may be nested in tuples, lists, dicts and slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

__all__ = ["map_tensors", "tensors_in"]


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """Every tensor, in order."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from tensors_in(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from tensors_in(item)
    elif isinstance(tree, slice):
        yield from tensors_in((tree.start, tree.stop, tree.step))


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
