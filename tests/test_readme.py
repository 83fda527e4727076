"""What README.md says is true: its code runs, its sample output is what the program prints, its files are there."""

import contextlib
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
    assert printed.getvalue().startswith("rope ['token embedding'")
    assert "matches" in printed.getvalue()


def test_the_sample_output_is_what_is_printed(capsys):
    [(model, text, sample)] = re.findall(
        r'```console\n\$ python -m tinput (\S+) "([^"]+)"\n(.*?)```', README, re.DOTALL
    )
    assert main([model, text]) == 0
    printed = capsys.readouterr().out
    # the last digits of a difference between two correct computations are the machine's own
    assert re.sub(r"[\d.]+(e-\d+)?", "#", printed.rstrip()) == re.sub(r"[\d.]+(e-\d+)?", "#", sample.rstrip())
    assert printed.splitlines()[:3] == sample.splitlines()[:3]


def test_every_make_target_that_is_named_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    texts = README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\bmake ([a-z]+)", re.sub(r"`make`.*", "", texts))) - {"sure"} <= targets


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#]+)\)", README))
def test_a_link_leads_somewhere(link):
    assert "://" in link or (ROOT / link).exists()


def test_the_picture_is_small():
    assert (ROOT / "docs/app.png").stat().st_size <= 300_000
