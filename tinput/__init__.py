"""What exactly enters the first Transformer block, and how a model tells positions apart.

    import tinput

    trace = tinput.open_model("tinput/rope").trace("Positions matter.")
    trace.block_input       # (seq, d_model), recorded from the model's own forward pass
    trace.agreement         # how far the textbook formula is from it

Each name is imported when it is first used, so `import tinput` itself takes no time and imports no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tinput import align, figures, measure, positions, surgery, tokens, twins  # noqa: F401
    from tinput.agree import Agreement
    from tinput.behaviour import Fingerprint, fingerprint
    from tinput.errors import TinputError
    from tinput.open import Model, open_model
    from tinput.pipeline import TransformerInput, attention, build_input
    from tinput.positions import SCHEMES, Add, Bias, Content, Nothing, Rotate
    from tinput.record import Stage, Trace
    from tinput.tokens import Tokens
    from tinput.window import Field, Window

__version__ = "0.1.0"

__all__ = [
    "SCHEMES",
    "Add",
    "Agreement",
    "Bias",
    "Content",
    "Field",
    "Fingerprint",
    "Model",
    "Nothing",
    "Rotate",
    "Stage",
    "TinputError",
    "Tokens",
    "Trace",
    "TransformerInput",
    "Window",
    "attention",
    "build_input",
    "fingerprint",
    "open_model",
]

_HOME = {
    "agree": ("Agreement",),
    "behaviour": ("Fingerprint", "fingerprint"),
    "errors": ("TinputError",),
    "open": ("Model", "open_model"),
    "pipeline": ("TransformerInput", "attention", "build_input"),
    "positions": ("SCHEMES", "Add", "Bias", "Content", "Nothing", "Rotate"),
    "record": ("Stage", "Trace"),
    "tokens": ("Tokens",),
    "window": ("Field", "Window"),
}
# Modules that are used by their name: `tinput.figures.heatmap(...)`.
_MODULES = ("align", "figures", "measure", "positions", "surgery", "tokens", "twins")
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str):
    if name in _MODULES:
        return import_module(f"tinput.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tinput' has no attribute {name!r}")
    value = getattr(import_module(f"tinput.{_MODULE_OF[name]}"), name)
    globals()[name] = value  # the next use is an ordinary look-up
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
