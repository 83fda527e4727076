"""The bundled models: real transformers models, alike but for their scheme, and as good as their README says."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer

import tinput
from tinput import twins
from tinput.errors import BadIds, NotFound, TooLong
from tinput.twins.train import evaluate

SCHEMES = [name.removeprefix("tinput/") for name in twins.NAMES]
TEXT = "It is a truth universally acknowledged, that the cat sat on the cat."


@pytest.fixture(scope="module", params=SCHEMES)
def scheme(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def model(scheme) -> Any:
    return AutoModelForCausalLM.from_pretrained(twins.folder(scheme), dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(twins.folder("none"))


@pytest.fixture(scope="module")
def ids(tokenizer) -> Tensor:
    return torch.tensor([tokenizer.encode(TEXT)])


def test_names_and_folders():
    assert twins.NAMES == (
        "tinput/sinusoidal",
        "tinput/learned",
        "tinput/rope",
        "tinput/alibi",
        "tinput/relative_bias",
        "tinput/none",
    )
    assert twins.folder("rope") == twins.folder("tinput/rope")
    with pytest.raises(NotFound, match="no bundled model is called 'rotary': choose one of tinput/sinusoidal"):
        twins.folder("rotary")


def test_they_differ_in_scheme_alone():
    configs = [json.loads((twins.folder(scheme) / "config.json").read_text()) for scheme in SCHEMES]
    assert [config.pop("scheme") for config in configs] == SCHEMES
    assert all(config == configs[0] for config in configs)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert len({(twins.folder(scheme) / file).read_bytes() for scheme in SCHEMES}) == 1
    facts = [json.loads((twins.folder(scheme) / "training.json").read_text()) for scheme in SCHEMES]
    assert len({(f["seed"], f["steps"], f["tokens_seen"]) for f in facts}) == 1


def test_all_six_are_small():
    files = [path for path in twins.WEIGHTS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 14e6
    assert {path.suffix for path in files} <= {".json", ".safetensors", ".md", ".txt"}


def test_loads_through_the_auto_classes(scheme, model):
    assert type(model) is twins.TwinForCausalLM
    assert model.config.scheme == scheme
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert isinstance(AutoConfig.from_pretrained(twins.folder(scheme)), twins.TwinConfig)
    base, report = AutoModel.from_pretrained(twins.folder(scheme), output_loading_info=True)
    assert type(base) is twins.TwinModel
    assert base.dtype == torch.float16  # as stored, unless a dtype is asked for
    assert not report["missing_keys"]
    assert not report["mismatched_keys"]


def test_its_loss_is_what_the_readme_says(scheme, model, tokenizer):
    readme = (twins.WEIGHTS / "README.md").read_text(encoding="utf-8")
    [said] = re.findall(rf"^\| {scheme} \|.*\| (\d\.\d+) \|$", readme, re.MULTILINE)  # the last column of its row
    opening = twins.HELD_OUT.read_bytes()[:6000].decode(errors="ignore")
    held_out = torch.tensor(tokenizer.encode(opening))
    nats = evaluate(model, held_out, model.config.max_position_embeddings)
    assert nats is not None
    assert nats == pytest.approx(float(said), abs=0.006)
    assert nats < 4  # an untrained one has log(1024) = 6.9


def test_loss_is_the_mean_over_next_tokens(model, ids):
    out = model(ids, labels=ids)
    assert out.logits.shape == (1, ids.shape[1], model.config.vocab_size)
    assert out.logits.isfinite().all()
    expected = -out.logits.log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None]).mean()
    torch.testing.assert_close(out.loss, expected)


def test_block_input_is_build_input(scheme, model, tokenizer):
    """Bit for bit: rows times sqrt(128), plus positions where they are added."""
    seen = []
    hook = model.model.layers[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model(torch.tensor([tokenizer.encode(TEXT)]))
    hook.remove()
    table = model.model.position_table.weight if scheme == "learned" else None
    embedding = model.get_input_embeddings().weight
    expected = tinput.build_input(TEXT, tokenizer, embedding, scheme, positions_table=table, scale=True)
    assert torch.equal(seen[0][0], expected)


def test_attention_is_the_textbooks(scheme, model):
    layer = model.model.layers[1].self_attn
    x = torch.randn(2, 11, 128, generator=torch.Generator().manual_seed(0))
    table = model.model.position_table.weight if scheme == "relative_bias" else None
    w = (layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight)
    expected = layer.o_proj(tinput.attention(x, *w, 4, scheme, bias_table=table))
    actual = layer(x, model.model.effect(torch.arange(11)))
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-5)


def test_it_looks_back_only(model, ids):
    changed = ids.clone()
    changed[0, -1] = 5
    torch.testing.assert_close(model(ids).logits[:, :-1], model(changed).logits[:, :-1])


def test_a_shift_matters_to_absolute_positions_alone(scheme, model, ids):
    here = torch.arange(ids.shape[1])[None]
    first, moved = model(ids).logits, model(ids, position_ids=here + 40).logits
    assert torch.equal(first, model(ids, position_ids=here).logits)
    if scheme in ("sinusoidal", "learned"):
        assert (first - moved).abs().max() > 0.1
    else:
        torch.testing.assert_close(first, moved, atol=2e-3, rtol=1e-3)


def test_order_matters_unless_there_are_no_positions(scheme, model, ids):
    """The last layer's view of the last token when the two before it change place: a sum that has no order, or has."""
    effect, layer = model.model.effect(torch.arange(ids.shape[1])), model.model.layers[0]
    x = model.get_input_embeddings()(ids) * 128**0.5
    turned = x[:, [*range(ids.shape[1] - 3), -2, -3, -1]]
    if scheme in ("sinusoidal", "learned"):
        x, turned = x + effect.vectors, turned + effect.vectors
    gap = (layer(x, effect)[0, -1] - layer(turned, effect)[0, -1]).abs().max()
    assert gap < 1e-5 if scheme == "none" else gap > 1e-4


