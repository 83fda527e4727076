"""What all schemes share: the names that each file exports, and that the textbook asks no library."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from tinput.positions import SCHEMES, Add, Bias, Content, Nothing, Rotate

COLOURS = {  # Okabe and Ito's
    "sinusoidal": "#0072B2",
    "learned": "#E69F00",
    "rope": "#CC79A7",
    "alibi": "#009E73",
    "relative_bias": "#56B4E9",
    "relative": "#D55E00",
    "none": "#999999",
}


def test_the_seven_schemes_and_their_colours():
    assert {name: SCHEMES[name].COLOUR for name in COLOURS} == COLOURS
    assert len({scheme.COLOUR for scheme in SCHEMES.values()}) == len(SCHEMES)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_exports_what_the_pages_ask_for(name):
    scheme = SCHEMES[name]
    assert name == scheme.NAME
    for constant in ("LABEL", "INJECTION", "FORMULA", "PAPER"):
        assert getattr(scheme, constant).strip()
    assert all(isinstance(variant, str) for variant in scheme.variants({}))
    assert scheme.variants({})


CONFIG = {"hidden_size": 16, "num_attention_heads": 2, "max_position_embeddings": 64, "pad_token_id": 1}
CONFIG |= {"rel_extent": 32, "num_buckets": 32, "relative_max_distance": 128}
TABLE = torch.arange(64.0 * 16).reshape(64, 16) / 100
WITH = {"rows": lambda index: TABLE[index], "n_rows": 64, "width": 16, "heads": 2, "keys": 5, "stack": "decoder"}


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("positions", [torch.arange(5), torch.tensor([0]), torch.tensor([7, 3, 60])])
def test_every_variant_predicts_and_is_explained(name, positions):
    scheme = SCHEMES[name]
    for variant in ("", *scheme.variants(CONFIG)):
        effect = scheme.predict(CONFIG, positions, variant=variant, **WITH | {"keys": len(positions)})
        sentences = scheme.notice(effect, positions)
        assert len(sentences) <= 3
        assert all(sentence.endswith(".") and "nan" not in sentence for sentence in sentences)
        if len(positions) > 1:
            assert sentences


def test_relative_has_no_formula_for_the_scores_and_says_so():
    relative = SCHEMES["relative"]
    assert relative.predict(CONFIG, torch.arange(3)) is None
    assert all(relative.predict(CONFIG, torch.arange(3), variant=name).scores is None for name in relative.VARIANTS)
    assert "no formula" in relative.REASON
    shares = Content(torch.tensor([[[-1.5, 2.25]]]))
    said = " ".join(relative.notice(shares, torch.arange(2)))
    assert "-1.50" in said
    assert "2.25" in said


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"effect": Add, "looked_up": True}, ["learned"]),
        ({"effect": Add}, ["sinusoidal"]),
        ({"effect": Rotate}, ["rope"]),
        ({"effect": Bias, "looked_up": True}, ["relative_bias"]),
        ({"effect": Bias, "bend": 0.001}, ["alibi"]),
        ({"effect": Bias, "bend": 0.7}, []),  # computed and not linear: no scheme that we know
        ({"effect": Content}, ["relative"]),
        ({"effect": Nothing}, ["none"]),
    ],
)
def test_one_scheme_at_most_recognises_what_was_found(found, expected):
    assert [name for name, scheme in SCHEMES.items() if scheme.recognise(**found)] == expected


def test_none_is_nothing():
    assert isinstance(SCHEMES["none"].predict(CONFIG, torch.arange(3)), Nothing)


WITHOUT_LIBRARY = """
import sys
for name in ("transformers", "tokenizers", "huggingface_hub", "numpy.ma", "streamlit", "plotly"):
    sys.modules[name] = None  # an import of it raises
import torch
from tinput.positions import SCHEMES
table = torch.ones(64, 16)
config = {"hidden_size": 16, "num_attention_heads": 2, "max_position_embeddings": 64,
          "rope_theta": 5e5, "rope_scaling": {"type": "yarn", "factor": 4.0}}
for scheme in SCHEMES.values():
    effect = scheme.predict(config, torch.arange(5), rows=lambda i: table[i], n_rows=64)
    print(scheme.NAME, type(effect).__name__, bool(scheme.notice(effect, torch.arange(5))))
"""


def test_the_textbook_runs_with_transformers_unimportable():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIBRARY], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) >= {
        "sinusoidal Add True",
        "learned Add True",
        "rope Rotate True",
        "alibi Bias True",
        "relative_bias Bias True",
        "relative NoneType True",
        "none Nothing True",
    }
