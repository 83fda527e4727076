"""The bundled atlas is what the recorder gives with the installed transformers; a sample of it against known facts."""

from __future__ import annotations

import os

import pytest
import transformers

from tinput import atlas

# Of each kind some, small enough to record again with every run; all with TINPUT_WHOLE_ATLAS=1.
SAMPLE = (
    "bert gpt2 llama gemma3_text mpnet t5 marian xlnet gpt_neox gptj smollm3 phi3 opt mamba bloom dbrx".split()
)  # fmt: skip
VERSION, ROWS = atlas.load()
BY_KIND = {row["model_type"]: row for row in ROWS}


def test_it_is_of_the_installed_transformers_and_holds_every_text_model():
    assert transformers.__version__ == VERSION
    assert list(BY_KIND) == list(atlas.kinds())


@pytest.mark.parametrize("kind", atlas.kinds() if os.environ.get("TINPUT_WHOLE_ATLAS") else SAMPLE)
def test_recorded_again_it_is_the_same(kind):
    assert {"model_type": kind, **atlas.row(kind)} == BY_KIND[kind], "write it anew: python -m tinput.atlas"


def test_how_many_are_not_had():
    """Pinned: the number may only fall, and each says why."""
    without = [row for row in ROWS if "reason" in row]
    assert len(without) == 23
    assert all(len(row["reason"]) > 20 for row in without)


@pytest.mark.parametrize(
    ("kind", "theta"),  # published: config.json of each model
    [("llama", 10_000), ("smollm3", 2_000_000), ("gptj", 10_000), ("gpt_neox", 10_000), ("gpt_oss", 150_000)],
)
def test_theta_is_measured_right(kind, theta):
    (way,) = BY_KIND[kind]["injections"]
    assert way["theta"] == pytest.approx(theta, rel=1e-3)
    assert way["slowed"] == 1


def test_known_facts():
    gemma = BY_KIND["gemma3_text"]  # five local layers to a global one, with a theta each; rows times the root of width
    assert [way["theta"] for way in gemma["injections"]] == [10_000, 1_000_000]
    assert gemma["scale"] == f"× {gemma['width'] ** 0.5:.4g}"
    assert gemma["norm"] is None
    assert BY_KIND["gptj"]["injections"][0]["layout"] == "interleaved"
    assert (BY_KIND["gpt_neox"]["injections"][0]["rotated"], BY_KIND["gpt_neox"]["d_head"]) == (24, 96)
    assert (BY_KIND["opt"]["injections"][0]["rows"], BY_KIND["opt"]["injections"][0]["first_row"]) == (2050, 2)
    assert BY_KIND["bert"]["norm"] == "layer norm"
    assert BY_KIND["bert"]["segments"]
    assert BY_KIND["deepseek_v3"]["injections"][0]["start"] == 128  # 64 dimensions after 128 that do not turn
    assert BY_KIND["smollm3"]["stacks"] == ["rope in 27 of 36 layers"]
    assert BY_KIND["mamba"]["attention_layers"] == 0


def test_what_the_survey_did_not_reach_is_none_with_a_reason():
    for row in ROWS:
        if "reason" not in row:
            assert row["layers"] >= 1
            for way in row["injections"]:
                assert way["scheme"] == "unknown" or way["layers"]


def test_write_keeps_the_rows_that_it_was_not_asked_for(tmp_path, capsys):
    copy = tmp_path / "atlas.json"
    copy.write_bytes(atlas.FILE.read_bytes())
    atlas.write(["bert"], copy)
    assert copy.read_bytes() == atlas.FILE.read_bytes()
    assert capsys.readouterr().out == "bert: learned\n"


def test_a_search_wants_every_word_whatever_its_case():
    names = [row["model_type"] for row in atlas.matching(ROWS, "RoPE INTERLEAVED")]
    assert "gptj" in names
    assert "llama" not in names
    assert atlas.matching(ROWS, " ") == list(ROWS)
    assert atlas.matching(ROWS, "no such thing") == []


def test_counts_are_of_the_rows_and_the_missing_come_last():
    labels, values, colours = atlas.counts([BY_KIND[kind] for kind in ("llama", "gptj", "bloom", "dbrx")])
    assert (labels, values) == (["RoPE", "ALiBi", "not recorded"], [2, 1, 1])
    assert len(set(colours)) == 3
    assert atlas.counts([]) == ([], [], [])


def test_a_table_has_the_columns_that_some_row_fills():
    table = atlas.table(atlas.matching(ROWS, "alibi"))
    assert list(table["architecture"]) == ["bloom", "mpt"]
    assert "theta" not in table
    assert str(table["context"].dtype) == "Int64"  # whole, though one is missing
    assert len(atlas.table(ROWS)) == len(ROWS)
    assert len(atlas.table([])) == 0
