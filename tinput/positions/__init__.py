"""The textbook: one file a position scheme, pure torch, each with its paper and its equations.

Every scheme file exports the same names: NAME, LABEL, COLOUR, INJECTION, FORMULA, PAPER,
variants(config), predict(config, positions, ...) and notice(effect, positions).
It never asks a model library: given a configuration as a plain mapping it predicts the numbers.
"""

from types import ModuleType

from . import alibi, learned, none, relative, relative_bias, rope, sinusoidal
from .effects import Add, Bias, Content, Effect, Nothing, Rotate

__all__ = ["SCHEMES", "Add", "Bias", "Content", "Effect", "Nothing", "Rotate"]

SCHEMES: dict[str, ModuleType] = {
    scheme.NAME: scheme for scheme in (sinusoidal, learned, rope, alibi, relative_bias, relative, none)
}
