"""Where a checkpoint's tensors come from: its folder, byte ranges on the Hub, or a pickle that was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tinput.errors import BadFile, NoWeights, Pickled
from tinput.models.files import Checkpoint
from tinput.models.headers import read_index
from tinput.models.hub import Hub
from tinput.models.named import Source
from tinput.models.pickles import PickledWeights, pickles_of
from tinput.models.remote import RemoteWeights
from tinput.models.weights import INDEX, SINGLE, Weights

__all__ = ["bytes_said", "weights_of"]

NOT_SAFETENSORS = (  # what else weights come in, and what to do then
    (".gguf", "GGUF", "look for the model that they were made from"),
    (".h5", "TensorFlow's format", "look for a conversion to safetensors"),
    (".msgpack", "Flax's format", "look for a conversion to safetensors"),
    (".onnx", "ONNX", "look for the model that they were made from"),
)


def weights_of(checkpoint: Checkpoint, *, allow_pickle: bool = False) -> Source:
    """The tensors of a model by the names in its files. Reads headers of a folder, and nothing yet of a repo.

    allow_pickle: read pickles too (of a repo: download them), as tensors alone, no other object is made of them
    Raises NoWeights if there are none, Pickled if there are pickles alone, BadFile for a file that is not what it says.
    """
    if checkpoint.hub is not None:
        return _of_repo(checkpoint.hub, allow_pickle)
    folder = checkpoint.folder
    if _holds_safetensors(folder):
        return Weights(folder)
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    if pickles := pickles_of(names):
        sizes = {name: (folder / name).stat().st_size for name in pickles if (folder / name).is_file()}
        if allow_pickle:
            return PickledWeights({name: folder / name for name in pickles}, str(folder))
        raise _pickled(str(folder), sizes, "reads")
    raise NoWeights(_none(str(folder), names, folder=True))


def _of_repo(hub: Hub, allow_pickle: bool) -> Source:
    if _is_complete(hub.folder):  # huggingface_hub has the whole model already: what is there is not read again
        return Weights(hub.folder)
    if hub.has(SINGLE) or hub.has(INDEX) or hub.files is None:
        return RemoteWeights(hub)
    found = [name for name in hub.files if _is_safetensors(name)]
    if len(found) == 1:
        return RemoteWeights(hub, single=found[0])
    if found:
        raise NoWeights(f"{hub} has {len(found)} safetensors files but no {INDEX} that says which tensor is where.")
    if pickles := pickles_of(hub.files):
        converted = hub.converted()
        if converted is not None and (converted.has(SINGLE) or converted.has(INDEX)):
            return RemoteWeights(converted)
        if allow_pickle:
            paths = hub.download(pickles)
            return PickledWeights({path.name: path for path in paths}, str(hub))
        sizes = hub.sizes()
        raise _pickled(str(hub), {name: sizes[name] for name in pickles if name in sizes}, "downloads and reads")
    raise NoWeights(_none(str(hub), hub.files, folder=False))


def _is_safetensors(name: str) -> bool:
    return name.endswith(".safetensors") and "/" not in name and not name.startswith("adapter_")


def _holds_safetensors(folder: Path) -> bool:
    return (folder / INDEX).exists() or any(_is_safetensors(path.name) for path in folder.glob("*.safetensors"))


def _is_complete(folder: Path) -> bool:
    """Whether a folder of huggingface_hub's cache holds all weights."""
    if (folder / SINGLE).is_file():
        return True
    try:
        return all((folder / shard).is_file() for shard in set(read_index(folder / INDEX, INDEX).values()))
    except BadFile:
        return False


def _pickled(place: str, sizes: dict[str, int], does: str) -> Pickled:
    size, count = sum(sizes.values()), len(sizes)
    what = next(iter(sizes), "a pickle") if count < 2 else f"{count} pickles ({next(iter(sizes))}, …)"
    shown = f" of {bytes_said(size)}" if size else ""
    fact = f"{place} has its weights as {what}{shown} alone, and of a pickle no part can be read"
    then = f"{does} all of it, as tensors only"
    message = f"{fact}: open it by tinput.open_model(..., allow_pickle=True), which {then}."
    return Pickled(message, size=size, fact=fact, then=then)


def _none(place: str, names: Iterable[str], *, folder: bool) -> str:
    names = [name for name in names if "/" not in name]
    if any(name.startswith("adapter_") and name.endswith(".safetensors") for name in names):
        return f"{place} holds an adapter, not a model; open the model that it adapts, or merge the two."
    for suffix, what, then in NOT_SAFETENSORS:
        if any(name.endswith(suffix) for name in names):
            return f"{place} has its weights in {what} alone, which tinput does not read; {then}."
    other = "choose another model" if folder else "choose another model, or another revision"
    return f"{place} has no weights: no {SINGLE} and no {INDEX}; {other}."


def bytes_said(size: int) -> str:
    """1,234,567 -> "1.2 MB"."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:,.{0 if size >= 100 * factor else 1}f} {unit}"
    return f"{size} bytes"
