"""DiSA, the layer of directional self-attention, as one operator for inference on the CPU.

C++ (``csrc/disa.cpp``) calls the operators of its parts one after another, in all directions: for one sentence what
Python does between them takes longer than they do, and of many each thread takes all steps of its part. There is no
gradient and no other form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import LayerNorm, Module

from ..int8 import int8_operands
from ..library import LIBRARY, OPERATORS, refuse_forward_mode
from ..pointwise import available

LIBRARY.define(
    "disa(Tensor x, Tensor? places, Tensor? mask, Tensor? cu_seqlens, Tensor[] tensors, int[] counts, "
    "Tensor[] biases, Tensor[] norms, str activation, str directions, int[] windows, float scale, float[] epsilons, "
    "str implementation) -> Tensor"
)

ACTIVATIONS = ("linear", "elu", "gelu")
NO_WINDOW = 2**63 - 1


class Direction(NamedTuple):
    """h = act(W x + b); s = directional attention over h; F h + (1 - F) s with the gate F of both (DiSAN Eq. 15-20).

    Args:
        dense, key, query, first, second: W with b, W1 of keys, W2 of queries, and both maps of the gate:
            ``nn.Linear``, or what has an int8 ``weight`` and a ``scale`` of its rows.
        gate_bias, bias: of gate and attention, (D).
        direction, window: see ``directional_attention``.
    """

    dense: Module
    key: Module
    query: Module
    first: Module
    second: Module
    gate_bias: Tensor
    bias: Tensor
    direction: str
    window: int | None = None


class Residual(NamedTuple):
    """What a stacked layer adds: x = LN(x + V act(W x + b) + c) before the directions, and LN(x + them) after.

    Args:
        feed: W with b.
        output: V with c; ``None`` for x = LN(x + act(W x + b)).
        before, after: the norms, ``nn.LayerNorm``.
    """

    feed: Module
    output: Module | None
    before: LayerNorm
    after: LayerNorm


def disa(
    x: Tensor,
    directions: Sequence[Direction],
    residual: Residual | None = None,
    *,
    activation: str,
    scale: float = 5.0,
    places: Tensor | None = None,
    mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    implementation: str = "auto",
) -> Tensor | None:
    """DiSA in every direction, their features side by side, in one call.

    Args:
        x: (B, N, in), or the V distinct words of a batch, (1, V, in).
        directions: one or more, see ``Direction``.
        residual: see ``Residual``; by default the directions are alone.
        activation: ``"linear"``, ``"elu"`` or ``"gelu"``, of h in every direction and of W x + b in the residual part.
        places: (B, N), which word each token is; by default x are the tokens.
        mask: (B, N) booleans, true at real tokens; directions are 0 at others.
        scale, cu_seqlens, implementation: see ``directional_attention``.

    Returns:
        (B, N, D of all directions); ``None`` where the operator does not support the tensors or the activation, or
        gradients are wanted.

    Raises:
        RuntimeError: shapes or dtypes do not match, or a window is negative.
    """
    # torch.jit.trace compares the graph with one recorded without gradients.
    if torch.is_grad_enabled() and not torch.jit.is_tracing() or activation not in ACTIVATIONS or not available(x):
        return None
    maps, norms, wide = [], [], x.shape[-1]  # maps with the number of features that they are given
    if residual is not None:
        maps = [(residual.feed, wide), (residual.output, residual.feed.weight.shape[0])]
        norms = [residual.before, residual.after]
    for one in directions:
        mapped = one.dense.weight.shape[0]
        maps += [(one.dense, wide), (one.key, mapped), (one.query, mapped), (one.first, mapped), (one.second, mapped)]
    biases = [bias for one in directions for bias in (one.bias, one.gate_bias)]
    affine = [tensor for norm in norms for tensor in (norm.weight, norm.bias)]
    tensors, counts, floats = operands(x, maps)
    if None in counts or any([tensor is None for tensor in affine]) or not available(x, *biases, *affine, *floats):
        return None
    refuse_forward_mode()
    return OPERATORS.disa.default(
        x,
        places,
        mask,
        None if cu_seqlens is None else cu_seqlens.long(),
        tensors,
        counts,
        biases,
        affine,
        activation,
        " ".join(one.direction for one in directions),  # torch.jit.trace knows no lists of strings
        [NO_WINDOW if one.window is None else one.window for one in directions],
        scale,
        [norm.eps for norm in norms],
        implementation,
    )


def operands(
    x: Tensor, maps: Sequence[tuple[Module | None, int]]
) -> tuple[list[Tensor], list[int | None], list[Tensor]]:
    """Maps, each with the number of features that it is given, as C++ takes them: the tensors of all, how many each
    has (``None`` if it cannot be used), and which of them are numbers like x. Raises RuntimeError for a map of another
    number of features.
    """
    tensors, counts, floats = [], [], []
    for map_, size in maps:
        own, numbers = ([], []) if map_ is None else _operands(map_, x, size)
        tensors += own
        floats += numbers
        counts.append(len(own) if own or map_ is None else None)
    return tensors, counts, floats


def _operands(map_: Module, x: Tensor, size: int) -> tuple[list[Tensor], list[Tensor]]:
    """A map as C++ takes it, and which of it are numbers like x; [] if it cannot be used."""
    own = map_._parameters | map_._buffers if map_._buffers else map_._parameters  # attributes of modules are slow
    weight, scale, bias = own.get("weight"), own.get("scale"), own.get("bias")
    if weight is None:  # an attribute that is no parameter, as in replicas of DataParallel
        return [], []
    if weight.shape[-1] != size:  # packed weights do not tell
        raise RuntimeError(f"a map of weight {tuple(weight.shape)} is given {size} features; give as many as it takes")
    bias = [] if bias is None else [bias]
    if scale is None:
        return [weight, *bias], [weight, *bias]
    parts = int8_operands(x, weight, scale)
    return [*parts, *bias] if parts else [], [scale, *bias]
