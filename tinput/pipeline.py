"""From a text to the tensor that enters the first Transformer block, and where each position scheme enters.

    ids = tokenizer(text)                        (seq,)
    x = embedding[ids]                           (seq, d_model)
    x = x * sqrt(d_model)                        where the model scales: Vaswani et al. 2017, section 3.4
    x = x + position vectors                     where the scheme is added to the embedding; others leave x as it is
    scores = q k^T / sqrt(d_head)                q and k rotated first, or a bias added here, by the others

The formulas of the schemes are in positions/; this file only puts them where they belong.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tinput.errors import BadIds, BadText, TooLong
from tinput.positions import SCHEMES, learned, relative_bias
from tinput.positions.effects import Add, Bias, Effect, Nothing, Rotate
from tinput.positions.rope import rotate_by

__all__ = ["TransformerInput", "attend", "attention", "build_input", "merge_heads", "split_heads"]

Matrix = Any  # a tensor, an nn.Embedding, or what torch.as_tensor takes: a numpy array for one
ADDED, NOWHERE = "added to the embedding", "nowhere"  # values of a scheme's INJECTION


def build_input(
    text: str,
    tokenizer: Any,
    embedding: Matrix,
    scheme: str = "sinusoidal",
    *,
    positions_table: Matrix | None = None,
    scale: bool = False,
    add_special_tokens: bool = True,
) -> Tensor:
    """The tensor that goes into the first attention block: (seq, d_model), in the dtype of `embedding`.

    tokenizer: a Hugging Face tokenizer (of transformers or of tokenizers), or anything with `encode(text) -> ids`
    embedding: (vocab, d_model), one row a token id: a tensor, an array or an nn.Embedding
    scheme: a name in SCHEMES. One that works inside attention, or nowhere, leaves the embedding rows as they are
    positions_table: (positions, d_model), for the scheme that looks its vectors up; row 0 is the first position's
    scale: multiply the embedding rows by sqrt(d_model) before positions are added (Vaswani et al. 2017, section 3.4)
    add_special_tokens: as the tokenizer's own argument; without effect on a tokenizer that has no such argument

    Raises BadText when the text has no tokens, BadIds for an id without a row, TooLong (with `usable`) for more tokens
    than the table has rows, ValueError for a scheme or a shape that does not fit.
    """
    _check_scheme(scheme)
    rows = _tensor(embedding, "embedding")
    _check_matrix("embedding", rows, "(vocab, d_model)")
    table = None if positions_table is None else _tensor(positions_table, "positions_table")
    if table is not None:
        _check_matrix("positions_table", table, "(positions, d_model)", width=rows.shape[1])

    ids = _encode(tokenizer, text, add_special_tokens)  # (seq,)
    _check_ids(ids, len(rows))
    x = rows[ids]  # (seq, d_model)
    if scale:
        x = x * rows.shape[1] ** 0.5
    return _add_positions(x, scheme, table)


class TransformerInput(nn.Module):
    """What stands before the first block, as a module: ids (batch, seq) -> (batch, seq, d_model).

    Token embedding, times sqrt(d_model) if `scale`, plus positions, then layer norm and dropout (BERT's order).
    max_len: rows of the learned table; a scheme without a table takes any length
    dropout: on in train(), off in eval(); a `generator` with the same seed drops the same values twice
    Raises BadIds for ids that have no row or are not (batch, seq), TooLong for more tokens than the table has rows,
    ValueError for sizes that cannot be.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        scheme: str = "rope",
        max_len: int = 2048,
        scale: bool = False,
        layer_norm: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        if min(vocab_size, d_model, max_len) < 1:
            raise ValueError(f"sizes are at least 1, not {vocab_size=}, {d_model=}, {max_len=}.")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is a probability from 0 to just below 1, not {dropout}.")
        self.scheme, self.dropout = scheme, dropout
        self.scale = d_model**0.5 if scale else None
        self.token_table = nn.Embedding(vocab_size, d_model)
        self.position_table = nn.Embedding(max_len, d_model) if _check_scheme(scheme) is learned else None
        self.norm = nn.LayerNorm(d_model) if layer_norm else None

    def forward(self, ids: Tensor, generator: torch.Generator | None = None) -> Tensor:
        if ids.ndim != 2:
            raise BadIds(f"ids are (batch, seq), not of shape {tuple(ids.shape)}.")
        _check_ids(ids, self.token_table.num_embeddings)
        x = self.token_table(ids)  # (batch, seq, d_model)
        if self.scale is not None:
            x = x * self.scale
        x = _add_positions(x, self.scheme, None if self.position_table is None else self.position_table.weight)
        if self.norm is not None:
            x = self.norm(x)
        if not (self.training and self.dropout):
            return x
        kept = torch.rand(x.shape, generator=generator, device=x.device) >= self.dropout
        return x * kept / (1 - self.dropout)  # scaled so that the expected value stays (Srivastava et al. 2014)


def attention(
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    n_heads: int,
    scheme: str = "rope",
    *,
    n_kv_heads: int | None = None,
    causal: bool = True,
    bias_table: Tensor | None = None,
) -> Tensor:
    """Scaled dot-product attention with the scheme where it belongs: (batch, seq, n_heads * d_head), not projected.

    x: (batch, seq, d_model), the block's input
    w_q: (n_heads * d_head, d_model); w_k, w_v: (n_kv_heads * d_head, d_model): (out, in), as nn.Linear keeps them
    scheme: a name in SCHEMES. One that is added to the embedding is in x already, and does nothing here
    n_kv_heads: fewer k and v heads, each shared by a group of q heads (Ainslie et al. 2023); None: n_heads
    causal: a token sees itself and what is before it (Vaswani et al. 2017, section 3.2.3)
    bias_table: (buckets, n_heads), for the scheme that looks its bias up by distance

    Raises ValueError for a scheme, a shape or numbers of heads that do not fit.
    Source: Vaswani et al. 2017, section 3.2; T5 leaves the division by sqrt(d_head) out, which is kept here.
    """
    n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
    d_head = _check_projections(x, w_q, w_k, w_v, n_heads, n_kv_heads)
    effect = _inside_attention(scheme, x.shape[1], n_heads, d_head, causal, bias_table)
    q, k, v = (split_heads(x @ w.T, n) for w, n in ((w_q, n_heads), (w_k, n_kv_heads), (w_v, n_kv_heads)))
    return merge_heads(attend(q, k, v, effect, causal=causal))


def attend(
    q: Tensor, k: Tensor, v: Tensor, effect: Effect, *, causal: bool = True, mask: Tensor | None = None
) -> Tensor:
    """softmax(q k^T / sqrt(d_head) + bias) v, with q and k rotated first where the effect says so.

    q: (batch, heads, seq, d_head); k, v: (batch, kv_heads, seq, d_head); the result is as q
    effect: a Rotate turns q and k, a Bias is added to the scores, an Add or Nothing leaves attention as it is
    mask: float, added to the scores, (batch or 1, heads or 1, query, key): -inf where a query must not see a key
    Source: Vaswani et al. 2017, equation 1.
    """
    if isinstance(effect, Rotate):
        q, k = (rotate_by(z, effect.cos, effect.sin, effect.layout, effect.start) for z in (q, k))
    group = q.shape[1] // k.shape[1]
    if group > 1:  # the k head of q head h is h // group
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    if isinstance(effect, Bias):
        bias = effect.scores.to(q.dtype)  # (heads, query, key)
        mask = bias if mask is None else bias + mask
    if mask is not None and causal:
        mask = mask + _causal_mask(q)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal and mask is None)


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """(batch, seq, n_heads * d_head) -> (batch, n_heads, seq, d_head)"""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(batch, n_heads, seq, d_head) -> (batch, seq, n_heads * d_head)"""
    return x.transpose(1, 2).flatten(2)


def _causal_mask(q: Tensor) -> Tensor:
    """0 where a query sees a key, -inf above the diagonal: (seq, seq)"""
    seq = q.shape[2]
    return torch.full((seq, seq), float("-inf"), dtype=q.dtype, device=q.device).triu(1)


def _add_positions(x: Tensor, scheme: str, table: Tensor | None) -> Tensor:
    """x (..., seq, d_model) plus this scheme's vectors; x itself where the scheme works elsewhere."""
    module = SCHEMES[scheme]
    if module.INJECTION != ADDED:
        return x
    seq, d_model = x.shape[-2:]
    if module is learned:
        if table is None:
            raise ValueError(f"the scheme {scheme!r} looks its vectors up: give positions_table, (positions, d_model).")
        if seq > len(table):
            raise TooLong(
                f"{seq:,} tokens, but the position table has {len(table):,} rows: shorten the text.", usable=len(table)
            )
    effect = module.predict(
        {},
        torch.arange(seq, device=x.device),
        rows=None if table is None else table.__getitem__,
        n_rows=None if table is None else len(table),
        width=d_model,
    )
    assert isinstance(effect, Add)
    return x + effect.vectors.to(x.dtype)


