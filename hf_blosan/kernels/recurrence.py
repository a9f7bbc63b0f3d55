"""The recurrence of simple recurrent units as an operator of torch.

C++ for float32 and float64 on the CPU (``csrc/recurrence.h``); elsewhere a scan in log2(N) steps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .library import define


def linear_recurrence(forget: Tensor, values: Tensor) -> Tensor:
    """c_t = f_t * c_(t-1) + (1 - f_t) * x_t with c_0 = 0 (arXiv 1709.02755).

    The gates f between 0 and 1, x and the result are (B, N, D), of one dtype, float32 or float64. Differentiable once.
    """
    return _OPERATOR(forget, values)


def scan(decay: Tensor, increments: Tensor) -> Tensor:
    """s_t = decay_t s_(t-1) + increments_t over dimension 1, s_0 = 0; each step doubles the spans."""
    span, length = 1, increments.shape[1]
    while span < length:
        joined = torch.addcmul(increments[:, span:], decay[:, span:], increments[:, :-span])
        increments = torch.cat([increments[:, :span], joined], dim=1)
        decay = torch.cat([decay[:, :span], decay[:, span:] * decay[:, :-span]], dim=1)
        span *= 2
    return increments


def forward(forget: Tensor, values: Tensor) -> Tensor:
    return scan(forget, (1 - forget) * values)


def backward(grad: Tensor, forget: Tensor, values: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    # The same recurrence from the last token to the first, with gates shifted by one token.
    total = scan(forget.flip(1).roll(1, dims=1), grad.flip(1)).flip(1)
    before = torch.cat([torch.zeros_like(states[:, :1]), states[:, :-1]], dim=1)
    return total * (before - values), (1 - forget) * total


_OPERATOR = define(
    "linear_recurrence",
    "Tensor forget, Tensor values",
    gradients=2,
    forms=(forward, backward),
    fake=lambda _, values: values.new_empty(values.shape),
)
