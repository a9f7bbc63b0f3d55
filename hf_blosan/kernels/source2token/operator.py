"""Source2token attention as an operator of torch; C++ for float32 and float64 on the CPU (``csrc/source2token.h``).

There is no other form: the equation itself takes O(N D) memory and a handful of torch's operators.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..library import LIBRARY, NAMESPACE, OPERATORS, distinct, has_cpu_kernels, is_recorded

LIBRARY.define(
    "source2token_attention(Tensor scores, Tensor values, Tensor mask, Tensor? cu_seqlens, int? block_length) -> "
    "(Tensor, Tensor, Tensor)"
)
LIBRARY.define(
    "source2token_attention_backward(Tensor grad, Tensor scores, Tensor values, Tensor mask, Tensor? cu_seqlens, "
    "int? block_length, Tensor out, Tensor tops, Tensor totals) -> (Tensor, Tensor)"
)


def source2token_attention(
    scores: Tensor,
    values: Tensor,
    mask: Tensor,
    *,
    cu_seqlens: Tensor | None = None,
    block_length: int | None = None,
) -> Tensor | None:
    """s = sum_i softmax_i(score_i) * x_i, feature by feature, without storing weights (DiSAN Eq. 12-14).

    Args:
        scores, values: (B, N, D), float32 or float64 on the CPU.
        mask: (B, N) booleans, true at real tokens.
        cu_seqlens: (S + 1,) int64: S sentences lie one after the other in a single row, without padding, each from
            one of these places to the next.
        block_length: return a vector for each of the M blocks of that many tokens, the last of which may be shorter.

    Returns:
        (B, D), (B, M, D) with blocks, (S, D) with sentences; 0 for those without real tokens. Differentiable once.
        ``None`` if there is no kernel for such tensors.

    Raises:
        RuntimeError: shapes, dtypes or devices do not match.
    """
    known = values.dtype in (torch.float32, torch.float64) and scores.dtype == values.dtype
    known = known and scores.shape == values.shape and values.shape[1] > 0
    if values.device.type != "cpu" or not known or not has_cpu_kernels():
        return None
    scores, values = distinct(scores, values)
    arguments = (scores, values, mask, cu_seqlens, block_length)
    if is_recorded(scores, values):
        pooled = _SourceToToken.apply(*arguments)[0]
    else:
        pooled = OPERATORS.source2token_attention.default(*arguments)[0]
    if cu_seqlens is not None:
        return pooled[0]
    return pooled[:, 0] if block_length is None else pooled


class _SourceToToken(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments):
        return OPERATORS.source2token_attention.default(*arguments)

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.block_length = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*tensors, *output)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, *_):
        *tensors, out, tops, totals = ctx.saved_tensors
        operator = OPERATORS.source2token_attention_backward.default
        return *operator(grad, *tensors, ctx.block_length, out, tops, totals), None, None, None


def _fake_forward(scores, values, mask, cu_seqlens, block_length):
    B, N, D = values.shape
    parts = 1 if block_length is None else (N + block_length - 1) // block_length
    parts = parts if cu_seqlens is None else cu_seqlens.shape[0] - 1
    return tuple(values.new_empty(B, parts, D) for _ in range(3))


def _fake_backward(grad, scores, values, *others):
    return scores.new_empty(scores.shape), values.new_empty(values.shape)


torch.library.register_fake(f"{NAMESPACE}::source2token_attention", _fake_forward, lib=LIBRARY)
torch.library.register_fake(f"{NAMESPACE}::source2token_attention_backward", _fake_backward, lib=LIBRARY)
