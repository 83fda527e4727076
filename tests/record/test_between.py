"""Between q k^T and the softmax: caps, segments, sinks, against the weights that transformers itself returns."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
import transformers
from transformers import CONFIG_MAPPING

from tests import census
from tests.oracle import checkpoint, open_model, some_ids


def opened(kind: str, folder: Any, **changes: Any) -> tuple[Any, Any]:
    """A tiny checkpoint of any type: the folder through open_model, and transformers' own with its eager attention."""
    config = census.configuration(kind).to_dict() | changes
    config = CONFIG_MAPPING[kind].from_dict(config)
    name = census.configuration(kind).architectures[0]
    torch.manual_seed(0)
    built = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    built.save_pretrained(folder)
    return open_model(folder), type(built).from_pretrained(folder, attn_implementation="eager").eval()


def whole(attention: Any) -> torch.Tensor:
    """softmax of all the parts."""
    logits = attention.scores.tensor() + attention.bias.tensor() + attention.mask.tensor()
    if attention.other is not None:
        logits = logits + attention.other.tensor()
    if attention.sinks is not None:
        beside = attention.sinks.reshape(len(logits), -1, 1).expand(*logits.shape[:2], 1)
        return torch.cat((logits, beside), dim=-1).softmax(-1)[..., :-1]
    return logits.softmax(-1)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("gemma2", {"attn_logit_softcapping": 0.5}),
        ("vaultgemma", {"attn_logit_softcapping": 0.5}),
        ("funnel", {}),
        ("doge", {}),
        ("doge", {"keep_window_size": 5}),
        ("inkling2_text", {}),
        ("gpt_oss", {}),
    ],
)
def test_the_parts_make_the_weights_that_the_model_returns(kind, changes, tmp_path):
    model, eager = opened(kind, tmp_path, **changes)
    ids = some_ids(12)
    attention = model.trace(ids=ids, stack=model.stacks[0] if len(model.stacks) > 1 else None).attention
    inputs = {} if kind in ("funnel",) else {"use_cache": False}
    with torch.no_grad():
        expected = eager(torch.tensor([ids]), output_attentions=True, **inputs).attentions[0][0][..., :12]
    assert torch.allclose(attention.weights.tensor(), expected, atol=1e-5)
    assert torch.allclose(whole(attention), expected, atol=1e-5)
    bias = attention.bias
    for head in range(attention.heads):
        assert torch.allclose(attention.weights_with(head, bias[head].tensor()), expected[head], atol=1e-5)
        assert torch.allclose(attention.weights[head].tensor(), expected[head], atol=1e-5)


def test_a_cap_is_shown_as_what_it_takes_away(tmp_path):
    """Gemma 2: c tanh(scores / c); q and k as the whole model's own projections make them."""
    model, _ = opened("gemma2", tmp_path, attn_logit_softcapping=0.5)
    attention = model.trace(ids=some_ids(12)).attention
    scores = attention.scale * attention.q @ attention.k.repeat_interleave(2, dim=0).transpose(-1, -2)
    assert attention.cap == 0.5
    assert float(scores.abs().max()) > 1  # the cap bites
    assert torch.allclose(attention.scores.tensor(), scores, atol=1e-5)
    assert torch.allclose(attention.other.tensor(), 0.5 * torch.tanh(scores / 0.5) - scores, atol=1e-5)


def test_segments_are_no_positions(tmp_path):
    """Funnel adds q times a vector of the segment: in `other`, not in what positions add."""
    model, eager = opened("funnel", tmp_path)
    ids = some_ids(9)
    attention = model.trace(ids=ids, stack="encoder").attention
    layer = eager.funnel.encoder.blocks[0][0].attention
    with torch.no_grad():
        q = layer.q_head(eager.funnel.embeddings(torch.tensor([ids])))[0].view(9, 4, 16) * layer.scale
        same = torch.einsum("qhd,hd->hq", q + layer.r_s_bias * layer.scale, layer.seg_embed[1])  # (heads, query)
    expected = same[..., None].expand(4, 9, 9).clone()
    expected[:, 0], expected[:, :, 0] = 0, 0  # <cls> stands outside
    assert torch.allclose(attention.other.tensor(), expected, atol=1e-5)


