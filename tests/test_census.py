"""The census: where positions enter every text architecture of transformers, found on its configuration alone.

test_census_recorded.py and test_census_recorded_2.py record the same models with weights.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from transformers import Phi3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tests import census, options
from tinput import atlas
from tinput.positions import SCHEMES
from tinput.positions.effects import Rotate


def test_every_type_has_a_configuration():
    assert len(census.TYPES) == 253
    assert set(atlas.kinds()) - set(census.TYPES) == {"gemma3n"}  # built with the timm package alone
    _, rows = atlas.load()
    assert "timm" in next(row["reason"] for row in rows if row["model_type"] == "gemma3n")


def test_the_readme_s_numbers_of_types_are_the_census_s_and_the_atlas_s():
    readme = " ".join((Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8").split())
    _, rows = atlas.load()
    assert f"{len(census.TYPES)} of its {len(rows)} types" in readme
    assert f"lists all {len(rows)} and has recorded {sum('reason' not in row for row in rows)}:" in readme


@pytest.mark.parametrize("kind", census.ENTRIES)
def test_found_without_weights(kind):
    assert census.found(kind) == census.expected(kind)
    error = census.anatomy(kind).error
    assert census.UNFINISHED.get(kind, "nothing") in error if error else kind not in census.UNFINISHED
    unpaired = any(
        injection.effect is Rotate and injection.fit is None
        for stack in census.anatomy(kind).stacks
        for injection in stack.injections
    )
    assert unpaired == (kind in census.UNPAIRED)


def test_how_many_are_found():
    """Pinned: the number of those that are not may only fall."""
    named = {
        kind: {part.split(" in ")[0] for part in " + ".join(census.expected(kind)).split(" + ")}
        for kind in census.TYPES
    }
    assert not [kind for kind, names in named.items() if names - {""} - set(SCHEMES)], "a scheme without a name"
    assert {kind for kind, names in named.items() if names == {""}} == set(census.UNREACHED)
    assert len(census.UNREACHED) == 3
    first = Counter(stacks[0].split(" ")[0] for kind in census.TYPES if (stacks := census.expected(kind)))
    assert first == {
        "rope": 158, "learned": 57, "sinusoidal": 10, "none": 10, "relative_bias": 8, "relative": 5, "alibi": 2
    }  # fmt: skip
    assert len(census.UNFINISHED) == 6
    assert len(census.UNPAIRED) == 1


def test_how_many_are_recorded():
    """Pinned: these numbers may only fall."""
    assert len(census.NOT_EXACT) == 4
    assert len(census.NOT_MATCHED) == 3
    assert len(census.NO_ATTENTION) == 16
    assert {*census.NOT_EXACT, *census.NOT_MATCHED, *census.NO_ATTENTION} <= set(census.ENTRIES)
    assert len(census.OPTIONS) == 46
    assert {kind for kind, _, _ in options.OPTIONS.values()} <= set(census.TYPES)


@pytest.mark.parametrize(
    ("kind", "rows"),  # of its table, and the first token's
    [("bert", (128, 0)), ("roberta", (128, 2)), ("opt", (130, 2)), ("longformer", (128, 2)), ("reformer", (8 * 16, 0))],
)
def test_rows_of_a_table(kind, rows):
    """Longformer pads a text to its window, and a pad has a row of its own; Reformer's table is kept in factors."""
    (way,) = census.anatomy(kind).stacks[0].injections
    assert (way.n_rows, way.first_row) == rows


@pytest.mark.parametrize("scaling", [scaling for scaling in options.SCALED if scaling != "longrope"])
def test_phi_3_has_one_scaling_alone(scaling):
    """Why it has not got every scaling among the options: its class refuses them."""
    said = {"rope_type": scaling, "rope_theta": 1e4, **options.SCALED[scaling]}
    with pytest.raises(Exception, match="longrope"):
        Phi3Config(rope_parameters=said, pad_token_id=1)


def test_every_scaling_of_transformers_is_among_the_options():
    for kind in ("llama", "gpt_neox", "deepseek_v3"):
        names = {name.partition(" (")[2].rstrip(")") for name in census.OPTIONS if name.startswith(f"{kind} (")}
        assert names == set(ROPE_INIT_FUNCTIONS)