def test_padding_on_the_left_changes_nothing(model, ids):
    padded = torch.cat((torch.full((1, 3), 7), ids), dim=1)
    mask = (torch.arange(padded.shape[1]) >= 3)[None].long()
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    both = torch.cat((padded, torch.cat((ids, ids[:, :3]), dim=1)))
    out = model(
        both, torch.cat((mask, torch.ones_like(mask))), torch.cat((positions, torch.arange(both.shape[1])[None]))
    )
    alone = model(ids).logits[0]
    torch.testing.assert_close(out.logits[0, 3:], alone, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(out.logits[1, :-3], alone, atol=1e-4, rtol=1e-4)


def test_only_the_table_has_an_end(scheme, model):
    ids = torch.randint(1024, (1, 257), generator=torch.Generator().manual_seed(0))
    if scheme != "learned":
        assert model(ids).logits.isfinite().all()
        return
    assert model(ids[:, :256]).logits.isfinite().all()
    with pytest.raises(TooLong, match="position 256 has no row: the position table has 256") as raised:
        model(ids)
    assert raised.value.usable == 256


def test_runs_as_stored(scheme, ids):
    half = AutoModelForCausalLM.from_pretrained(twins.folder(scheme))
    out = half(ids)
    assert out.logits.dtype == torch.float16
    assert out.logits.isfinite().all()


def test_generates(model, ids):
    out = model.generate(ids, max_new_tokens=3, do_sample=False)
    expected = ids
    for _ in range(3):
        expected = torch.cat((expected, model(expected).logits[:, -1].argmax(-1, keepdim=True)), dim=1)
    assert torch.equal(out, expected)


def test_says_which_ids_it_cannot_take(model):
    with pytest.raises(BadIds, match="at least one id"):
        model(torch.zeros(1, 0, dtype=torch.long))
    with pytest.raises(BadIds, match="do not fit"):
        model(torch.zeros(1, 3, dtype=torch.long), position_ids=torch.arange(4)[None])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scheme": "rotary"}, "scheme is 'rotary'; choose one of"),
        ({"num_attention_heads": 3}, "3 heads do not divide hidden_size 128"),
    ],
)
def test_a_model_that_cannot_be(change, says):
    with pytest.raises(ValueError, match=says):
        twins.TwinForCausalLM(twins.TwinConfig(**change))


@pytest.mark.parametrize("text", ["The cat’s mat — déjà vu", "🦙 漢字 שלום", "a\tb\n\n  c\x00", "<s> $x$ **b**", "  "])
def test_any_text_comes_back(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert max(ids) < len(tokenizer) == 1024
    assert tokenizer.bos_token_id not in ids  # not added by itself


def test_the_start_token_can_be_written(tokenizer):
    assert tokenizer.encode(tokenizer.bos_token + "The") == [0, *tokenizer.encode("The")]
