"""q, k, scores, bias, mask and weights of tiny models, against the whole model run by transformers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests import tiny
from tests.oracle import STACKS, Checkpoint, Fused, checkpoint, open_model, some_ids

EAGER_ONLY = {"bloom", "mpt", "gpt_oss", "xlnet", "deberta-v2", "deberta-v2-relative"}
FUSED = [case for case in STACKS if case[0] not in EAGER_ONLY | {"mamba"}]
WITH_ATTENTION = [case for case in STACKS if case[0] != "mamba"]
GROUPED = {"llama": 2, "mistral": 2, "qwen2": 2, "qwen3": 2, "gemma": 2, "gemma3_text": 2, "smollm3": 2, "gpt_oss": 2}
GROUPED |= {"falcon": 1, "falcon-alibi": 1}


def first_fused(made: Checkpoint, ids: list[int], stack: str) -> Fused:
    """The stack's first call of torch's attention function: a decoder's comes after its encoder's two."""
    later = stack == "decoder" and len(made.first_block) > 1
    return made.run(ids, stack).fused[2 if later else 0]


@pytest.mark.parametrize(("name", "stack"), FUSED)
def test_q_and_k_are_what_attention_is_given(name, stack):
    made, ids = checkpoint(name), some_ids(12)
    attention = made.trace(ids, stack).attention
    call = first_fused(made, ids, stack)
    assert attention.layer == 0
    assert torch.equal(attention.q, call.query[0])
    assert attention.k.shape[0] == GROUPED.get(name, 4)
    groups = call.key.shape[1] // attention.k.shape[0]
    assert torch.equal(attention.k.repeat_interleave(groups, dim=0), call.key[0])
    assert attention.scale == pytest.approx(call.scale or 1 / math.sqrt(call.query.shape[-1]), rel=1e-7)
    assert attention.weights_source == "computed"
    assert attention.sinks is None


@pytest.mark.parametrize(("name", "stack"), FUSED)
@pytest.mark.parametrize("length", [1, 12, 40])
def test_weights_make_what_the_fused_kernel_makes(name, stack, length):
    """The kernel keeps no weights; but weights times v is what it returns, with the very q, k and mask of the model."""
    made, ids = checkpoint(name), some_ids(length)
    weights = made.trace(ids, stack).attention.weights.tensor()
    call = first_fused(made, ids, stack)
    value = call.value[0].repeat_interleave(len(weights) // call.value.shape[1], dim=0)
    assert torch.allclose(weights @ value, call.out[0], atol=1e-5)


def eager_weights(made: Checkpoint, ids: list[int], stack: str) -> Tensor:
    result = made.run(ids, stack, full=made.eager(), output_attentions=True).result
    if "attentions" in result:
        return result.attentions[0][0]
    return (result.encoder_attentions if stack == "encoder" else result.decoder_attentions)[0][0]


@pytest.mark.parametrize(("name", "stack"), [case for case in WITH_ATTENTION if case[0] != "falcon-alibi"])
def test_weights_are_the_eager_models(name, stack):
    # falcon-alibi is left out: its eager attention adds the bias twice, which is not what users run
    made, ids = checkpoint(name), some_ids(12)
    attention = made.trace(ids, stack).attention
    expected = eager_weights(made, ids, stack)[..., :12]  # gpt_oss may append its sink
    assert torch.allclose(attention.weights.tensor(), expected, atol=1e-5)
    assert attention.weights_source == ("recorded" if name in EAGER_ONLY else "computed")


@pytest.mark.parametrize(("name", "stack"), WITH_ATTENTION)
@pytest.mark.parametrize("length", [1, 12])
def test_weights_follow_from_scores_bias_and_mask(name, stack, length):
    attention = checkpoint(name).trace(some_ids(length), stack).attention
    scores, bias, mask = (getattr(attention, part).tensor() for part in ("scores", "bias", "mask"))
    shape = (4, length, length)
    assert scores.shape == bias.shape == mask.shape == attention.weights.shape == shape
    groups = attention.heads // attention.kv_heads
    product = attention.q @ attention.k.repeat_interleave(groups, dim=0).transpose(-1, -2)
    assert torch.allclose(scores, attention.scale * product, atol=1e-5)
    logits = scores + bias + mask
    if attention.sinks is not None:
        logits = torch.cat([logits, attention.sinks[:, None, None].expand(4, length, 1)], dim=-1)
    weights = torch.softmax(logits, dim=-1)[..., :length]
    assert torch.allclose(attention.weights.tensor(), weights, atol=1e-5)
    if attention.sinks is None:
        assert torch.allclose(attention.weights.tensor().sum(-1), torch.ones(4, length), atol=1e-5)


def test_a_sink_takes_part_of_every_row():
    made = checkpoint("gpt_oss")
    attention = made.trace(some_ids(12)).attention
    assert torch.equal(attention.sinks, made.full.state_dict()["model.layers.0.self_attn.sinks"])
    rows = attention.weights.tensor().sum(-1)
    assert (rows < 1).all()
    assert (rows > 0).all()


# What else the classes can be told: each changes what is computed on the way to q, k or the scores.
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("opt", {"do_layer_norm_before": False}),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True}),
    ("gpt2", {"scale_attn_weights": False}),
    ("falcon", {"multi_query": False}),
    ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    ("falcon-alibi", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    ("gpt_neox", {"rotary_pct": 1.0, "use_parallel_residual": False}),
    ("t5", {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    ("t5", {"num_heads": 11, "d_kv": 11}),  # as many heads as the survey has tokens
    ("marian", {"share_encoder_decoder_embeddings": False, "scale_embedding": False}),
    ("bart", {"scale_embedding": True}),
    ("llama", {"attention_bias": True, "head_dim": 32}),
    ("llama", {"hidden_size": 44, "num_attention_heads": 11, "num_key_value_heads": 11, "head_dim": 4}),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}),
    ("deepseek_v3", {"q_lora_rank": None, "rope_interleave": False}),
    ("albert", {"num_hidden_groups": 2, "inner_group_num": 2}),
    ("gemma3_text", {"attn_logit_softcapping": 5.0}),
    ("gemma3_text", {"use_bidirectional_attention": True}),
    ("smollm3", {"no_rope_layers": [0, 0]}),
    ("bert", {"hidden_size": 44, "num_attention_heads": 11}),
]


@pytest.mark.parametrize(("name", "changes"), OPTIONS)
@pytest.mark.parametrize("length", [1, 11, 30])
def test_options_of_the_classes(name, changes, length):
    made, ids = checkpoint(name, **changes), some_ids(length)
    for stack in made.first_block:
        trace, call = made.trace(ids, stack), first_fused(made, ids, stack)
        assert torch.equal(trace.block_input, made.run(ids, stack).block_input[0])
        assert torch.equal(trace.attention.q, call.query[0])
        weights = trace.attention.weights.tensor()
        value = call.value[0].repeat_interleave(len(weights) // call.value.shape[1], dim=0)
        assert torch.allclose(weights @ value, call.out[0], atol=1e-5)
        assert trace.agreement.ok is (None if trace.scheme == "none" else True), trace.agreement.message


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("xlnet", {"clamp_len": 4}),
        ("xlnet", {"attn_type": "uni", "untie_r": False}),
        ("deberta-v2-relative", {"pos_att_type": ["c2p"]}),
        ("deberta-v2-relative", {"pos_att_type": ["p2c"], "share_att_key": False}),
        ("deberta-v2-relative", {"position_biased_input": True, "conv_kernel_size": 3}),
        ("deberta-v2-relative", {"position_buckets": -1}),
        ("bloom", {"n_head": 11, "hidden_size": 44}),
        ("mpt", {"attn_config": {"softmax_scale": 0.3, "clip_qkv": 0.5}}),
        ("mpt", {"attn_config": {"alibi": False}}),  # which the class ignores
    ],
)
def test_options_of_the_eager_classes(name, changes):
    made, ids = checkpoint(name, **changes), some_ids(12)
    stack = next(iter(made.first_block))
    trace = made.trace(ids)
    attention = trace.attention
    logits = attention.scores.tensor() + attention.bias.tensor() + attention.mask.tensor()
    assert torch.allclose(logits.softmax(-1), eager_weights(made, ids, stack), atol=1e-5)
    assert attention.weights_source == "recorded"
    assert trace.agreement.ok is True, trace.agreement.message


# --- masks

NOT_CAUSAL = {"bert", "roberta", "albert", "distilbert", "distilbert-sinusoidal", "deberta-v2", "deberta-v2-relative"}
NOT_CAUSAL |= {"xlnet"}  # a permutation model: without a permutation it sees everything
WINDOW = {"mistral": 8, "gemma3_text": 8, "cohere2": 8, "gpt_oss": 8}  # of the first layer


@pytest.mark.parametrize(("name", "stack"), WITH_ATTENTION)
def test_masks(name, stack):
    attention = checkpoint(name).trace(some_ids(20), stack).attention
    row, column = torch.arange(20)[:, None], torch.arange(20)[None, :]
    hidden = torch.zeros(20, 20, dtype=torch.bool)
    if stack == "decoder" and name not in NOT_CAUSAL:
        hidden = column > row
    if name in WINDOW:
        hidden |= column <= row - WINDOW[name]
    expected = torch.zeros(20, 20).masked_fill(hidden, -math.inf)
    assert torch.equal(attention.mask.tensor(), expected.expand(4, 20, 20))
    weights = attention.weights.tensor()
    assert (weights[:, hidden] == 0).all()
    assert (weights[:, ~hidden] > 0).all()


def test_a_sliding_window_on_both_sides():
    """ModernBERT's layer 1 is local; here the first is."""
    made = checkpoint("modernbert", layer_types=["sliding_attention", "full_attention"])
    attention = made.trace(some_ids(20)).attention
    far = (torch.arange(20)[:, None] - torch.arange(20)[None, :]).abs() > 4  # local_attention=8: four on each side
    assert torch.equal(torch.isinf(attention.mask.tensor()[0]), far)
    assert torch.allclose(attention.weights.tensor(), eager_weights(made, some_ids(20), "encoder"), atol=1e-5)


