"""The house keeps its walls: who may import whom, who may name a scheme, and what no file may hold.

Read off the source by its syntax tree, so that an import inside a function counts as much as one at the top.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Imports point one way: a room may import those before it. Rooms in one group do not know each other.
ORDER = (
    {"errors"},
    {"window"},
    {"positions"},
    {"pipeline"},
    {"twins"},
    {"arguments", "tokens", "measure"},
    {"align"},
    {"models"},
    {"record"},
    {"agree"},
    {"open"},
    {"atlas", "behaviour", "surgery"},
    {"figures"},
    {"ui"},
    {"pages"},
    {"app"},
)
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
# Rooms with thicker walls than their place in the order gives them.
ONLY = {
    "positions": {"window"},  # the textbook never asks a model
    "figures": {"errors", "window", "measure"},  # arrays, windows and labels, never a model
}
# Libraries that only some rooms know. `pages` are widgets and words: no maths, no figures made by hand.
LIBRARY_ROOMS = {
    "streamlit": {"ui", "pages", "app"},
    "plotly": {"figures", "ui"},
    "transformers": {"twins", "tokens", "models", "record", "open", "atlas"},
    "tokenizers": {"twins", "tokens", "models"},
    "safetensors": {"twins", "models"},
    "huggingface_hub": {"models"},
    "torch": set(LEVEL) - {"errors", "pages", "app"},
    "numpy": set(LEVEL) - {"errors", "positions", "pages", "app"},
}

SCHEMES = ("sinusoidal", "learned", "rope", "alibi", "relative_bias")  # "none" and "relative" are plain words too
# Beside its own file and its own page, a scheme is named where the public surface or a stored file names it.
MAY_NAME_SCHEMES = {
    "tinput/pipeline.py": "defaults of the public functions' arguments",
    "tinput/twins/": "the scheme of each bundled model, in its configuration",
    "tinput/ui/lessons/": "each lesson is about some schemes, and leads to their pages",
    "tinput/ui/frame.py": "the list of pages, some of which carry a scheme's name",
}

TEXT = {".py", ".md", ".toml", ".txt", ".json", ".yml", ".yaml", ".cfg", ".css", ".js", ".html", ".csv", ""}
FORBIDDEN = {
    "a path of the machine it was written on": re.compile(r"(?<![\w.])/(?:work|root|home/\w+)/"),
    "a file outside the repository": re.compile(r"\.\./" + "shared"),
    "a token": re.compile(r"\bhf_[A-Za-z0-9]{30,}|-----BEGIN [A-Z ]*PRIVATE KEY"),
}


def files() -> list[str]:
    """What is in the repository, and what is about to be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted(path for path in listing.splitlines() if (ROOT / path).is_file())


FILES = files()
PYTHON = [path for path in FILES if path.endswith(".py")]
OURS = [path for path in PYTHON if path.startswith(("tinput/", "pages/")) or path == "app.py"]
FACADE = ("tinput/__init__.py", "tinput/__main__.py")  # hold the names of every room
ROOMS = [path for path in OURS if path not in FACADE]


@cache
def tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), path)


def room(path: str) -> str:
    """tinput/models/files.py -> models; pages/rope.py -> pages; app.py -> app"""
    parts = Path(path).with_suffix("").parts
    return parts[1] if parts[0] == "tinput" else parts[0]


def imports(path: str) -> Iterator[tuple[int, str]]:
    """(line, module) of every import in a file, with relative ones spelled out."""
    package = Path(path).with_suffix("").parts[:-1]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*above, *filter(None, [node.module])))
            # `from tinput import models` imports a room; `from tinput.models import x` names it already
            yield from ((node.lineno, f"{module}.{a.name}" if module == "tinput" else module) for a in node.names)


def room_of_module(module: str) -> str | None:
    """tinput.models.files -> models; app -> app; numpy -> None; tinput.open_model -> the room that it lives in"""
    parts = module.split(".")
    if parts[0] != "tinput":
        return parts[0] if parts[0] in ("pages", "app") else None
    if len(parts) == 1:
        return None
    from tinput import _MODULE_OF  # a public name counts as its home

    return None if parts[1] == "__version__" else _MODULE_OF.get(parts[1], parts[1])


def lines_for_types_alone(path: str) -> set[int]:
    """The lines under `if TYPE_CHECKING:`: what they name is not imported when the code runs."""
    blocks = [node for node in ast.walk(tree(path)) if isinstance(node, ast.If)]
    return {
        line
        for block in blocks
        if ast.unparse(block.test).endswith("TYPE_CHECKING")
        for line in range(block.lineno, (block.body[-1].end_lineno or block.lineno) + 1)
    }


