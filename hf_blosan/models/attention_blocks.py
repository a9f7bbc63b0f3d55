"""Bi-BloSAN's fusion of blocks as one kernel; see attention.py."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import ACTIVATIONS, can_use_kernel, in_rows, kernels, to_onnx


def block_fusion(layer: nn.Module, map_: nn.Module, mapped, local: Tensor | None, blocks: Tensor | None):
    """The result of a ``BlockFusion``, or ``None`` if it must be computed by its equation."""
    mapped, plain = in_rows(mapped), layer.activation == "elu" and not (layer.training and layer.dropout)
    if to_onnx() and blocks is not None and type(map_) is nn.Linear:
        own = mapped if local is None else torch.cat([mapped, local], dim=-1)
        width = own.shape[-1]
        of_own, of_blocks = map_.weight[:, :width], map_.weight[:, width : width + blocks.shape[-1]]
        places_N = torch.arange(own.shape[1], device=own.device) // layer.block_length
        # A block's part once for all its tokens.
        scores = F.linear(own, of_own, map_.bias) + F.linear(blocks, of_blocks).index_select(1, places_N)
        candidate, gate = scores.chunk(2, dim=-1)
        return torch.lerp(mapped, ACTIVATIONS[layer.activation](candidate), gate.sigmoid())
    if not plain or not can_use_kernel(layer.implementation, mapped, maps=[map_]):
        return None
    block_length = None if blocks is None else layer.block_length
    return kernels.block_fusion(mapped, local, blocks, map_.weight, map_.bias, block_length=block_length)