# --- scale


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("t5", {}, 1.0),
        ("gemma3_text", {"query_pre_attn_scalar": 64}, 1 / 8),
        ("llama", {}, 1 / 4),
        ("bloom", {}, 1 / 4),
        ("mpt", {}, 1 / 4),
        ("xlnet", {}, 1 / 4),
        ("gptj", {}, 1 / 4),
        ("gpt_oss", {}, 1 / math.sqrt(24)),
        ("deepseek_v3", {}, 1 / math.sqrt(24)),
    ],
)
def test_scale(name, changes, expected):
    attention = checkpoint(name, **changes).trace(some_ids(6)).attention
    assert attention.scale == pytest.approx(expected, rel=1e-6)


def yarn(**changes: Any) -> dict[str, Any]:
    return {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 40.0,
            "beta_fast": 32,
            "beta_slow": 1,
            "original_max_position_embeddings": 4096,
            **changes,
        }
    }


def test_yarn_multiplies_deepseeks_scale_too():
    """With (mscale, mscale_all_dim) = (1, 1) the softmax scale is multiplied by 1.87385."""
    plain = 1 / math.sqrt(24)
    attention = checkpoint("deepseek_v3", **yarn(mscale=1.0, mscale_all_dim=1.0)).trace(some_ids(6)).attention
    assert attention.scale == pytest.approx(plain * 1.87385, rel=1e-5)


