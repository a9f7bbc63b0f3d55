"""The operators of the package: the papers' equations as functions of tensors."""

from .models.functional_blosan import (
    DIRECTIONS,
    SCORE_FUNCTIONS,
    additive_attention,
    directional_attention_weights,
    optimal_block_length,
    order_mask,
    source2token_attention,
    source2token_weights,
    spread_scores,
    tensorized_attention,
    tensorized_attention_weights,
)
from .models.fused_blosan import IMPLEMENTATIONS, directional_attention

__all__ = [
    "DIRECTIONS",
    "IMPLEMENTATIONS",
    "SCORE_FUNCTIONS",
    "additive_attention",
    "directional_attention",
    "directional_attention_weights",
    "optimal_block_length",
    "order_mask",
    "source2token_attention",
    "source2token_weights",
    "spread_scores",
    "tensorized_attention",
    "tensorized_attention_weights",
]
