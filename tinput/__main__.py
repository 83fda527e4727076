"""python -m tinput MODEL TEXT: what enters the model's first block, in the terminal.

Prints the tokens, the stages from ids to the block input, the position scheme, how it was found, and how far the
textbook formula is from what was recorded. An error is one sentence on stderr, and the exit status 2.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tinput.errors import TinputError

if TYPE_CHECKING:
    from tinput.open import Model
    from tinput.record import Trace

TOKENS_SHOWN = 64


def main(arguments: list[str] | None = None) -> int:
    """Run as a command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tinput", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("model", help="a bundled model, such as tinput/rope, or a folder with a checkpoint")
    parser.add_argument("text", help="what to send through it, in quotes")
    chosen = parser.parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a token is shown escaped where the terminal cannot show it
            stream.reconfigure(errors="backslashreplace")

    from tinput.open import open_model  # after --help has had its chance: this imports torch

    try:
        model = open_model(chosen.model)
        lines = list(report(model, model.trace(chosen.text)))
    except TinputError as error:
        print(f"tinput: {printable(str(error))}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


def report(model: Model, trace: Trace) -> Iterator[str]:
    """The lines that are printed."""
    stored = f", stored in {trace.checkpoint_dtype}" if trace.checkpoint_dtype != trace.dtype else ""
    yield f"model      {printable(trace.model)}, run in {trace.dtype}{stored}"
    if trace.tokens is not None:
        labels = [printable(label) for label in trace.tokens.labels]
        cut = f" … and {len(labels) - TOKENS_SHOWN} more" if len(labels) > TOKENS_SHOWN else ""
        yield f"tokens     {len(labels)}: {' '.join(labels[:TOKENS_SHOWN])}{cut}"
    yield "stages"
    names = [printable(stage.name) for stage in trace.stages]
    for number, (stage, name) in enumerate(zip(trace.stages, names, strict=True), 1):
        shape = " × ".join(f"{size:,}" for size in stage.value.shape)
        yield f"  {number:>2}  {name:<{max(map(len, names))}}  {shape:<12}  {stage.op:<12}  {stage.module}".rstrip()
    yield f"scheme     {', '.join(model.schemes)}"
    yield f"reason     {model.reason}"
    yield f"agreement  {trace.agreement.message}"
    for note in trace.notes:
        yield f"note       {printable(note)}"


def printable(text: str) -> str:
    """The text with control characters spelled out, so that nothing typed can steer the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


if __name__ == "__main__":
    sys.exit(main())