# --- before the rotation


def split(output: Tensor, heads: int) -> Tensor:
    """A projection's output (1, seq, heads * d) -> (heads, seq, d)."""
    return output[0].unflatten(-1, (heads, -1)).transpose(0, 1)


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2", "smollm3", "gptj", "cohere2"])
def test_q_before_is_the_projections_output(name):
    made, ids = checkpoint(name), some_ids(12)
    attention, outputs = made.trace(ids).attention, made.run(ids).outputs
    path = "transformer.h.0.attn" if name == "gptj" else "model.layers.0.self_attn"
    assert torch.equal(attention.q_before, split(outputs[f"{path}.q_proj"], 4))
    assert torch.equal(attention.k_before, split(outputs[f"{path}.k_proj"], GROUPED.get(name, 4)))
    assert not torch.allclose(attention.q_before, attention.q, atol=1e-2)
    assert torch.allclose(attention.q[:, 0], attention.q_before[:, 0])  # position 0 is not turned


@pytest.mark.parametrize("name", ["qwen3", "gemma3_text"])
def test_q_before_is_the_normed_q_where_there_is_a_norm(name):
    made, ids = checkpoint(name), some_ids(12)
    attention, outputs = made.trace(ids).attention, made.run(ids).outputs
    for mine, norm in ((attention.q_before, "q_norm"), (attention.k_before, "k_norm")):
        normed = outputs[f"model.layers.0.self_attn.{norm}"][0]
        assert torch.equal(mine, normed if normed.shape[0] == len(mine) else normed.transpose(0, 1))


