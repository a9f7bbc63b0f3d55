"""Source2token attention as an operator of torch; C++ for float32 and float64 on the CPU (``csrc/source2token.h``).

There is no other form: the equation itself takes O(N D) memory and a handful of torch's operators.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .library import define, has_cpu_kernels


def source2token_attention(
    scores: Tensor, values: Tensor, mask: Tensor, *, cu_seqlens: Tensor | None = None, block_length: int | None = None
) -> Tensor | None:
    """s = sum_i softmax_i(score_i) * x_i, feature by feature, without storing weights (DiSAN Eq. 12-14).

    Arguments and result are as in ``hf_blosan.functional``, but scores are (B, N, D) like the values and of their
    dtype, float32 or float64 on the CPU, the mask is of booleans and ``cu_seqlens`` int64; sentences and blocks
    without real tokens are 0. ``None`` if there is no kernel for such tensors. Differentiable once. Raises
    RuntimeError if shapes, dtypes or devices do not match.
    """
    known = values.dtype in (torch.float32, torch.float64) and scores.dtype == values.dtype
    known = known and scores.shape == values.shape and values.shape[1] > 0
    if values.device.type != "cpu" or not known or not has_cpu_kernels():
        return None
    pooled = _OPERATOR(block_length, scores, values, mask, cu_seqlens)
    if cu_seqlens is not None:
        return pooled[0]
    return pooled[:, 0] if block_length is None else pooled


def _fake(scores, values, mask, cu_seqlens, block_length, save):
    B, N, D = values.shape
    parts = 1 if block_length is None else (N + block_length - 1) // block_length
    parts = parts if cu_seqlens is None else cu_seqlens.shape[0] - 1
    saved = B if save else 0
    return tuple(values.new_empty(rows, parts, D) for rows in (B, saved, saved))


_OPERATOR = define(
    "source2token_attention",
    "Tensor scores, Tensor values, Tensor mask, Tensor? cu_seqlens",
    ("int? block_length",),
    saved=2,
    gradients=2,
    fake=_fake,
)
