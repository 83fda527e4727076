"""A model's sizes, as its trace and its configuration say them, and the effect that a page is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinput.positions.spelling import CONTEXT, HEADS, pick, text_part

if TYPE_CHECKING:
    from tinput.ui.kit import Page


def context(page: Page) -> int:
    """How many tokens the model was made for, as its configuration says; 0 where it does not say."""
    return int(pick(text_part(page.model.config), *CONTEXT, "max_len") or 0)


def width_of(page: Page) -> int:
    """d_model, as it enters the first block."""
    return int(page.trace.block_input.shape[-1])


def n_heads(page: Page) -> int:
    """Of the traced attention layer; without one, what the configuration says, or 8."""
    attention = page.trace.attention
    return attention.heads if attention is not None else int(pick(text_part(page.model.config), *HEADS) or 8)


def recorded_effect(page: Page, scheme: Any) -> Any:
    """The first recorded effect of a scheme, or None."""
    return next((found.effect for found in page.trace.effects if found.scheme == scheme.NAME), None)