def test_q_before_out_of_a_fused_and_partial_projection():
    made, ids = checkpoint("gpt_neox"), some_ids(12)  # a quarter of each head is turned
    attention, outputs = made.trace(ids).attention, made.run(ids).outputs
    q, k, _ = split(outputs["gpt_neox.layers.0.attention.query_key_value"], 4).chunk(3, dim=-1)
    assert torch.equal(attention.q_before, q)
    assert torch.equal(attention.k_before, k)
    assert torch.equal(attention.q[..., 4:], q[..., 4:])
    assert not torch.allclose(attention.q[..., :4], q[..., :4], atol=1e-2)
    made = checkpoint("phi3")
    outputs = made.run(ids).outputs["model.layers.0.self_attn.qkv_proj"]
    assert torch.equal(made.trace(ids).attention.q_before, split(outputs[..., :64], 4))


def test_q_before_of_a_slice():
    """DeepSeek turns the last 8 of 24 dimensions, which it first sorts into evens and odds."""
    made, ids = checkpoint("deepseek_v3"), some_ids(12)
    attention = made.trace(ids).attention
    projected = split(made.run(ids).outputs["model.layers.0.self_attn.q_b_proj"], 4)
    assert torch.equal(attention.q_before[..., :16], projected[..., :16])
    assert torch.equal(attention.q[..., :16], projected[..., :16])
    part = projected[..., 16:]
    assert torch.equal(attention.q_before[..., 16:], torch.cat([part[..., ::2], part[..., 1::2]], dim=-1))
    # k is written into a new tensor in two pieces: its own dimensions, then the turned ones, which all heads share
    outputs = made.run(ids).outputs
    own = split(outputs["model.layers.0.self_attn.kv_b_proj"][0], 4)[..., :16]
    shared = outputs["model.layers.0.self_attn.kv_a_proj_with_mqa"][0][..., 24:]
    assert torch.equal(attention.k_before[..., :16], own)
    shared = torch.cat([shared[..., ::2], shared[..., 1::2]], dim=-1).expand(4, 12, 8)
    assert torch.equal(attention.k_before[..., 16:], shared)


@pytest.mark.parametrize("name", ["bert", "gpt2", "bloom", "t5", "mamba"])
def test_nothing_is_turned_without_a_rotation(name):
    attention = checkpoint(name).trace(some_ids(6)).attention
    if name == "mamba":
        assert attention is None
        return
    assert torch.equal(attention.q, attention.q_before)
    assert torch.equal(attention.k, attention.k_before)


@pytest.mark.parametrize(
    "name",
    "falcon llama mistral qwen2 qwen3 gemma gemma3_text gptj gpt_neox phi3 cohere2 smollm3 modernbert deepseek_v3 "
    "gpt_oss".split(),
)
def test_the_rotation_turns_q_before_into_q(name):
    """By the definition, pair by pair, in float64: with the effect's angles, pairing and place."""
    trace = checkpoint(name).trace(some_ids(30))
    effect, attention = trace.effect, trace.attention
    magnitude = float(torch.hypot(effect.cos[0], effect.sin[0]).max())
    for before, after in ((attention.q_before, attention.q), (attention.k_before, attention.k)):
        expected = turned(before, effect.angles, effect.layout, effect.start, magnitude)
        assert torch.allclose(after.double(), expected, atol=2e-5)


def turned(x: Tensor, angles: Tensor, layout: str, start: int, magnitude: float = 1.0) -> Tensor:
    """x (heads, seq, d_head) with each pair as a complex number times e^(i angle)."""
    pair = angles.shape[-1]
    first = range(start, start + pair) if layout == "half" else range(start, start + 2 * pair, 2)
    second = [i + (pair if layout == "half" else 1) for i in first]
    out = x.double().clone()
    numbers = torch.complex(x[..., list(first)].double(), x[..., second].double())
    numbers = numbers * torch.polar(torch.full_like(angles, magnitude).double(), angles.double())
    out[..., list(first)], out[..., second] = numbers.real, numbers.imag
    return out


# --- biases


