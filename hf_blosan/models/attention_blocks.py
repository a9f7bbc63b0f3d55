"""Bi-BloSAN's layer, and its fusion of blocks, as one kernel each; see attention.py."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import (
    ACTIVATIONS,
    Tokens,
    can_use_kernel,
    for_each_token,
    in_rows,
    is_plain,
    is_unchanged,
    kernels,
    to_onnx,
)
from .equations import check_block_length, check_shapes


def block_fusion(layer: nn.Module, map_: nn.Module, mapped, local: Tensor | None, blocks: Tensor | None):
    """The result of a ``BlockFusion``, or ``None`` if it must be computed by its equation."""
    h, plain = in_rows(mapped), layer.activation == "elu" and not (layer.training and layer.dropout)
    if to_onnx() and blocks is not None and type(map_) is nn.Linear:
        size, places_N = blocks.shape[-1], torch.arange(h.shape[1], device=h.device) // layer.block_length
        # A word's part once for all its tokens, and so a block's.
        scores = in_rows(for_each_token(lambda x: F.linear(x, map_.weight[:, :size], map_.bias), mapped))
        if local is not None:
            scores = scores + F.linear(local, map_.weight[:, size:-size])
        scores = scores + F.linear(blocks, map_.weight[:, -size:]).index_select(1, places_N)
        candidate, gate = scores.chunk(2, dim=-1)
        return torch.lerp(h, ACTIVATIONS[layer.activation](candidate), gate.sigmoid())
    if not plain or not can_use_kernel(layer.implementation, h, maps=[map_]):
        return None
    block_length = None if blocks is None else layer.block_length
    return kernels.block_fusion(h, local, blocks, map_.weight, map_.bias, block_length=block_length)


def mblosa(layers: Sequence[nn.Module], x: Tensor | Tokens, mask: Tensor) -> Tensor | None:
    """``MaskedBlockSelfAttention`` in several directions, side by side, in one call for inference; ``None`` if the
    steps must run one by one."""
    x, fast = x if isinstance(x, Tokens) else Tokens(x), getattr(kernels, "mblosa", None)  # an older package has none
    how = {name: getattr(layers[0], name) for name in ("block_length", "fuse_local", "implementation")}
    if fast is None or torch.compiler.is_compiling() or not x.vectors.is_cpu or how["implementation"] == "eager":
        return None
    check_shapes(*x.shape[:2], mask)
    check_block_length(how["block_length"])
    own = [layer._modules for layer in layers]
    between = [some.get("global_attention") for some in own]
    # Of the classes themselves: subclasses may have steps of their own. So has the layer between blocks as printed.
    if not all(["is_exact" in vars(type(part)) for part in (*layers, *between)]):
        return None
    inside, pools, fusions = ([some[name] for some in own] for name in ("block_attention", "pool", "fuse"))
    parts = [*pools, *fusions, *(part for one in between for part in (one.attention, one.gate))]
    exact = all(["is_exact" in vars(type(part)) for part in parts])
    exact = exact and all(["is_exact_in_blocks" in vars(type(part)) for part in inside])
    parts += [*layers, *between, *inside]
    if not (exact and is_unchanged(*parts) and x.cu_seqlens is None and all(x.shape[:2])):
        return None
    alike = [not part.training and part.implementation == how["implementation"] for part in parts]
    alike += [part.activation == "elu" for part in (*layers, *between, *fusions)]
    alike += [part.block_length == how["block_length"] for part in (*layers, *inside, *pools, *fusions)]
    alike += [layer.fuse_local == how["fuse_local"] for layer in layers]
    alike += [pool.mask_padding == pools[0].mask_padding for pool in pools]
    alike += [one.direction == other.attention.direction for one, other in zip(inside, between, strict=True)]
    alike += [one.joint and one.window is None for one in inside]
    if not all(alike):
        return None
    directions = []
    for layer, one, other in zip(layers, inside, between, strict=True):
        among, gate = other.attention, other.gate
        maps = other.dense_map, among.key_map, among.query_map, gate.first, gate.second
        of_blocks = kernels.Direction(*maps, gate.bias, among.bias, among.direction, among.window)
        maps = layer.dense_map, one.alignment_map, layer.block_pooling, layer.fusion
        directions.append(kernels.Blocks(*maps, one.bias, of_blocks))
    if not is_plain(*(map_ for one in directions for map_ in (*one[:4], *one.between[:5]))):
        return None
    options = {"places": x.places_BN, "mask_padding": pools[0].mask_padding, **how}
    return fast(x.vectors, directions, mask=mask.bool(), **options)
