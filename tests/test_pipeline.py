"""The textbook pipeline, each scheme against a model of transformers that has it: all of them somebody else's code."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn
from transformers import (
    BertConfig,
    DistilBertConfig,
    GPT2Config,
    GPT2Model,
    LlamaConfig,
    LlamaModel,
    MarianConfig,
    MptConfig,
    PreTrainedTokenizerFast,
    T5Config,
)
from transformers.models.bert.modeling_bert import BertSelfAttention
from transformers.models.distilbert.modeling_distilbert import Embeddings, create_sinusoidal_embeddings
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding
from transformers.models.marian.modeling_marian import MarianEncoder
from transformers.models.mpt.modeling_mpt import MptAttention, build_mpt_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

import tinput
from tinput.errors import BadIds, BadText, TooLong
from tinput.pipeline import attend, attention, build_input, merge_heads, split_heads
from tinput.positions import SCHEMES, Add, Nothing

BATCH, SEQ, WIDTH, HEADS = 2, 19, 64, 4
EAGER: dict[str, Any] = {"attn_implementation": "eager"}
CAUSAL = torch.full((SEQ, SEQ), float("-inf")).triu(1)[None, None]  # (1, 1, query, key)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def random_weights(module: Any) -> Any:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.3)
    return module.eval()


def inputs(seq: int = SEQ) -> Tensor:
    return torch.randn(BATCH, seq, WIDTH)


# attention


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_rope_is_llamas(kv_heads, causal):
    config = LlamaConfig(hidden_size=WIDTH, num_attention_heads=HEADS, num_key_value_heads=kv_heads, **EAGER)
    oracle = random_weights(LlamaAttention(config, layer_idx=0))
    oracle.o_proj = nn.Identity()
    x = inputs()
    cos_sin = LlamaRotaryEmbedding(config)(x, torch.arange(SEQ)[None])
    expected, _ = oracle(x, cos_sin, attention_mask=CAUSAL if causal else None)
    w = (oracle.q_proj.weight, oracle.k_proj.weight, oracle.v_proj.weight)
    actual = attention(x, *w, HEADS, "rope", n_kv_heads=kv_heads, causal=causal)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("heads", [4, 8, 2])
def test_alibi_is_mpts(heads):
    oracle = random_weights(MptAttention(MptConfig(d_model=WIDTH, n_heads=heads)))
    oracle.out_proj = nn.Identity()
    x = inputs()
    expected, _ = oracle(x, build_mpt_alibi_tensor(heads, SEQ), attention_mask=CAUSAL.isinf())
    actual = attention(x, *oracle.Wqkv.weight.chunk(3), n_heads=heads, scheme="alibi")
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_alibi_in_both_directions_falls_on_either_side():
    """MPT's attention given the symmetric form (Press et al. 2022, appendix; slopes from MPT's own tensor)."""
    oracle = random_weights(MptAttention(MptConfig(d_model=WIDTH, n_heads=HEADS)))
    oracle.out_proj = nn.Identity()
    slopes = -build_mpt_alibi_tensor(HEADS, 2)[:, 0, 0]  # one step back
    place = torch.arange(SEQ)
    x = inputs()
    expected, _ = oracle(x, -slopes[:, None, None] * (place[:, None] - place).abs())
    actual = attention(x, *oracle.Wqkv.weight.chunk(3), n_heads=HEADS, scheme="alibi", causal=False)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_relative_bias_is_t5s(causal):
    seq = 150  # past the last bucket
    config = T5Config(d_model=WIDTH, d_kv=WIDTH // HEADS, num_heads=HEADS, is_decoder=causal, **EAGER)
    oracle = random_weights(T5Attention(config, has_relative_attention_bias=True, layer_idx=0))
    oracle.o = nn.Identity()
    x = inputs(seq)
    mask = torch.full((seq, seq), float("-inf")).triu(1)[None, None] if causal else None
    expected = oracle(x, mask=mask)[0]
    w_q = oracle.q.weight * (WIDTH // HEADS) ** 0.5  # T5 does not divide by sqrt(d_head)
    table = oracle.relative_attention_bias.weight
    w = (w_q, oracle.k.weight, oracle.v.weight)
    actual = attention(x, *w, HEADS, "relative_bias", causal=causal, bias_table=table)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("scheme", ["none", "learned", "sinusoidal"])
def test_without_positions_inside_it_is_gpt2s(scheme):
    oracle = random_weights(GPT2Attention(GPT2Config(n_embd=WIDTH, n_head=HEADS, **EAGER), layer_idx=0))
    nn.init.zeros_(oracle.c_attn.bias)
    oracle.c_proj = nn.Identity()
    x = inputs()
    expected = oracle(x, attention_mask=CAUSAL)[0]
    actual = attention(x, *oracle.c_attn.weight.T.chunk(3), n_heads=HEADS, scheme=scheme)  # its Conv1D keeps (in, out)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_in_both_directions_it_is_berts():
    config = BertConfig(hidden_size=WIDTH, num_attention_heads=HEADS, **EAGER)
    oracle = random_weights(BertSelfAttention(config, layer_idx=0))
    for projection in (oracle.query, oracle.key, oracle.value):
        nn.init.zeros_(projection.bias)
    x = inputs()
    w = (oracle.query.weight, oracle.key.weight, oracle.value.weight)
    actual = attention(x, *w, HEADS, "none", causal=False)
    torch.testing.assert_close(actual, oracle(x)[0], atol=1e-5, rtol=1e-5)


def test_heads_may_be_narrower_than_the_model():
    """n_heads * d_head need not be d_model: Gemma and Qwen 3 have such heads."""
    config = LlamaConfig(hidden_size=WIDTH, num_attention_heads=4, num_key_value_heads=1, head_dim=8, **EAGER)
    oracle = random_weights(LlamaAttention(config, layer_idx=0))
    oracle.o_proj = nn.Identity()
    x = inputs()
    expected, _ = oracle(x, LlamaRotaryEmbedding(config)(x, torch.arange(SEQ)[None]), attention_mask=CAUSAL)
    w = (oracle.q_proj.weight, oracle.k_proj.weight, oracle.v_proj.weight)
    actual = attention(x, *w, 4, "rope", n_kv_heads=1)
    assert actual.shape == (BATCH, SEQ, 32)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("scheme", ["rope", "alibi", "none"])
def test_attention_reaches_every_weight(scheme):
    """Gradients flow to all three projections and to the input."""
    leaves = [torch.randn(*shape, requires_grad=True) for shape in ((1, 5, 8), (8, 8), (8, 8), (8, 8))]
    attention(*leaves, n_heads=2, scheme=scheme).square().sum().backward()
    assert all(leaf.grad is not None and leaf.grad.abs().sum() > 0 for leaf in leaves)


def test_attend_adds_a_mask_to_the_bias_and_to_the_future():
    """A key masked out gives what the text without it gives (no positions, so nothing else changes)."""
    q, k, v = (split_heads(inputs(6), HEADS) for _ in range(3))
    mask = torch.zeros(1, 1, 1, 6).index_fill(3, torch.tensor([2]), float("-inf"))
    kept = torch.tensor([0, 1, 3, 4, 5])
    masked = attend(q, k, v, Nothing(), mask=mask)[:, :, kept]
    without = attend(q[:, :, kept], k[:, :, kept], v[:, :, kept], Nothing())
    torch.testing.assert_close(masked, without)


def test_heads_split_and_merge():
    x = torch.arange(24.0).view(1, 2, 12)
    assert split_heads(x, 3).shape == (1, 3, 2, 4)
    assert split_heads(x, 3)[0, 1, 1].tolist() == [16, 17, 18, 19]
    assert torch.equal(merge_heads(split_heads(x, 3)), x)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scheme": "rotary"}, "unknown scheme 'rotary': choose one of alibi, learned"),
        ({"scheme": "relative"}, "no formula yet"),
        ({"scheme": "relative_bias"}, "give bias_table"),
        ({"scheme": "relative_bias", "bias_table": torch.zeros(32, 3)}, "4 wide"),
        ({"n_heads": 5}, "5 heads cannot share evenly"),
        ({"n_heads": 0}, "divides"),
        ({"n_kv_heads": 3}, "3 does not divide 4"),
        ({"n_kv_heads": 2}, "2 heads of 16 need 32 rows"),
        ({"x": torch.zeros(5, WIDTH)}, r"\(batch, seq, d_model\)"),
        ({"w_k": torch.zeros(WIDTH, WIDTH + 1)}, "w_k is"),
    ],
)
def test_attention_says_what_does_not_fit(change, says):
    w = torch.zeros(WIDTH, WIDTH)
    arguments = {"x": inputs(), "w_q": w, "w_k": w, "w_v": w, "n_heads": HEADS} | change
    with pytest.raises(ValueError, match=says):
        attention(**arguments)


# build_input


@pytest.fixture(scope="module")
def bare() -> Tokenizer:
    """A tokenizer of the `tokenizers` library: words, and a start token that it adds."""
    words = {w: i for i, w in enumerate(["<s>", "<unk>", "the", "cat", "sat", "on", "mat"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return tokenizer


@pytest.fixture(scope="module")
def tokenizer(bare):
    return PreTrainedTokenizerFast(tokenizer_object=bare, bos_token="<s>", unk_token="<unk>")


TEXT, IDS = "the cat sat on the mat", [0, 2, 3, 4, 5, 2, 6]


def test_build_input_is_gpt2s_block_input(tokenizer):
    model = random_weights(GPT2Model(GPT2Config(vocab_size=7, n_positions=16, n_embd=12, n_layer=1, n_head=2)))
    seen = []
    model.h[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model(torch.tensor([IDS]))
    table = model.wpe.weight
    actual = build_input(TEXT, tokenizer, model.wte.weight, "learned", positions_table=table)
    assert torch.equal(actual, seen[0][0])


@pytest.mark.parametrize("scheme", ["rope", "alibi", "relative_bias", "none"])
def test_build_input_is_llamas_block_input(tokenizer, scheme):
    """What works inside attention, or nowhere, leaves the embedding rows as they are."""
    config = LlamaConfig(vocab_size=7, hidden_size=16, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
    model = random_weights(LlamaModel(config))
    seen = []
    model.layers[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model(torch.tensor([IDS]))
    assert torch.equal(build_input(TEXT, tokenizer, model.embed_tokens.weight, scheme), seen[0][0])


def test_build_input_is_distilberts_sum(tokenizer):
    """The paper's layout, sine and cosine in turn. DistilBERT's layer norm is undone by giving it nothing to do."""
    config = DistilBertConfig(vocab_size=7, dim=16, n_heads=2, max_position_embeddings=32, sinusoidal_pos_embds=True)
    oracle: Any = Embeddings(config).eval()
    create_sinusoidal_embeddings(n_pos=32, dim=16, out=oracle.position_embeddings.weight)
    oracle.LayerNorm = nn.Identity()
    expected = oracle(input_ids=torch.tensor([IDS]))[0]
    actual = build_input(TEXT, tokenizer, oracle.word_embeddings.weight, "sinusoidal")
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=0)


def test_build_input_scaled_is_marians_sum(tokenizer):
    """Marian has the paper's numbers with the sines before the cosines, and multiplies by sqrt(d_model)."""
    config = MarianConfig(
        vocab_size=7,
        d_model=16,
        scale_embedding=True,
        encoder_layers=1,
        encoder_ffn_dim=8,
        pad_token_id=1,
        decoder_start_token_id=1,
        eos_token_id=0,
    )
    encoder = random_weights(MarianEncoder(config))
    encoder.embed_positions.weight = nn.Parameter(encoder.embed_positions.create_weight())
    seen = []
    encoder.layers[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    encoder(torch.tensor([IDS]))
    interleaved = torch.arange(16).view(2, 8).T.flatten()  # 0 8 1 9 ...: where Marian keeps each of the paper's numbers
    actual = build_input(TEXT, tokenizer, encoder.embed_tokens.weight[:, interleaved], "sinusoidal", scale=True)
    torch.testing.assert_close(actual, seen[0][0][:, interleaved], atol=2e-6, rtol=0)


def test_build_input_takes_any_kind_of_tokenizer(tokenizer, bare):
    embedding = torch.randn(7, 4)

    class Own:
        def encode(self, text):
            return [2 if word == "the" else 1 for word in text.split()]

    assert torch.equal(build_input(TEXT, tokenizer, embedding, "none"), embedding[IDS])
    assert torch.equal(build_input(TEXT, bare, embedding, "none"), embedding[IDS])
    assert torch.equal(build_input(TEXT, Own(), embedding, "none"), embedding[[2, 1, 1, 1, 2, 1]])
    assert torch.equal(build_input(TEXT, tokenizer, embedding, "none", add_special_tokens=False), embedding[IDS[1:]])
    assert torch.equal(build_input(TEXT, bare, embedding, "none", add_special_tokens=False), embedding[IDS[1:]])


def test_build_input_takes_any_kind_of_matrix(tokenizer):
    rows, positions = nn.Embedding(7, 4), nn.Embedding(9, 4)
    expected = rows.weight[IDS] + positions.weight[:7]
    assert torch.equal(build_input(TEXT, tokenizer, rows, "learned", positions_table=positions), expected)
    arrays: dict[str, Any] = {
        "embedding": rows.weight.detach().numpy(),
        "positions_table": positions.weight.detach().numpy(),
    }
    assert torch.equal(build_input(TEXT, tokenizer, scheme="learned", **arrays), expected)


def test_build_input_keeps_dtype_and_gradient(tokenizer):
    embedding = torch.randn(7, 4, dtype=torch.bfloat16, requires_grad=True)
    out = build_input(TEXT, tokenizer, embedding, "sinusoidal", scale=True)
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert embedding.grad is not None
    assert embedding.grad[:, 0].tolist() == [2, 0, 4, 2, 2, 2, 2]  # how often each id stands there, times sqrt(4)


def test_build_input_is_short():
    code = inspect.getsource(build_input).replace(inspect.getdoc(build_input) or "", "")
    assert len(code.splitlines()) <= 50


@pytest.mark.parametrize(
    ("text", "arguments", "error", "says"),
    [
        (TEXT, {"scheme": "sinusoid"}, ValueError, "unknown scheme 'sinusoid'"),
        (TEXT, {"scheme": "learned"}, ValueError, "give positions_table"),
        (TEXT, {"scheme": "learned", "positions_table": torch.zeros(6, 4)}, TooLong, "7 tokens.* 6 rows"),
        (TEXT, {"scheme": "learned", "positions_table": torch.zeros(9, 5)}, ValueError, "4 wide, not of shape"),
        (TEXT, {"embedding": torch.zeros(4)}, ValueError, "embedding is"),
        (TEXT, {"embedding": torch.zeros(5, 4)}, BadIds, "id 6 has no row: the embedding has rows 0 to 4"),
        (TEXT, {"tokenizer": 3}, ValueError, "a tokenizer has encode"),
        ("", {"add_special_tokens": False}, BadText, "no tokens"),
        ("the \ud800", {}, BadText, "lone surrogate.* index 4"),
    ],
)
def test_build_input_says_what_is_wrong(tokenizer, text, arguments, error, says):
    arguments = {"tokenizer": tokenizer, "embedding": torch.zeros(7, 4)} | arguments
    with pytest.raises(error, match=says) as raised:
        build_input(text, **arguments)
    if error is TooLong:
        assert raised.value.usable == 6


# TransformerInput


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_module_is_build_input(tokenizer, scheme):
    module = tinput.TransformerInput(7, 12, scheme, max_len=16, scale=True).eval()
    table = None if module.position_table is None else module.position_table.weight
    expected = build_input(TEXT, tokenizer, module.token_table.weight, scheme, positions_table=table, scale=True)
    out = module(torch.tensor([IDS, IDS]))
    assert torch.equal(out[0], expected)
    assert torch.equal(out[1], expected)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_only_a_table_limits_the_length(scheme):
    module = tinput.TransformerInput(7, 8, scheme, max_len=3)
    assert module(torch.zeros(1, 3, dtype=torch.long)).shape == (1, 3, 8)
    longer = torch.zeros(1, 4, dtype=torch.long)
    if scheme == "learned":
        with pytest.raises(TooLong) as raised:
            module(longer)
        assert raised.value.usable == 3
    else:
        assert module(longer).shape == (1, 4, 8)


def test_layer_norm_comes_after_positions():
    module = tinput.TransformerInput(7, 8, "sinusoidal", layer_norm=True)
    plain = tinput.TransformerInput(7, 8, "sinusoidal")
    plain.load_state_dict(module.state_dict(), strict=False)
    ids = torch.tensor([IDS])
    expected = nn.functional.layer_norm(plain(ids), (8,))
    torch.testing.assert_close(module(ids), expected)
    assert module(ids).mean(-1).abs().max() < 1e-6


def test_dropout_in_training_alone():
    module = tinput.TransformerInput(7, 256, "none", dropout=0.25)
    ids = torch.tensor([IDS])
    kept = module.eval()(ids)
    assert torch.equal(kept, module(ids))

    def seeded(seed: int) -> Tensor:
        return module.train()(ids, generator=torch.Generator().manual_seed(seed))

    once = seeded(7)
    assert torch.equal(once, seeded(7))
    assert not torch.equal(once, seeded(8))
    torch.manual_seed(1)
    first = module(ids)
    assert not torch.equal(first, module(ids))
    torch.manual_seed(1)
    assert torch.equal(first, module(ids))  # without a generator it is torch's own that counts
    dropped = once == 0
    assert 0.2 < dropped.float().mean() < 0.3
    torch.testing.assert_close(once[~dropped], kept[~dropped] / 0.75)


def test_sinusoids_need_no_parameter():
    module = tinput.TransformerInput(7, 8, "sinusoidal")
    assert [name for name, _ in module.named_parameters()] == ["token_table.weight"]
    effect = SCHEMES["sinusoidal"].predict({}, torch.arange(3), width=8)
    assert isinstance(effect, Add)
    ids = torch.tensor([[1, 1, 1]])
    torch.testing.assert_close(module(ids)[0] - module.token_table.weight[1], effect.vectors)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        ({"vocab_size": 0}, "at least 1"),
        ({"dropout": 1.0}, "probability"),
        ({"scheme": "absolute"}, "unknown scheme 'absolute'"),
    ],
)
def test_the_module_says_which_size_cannot_be(make, says):
    with pytest.raises(ValueError, match=says):
        tinput.TransformerInput(**{"vocab_size": 7, "d_model": 8} | make)


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (torch.tensor([1, 2]), r"\(batch, seq\)"),
        (torch.tensor([[1, 7]]), "id 7 has no row"),
        (torch.tensor([[-1]]), "id -1 has no row"),
        (torch.zeros(1, 0, dtype=torch.long), "at least one"),
        (torch.tensor([[1.0]]), "integers"),
    ],
)
def test_the_module_says_which_ids_it_cannot_take(ids, says):
    with pytest.raises(BadIds, match=says):
        tinput.TransformerInput(7, 8)(ids)


@pytest.mark.parametrize(
    ("ids", "error", "word"),
    [
        ([1.5], BadIds, "integers"),
        ([[1]], BadIds, "one text at a time"),
        (None, BadIds, "NoneType"),
        ([2**70], BadIds, "cannot be read"),
        ([], BadText, "no tokens"),
    ],
)
def test_what_a_tokenizer_must_not_answer(ids, error, word):
    """A fault seen: 1.5 was rounded down, [[1]] gave a tensor of another rank, None an error of torch's."""
    with pytest.raises(error, match=word):
        build_input("x", lambda _text: ids, torch.zeros(4, 8))


def test_no_text_no_matrix_no_heads():
    with pytest.raises(BadText, match="a string, not NoneType"):
        build_input(None, lambda _text: [1], torch.zeros(4, 8))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="embedding cannot be read"):
        build_input("x", lambda _text: [1], None)
    with pytest.raises(ValueError, match="at least one of each"):
        attention(torch.zeros(1, 2, 8), *(torch.zeros(8, 8),) * 3, n_heads=0)
