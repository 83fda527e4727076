"""python -m tinput: the lines that it prints, and what it says when something is wrong."""

import re
import subprocess
import sys

import pytest

import tinput
from tinput.__main__ import main, printable
from tinput.twins import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_prints_what_the_public_surface_has(name, capsys):
    assert main([name, "the cat sat on the cat"]) == 0
    printed = capsys.readouterr().out
    model = tinput.open_model(name)
    trace = model.trace("the cat sat on the cat")
    lines = dict(re.findall(r"^(\w+) +(.*)$", printed, re.MULTILINE))
    assert lines["scheme"] == model.scheme == name.split("/")[1]
    assert lines["reason"] == model.reason
    assert lines["agreement"] == trace.agreement.message
    assert lines["model"] == f"{name}, run in float32, stored in float16"
    assert lines["tokens"].startswith(f"{len(trace.ids)}: ")
    for number, stage in enumerate(trace.stages, 1):
        assert re.search(rf"^ +{number}  {re.escape(stage.name)} .* × 1?\d\d .*{stage.op}", printed, re.MULTILINE)


def test_a_short_name_is_enough(capsys):
    assert main(["rope", "x"]) == 0
    assert capsys.readouterr().out.startswith("model      tinput/rope")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["tinput/rope", ""], "text"),
        (["no-such-model", "x"], "no-such-model"),
        (["tinput/rope", "half \ud83d here"], "surrogate"),
    ],
)
def test_an_error_is_one_sentence_on_stderr(arguments, says, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(rf"tinput: [^\n]*{says}[^\n]*\n", captured.err)


def test_nothing_typed_steers_the_terminal(capsys):
    assert main(["tinput/rope", "a\x1b[31mred\x07"]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "\x07" not in printed
    assert printable("é漢 \x1b[0m\u202e") == "é漢 \\x1b[0m\\u202e"


def test_it_runs_as_a_command():
    command = [sys.executable, "-m", "tinput", "tinput/none", "hello"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nscheme     none\n" in done.stdout
