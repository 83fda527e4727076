"""The README's table of architectures is what the tests pin, and what the benchmark measures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import census as benchmark
from tests import census

EXPECTED = {result.name: result for result in benchmark.pinned()}


def test_the_readmes_table_is_what_the_census_pins():
    """Stale? Run `python -m benchmarks census`."""
    assert benchmark.table_in(benchmark.README.read_text(encoding="utf-8")) == benchmark.markdown(EXPECTED.values())


@pytest.mark.parametrize("name", ["bert", "mamba", "longt5", "voxtral_realtime", "falcon (alibi)"])
def test_what_is_measured_is_what_is_pinned(name):
    assert benchmark.measure(name) == EXPECTED[name]


def test_each_exception_has_a_reason():
    missing = {
        result.name for result in EXPECTED.values() if not (result.exact and result.matched and result.attention)
    }
    assert missing == set(census.WHY)


def test_a_model_that_no_longer_matches_is_in_the_table():
    results = [replace(EXPECTED["bert"], matched=False), EXPECTED["llama"], EXPECTED["mamba"], EXPECTED["t5 (6 heads)"]]
    table = benchmark.markdown(results)
    assert "| what positions inject, by the formula | 1 (1 have no positions) | 1 |" in table
    assert "| match | `bert` | not known yet |" in table
    assert "| attention | `mamba` | recurrent: no layer has attention |" in table


def test_only_what_is_between_the_markers_is_written(tmp_path):
    file = tmp_path / "README.md"
    file.write_text("before\n<!-- census -->\nold\n<!-- /census -->\nafter\n")
    for _ in range(2):
        benchmark.write([EXPECTED["bert"]], file)
    text = file.read_text()
    assert text.startswith("before\n<!-- census -->\n| transformers ")
    assert text.endswith("|\n<!-- /census -->\nafter\n")
    assert "old" not in text
    assert benchmark.table_in(text) == benchmark.markdown([EXPECTED["bert"]])
