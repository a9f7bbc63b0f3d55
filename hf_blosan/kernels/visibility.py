"""Which keys a query sees by word order: the counterpart of ``order_mask`` in the models."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

DIRECTIONS = ("forward", "backward", "diagonal", "full")

MIRRORED = {"forward": "backward", "backward": "forward", "diagonal": "diagonal", "full": "full"}


class Options(NamedTuple):
    """What directional attention does besides its tensors; ``scale`` is c, the bound of the scores."""

    direction: str
    scale: float
    window: int | None

    def mirrored(self) -> Options:
        """With the direction in which keys see their queries: gradients flow from queries to keys."""
        return self._replace(direction=MIRRORED[self.direction])


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
