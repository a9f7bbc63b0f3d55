"""Which keys a query sees by word order: the counterpart of ``order_mask`` in the models."""

from __future__ import annotations

import torch
from torch import Tensor

DIRECTIONS = ("forward", "backward", "diagonal", "full")

# The direction in which keys see their queries: gradients flow from queries to keys.
MIRRORED = {"forward": "backward", "backward": "forward", "diagonal": "diagonal", "full": "full"}


def visibility(queries: Tensor, keys: Tensor, direction: str, window: int | None) -> Tensor:
    """Whether queries at positions (Q,) see keys at positions (K,), booleans (Q, K)."""
    distance_QK = keys[None] - queries[:, None]
    if direction == "forward":
        visible_QK = distance_QK < 0
    elif direction == "backward":
        visible_QK = distance_QK > 0
    elif direction == "diagonal":
        visible_QK = distance_QK != 0
    else:
        visible_QK = torch.ones_like(distance_QK, dtype=torch.bool)
    return visible_QK if window is None else visible_QK & (distance_QK.abs() <= window)
