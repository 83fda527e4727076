"""From a name to a folder and its configuration: a bundled model, a folder, or a model on the Hub.

Nothing in a folder is ever run. What a visitor types into the app is a path only while the server listens on loopback,
or inside the folders named by the environment variable TINPUT_MODELS; Python callers are not restricted.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tinput.errors import BadFile, BadModel, NotAllowed, NotFound, Unknown, Unreachable
from tinput.models.asking import offline
from tinput.models.hub import Hub

__all__ = [
    "HUB_ID",
    "Checkpoint",
    "allowed",
    "bundled",
    "configuration",
    "fetch",
    "find",
    "listed",
    "named",
    "read_config",
    "roots",
]

VARIABLE = "TINPUT_MODELS"
CONFIG = "config.json"
LONGEST_CONFIG = 50_000_000  # bytes; the longest published ones, with a label for each class, have about 2 MB
OURS = "tinput/"  # the bundled models' owner; on the Hub it may be anybody
HUB_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]{0,95}/)?\w[\w.-]{0,95}", re.ASCII)  # the oldest have no owner: "gpt2"
ADDRESS = re.compile(  # of a model's page on the Hub, as it is copied from a browser
    r"https?://(?:huggingface\.co|hf\.co)/([^/?#]+(?:/[^/?#]+)?)(?:/(?:tree|blob)/([^/?#]+)[^?#]*)?/?(?:[?#].*)?"
)
DEEPEST = 4  # below a root: owner/name, and the Hub cache's hub/models--owner--name/snapshots/commit


@dataclass(frozen=True)
class Checkpoint:
    """A model's files.

    name: as it was asked for ("tinput/rope" for a bundled one); folder: absolute
    config: config.json as it stands; revision: a Hub commit, None for a folder; bundled: one of tinput's own
    hub: where the rest can be read, for a model on the Hub, whose folder holds only its small files
    """

    name: str
    folder: Path
    config: dict[str, Any] = field(hash=False)
    revision: str | None = None
    bundled: bool = False
    hub: Hub | None = None

    @property
    def stamp(self) -> tuple[tuple[str, int, int], ...]:
        """(file, bytes, time of change) of each file of the folder, or the commit, for the key of a cache."""
        return _stamp(self.folder) if self.hub is None else ((self.hub.commit, 0, 0),)


def find(
    name_or_folder: str | Path,
    revision: str | None = None,
    *,
    typed: bool = False,
    loopback: bool = False,
    token: bool | None = None,
) -> Checkpoint:
    """The files of a bundled model ("tinput/rope", or just "rope"), of a folder, or of a model on the Hub by its id.

    Looked for in this order, so that "gpt2" is a folder where there is one of that name, else an id on the Hub.

    typed: a visitor of the app typed it, so a path must be `allowed`; loopback: whether the server listens on loopback
    token: False for none; None for the one that huggingface_hub is set up with, which is its owner's: visitors of a
    server that others can reach are shown public models alone
    Raises NotFound, NotAllowed, Unreachable, Unknown (the architecture) or BadFile (config.json), each naming what it
    is about.
    """
    asked = str(name_or_folder).strip()
    if isinstance(name_or_folder, str) and revision is None and ((typed and not loopback) or not os.path.isdir(asked)):
        asked, revision = named(asked)
    if not asked:
        raise NotFound("No model is named; give a bundled name such as tinput/rope, or the path of a model's folder.")

    from tinput import twins  # late: it registers its architecture with transformers, which takes a moment to import

    if not isinstance(name_or_folder, Path) and (name := bundled(asked)):
        if revision is not None:
            raise NotFound(f"{name} comes with tinput and has no revision {revision!r}; leave the revision out.")
        folder = twins.folder(name)
        return Checkpoint(name, folder, read_config(folder), bundled=True)

    if typed and not loopback:
        token = False
    if asked.startswith(OURS) and not isinstance(name_or_folder, Path) and _kind(_folder(asked)) == "nothing":
        raise NotFound(f"There is no bundled model {asked}: choose one of {', '.join(twins.NAMES)}.")
    folder = _folder(asked)
    hub_id = HUB_ID.fullmatch(asked) is not None and not isinstance(name_or_folder, Path)
    if typed and not allowed(folder, loopback):  # before anything is looked at: the answer tells nothing of the disk
        if not hub_id:
            raise NotAllowed(
                f"{asked} may not be read: this server reads folders only inside those named by {VARIABLE}; "
                "choose one of the listed models, or run the app on your own machine."
            )
        return _fetch(asked, revision, token, f"{asked} is no bundled model")
    if _kind(folder) == "nothing" and hub_id:
        return _fetch(asked, revision, token, f"{asked} is no folder and no bundled model")
    if revision is not None:
        raise NotFound(f"{folder} is a folder and has no revision {revision!r}; leave the revision out.")

    match _kind(folder):
        case "nothing":
            raise NotFound(f"There is no folder {folder}, and {', '.join(twins.NAMES)} are the bundled names.")
        case "file":
            raise NotFound(f"{folder} is a file; give the folder that holds a model's {CONFIG} and weights.")
        case "closed":
            raise NotFound(f"{folder} cannot be looked into: permission denied.")
    config = read_config(folder)
    _check_architecture(str(folder / CONFIG), config)
    return Checkpoint(asked, folder, config, revision)


def fetch(name: str, revision: str | None, token: bool | None = None) -> Checkpoint:
    """A model on the Hub at the commit that it has now: its configuration is read, nothing else yet."""
    hub = Hub.open(name, revision, token)
    config = read_config(hub.folder, f"{name}/{CONFIG}")
    _check_architecture(f"{name}/{CONFIG}", config)
    return Checkpoint(name, hub.folder, config, hub.commit, hub=hub)


def _fetch(asked: str, revision: str | None, token: bool | None, not_here: str) -> Checkpoint:
    """`fetch`. A name without an owner may be meant for something else: what it is not (`not_here`) is said too."""
    try:
        return fetch(asked, revision, token)
    except (NotFound, Unreachable) as error:
        if "/" in asked or revision is not None:  # what has a revision is meant for the Hub
            raise
        said, kind = str(error), NotFound if offline() else type(error)
    from tinput import twins

    short = {name.removeprefix(OURS): name for name in twins.NAMES}
    near = [short[name] for name in difflib.get_close_matches(asked.lower(), short, n=1)]
    said = f"it{said.removeprefix(asked)}" if said.startswith(asked) else said[0].lower() + said[1:]
    raise kind(f"{not_here}{f' (the nearest is {near[0]})' if near else ''}, and {said}")


def roots() -> tuple[Path, ...]:
    """The folders named by TINPUT_MODELS (separated as in PATH), symbolic links resolved."""
    named = os.environ.get(VARIABLE, "").split(os.pathsep)
    return tuple(dict.fromkeys(Path(n).expanduser().resolve() for n in named if n.strip()))


def allowed(path: str | Path, loopback: bool) -> bool:
    """Whether a path that a visitor typed may be read: on loopback, or inside one of `roots()`, links resolved."""
    if loopback:
        return True
    try:
        real = _folder(str(path)).resolve()
    except (OSError, ValueError, RuntimeError, BadModel):  # a NUL, a loop of links
        return False
    return any(real.is_relative_to(root) for root in roots())


def listed() -> list[Path]:
    """The model folders inside TINPUT_MODELS: those with a config.json that names a model_type, sorted, at most 500."""
    found: dict[Path, Path] = {}  # links resolved -> as it is reached
    for root in roots():
        _gather(root, root, 0, found)
    return sorted(found.values())[:500]


def read_config(folder: Path, shown: str = "") -> dict[str, Any]:
    """config.json as a dict. shown: what to call it; its path if empty.

    Raises BadFile, naming it: missing, no JSON, no object, no model_type.
    """
    file, path = folder / CONFIG, shown or folder / CONFIG
    try:
        with file.open("rb") as stream:
            raw = stream.read(LONGEST_CONFIG + 1)
    except FileNotFoundError:
        raise BadFile(
            f"{folder} has no {CONFIG}, so it is no model that transformers can describe{_instead(folder)}."
        ) from None
    except OSError as error:
        raise BadFile(f"{path} cannot be read: {error.strerror or error}.") from None
    if len(raw) > LONGEST_CONFIG:
        raise BadFile(f"{path} has more than {LONGEST_CONFIG:,} bytes, so it is no configuration.")
    try:
        config = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path} is no JSON ({error}); download it again.") from None
    if not isinstance(config, dict):
        raise BadFile(f"{path} holds no JSON object; download it again.")
    if not isinstance(config.get("model_type"), str) or not config["model_type"]:
        raise BadFile(f"{path} names no model_type, so what to build is unknown.")
    return config


def configuration(checkpoint: Checkpoint) -> Any:
    """transformers' configuration object; no code of the checkpoint's is run. Raises BadFile."""
    from transformers import CONFIG_MAPPING

    config = dict(checkpoint.config)
    cls = CONFIG_MAPPING[config["model_type"]]
    try:
        return cls.from_dict(cls._decode_special_floats(config))  # how transformers writes infinity into JSON
    except Exception as error:  # each class checks its own way
        said = " ".join(str(error).split())[:200] or type(error).__name__
        file = f"{checkpoint.name if checkpoint.hub else checkpoint.folder}/config.json"
        raise BadFile(f"{file} is no configuration that transformers accepts ({said}); correct it.") from error


def _check_architecture(file: str, config: dict[str, Any]) -> None:
    from transformers import CONFIG_MAPPING, __version__

    kind = config["model_type"]
    if kind in CONFIG_MAPPING:
        return
    if config.get("auto_map"):
        raise Unknown(
            f"{file} has model_type {kind!r}, whose code comes with the checkpoint; "
            "tinput never runs code from a checkpoint, so choose one that transformers itself has.",
            config,
        )
    raise Unknown(
        f"{file} has model_type {kind!r}, which transformers {__version__} does not have; "
        "install a newer transformers, or choose another model.",
        config,
    )


def named(asked: str) -> tuple[str, str | None]:
    """(name, revision or None) of "name@revision", of the address of a model's page on the Hub, and of a mere name."""
    if found := ADDRESS.fullmatch(asked):
        return found[1], found[2]
    name, _, revision = asked.partition("@")
    return (name, revision) if revision and HUB_ID.fullmatch(name) else (asked, None)  # a path may hold an @


