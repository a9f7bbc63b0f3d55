"""The recurrence of simple recurrent units in fast forms, with the signature of equations.

``"eager"`` is the equation, token by token. Every other ``implementation`` is one operation for all tokens: in float32
on the CPU a numba loop, elsewhere a scan in log2(N) steps.
"""

import torch
from torch import Tensor

from .equations import IMPLEMENTATIONS
from .equations import linear_recurrence as linear_recurrence_eager
from .kernels_cpu_blosan import available as cpu_kernel_available
from .operator_blosan import operator
from .team_cpu_blosan import over_items

if cpu_kernel_available():
    from .loops_cpu_recurrence_blosan import backward as backward_loop
    from .loops_cpu_recurrence_blosan import forward as forward_loop


def linear_recurrence(forget: Tensor, values: Tensor, *, implementation: str = "auto") -> Tensor:
    """The states of a simple recurrent unit (arXiv 1709.02755): c_t = f_t * c_(t-1) + (1 - f_t) * x_t, c_0 = 0.

    Args:
        forget: gates f between 0 and 1, shape (B, N, D).
        values: x, shape (B, N, D).
        implementation: ``"auto"``, ``"eager"``, ``"fused"`` or ``"linear"`` (the same as fused); they differ in speed,
            not in the function. Second derivatives exist for ``"eager"`` only.

    Returns:
        c, shape (B, N, D), in the dtype of ``values``.

    Raises:
        ValueError: unknown implementation, or tensors that are not of one shape (B, N, D).
    """
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f"implementation is {implementation!r}; choose one of {', '.join(IMPLEMENTATIONS)}")
    if forget.shape != values.shape or values.dim() != 3:
        raise ValueError(
            f"gates have shape {tuple(forget.shape)}, values {tuple(values.shape)}; give both the shape (B, N, D)"
        )
    if implementation == "eager":
        return linear_recurrence_eager(forget, values)
    low = values.dtype in (torch.bfloat16, torch.float16)
    forget_BND, values_BND = ((x.float() if low else x.to(values.dtype)).contiguous() for x in (forget, values))
    return _fused(forget_BND, values_BND).to(values.dtype)


def scan(decay: Tensor, increments: Tensor) -> Tensor:
    """s_t = decay_t s_(t-1) + increments_t over dimension 1, s_0 = 0: every step joins spans to twice their length."""
    span, length = 1, increments.shape[1]
    while span < length:
        joined = torch.addcmul(increments[:, span:], decay[:, span:], increments[:, :-span])
        increments = torch.cat([increments[:, :span], joined], dim=1)
        decay = torch.cat([decay[:, :span], decay[:, span:] * decay[:, :-span]], dim=1)
        span *= 2
    return increments


@operator("linear_recurrence")
def _fused(forget: Tensor, values: Tensor) -> Tensor:
    if not cpu_kernel_available(values):
        return scan(forget, (1 - forget) * values)
    forget, values = forget.contiguous(), values.contiguous()
    states = torch.empty_like(values)
    over_items(forward_loop, values, values.numel(), forget, values, states, *values.shape[1:])
    return states


@operator("linear_recurrence_backward")
def _fused_backward(grad: Tensor, forget: Tensor, values: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    if not cpu_kernel_available(values):
        # The same recurrence from the last token to the first; a token's gate weighs what comes from behind it.
        total = scan(forget.flip(1).roll(1, dims=1), grad.flip(1)).flip(1)
        before = torch.cat([torch.zeros_like(states[:, :1]), states[:, :-1]], dim=1)
        return total * (before - values), (1 - forget) * total
    gradients = torch.empty_like(values), torch.empty_like(values)
    inputs = tuple(x.contiguous() for x in (grad, forget, values, states))
    over_items(backward_loop, values, values.numel(), *inputs, *gradients, *values.shape[1:])
    return gradients


@_fused.register_fake
def _(forget, values):
    return torch.empty_like(values)


@_fused_backward.register_fake
def _(grad, forget, values, states):
    return torch.empty_like(values), torch.empty_like(values)


def _save(ctx, inputs, output):
    ctx.save_for_backward(*inputs, output)


def _differentiate(ctx, grad):
    return _fused_backward(grad, *ctx.saved_tensors)


_fused.register_autograd(_differentiate, setup_context=_save)
