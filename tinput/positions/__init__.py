"""The textbook: one file a position scheme, pure torch, each with its paper and its equations.

Every scheme file exports the same names: NAME, LABEL, COLOUR, INJECTION, FORMULA, PAPER,
variants(config), predict(config, positions, ...) and notice(effect, positions); most also
coverage(config, places, trained, ...), what of it a training at one length has shown (coverage.py).
One that a configuration may keep to some layers has layers(config): for each whether it is there, or
None where that is not said.
It never asks a model library: given a configuration as a plain mapping it predicts the numbers.

Beside the schemes:

effects.py      what a scheme injects: Add, Rotate, Bias, Content, Nothing
frequencies.py  how fast each pair of a rotation turns; its scalings; how a configuration says so
spelling.py     one size, several spellings in a config.json
unsaid.py       what a config.json leaves unsaid about a rotation
coverage.py     what of a scheme a training at one length has shown
"""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from .effects import Add, Bias, Content, Effect, Nothing, Rotate

__all__ = ["SCHEMES", "Add", "Bias", "Content", "Effect", "Nothing", "Rotate", "label"]

# A scheme is a file here with a NAME: a new one is found by being here.
_FILES = [import_module(f"{__name__}.{file.name}") for file in iter_modules(__path__)]
SCHEMES: dict[str, ModuleType] = {file.NAME: file for file in _FILES if hasattr(file, "NAME")}


def label(name: str) -> str:
    """How a scheme is called in words; the recorder may find one that the textbook has no name for."""
    return SCHEMES[name].LABEL if name in SCHEMES else "a scheme without a name"
