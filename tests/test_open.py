"""open_model: what can be asked of a model before and beside a trace."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
import transformers

from tests import tiny
from tests.oracle import Checkpoint, checkpoint, open_model, some_ids
from tinput.errors import BadIds, BadModel, NotFound


def test_what_a_model_says_of_itself():
    made = checkpoint("mistral")
    model = made.model
    assert (model.name, model.folder, model.revision, model.bundled) == (str(made.folder), made.folder, None, False)
    assert (model.model_type, model.class_name, model.vocab_size) == ("mistral", "MistralForCausalLM", 320)
    assert model.checkpoint_dtype == "float32"
    assert model.config["sliding_window"] == 8
    assert type(model.config) is dict
    assert repr(model) == f"Model({str(made.folder)!r})"


def test_a_path_in_any_form(tmp_path, monkeypatch):
    shutil.copytree(checkpoint("bert").folder, tmp_path / "a model")
    monkeypatch.chdir(tmp_path)
    for name in (tmp_path / "a model", str(tmp_path / "a model"), f"{tmp_path / 'a model'}/", "./a model"):
        assert open_model(name).scheme == "learned"


@pytest.mark.parametrize("name", ["", " ", "no/such/folder/here", "/no/such/folder", "tinput/nothing", "\0"])
def test_a_name_of_nothing(name):
    with pytest.raises(BadModel) as caught:
        open_model(name)
    assert "\n" not in str(caught.value)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(BadModel):
        open_model(tmp_path / "model.safetensors")
    with pytest.raises(BadModel, match=r"config\.json"):
        open_model(tmp_path)


def test_a_bundled_model_has_two_names():
    short, long = open_model("rope"), open_model("tinput/rope")
    assert short.bundled
    assert long.bundled
    assert (short.scheme, short.layer_schemes) == (long.scheme, long.layer_schemes)
    assert torch.equal(short.trace("a cat").block_input, long.trace("a cat").block_input)
    with pytest.raises(NotFound):
        open_model("tinput/ropes")


def test_bundled_models_against_from_pretrained():
    from tinput import twins

    for name in twins.NAMES:
        folder = twins.folder(name)
        full = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        blocks = next(path for path, part in full.named_modules() if isinstance(part, torch.nn.ModuleList))
        ids = transformers.AutoTokenizer.from_pretrained(folder)("The cat sat; the other cat sat too.")["input_ids"]
        seen = Checkpoint(name, folder, full, {"decoder": f"{blocks}.0"}).run(ids)
        trace = open_model(name).trace("The cat sat; the other cat sat too.")
        assert trace.ids.tolist() == ids
        assert torch.equal(trace.block_input, seen.block_input[0])
        assert trace.checkpoint_dtype == "float16"


def test_rows_of_tables_are_the_checkpoints():
    for name, table in [("bert", "bert.embeddings.word_embeddings.weight"), ("gemma", "model.embed_tokens.weight")]:
        made = checkpoint(name)
        model, state = made.model, made.full.state_dict()
        index = torch.tensor([9, 5, 9, 0])
        assert model.embedding_name == table
        assert torch.equal(model.embedding_rows(index), state[table][index])
        assert torch.equal(model.table_rows(table, index), state[table][index])
        assert model.table_size(table) == 320
    table = checkpoint("opt").trace([5]).effects[0].table
    assert checkpoint("opt").model.table_size(table) == 130


def test_stacks():
    assert checkpoint("bart").model.stacks == ("encoder", "decoder")
    assert checkpoint("bert").model.stacks == ("encoder",)
    assert checkpoint("llama").model.stacks == ("decoder",)
    assert checkpoint("llama").model.stack("decoder") is checkpoint("llama").model.stack()
    for name, stack in [("llama", "encoder"), ("bert", "decoder"), ("bart", "both")]:
        with pytest.raises(BadIds):
            checkpoint(name).model.stack(stack)


def test_the_class_in_config_json_is_the_one_that_runs(tmp_path):
    """The same type with another head, and with none named."""
    import json

    config: Any = tiny.build("bert").config
    bare = transformers.BertModel(config).eval()
    bare.save_pretrained(tmp_path / "bare")
    model = open_model(tmp_path / "bare")
    assert model.class_name == "BertModel"
    seen = Checkpoint("bert", tmp_path, bare, {"encoder": "encoder.layer.0"}).run(some_ids(6))
    assert torch.equal(model.trace(ids=some_ids(6)).block_input, seen.block_input[0])
    file = tmp_path / "bare" / "config.json"
    config = json.loads(file.read_text())
    config.pop("architectures")
    file.write_text(json.dumps(config))
    assert torch.equal(open_model(tmp_path / "bare").trace(ids=some_ids(6)).block_input, seen.block_input[0])


def test_two_schemes_in_one_model(tmp_path):
    """MPNet adds a table and then a bias by bucket."""
    config = transformers.MPNetConfig(
        vocab_size=320,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=64,
    )
    torch.manual_seed(0)
    built = transformers.MPNetForMaskedLM(config)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    built.save_pretrained(tmp_path)
    full = transformers.MPNetForMaskedLM.from_pretrained(tmp_path).eval()
    made = Checkpoint("mpnet", tmp_path, full, {"encoder": "mpnet.encoder.layer.0"})
    ids = [0, 5, 1, 9, 2]  # 1 is the pad
    trace, seen = made.trace(ids), made.run(ids, output_attentions=True)
    assert made.model.schemes == trace.schemes == ("learned", "relative_bias")
    assert made.model.scheme == trace.scheme == "learned"
    assert made.model.layer_schemes == ("relative_bias", "relative_bias")
    assert torch.equal(trace.block_input, seen.block_input[0])
    assert trace.positions.tolist() == [2, 3, 1, 4, 5]
    assert torch.allclose(trace.attention.weights.tensor(), seen.result.attentions[0][0], atol=1e-5)
    assert [type(found.effect).__name__ for found in trace.effects] == ["Add", "Bias"]
    assert trace.agreement.ok is True, trace.agreement.message
    # set by hand, positions move the table's rows and not the bias, which counts for itself
    chosen = [7, 2, 9, 4, 30]
    trace, seen = made.trace(ids, positions=chosen), made.run(ids, position_ids=torch.tensor([chosen]))
    assert torch.equal(trace.block_input, seen.block_input[0])
    assert [found.positions.tolist() for found in trace.effects] == [chosen, [0, 1, 2, 3, 4]]
    assert trace.agreement.ok is True, trace.agreement.message