def test_a_sink_that_each_query_makes(tmp_path):
    model, eager = opened("inkling2_text", tmp_path)
    ids = some_ids(12)
    attention = model.trace(ids=ids).attention
    seen = []
    layer = eager.get_submodule(model.stack().paths[0])
    eager_sink = next(module for name, module in layer.named_modules() if name.endswith("sink_proj"))
    eager_sink.register_forward_hook(lambda _, __, out: seen.append(out[0].T.clone()))
    with torch.no_grad():
        eager(torch.tensor([ids]), use_cache=False)
    assert attention.sinks.shape == (4, 12)
    assert torch.allclose(attention.sinks, seen[0], atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "t5", "falcon-alibi", "bloom", "gpt_oss", "xlnet", "mistral", "bert"])
def test_where_nothing_else_is_added_nothing_is_said(name):
    attention = checkpoint(name).trace(some_ids(20)).attention
    assert attention.other is None
    assert attention.cap is None


def test_saved_with_the_rest(tmp_path):
    import numpy as np

    model, _ = opened("gemma2", tmp_path, attn_logit_softcapping=0.5)
    trace = model.trace(ids=some_ids(6))
    with np.load(trace.save(tmp_path / "all.npz")) as saved:
        assert np.array_equal(saved["attention_other"], trace.attention.other.tensor().numpy())


def test_a_decoder_that_looks_at_both_texts_in_one_has_the_encoders_real_keys(tmp_path):
    """T5Gemma 2: its keys are the decoder's, then those made of the encoder's output, which must have been run."""
    model, _ = opened("t5gemma2", tmp_path)
    whole_model = transformers.T5Gemma2ForConditionalGeneration.from_pretrained(tmp_path).eval()
    ids = some_ids(12)
    layer = model.stack("decoder").paths[0]
    block = whole_model.get_submodule(layer)
    calls: list[Any] = []
    inner = torch.nn.functional.scaled_dot_product_attention

    def spy(query, key, *rest, **more):
        calls.append((query[0], key[0], more.get("attn_mask"), more["scale"]))
        return inner(query, key, *rest, **more)

    block.register_forward_pre_hook(lambda *_: calls.clear())
    block.register_forward_hook(lambda *_: kept.append(calls[0]))
    kept: list[Any] = []
    with torch.no_grad(), mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", spy):
        whole_model(input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([ids]))
    query, key, mask, scale = kept[0]
    attention = model.trace(ids=ids, stack="decoder").attention
    assert attention.k.shape == (2, 24, 24)
    assert torch.equal(attention.q, query)
    assert torch.equal(attention.k.repeat_interleave(2, dim=0), key)
    logits = scale * query @ key.transpose(-1, -2)
    logits = logits.masked_fill(~mask[0], -torch.inf) if mask.dtype == torch.bool else logits + mask[0]
    assert torch.allclose(attention.weights.tensor(), logits.softmax(-1), atol=1e-5)


@pytest.mark.parametrize("length", [1, 5, 8])
def test_local_attention_of_a_text_in_one_block(length, tmp_path):
    """LongT5's encoder: of its (query, 3 * query) scores those of the text, without padding and empty neighbours."""
    model, eager = opened("longt5", tmp_path, local_radius=7)
    ids = some_ids(length)
    trace = model.trace(ids=ids, stack="encoder")
    with torch.no_grad():
        blocks = eager.encoder(torch.tensor([ids]), output_attentions=True).attentions[0]
    assert blocks.shape == (1, 1, 4, 8, 24)
    expected = blocks[0, 0, :, :length, 8 : 8 + length]
    assert torch.allclose(expected.sum(-1), torch.ones(4, length))  # nothing is given to what was cut off
    assert torch.equal(trace.attention.weights.tensor(), expected)
    assert torch.allclose(whole(trace.attention), expected, atol=1e-5)
    layer = eager.encoder.block[0].layer[0].LocalSelfAttention
    with torch.no_grad():
        bias = layer.compute_bias(8)[0, 0, :, :length, 8 : 8 + length]
    assert torch.equal(trace.effect.scores, bias)
    assert trace.agreement.ok is True


def test_local_attention_of_a_longer_text_is_refused(tmp_path):
    model, _ = opened("longt5", tmp_path, local_radius=7)
    trace = model.trace(ids=some_ids(9), stack="encoder")
    assert trace.attention is None
    assert "in blocks of neighbours" in trace.attention_reason
    assert trace.agreement.ok is None
