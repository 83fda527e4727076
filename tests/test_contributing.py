"""CONTRIBUTING.md's walk through a new scheme is one that works: its files are added to a copy, and their test runs."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMED_BLOCK = re.compile(r"<!-- (\S+) -->\n```python\n(.*?)```", re.DOTALL)


@pytest.fixture
def copy(tmp_path):
    """The package, its tests of schemes and the house's walls, with the files that the guide says to write."""
    for folder in ("tinput", "tests/positions"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "weights"))
    for file in ("pyproject.toml", "tests/conftest.py", "tests/test_house.py"):
        shutil.copy(ROOT / file, tmp_path / file)
    blocks = dict(NAMED_BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    assert sorted(blocks) == ["tests/positions/test_kerple.py", "tinput/positions/kerple.py"]
    for path, text in blocks.items():
        (tmp_path / path).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)  # test_house asks git for the files
    return tmp_path


def test_the_new_scheme_passes_its_tests_and_those_of_every_scheme(copy):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += ["tests/positions", "tests/test_house.py", "-k", "kerple or test_schemes"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "kerple" not in (ROOT / "tinput/positions/__init__.py").read_text()


def test_its_code_passes_the_linters(copy):
    for command in (["format", "--diff"], ["check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "tinput/positions/kerple.py", "tests/positions/test_kerple.py"],
            cwd=copy,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def test_every_path_that_the_guide_names_exists():
    """Beside the files that it says to write, and placeholders."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:tinput|pages|tests|\.ci)/[\w./]*)`", NAMED_BLOCK.sub("", text)))
    missing = {path for path in named if not (ROOT / path).exists() and "kerple" not in path}
    assert named
    assert not missing
