"""Dropout whose random numbers are functions of a seed and of their place, so that no mask is stored.

C++ (``csrc/dropout.h``) for float32 and float64 on the CPU, where torch draws a double for each element.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from .library import LIBRARY, OPERATORS, is_recorded
from .pointwise import available

LIBRARY.define("dropout(Tensor x, int copies, float p, int seed) -> Tensor")
LIBRARY.define("dropout_backward(Tensor grad, int copies, float p, int seed) -> Tensor")


def dropout(x: Tensor, p: float = 0.5, training: bool = True, copies: int | None = None) -> Tensor:
    """``torch.nn.functional.dropout(x, p, training)``, for several copies of x at once.

    p 2^32 is rounded, and what is kept is divided by just 1 - p. With ``copies`` the result is (copies, ...), and each
    copy loses different elements.
    """
    if training and 2**-32 <= p <= 1 - 2**-32 and available(x) and forward_ad._current_level < 0:
        seed = int(torch.empty((), dtype=torch.int64, device="cpu").random_())  # of the generator of torch's dropout
        if is_recorded(x):
            return _Dropout.apply(x, copies or 0, p, seed)
        return OPERATORS.dropout.default(x, copies or 0, p, seed)
    return F.dropout(x.expand(copies, *x.shape) if copies else x, p, training)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, copies, p, seed):
        ctx.options = copies, p, seed
        return OPERATORS.dropout.default(x, copies, p, seed)

    @staticmethod
    def backward(ctx, grad):
        copies, p, seed = ctx.options
        if torch.is_grad_enabled():  # to be differentiated again
            to_x = grad * OPERATORS.dropout.default(torch.ones_like(grad[0] if copies else grad), copies, p, seed)
            return to_x.sum(0) if copies else to_x, None, None, None
        return OPERATORS.dropout_backward.default(grad, copies, p, seed), None, None, None