def bundled(asked: str) -> str | None:
    """The bundled model of a name, which may leave "tinput/" out; None if there is none."""
    from tinput import twins

    return next((name for name in twins.NAMES if asked in (name, name.removeprefix(OURS))), None)


def _folder(asked: str) -> Path:
    try:
        if "\0" in asked or len(asked.encode()) > 4096:  # a lone surrogate raises
            raise ValueError
        return Path(os.path.abspath(Path(asked).expanduser()))
    except (RuntimeError, ValueError):  # ~nobody
        shown = repr(asked[:60]) + ("…" if len(asked) > 60 else "")
        raise NotFound(f"{shown} is no path; give a bundled name such as tinput/rope, or a model's folder.") from None


def _kind(path: Path) -> str:
    """ "folder", "file", "nothing" or "closed"."""
    try:
        if path.is_dir():
            return "folder" if os.access(path, os.R_OK | os.X_OK) else "closed"
        return "file" if path.exists() else "nothing"
    except PermissionError:
        return "closed"
    except (OSError, ValueError):  # a name too long, a NUL, a lone surrogate
        return "nothing"


def _instead(folder: Path) -> str:
    """What a folder without a config.json is, where one can tell."""
    if (folder / "adapter_config.json").exists():
        return " (it is an adapter: open the model that it adapts, or merge the two)"
    if any(folder.glob("*.gguf")):
        return " (it holds a GGUF file: look for the same model's safetensors)"
    inside = sorted(p.parent.name for p in folder.glob(f"*/{CONFIG}"))
    return f" (a folder inside it has one: {inside[0]})" if inside else ""


def _gather(folder: Path, root: Path, depth: int, found: dict[Path, Path]) -> None:
    try:
        real = folder.resolve()
        if not real.is_relative_to(root):
            return
        if (folder / CONFIG).is_file():  # a model; what lies inside it (1_Pooling) is none
            read_config(folder)
            found.setdefault(real, folder)
            return
        if depth < DEEPEST:
            for inside in sorted(folder.iterdir()):
                if inside.is_dir() and not inside.name.startswith("."):
                    _gather(inside, root, depth + 1, found)
    except (OSError, RuntimeError, BadFile):  # unreadable, a loop of links, some other program's config.json
        return


def _stamp(folder: Path) -> tuple[tuple[str, int, int], ...]:
    files = []
    for entry in os.scandir(folder):
        if entry.is_file():
            stat = entry.stat()
            files.append((entry.name, stat.st_size, stat.st_mtime_ns))
    return tuple(sorted(files))
