"""A small decoder whose position scheme is an argument: six of them differ in that alone.

Pre-norm blocks, GELU, no biases in the projections, token embedding times sqrt(d_model) (Vaswani et al. 2017, section
3.4) and tied to the output. The scheme is the textbook's: `positions/` predicts what is injected, `pipeline.attend`
injects it. Everything about positions is computed in `forward` from the position ids, so nothing hides in a buffer.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput

from tinput.errors import BadIds, TooLong
from tinput.pipeline import attend, merge_heads, split_heads
from tinput.positions import SCHEMES
from tinput.positions.effects import Add, Bias, Effect, Rotate

__all__ = ["TwinConfig", "TwinForCausalLM", "TwinModel"]


class TwinConfig(PreTrainedConfig):
    """The sizes of a twin, and its `scheme`; the six configurations differ in `scheme` alone.

    rope_theta and the relative_attention_* numbers are each read by one scheme only.
    """

    model_type = "tinput_twin"

    scheme: str = "none"
    vocab_size: int = 1024
    hidden_size: int = 128
    intermediate_size: int = 512
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    max_position_embeddings: int = 256
    rope_theta: float = 10000.0
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    layer_norm_eps: float = 1e-5
    initializer_range: float = 0.02
    tie_word_embeddings: bool = True
    use_cache: bool = False
    bos_token_id: int | None = 0
    eos_token_id: int | None = 0
    pad_token_id: int | None = None


class IntoResidual(nn.Linear):
    """A projection whose output is added to the residual stream."""


class PositionTable(nn.Embedding):
    """What is learned of positions: a vector for each, or a bias for each bucket of distances."""


class TwinAttention(nn.Module):
    def __init__(self, config: TwinConfig):
        super().__init__()
        d_model, self.n_heads = config.hidden_size, config.num_attention_heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(d_model, d_model, bias=False) for _ in range(3))
        self.o_proj = IntoResidual(d_model, d_model, bias=False)

    def forward(self, x: Tensor, effect: Effect, mask: Tensor | None = None) -> Tensor:
        q, k, v = (split_heads(project(x), self.n_heads) for project in (self.q_proj, self.k_proj, self.v_proj))
        return self.o_proj(merge_heads(attend(q, k, v, effect, mask=mask)))  # (batch, seq, d_model)


class TwinBlock(nn.Module):
    def __init__(self, config: TwinConfig):
        super().__init__()
        self.input_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.self_attn = TwinAttention(config)
        self.mlp_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = IntoResidual(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor, effect: Effect, mask: Tensor | None = None) -> Tensor:
        x = x + self.self_attn(self.input_norm(x), effect, mask)
        return x + self.down_proj(F.gelu(self.up_proj(self.mlp_norm(x))))


class TwinPreTrainedModel(PreTrainedModel):
    config_class = TwinConfig
    base_model_prefix = "model"
    _supports_sdpa = True
    _no_split_modules = ["TwinBlock"]  # noqa: RUF012 - transformers' name and type

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Small embeddings; the two projections into the residual stream shrink with depth (GPT-2)."""
        if isinstance(module, nn.Embedding):
            # Positions start as large as the token rows are once scaled.
            scale = math.sqrt(self.config.hidden_size) if isinstance(module, PositionTable) else 1
            init.normal_(module.weight, std=self.config.initializer_range * scale)
        elif isinstance(module, nn.Linear):
            std = module.in_features**-0.5 / 2
            if isinstance(module, IntoResidual):
                std /= (2 * self.config.num_hidden_layers) ** 0.5
            init.normal_(module.weight, std=std)
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)


