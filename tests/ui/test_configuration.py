"""A model without weights that can be read: what the page still shows, and how to go on."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import tinput
from tests import app, hub_repos, makers, tiny
from tinput.errors import NoWeights

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
    "max_position_embeddings": 2048,
    "rope_theta": 500000.0,
}


def folder(tmp_path, config) -> str:
    (tmp_path / "config.json").write_text(json.dumps(config))
    return str(tmp_path)


@pytest.mark.parametrize("page", ["pipeline", "rope", "side_by_side"])
def test_the_configuration_alone_gives_scheme_angles_and_sizes(tmp_path, page):
    at = app.show(page, "any text", model=folder(tmp_path, LLAMA))
    assert "has no weights" in app.trouble(at)
    assert "revision" not in app.trouble(at)  # a folder has none
    labels = [label for label, _ in app.badges(at)]
    assert labels[0].startswith("RoPE")
    assert "from the configuration alone: nothing is recorded" in labels
    assert any(label.startswith("matches transformers") for label in labels)
    shown = app.heat(app.figures(at)[0])
    expected = torch.arange(64)[:, None] * 500000.0 ** (-torch.arange(0, 16, 2) / 16)  # Su et al. 2021, section 3.2.2
    np.testing.assert_allclose(shown, expected.numpy() % (2 * np.pi), atol=1e-4)
    assert "2,048" in app.words(at)
    assert at.text_area(key="text").value == "any text"


def test_weights_that_are_pickles_are_read_by_a_button_that_the_sentence_names(tmp_path):
    tiny.make("gpt2", tmp_path / "whole", vocab_size=400)
    makers.byte_level().save_pretrained(tmp_path / "whole")
    name = str(hub_repos.pickled(tmp_path / "whole", tmp_path / "pickled"))
    at = app.show("pipeline", "a cat", model=name)
    button = at.button(key=f"pickle-{name}")
    assert f"press “{button.label}”, which reads all of it, as tensors only." in app.trouble(at)
    assert "open_model" not in app.trouble(at)
    button.click().run()
    assert not at.exception
    assert not app.trouble(at)
    assert app.badges(at)[0][0].startswith("Learned")
    with pytest.raises(NoWeights, match=r"open it by tinput.open_model\(..., allow_pickle=True\), which reads all of"):
        tinput.open_model(name).trace("a cat")


def test_what_is_learned_is_not_made_up(tmp_path):
    config = {**LLAMA, "model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 64}
    at = app.show("learned", "any text", model=folder(tmp_path, config))
    assert app.badges(at)[0][0].startswith("Learned")
    assert not app.figures(at)
    assert "64" in app.words(at)


def test_code_of_the_checkpoint_is_not_run_but_its_sizes_are_shown(tmp_path):
    config = {"model_type": "theirs", "auto_map": {"AutoModel": "m.M"}, "hidden_size": 4096, "num_attention_heads": 32}
    at = app.show("pipeline", "any text", model=folder(tmp_path, config))
    assert "never runs code" in app.trouble(at)
    assert "4,096" in app.words(at)
