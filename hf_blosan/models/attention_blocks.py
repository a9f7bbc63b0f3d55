"""Bi-BloSAN's layer, and its fusion of blocks, as one kernel each; see attention.py."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import ACTIVATIONS, Tokens, can_use_kernel, in_rows, is_plain, is_unchanged, kernels, to_onnx


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


def mblosa(layers: Sequence[nn.Module], x: Tensor | Tokens, mask: Tensor) -> Tensor | None:
    """``MaskedBlockSelfAttention`` in several directions, side by side, in one call for inference; ``None`` if the
    steps must run one by one."""
    x, fast = x if isinstance(x, Tokens) else Tokens(x), getattr(kernels, "mblosa", None)  # an older package has none
    own, implementation = [layer._modules for layer in layers], layers[0].implementation
    if fast is None or torch.compiler.is_compiling() or not x.vectors.is_cpu or implementation == "eager":
        return None
    between = [some.get("global_attention") for some in own]
    if None in between:
        return None
    fused = [*layers, *between, *(some["fuse"] for some in own)]
    parts = [*fused, *(some[name] for some in own for name in ("block_attention", "pool"))]
    parts += [part for one in between for part in (one.attention, one.gate)]
    # Of the classes themselves: subclasses may have steps of their own. So has the layer between blocks as printed.
    if not (all(["is_exact" in vars(type(part)) for part in parts]) and is_unchanged(*parts)):
        return None
    alike = all([not part.training and part.implementation == implementation for part in parts])
    if not (alike and all([part.activation == "elu" for part in fused])):
        return None
    directions = []
    for layer, some, one in zip(layers, own, between, strict=True):
        inside, among, gate = some["block_attention"], one.attention, one.gate
        maps = one.dense_map, among.key_map, among.query_map, gate.first, gate.second
        of_blocks = kernels.Direction(*maps, gate.bias, among.bias, among.direction, among.window)
        maps = layer.dense_map, inside.alignment_map, layer.block_pooling, layer.fusion
        directions.append(kernels.Blocks(*maps, inside.bias, of_blocks))
    if not is_plain(*(map_ for one in directions for map_ in (*one[:4], *one.between[:5]))):
        return None
    options = {"block_length": layers[0].block_length, "mask_padding": layers[0].pool.mask_padding}
    options |= {"fuse_local": layers[0].fuse_local, "places": x.places_BN, "implementation": implementation}
    return fast(x.vectors, directions, mask=mask.bool(), **options)
