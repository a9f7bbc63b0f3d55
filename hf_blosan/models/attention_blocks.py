"""Bi-BloSAN's fusion of blocks as one kernel; see attention.py."""

from torch import Tensor, nn

from .attention import can_use_kernel, in_rows, kernels


def block_fusion(layer: nn.Module, map_: nn.Module, mapped, local: Tensor | None, blocks: Tensor | None):
    """The result of a ``BlockFusion``, or ``None`` if it must be computed by its equation."""
    mapped, plain = in_rows(mapped), layer.activation == "elu" and not (layer.training and layer.dropout)
    if not plain or not can_use_kernel(layer.implementation, mapped, maps=[map_]):
        return None
    block_length = None if blocks is None else layer.block_length
    return kernels.block_fusion(mapped, local, blocks, map_.weight, map_.bias, block_length=block_length)
