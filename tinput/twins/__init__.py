"""Six small decoders that differ in their position scheme alone: a trained model of each kind, offline.

Importing this registers them with transformers' Auto classes:

    import tinput.twins
    model = AutoModelForCausalLM.from_pretrained(tinput.twins.folder("rope"), dtype=torch.float32)

How they were trained, and how well: weights/README.md, and `python -m tinput.twins.train --help`.

model.py        the decoder, as transformers takes it
tokenizer.py    their tokenizer
train.py        how they were trained
reader.py       reading a text of any length, piece by piece, with a changed scheme
extrapolate.py  how well they predict past the length that they were trained at
"""

from __future__ import annotations

from pathlib import Path

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from tinput.errors import NotFound
from tinput.twins.model import TwinConfig, TwinForCausalLM, TwinModel

__all__ = ["HELD_OUT", "NAMES", "TwinConfig", "TwinForCausalLM", "TwinModel", "folder"]

WEIGHTS = Path(__file__).parent / "weights"
HELD_OUT = WEIGHTS / "heldout.txt"  # the opening of the novel that was kept out of the training

NAMES = tuple(f"tinput/{scheme}" for scheme in ("sinusoidal", "learned", "rope", "alibi", "relative_bias", "none"))

AutoConfig.register(TwinConfig.model_type, TwinConfig, exist_ok=True)
AutoModel.register(TwinConfig, TwinModel, exist_ok=True)
AutoModelForCausalLM.register(TwinConfig, TwinForCausalLM, exist_ok=True)


def folder(name: str) -> Path:
    """The folder of a bundled model, by its name with or without "tinput/". Raises NotFound for any other name."""
    full = name if name.startswith("tinput/") else f"tinput/{name}"
    if full not in NAMES:
        raise NotFound(f"no bundled model is called {name!r}: choose one of {', '.join(NAMES)}.")
    return WEIGHTS / full.removeprefix("tinput/")