def public_names_used(path: str) -> Iterator[tuple[int, str]]:
    """(line, tinput.name) of every public name taken as an attribute after a plain `import tinput`."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tinput":
            yield node.lineno, f"tinput.{node.attr}"


@pytest.mark.parametrize("path", ROOMS)
def test_imports_point_one_way(path):
    here = room(path)
    assert here in LEVEL, f"{path} is in no room of the house"
    wrong, types_alone = [], lines_for_types_alone(path)
    for line, module in (*imports(path), *public_names_used(path)):
        there = room_of_module(module)
        if there is None or there == here or line in types_alone:
            continue
        allowed = there in ONLY[here] if here in ONLY else there in LEVEL and LEVEL[there] < LEVEL[here]
        if not allowed:
            wrong.append(f"{path}:{line}: {here} imports {there}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", ROOMS)
def test_libraries_stay_in_their_rooms(path):
    here = room(path)
    wrong = [
        f"{path}:{line}: {here} imports {module}"
        for line, module in imports(path)
        if here not in LIBRARY_ROOMS.get(module.split(".")[0], LEVEL)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", [path for path in ROOMS if room(path) == "positions"])
def test_the_textbook_asks_nobody(path):
    """Beside torch and `window`: the standard library, and none of its ways to files or the network."""
    outside = {module.split(".")[0] for _, module in imports(path)} - {"torch", "tinput"}
    assert outside <= sys.stdlib_module_names, f"{path} imports {outside - sys.stdlib_module_names}"
    assert not outside & {"os", "io", "pathlib", "socket", "urllib", "subprocess"}


@pytest.mark.parametrize("path", [path for path in OURS if not path.startswith(tuple(MAY_NAME_SCHEMES))])
def test_a_scheme_is_named_in_its_own_file_alone(path):
    own = Path(path).stem if room(path) in ("positions", "pages") else None
    named = [
        f"{path}:{node.lineno}: {node.value!r}"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and node.value in SCHEMES and node.value != own
    ]
    assert not named, "a scheme is named outside its own file: " + ", ".join(named)


@pytest.mark.parametrize("path", PYTHON)
def test_a_file_says_what_it_is(path):
    assert ast.get_docstring(tree(path)), f"{path} has no docstring"


@pytest.mark.parametrize("package", [path for path in ROOMS if path.endswith("/__init__.py")])
def test_a_package_says_what_each_of_its_files_is(package):
    """But for the files that are found by being there: schemes and lessons."""
    folder, doc = Path(package).parent, ast.get_docstring(tree(package)) or ""
    listed = set(re.findall(r"^(\w+(?:\.py|/)) +\S", doc, re.M))
    here = [Path(path).relative_to(folder) for path in OURS if path != package and folder in Path(path).parents]
    found = {f"{path.parts[0]}/" if len(path.parts) > 1 else str(path) for path in here}
    found -= {str(path) for path in here if len(path.parts) == 1 and _is_found(str(folder / path))}
    assert listed == found


def test_the_rooms_are_named_where_a_newcomer_looks():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    map_of_rooms = text.partition("## The rooms")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(?:tinput/)?(\w+)", map_of_rooms, re.M)) == set(LEVEL)


def _is_found(path: str) -> bool:
    targets = [target for node in tree(path).body if isinstance(node, ast.Assign) for target in node.targets]
    return any(isinstance(target, ast.Name) and target.id in ("NAME", "LESSON") for target in targets)


@pytest.mark.parametrize("path", [path for path in FILES if Path(path).suffix in TEXT])
def test_no_file_holds_what_only_one_machine_has(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    for what, pattern in FORBIDDEN.items():
        found = pattern.search(text)
        assert found is None, f"{path}: {what}: {found[0] if found else ''}"


def test_nothing_large_or_unsafe_is_kept():
    """The bundled models are the largest thing here, and safetensors is the only form for weights."""
    assert not [path for path in FILES if Path(path).suffix in (".bin", ".pt", ".pth", ".pkl", ".pickle", ".npz")]
    weights = sum((ROOT / path).stat().st_size for path in FILES if path.startswith("tinput/twins/weights/"))
    assert weights < 14e6
    others = {path: (ROOT / path).stat().st_size for path in FILES if not path.startswith("tinput/twins/weights/")}
    assert not {path: size for path, size in others.items() if size > 400_000}