class TwinModel(TwinPreTrainedModel):
    """The decoder without its output: token ids to the hidden states after the last layer norm."""

    def __init__(self, config: TwinConfig):
        super().__init__(config)
        if config.scheme not in SCHEMES:
            raise ValueError(f"scheme is {config.scheme!r}; choose one of {', '.join(SCHEMES)}.")
        if config.hidden_size % config.num_attention_heads:
            raise ValueError(f"{config.num_attention_heads} heads do not divide hidden_size {config.hidden_size}.")
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(TwinBlock(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        # Made last, so that all other weights start the same in every twin.
        tables = {
            "learned": (config.max_position_embeddings, config.hidden_size),
            "relative_bias": (config.relative_attention_num_buckets, config.num_attention_heads),
        }
        self.position_table = PositionTable(*tables[config.scheme]) if config.scheme in tables else None
        self.post_init()

    def effect(self, position_ids: Tensor) -> Effect:
        """What this twin's scheme injects. position_ids: (seq,)"""
        table = self.position_table
        return SCHEMES[self.config.scheme].predict(
            self.config.to_dict(),
            position_ids,
            rows=table,
            n_rows=table.num_embeddings if table is not None else None,
            width=self.config.hidden_size,
            heads=self.config.num_attention_heads,
            stack="decoder",
        )

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        **_: object,
    ) -> BaseModelOutput:
        """input_ids, attention_mask (1 seen, 0 padding), position_ids: (batch, seq); positions count from 0.

        Raises BadIds for ids or positions out of range, TooLong for a position that the learned table does not have.
        """
        if input_ids.ndim != 2 or not input_ids.numel():
            raise BadIds(f"input_ids are (batch, seq) with at least one id, not of shape {tuple(input_ids.shape)}.")
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)[None]  # (1, seq)
        if position_ids.ndim != 2 or position_ids.shape[1] != input_ids.shape[1]:
            raise BadIds(f"position_ids of shape {tuple(position_ids.shape)} do not fit {tuple(input_ids.shape)} ids.")
        self.check_positions(position_ids)
        x = self.embed_tokens(input_ids) * math.sqrt(self.config.hidden_size)  # (batch, seq, d_model)
        effect = _stack([self.effect(row) for row in position_ids])
        if isinstance(effect, Add):
            x = x + effect.vectors.to(x.dtype)
        mask = _padding_mask(attention_mask, x.dtype)
        for layer in self.layers:
            x = layer(x, effect, mask)
        return BaseModelOutput(last_hidden_state=self.norm(x))

    def check_positions(self, position_ids: Tensor) -> None:
        """Raises TooLong for a position that the learned table does not have."""
        if self.config.scheme != "learned":
            return
        rows, last = self.config.max_position_embeddings, int(position_ids.max())
        if last >= rows:
            raise TooLong(f"position {last:,} has no row: the position table has {rows}. Shorten the text.", rows)


class TwinForCausalLM(TwinPreTrainedModel, GenerationMixin):
    """The decoder with its output: logits for the next token, and with `labels` the mean loss in nats a token."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012 - transformers' name and type

    def __init__(self, config: TwinConfig):
        super().__init__(config)
        self.model = TwinModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **_: object,
    ) -> CausalLMOutput:
        """As TwinModel.forward. labels: (batch, seq), the ids themselves (shifted here), -100 where none is asked."""
        hidden = self.model(input_ids, attention_mask, position_ids).last_hidden_state
        logits = self.lm_head(hidden)  # (batch, seq, vocab)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten(), ignore_index=-100)
        return CausalLMOutput(loss=loss, logits=logits)


def _stack(effects: list[Effect]) -> Effect:
    """The effects of the rows of a batch as one; a single row's serves the whole batch."""
    first = effects[0]
    if len(effects) == 1:
        return first

    def stack(name: str) -> Tensor:
        return torch.stack([getattr(effect, name) for effect in effects])

    if isinstance(first, Add):
        return Add(stack("vectors"))  # (batch, seq, d_model)
    if isinstance(first, Bias):
        return Bias(stack("scores"))  # (batch, heads, query, key)
    if isinstance(first, Rotate):
        cos, sin, angles = (stack(name)[:, None] for name in ("cos", "sin", "angles"))  # (batch, 1, seq, pair)
        return Rotate(cos, sin, angles, first.layout, first.start)
    return first


def _padding_mask(attention_mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """0 where a key is seen, very low where it is padding: (batch, 1, 1, key). None where nothing is padding."""
    if attention_mask is None or bool(attention_mask.all()):
        return None
    # Not -inf: a padding query sees nothing at all, and its softmax would be 0 / 0.
    return (1 - attention_mask.to(dtype))[:, None, None, :] * torch.finfo(dtype).min
