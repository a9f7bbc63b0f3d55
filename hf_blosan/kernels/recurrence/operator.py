"""The recurrence of simple recurrent units as an operator of torch.

C++ for float32 and float64 on the CPU (``csrc/recurrence.h``); elsewhere a scan in log2(N) steps.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..library import LIBRARY, NAMESPACE, OPERATORS, distinct, has_cpu_kernels, is_recorded

for name in ("linear_recurrence", "linear_recurrence_in_torch"):
    LIBRARY.define(f"{name}(Tensor forget, Tensor values) -> Tensor")
    LIBRARY.define(f"{name}_backward(Tensor grad, Tensor forget, Tensor values, Tensor states) -> (Tensor, Tensor)")


def linear_recurrence(forget: Tensor, values: Tensor) -> Tensor:
    """c_t = f_t * c_(t-1) + (1 - f_t) * x_t with c_0 = 0 (arXiv 1709.02755).

    Args:
        forget: gates f between 0 and 1, (B, N, D).
        values: x, (B, N, D), of the same dtype.

    Returns:
        c, (B, N, D). Differentiable once.
    """
    has_kernel = values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64) and has_cpu_kernels()
    name = "linear_recurrence" if has_kernel else "linear_recurrence_in_torch"
    if is_recorded(forget, values):
        return _LinearRecurrence.apply(name, *distinct(forget, values))
    return getattr(OPERATORS, name).default(forget, values)


def scan(decay: Tensor, increments: Tensor) -> Tensor:
    """s_t = decay_t s_(t-1) + increments_t over dimension 1, s_0 = 0; each step doubles the spans."""
    span, length = 1, increments.shape[1]
    while span < length:
        joined = torch.addcmul(increments[:, span:], decay[:, span:], increments[:, :-span])
        increments = torch.cat([increments[:, :span], joined], dim=1)
        decay = torch.cat([decay[:, :span], decay[:, span:] * decay[:, :-span]], dim=1)
        span *= 2
    return increments


def _forward_in_torch(forget: Tensor, values: Tensor) -> Tensor:
    return scan(forget, (1 - forget) * values)


def _backward_in_torch(grad: Tensor, forget: Tensor, values: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    # The same recurrence from the last token to the first, with gates shifted by one token.
    total = scan(forget.flip(1).roll(1, dims=1), grad.flip(1)).flip(1)
    before = torch.cat([torch.zeros_like(states[:, :1]), states[:, :-1]], dim=1)
    return total * (before - values), (1 - forget) * total


class _LinearRecurrence(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(name, forget, values):
        return getattr(OPERATORS, name).default(forget, values)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.name, *tensors = inputs
        ctx.save_for_backward(*tensors, output)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        operator = getattr(OPERATORS, f"{ctx.name}_backward").default
        return None, *operator(grad, *ctx.saved_tensors)


def _fake_forward(forget, values):
    return values.new_empty(values.shape)


def _fake_backward(grad, forget, values, states):
    return values.new_empty(values.shape), values.new_empty(values.shape)


LIBRARY.impl("linear_recurrence_in_torch", _forward_in_torch, "CompositeExplicitAutograd")
LIBRARY.impl("linear_recurrence_in_torch_backward", _backward_in_torch, "CompositeExplicitAutograd")
for name in ("linear_recurrence", "linear_recurrence_in_torch"):
    torch.library.register_fake(f"{NAMESPACE}::{name}", _fake_forward, lib=LIBRARY)
    torch.library.register_fake(f"{NAMESPACE}::{name}_backward", _fake_backward, lib=LIBRARY)
