"""DiSA, the layer of directional self-attention, as one operator for inference on the CPU.

C++ (``csrc/disa.cpp``) calls the operators of its parts one after another: for one sentence what Python does between
them takes longer than they do. There is no gradient and no other form.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..int8 import int8_operands
from ..library import LIBRARY, OPERATORS, is_batched, refuse_forward_mode
from ..pointwise import available

LIBRARY.define(
    "disa(Tensor x, Tensor? places, Tensor? mask, Tensor? cu_seqlens, Tensor[] dense, Tensor[] key, "
    "Tensor[] query, Tensor attention_bias, Tensor[] first, Tensor[] second, Tensor gate_bias, str activation, "
    "str direction, float scale, int? window, str implementation) -> Tensor"
)

ACTIVATIONS = ("linear", "elu", "gelu")

Map = tuple[Tensor, Tensor | None, Tensor | None]
"""A linear map: its weight; if that is int8, the scale of its rows; and its bias or ``None``."""


def disa(
    x: Tensor,
    maps: Sequence[Map],
    *,
    bias: Tensor,
    gate_bias: Tensor,
    activation: str,
    direction: str,
    window: int | None = None,
    scale: float = 5.0,
    places: Tensor | None = None,
    mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    implementation: str = "auto",
) -> Tensor | None:
    """h = act(W x + b); s = directional attention over h; F h + (1 - F) s with the gate F of both (DiSAN Eq. 15-20).

    Args:
        x: (B, N, in), or the V distinct words of a batch, (1, V, in).
        maps: five, W of h, W1 of keys and W2 of queries, and both of the gate.
        bias, gate_bias: of attention and gate, (D).
        activation: ``"linear"``, ``"elu"`` or ``"gelu"``.
        places: (B, N), which word each token is; by default x are the tokens.
        mask: (B, N) booleans, true at real tokens; the result is 0 at others.
        direction, window, scale, cu_seqlens, implementation: see ``directional_attention``.

    Returns:
        (B, N, D); ``None`` where the operator does not support the tensors or the activation, or gradients are wanted.

    Raises:
        RuntimeError: shapes or dtypes do not match.
    """
    weights = [W for W, _, _ in maps]
    if torch.is_grad_enabled() or activation not in ACTIVATIONS or any(W is None for W in weights):
        return None
    floats = [y for W, steps, b in maps for y in (W if steps is None else steps, b) if y is not None]
    batched = is_batched(x, bias, gate_bias, places, mask, cu_seqlens, *weights, *floats)
    if batched or not available(x, bias, gate_bias, *floats):
        return None
    D = weights[0].shape[0]
    for W, size in zip(weights, (x.shape[-1], D, D, D, D), strict=True):
        if W.shape[-1] != size:  # packed weights do not tell
            raise RuntimeError(f"a map of weight {tuple(W.shape)} is given {size} features; give as many as it takes")
    operands = [_operands(x, *map_) for map_ in maps]
    if not all(operands):
        return None
    refuse_forward_mode()
    cu_seqlens = None if cu_seqlens is None else cu_seqlens.long()
    dense, key, query, first, second = operands
    tensors = (places, mask, cu_seqlens, dense, key, query, bias, first, second, gate_bias)
    return OPERATORS.disa.default(x, *tensors, activation, direction, scale, window, implementation)


def _operands(x: Tensor, weight: Tensor, scale: Tensor | None, bias: Tensor | None) -> list[Tensor]:
    parts = [weight] if scale is None else int8_operands(x, weight, scale)
    return parts if bias is None or not parts else [*parts, bias]
