"""The benchmark's own arithmetic: its table, and what it says is touched."""

import json

import pytest

from benchmarks import models
from benchmarks.__main__ import main
from benchmarks.table import Row, table


def test_a_row_is_met_when_its_ratio_is_at_most_the_aim():
    assert Row("x", 100, 500, "y", "ms", 0.2).met
    assert not Row("x", 101, 500, "y", "ms", 0.2).met
    assert Row("x", 1e9, 1, "y", "ms").met  # no aim


def test_the_table_states_values_ratio_and_aim():
    shown = table([Row("open", 321.5, 1800, "theirs", "ms", 0.2), Row("memory", 9.25, 4.0, "theirs", "MB", 1.0)])
    _, first, second = shown.splitlines()
    assert first.split() == "open 322 ms 1,800 ms theirs 0.18 ≤ 0.2 met".split()
    assert second.split() == "memory 9.2 MB 4.0 MB theirs 2.31 ≤ 1 NOT MET".split()


def test_what_is_touched_is_rows_and_three_projections(tmp_path):
    config = {"hidden_size": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 3, "vocab_size": 99}
    (tmp_path / "config.json").write_text(json.dumps(config))
    rows = models.TOKENS * 8
    projections = 8 * 12 + 2 * 8 * 6
    norms = 3 * 8
    assert models._touched(tmp_path) == 4 * (rows + projections + norms)


def test_the_big_llama_has_over_a_billion_parameters():
    shape = models.LLAMA
    width, hidden, layers = shape["hidden_size"], shape["intermediate_size"], shape["num_hidden_layers"]
    key_value = width * shape["num_key_value_heads"] // shape["num_attention_heads"]
    layer = 2 * width * width + 2 * width * key_value + 3 * width * hidden + 2 * width
    assert 1.2e9 < shape["vocab_size"] * width + layers * layer + width < 1.3e9


def test_an_unknown_part_is_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["benchmarks", "nope"])
    with pytest.raises(SystemExit):
        main()
    assert "there is no part nope" in capsys.readouterr().err
