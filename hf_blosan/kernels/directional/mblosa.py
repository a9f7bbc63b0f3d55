"""mBloSA, the layer of masked block self-attention, as one operator for inference on the CPU: ``csrc/mblosa.cpp``.

As ``disa``, which it contains, it has no gradient and no other form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from ..library import LIBRARY, OPERATORS, refuse_forward_mode
from ..pointwise import available
from .disa import Direction, operands

LIBRARY.define(
    "mblosa(Tensor x, Tensor? places, Tensor mask, Tensor[] tensors, int[] counts, Tensor[] biases, str directions, "
    "int block_length, bool mask_padding, bool fuse_local, float scale, str implementation) -> Tensor"
)


class Blocks(NamedTuple):
    """Masked block self-attention in one direction, as the authors' code has it (Bi-BloSAN Eq. 9-18).

    h = elu(W x + b); attention over h in each block, with keys and queries from one map; source2token of each block,
    with scores from one map; ``between``, DiSA over these; fusion of h, the attended tokens and their block.

    Args:
        dense, alignment, pooling, fusion: W with b; keys and queries, (2 D, D); scores; and the fusion,
            (2 D, 2 D or 3 D): ``nn.Linear``, or what has an int8 ``weight`` and a ``scale`` of its rows.
        bias: of the attention in blocks, (D).
        between: the layer of the blocks' vectors; in the same direction, without a window.
    """

    dense: Module
    alignment: Module
    pooling: Module
    fusion: Module
    bias: Tensor
    between: Direction


def mblosa(
    x: Tensor,
    directions: Sequence[Blocks],
    *,
    block_length: int,
    mask: Tensor,
    places: Tensor | None = None,
    mask_padding: bool = True,
    fuse_local: bool = True,
    scale: float = 5.0,
    implementation: str = "auto",
) -> Tensor | None:
    """mBloSA with ELU in every direction, their features side by side, in one call.

    Args:
        x: (B, N, in), or the V distinct words of a batch, (1, V, in).
        directions: one or more, see ``Blocks``.
        block_length: tokens per block; the last may be shorter.
        mask: (B, N) booleans, true at real tokens.
        places: (B, N), which word each token is; by default x are the tokens.
        mask_padding: hide blocks of padding from other blocks.
        fuse_local: whether the fusion has what tokens attended to in their block.
        scale, implementation: see ``directional_attention``.

    Returns:
        (B, N, D of all directions); ``None`` where the operator does not support the tensors, there is a window, or
        gradients are wanted.

    Raises:
        RuntimeError: shapes or dtypes do not match, or the block length is below 1.
    """
    windows = [one.between.window for one in directions if one.between.window is not None]
    if torch.is_grad_enabled() and not torch.jit.is_tracing() or windows or not available(x):
        return None
    maps, wide = [], x.shape[-1]  # maps with the number of features that they are given
    for one in directions:
        size, between = one.dense.weight.shape[0], one.between
        among = between.dense.weight.shape[0]
        maps += [(one.dense, wide), (one.alignment, size), (one.pooling, size), (one.fusion, (2 + fuse_local) * size)]
        maps += [(between.dense, size), *((map_, among) for map_ in between[1:5])]
    tensors, counts, floats = operands(x, maps)
    biases = [bias for one in directions for bias in (one.bias, one.between.bias, one.between.gate_bias)]
    if None in counts or not available(x, *biases, *floats):
        return None
    refuse_forward_mode()
    names = " ".join(one.between.direction for one in directions)  # torch.jit.trace knows no lists of strings
    options = names, block_length, mask_padding, fuse_local, scale, implementation
    return OPERATORS.mblosa.default(x, places, mask, tensors, counts, biases, *options)
