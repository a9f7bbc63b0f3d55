"""The operators of the package: the papers' equations as functions of tensors."""

from .models.attention import (
    directional_attention,
    linear_recurrence,
    source2token_attention,
    tensorized_attention,
)
from .models.equations import (
    IMPLEMENTATIONS,
    SCORE_FUNCTIONS,
    additive_attention,
    directional_attention_weights,
    optimal_block_length,
    source2token_weights,
    spread_scores,
    tensorized_attention_weights,
)
from .models.masks import DIRECTIONS, mask_from_heads, order_mask

__all__ = [
    "DIRECTIONS",
    "IMPLEMENTATIONS",
    "SCORE_FUNCTIONS",
    "additive_attention",
    "directional_attention",
    "directional_attention_weights",
    "linear_recurrence",
    "mask_from_heads",
    "optimal_block_length",
    "order_mask",
    "source2token_attention",
    "source2token_weights",
    "spread_scores",
    "tensorized_attention",
    "tensorized_attention_weights",
]
