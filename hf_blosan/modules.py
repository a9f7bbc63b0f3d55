"""Layers of the papers for use in other networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .kernels.library import is_batched
from .models.configuration_mtsa import FORMULATIONS
from .models.equations import in_graph
from .models.equations_mtsa import divided
from .models.layers_mtsa import TensorizedSelfAttention


class MultiheadTensorizedAttention(TensorizedSelfAttention):
    """MTSA in place of ``nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)``, as self-attention.

    It uses the paper's equations (Eq. 7-13) and, as in its translation model, exp as score function and queries that
    see their own keys. Half of the heads see the tokens before, half those after, so no positions are needed::

        layer = nn.TransformerEncoderLayer(256, 8, batch_first=True)
        layer.self_attn = MultiheadTensorizedAttention(256, 8, dropout=0.1)

    Args:
        embed_dim: width of a token, in and out.
        num_heads: a divisor of ``embed_dim``, and a multiple of the number of ``directions``.
        dropout: probability of dropping a weight.
        directions: the order mask, or several, among which the heads are divided; see ``order_mask``.
        **options: of ``TensorizedSelfAttention``, overriding the above: ``score_function``, ``attend_to_self``, ...

    Raises:
        ValueError: the heads cannot be divided.
    """

    # Attributes that nn.TransformerEncoderLayer checks before using the kernel of nn.MultiheadAttention.
    batch_first, in_proj_bias, _qkv_same_embed_dim = True, None, False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        *,
        directions: str | Sequence[str] = ("forward", "backward"),
        **options: Any,
    ):
        directions = [directions] if isinstance(directions, str) else list(directions)
        if not directions or num_heads < 1 or num_heads % len(directions) or embed_dim % num_heads:
            raise ValueError(
                f"{num_heads} heads for embed_dim {embed_dim} and {len(directions)} directions; choose a divisor of "
                "the former and a multiple of the latter, both above 0"
            )
        paper = {**FORMULATIONS["paper"], "score_function": "exp", "attend_to_self": True}
        del paper["output_layer"]
        heads = divided(directions, num_heads)
        sizes = {"directions": heads, "output_size": embed_dim, "activation": "elu", "attention_dropout": dropout}
        super().__init__(embed_dim, embed_dim, **(paper | sizes | options))
        self.num_heads = num_heads
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Tokens in context, (B, N, embed_dim), and weights (B, N, N), averaged over features and heads.

        Args:
            query: tokens, (B, N, embed_dim); ``key`` and ``value`` are the same tensor or None.
            key_padding_mask: (B, N), true or -inf at padding.
            need_weights: also return the weights, which takes longer; otherwise ``None``.
            attn_mask: (N, N), true or -inf where a query (row) may not see a key; in addition to the order masks.
            average_attn_weights: ``False`` returns the weights per head, (B, H, N, N).
            is_causal: only describes ``attn_mask``, as for ``nn.MultiheadAttention``.

        Raises:
            ValueError: key or value is another tensor, query has no three dimensions, a mask has numbers other than 0
                and -inf or another shape, or ``is_causal`` is set without a mask.
        """
        if is_causal and attn_mask is None:
            raise ValueError("is_causal only describes attn_mask; give the mask, or directions=('forward',)")
        if any(other is not None and other is not query for other in (key, value)):
            raise ValueError("MTSA is self-attention; give the same tensor as query, key and value")
        if query.dim() != 3:
            raise ValueError(f"query has shape {tuple(query.shape)}; give tokens of shape (B, N, embed_dim)")
        visible_BN = torch.ones(query.shape[:2], dtype=torch.bool, device=query.device)
        if key_padding_mask is not None:
            visible_BN = _visible(key_padding_mask, "key_padding_mask", tuple(query.shape[:2]))
        if attn_mask is not None:
            attn_mask = _visible(attn_mask, "attn_mask", (query.shape[1], query.shape[1]))
        tokens_BNE, maps = super().forward(query, visible_BN, need_weights, attn_mask)
        if maps is None:
            return tokens_BNE, None
        weights_BHNN = maps.attentions[0].mean(-1)
        return tokens_BNE, weights_BHNN.mean(1) if average_attn_weights else weights_BHNN


def _visible(mask: Tensor, name: str, shape: tuple[int, ...]) -> Tensor:
    """A mask of torch.nn, true or -inf where something is hidden, as booleans that are true where it is visible."""
    if tuple(mask.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(mask.shape)}; give one of shape {shape}")
    if mask.dtype == torch.bool:
        return ~mask
    if not in_graph() and not is_batched(mask) and not ((mask == 0) | (mask == -torch.inf)).all():
        raise ValueError(
            f"{name} has numbers other than 0 and -inf; MTSA has no additive scores, so hide or show a key"
        )
    return mask == 0
