"""The operators of the package: the papers' equations as functions of tensors."""

from .models.attention import (
    directional_attention,
    source2token_attention,
)
from .models.attention_mtsa import tensorized_attention
from .models.configuration_biblosan import optimal_block_length
from .models.equations import (
    IMPLEMENTATIONS,
    additive_attention,
    directional_attention_weights,
    source2token_weights,
    spread_scores,
)
from .models.equations_mtsa import SCORE_FUNCTIONS, tensorized_attention_weights
from .models.layers_recurrent import linear_recurrence
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