def _inside_attention(
    scheme: str, seq: int, n_heads: int, d_head: int, causal: bool, bias_table: Tensor | None
) -> Effect:
    """What the scheme does to q, k or the scores; Nothing where it was added before, or is nowhere."""
    module = _check_scheme(scheme)
    if module.INJECTION in (ADDED, NOWHERE):
        return Nothing()
    if module is relative_bias:
        if bias_table is None:
            raise ValueError(f"the scheme {scheme!r} looks its bias up: give bias_table, (buckets, n_heads).")
        _check_matrix("bias_table", bias_table, "(buckets, n_heads)", width=n_heads)
    both_ways = "symmetric"  # the variant of a bias that by itself looks back only
    effect = module.predict(
        {"head_dim": d_head},
        torch.arange(seq),
        variant=both_ways if not causal and both_ways in module.variants({}) else "",
        rows=None if bias_table is None else bias_table.__getitem__,
        n_rows=None if bias_table is None else len(bias_table),
        heads=n_heads,
        stack="decoder" if causal else "encoder",
    )
    if effect is None:
        raise ValueError(f"{scheme!r} is recorded from models, and has no formula yet: choose another scheme.")
    return effect


def _encode(tokenizer: Any, text: str, add_special_tokens: bool) -> Tensor:
    """The ids of a text from any kind of tokenizer: (seq,) int64"""
    encode = getattr(tokenizer, "encode", tokenizer)
    if not callable(encode):
        raise ValueError(f"a tokenizer has encode(text); {type(tokenizer).__name__} has not.")
    if not isinstance(text, str):
        raise BadText(f"a text is a string, not {type(text).__name__}.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadText(f"half a character (a lone surrogate) stands at index {error.start}: remove it.") from None
    try:
        takes = "add_special_tokens" in inspect.signature(encode).parameters
    except ValueError:  # compiled, and says nothing of its arguments
        takes = False
    encoded = encode(text, add_special_tokens=add_special_tokens) if takes else encode(text)
    ids = _tensor(getattr(encoded, "ids", encoded), "ids")  # tokenizers.Tokenizer answers with an Encoding
    if ids.ndim != 1:
        raise BadIds(f"a tokenizer's ids are (seq,), not of shape {tuple(ids.shape)}: give one text at a time.")
    if ids.numel() == 0:
        raise BadText("the text has no tokens: type something.")
    return ids if ids.is_floating_point() else ids.long()


def _tensor(matrix: Matrix, name: str) -> Tensor:
    if isinstance(matrix, nn.Embedding):
        return matrix.weight
    try:
        return torch.as_tensor(matrix)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        problem = BadIds if name == "ids" else ValueError
        raise problem(f"{name} cannot be read as numbers: {type(matrix).__name__} ({error}).") from None


def _check_scheme(scheme: str) -> Any:
    if scheme not in SCHEMES:
        raise ValueError(f"unknown scheme {scheme!r}: choose one of {', '.join(SCHEMES)}.")
    return SCHEMES[scheme]


def _check_ids(ids: Tensor, n_rows: int) -> None:
    if ids.numel() == 0:
        raise BadIds("there are no ids: give at least one.")
    if ids.is_floating_point():
        raise BadIds(f"ids are integers, not {ids.dtype}.")
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= n_rows:
        wrong = low if low < 0 else high
        raise BadIds(f"id {wrong:,} has no row: the embedding has rows 0 to {n_rows - 1:,}; is it this tokenizer's?")


def _check_matrix(name: str, matrix: Tensor, shape: str, width: int | None = None) -> None:
    if matrix.ndim != 2 or (width is not None and matrix.shape[1] != width):
        wanted = shape if width is None else f"{shape}, {width} wide"
        raise ValueError(f"{name} is {wanted}, not of shape {tuple(matrix.shape)}.")


def _check_projections(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, n_heads: int, n_kv_heads: int) -> int:
    """The size of a head, once all shapes agree."""
    if x.ndim != 3:
        raise ValueError(f"x is (batch, seq, d_model), not of shape {tuple(x.shape)}.")
    if min(n_heads, n_kv_heads) < 1:
        raise ValueError(
            f"n_kv_heads divides n_heads, and there is at least one of each, not {n_heads=}, {n_kv_heads=}."
        )
    if n_heads % n_kv_heads:
        raise ValueError(f"n_kv_heads divides n_heads, but {n_kv_heads} does not divide {n_heads}.")
    for name, w in (("w_q", w_q), ("w_k", w_k), ("w_v", w_v)):
        _check_matrix(name, w, "(out, in)", width=x.shape[2])
    if len(w_q) % n_heads:
        raise ValueError(f"w_q makes {len(w_q)} values a token, which {n_heads} heads cannot share evenly.")
    d_head = len(w_q) // n_heads
    if not len(w_k) == len(w_v) == n_kv_heads * d_head:
        raise ValueError(
            f"{n_kv_heads} heads of {d_head} need {n_kv_heads * d_head} rows in w_k and w_v,"
            f" which have {len(w_k)} and {len(w_v)}."
        )
    return d_head