def test_t5s_bias_is_its_table_by_bucket():
    from transformers.models.t5.modeling_t5 import T5Attention

    made = checkpoint("t5")
    for stack in ("encoder", "decoder"):
        attention = made.trace(some_ids(40), stack).attention
        table = made.full.state_dict()[f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
        distance = torch.arange(40)[None, :] - torch.arange(40)[:, None]
        buckets = T5Attention._relative_position_bucket(distance, bidirectional=stack == "encoder")
        assert torch.equal(attention.bias.tensor(), table[buckets].permute(2, 0, 1))  # the mask is not in it
        assert torch.equal(made.trace(some_ids(40), stack).effect.scores, attention.bias.tensor())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bloom", [0.0, 0.25, 0.5, 0.75]),  # by key
        ("mpt", [-0.75, -0.5, -0.25, 0.0]),  # back from the last
    ],
)
def test_alibi_as_each_model_adds_it(name, expected):
    """Of the head whose slope is 1/4: equal rows but for a constant."""
    attention = checkpoint(name).trace(some_ids(4)).attention
    assert torch.equal(attention.bias.tensor()[0], torch.tensor(expected).expand(4, 4))


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (6, [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]),
        (12, [*(2.0**-i for i in range(1, 9)), 0.70711, 0.35355, 0.17678, 0.08839]),
    ],
)
@pytest.mark.parametrize("name", ["bloom", "mpt"])
def test_slopes_of_head_counts_that_are_no_power_of_two(name, heads, slopes):
    """Never sorted."""
    changes = {"bloom": {"n_head": heads, "hidden_size": 96}, "mpt": {"n_heads": heads, "d_model": 96}}[name]
    bias = checkpoint(name, **changes).trace(some_ids(3)).attention.bias.tensor()
    assert torch.allclose(bias[:, -1, 1] - bias[:, -1, 0], torch.tensor(slopes), atol=1e-5)


def test_falcons_alibi_is_divided_and_rounded():
    """What sdpa adds: the bias over sqrt(d_head), by way of bfloat16; each step of it can be seen in the call."""
    made, ids = checkpoint("falcon-alibi"), some_ids(12)
    attention, call = made.trace(ids).attention, first_fused(made, ids, "decoder")
    assert call.mask is not None
    seen = torch.tril(torch.ones(12, 12, dtype=torch.bool))
    assert torch.equal(attention.bias.tensor()[:, seen], call.mask[0].expand(4, 12, 12)[:, seen])
    assert float(attention.bias.tensor()[0, 11, 1]) == float(torch.tensor(0.25).bfloat16()) / 4


@pytest.mark.parametrize("name", ["xlnet", "deberta-v2-relative"])
def test_content_and_distance_is_the_rest_of_the_scores(name):
    """The share that mixes both, found by elimination: with it the weights are the model's, without it they are not."""
    made, ids = checkpoint(name), some_ids(12)
    attention = made.trace(ids).attention
    expected = eager_weights(made, ids, next(iter(made.first_block)))
    assert torch.allclose(
        torch.softmax(attention.scores.tensor() + attention.bias.tensor(), dim=-1), expected, atol=1e-5
    )
    assert not torch.allclose(torch.softmax(attention.scores.tensor(), dim=-1), expected, atol=1e-2)
    assert torch.equal(made.trace(ids).effect.scores, attention.bias.tensor())


# --- windows


def test_windows_are_parts_of_the_whole():
    attention = checkpoint("mistral").trace(some_ids(40)).attention
    for part in (attention.scores, attention.bias, attention.mask, attention.weights):
        whole = part.tensor()
        window = part.window(rows=(3, 40), columns=(0, 31), cells=8)
        assert window.values.shape[-2] <= 8
        assert torch.allclose(window.values, whole[:, window.rows[:, None], window.columns[None, :]], atol=1e-6)
        one = part[2].window(rows=(3, 40), columns=(0, 31), cells=8)
        assert torch.allclose(one.values, window.values[2], atol=1e-6)


def test_a_window_of_weights_has_whole_rows_behind_it():
    """A weight is a share of its whole row: a window must not normalise over the columns that it shows."""
    attention = checkpoint("bert").trace(some_ids(40)).attention
    some = attention.weights[1].window(columns=(0, 5)).values
    assert torch.allclose(some, attention.weights.tensor()[1, :, :5], atol=1e-6)
    assert float(some.sum(-1).max()) < 0.99


def test_long_texts_keep_no_square(tmp_path):
    """2,000 tokens: scores and weights are functions; what a trace holds grows with the length, not its square."""
    tiny.make("llama", tmp_path, max_position_embeddings=4096)
    attention = open_model(tmp_path).trace(ids=some_ids(2000)).attention
    assert attention.scores.whole is None
    assert attention.weights.whole is None
    assert attention.weights[0].window(rows=(1990, 2000), cells=16).values.shape == (10, 16)
    assert torch.isinf(attention.mask.window(rows=(5, 6)).values[..., 6:]).all()
