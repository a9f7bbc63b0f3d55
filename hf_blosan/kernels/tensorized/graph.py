"""Multi-mask tensorized attention in ONNX graphs.

Every operator of a graph makes a pass over the (B, H, N, N) weights, so this form has few of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..directional.chunks import Options, visible_keys

# Added to the score of a key that is hidden, and the lowest score that a query is shifted by.
HIDDEN, LOWEST = -1e30, -1e29


def tensorized_attention_graph(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    source_scores: Tensor,
    *,
    directions: Sequence[str],
    windows: Sequence[int | None],
    key_mask: Tensor | None = None,
    score_function: str = "sigmoid",
    include_self: bool = False,
) -> Tensor:
    """What ``tensorized_attention`` computes, with arguments and result as there; for graphs.

    With m the largest visible score of a query and a = max(0, -m), the weights of the sigmoid are e^a / (1 + e^-s) =
    1 / (e^-a + e^(-a - s)), which is 1/2 or more at s = m: no query divides 0 by 0.
    """
    real = torch.ones_like(v[:, 0, :, 0]) if key_mask is None else key_mask.to(v.dtype)
    hidden_BN = (1 - real) * HIDDEN
    orders_HNN = [_order(v.shape[2], *head, include_self, v.device) for head in zip(directions, windows, strict=True)]
    hidden_HNN = torch.where(torch.stack(orders_HNN), 0.0, HIDDEN).to(v.dtype)
    scores_BHNN = q @ (k / q.shape[-1] ** 0.5).transpose(-1, -2) + hidden_HNN + hidden_BN[:, None, None]
    top_BHN1 = scores_BHNN.amax(-1, keepdim=True).clamp(min=LOWEST)
    if score_function == "sigmoid":
        shift_BHN1 = top_BHN1.clamp(max=0.0)
        weights_BHNN = 1 / (shift_BHN1.exp() + (shift_BHN1 - scores_BHNN).exp())
    else:
        weights_BHNN = (scores_BHNN - top_BHN1).exp()
    hidden_B1N1 = hidden_BN[:, None, :, None]
    top, low = (source_scores + hidden_B1N1).amax(2, keepdim=True), (source_scores - hidden_B1N1).amin(2, keepdim=True)
    middle = top - ((top - low) / 2).clamp(min=0.0, max=75.0)
    source_BHND = (source_scores - middle).clamp(min=-85.0, max=76.0).exp() * real[:, None, :, None]
    sums_BHND = weights_BHNN @ torch.cat([source_BHND * v, source_BHND], dim=-1)
    numerators, denominators = sums_BHND.chunk(2, dim=-1)
    return numerators / torch.where(denominators > 0, denominators, 1.0)


def _order(length: int, direction: str, window: int | None, include_self: bool, device: torch.device) -> Tensor:
    """Which keys a query sees by word order, (N, N)."""
    everything = slice(None)
    place = length, None, None
    others = everything, everything, device
    (visible,) = visible_keys(*place, Options(direction, 1.0, window), *others)
    return visible | visible_keys(*place, Options("full", 1.0, 0), *others)[0] if include_self else visible
