"""What layers do number by number, each in one pass over memory: elu(x + b) and gated sums.

Kernels of numba for float32 on the CPU (extra ``fast``): torch's ELU computes several times as long, and the bias of
a product, a sigmoid, an interpolation, a mask and a concatenation are five passes. Ask ``kernel_takes`` first:
elsewhere, in layers that are set to ``"eager"``, and under ``torch.compile``, which fuses such things itself, layers
call torch's operators.
"""

import torch
from torch import Tensor

from .kernels_cpu_blosan import available as cpu_kernel_available
from .team_cpu_blosan import over_rows

if cpu_kernel_available():
    from .loops_cpu_pointwise_blosan import elu as elu_loop
    from .loops_cpu_pointwise_blosan import elu_backward as elu_backward_loop
    from .loops_cpu_pointwise_blosan import gated_sum as gated_sum_loop
    from .loops_cpu_pointwise_blosan import gated_sum_backward as gated_sum_backward_loop


def kernel_takes(implementation: str, *tensors: Tensor) -> bool:
    """Whether the kernels can take these tensors and their products, in a layer of this implementation."""
    if implementation == "eager" or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return False
    return all(cpu_kernel_available(x) for x in tensors)


def elu_of_sum(x: Tensor, bias: Tensor) -> Tensor:
    """elu(x + bias), in the memory of x where no gradient is wanted.

    Args:
        x: (..., D); nobody else may need it.
        bias: (D), or (G, D) where each row serves one of G equal parts of the rows of x.
    """
    rows, bias = x.reshape(-1, x.shape[-1]), bias.reshape(-1, x.shape[-1])
    if torch.is_grad_enabled():
        return _elu(rows, bias).view(x.shape)
    _elu_(rows, bias)
    return rows.view(x.shape)


def gated_sum(
    scores: Tensor, bias: Tensor, first: Tensor, second: Tensor, mask: Tensor | None = None, out: Tensor | None = None
) -> Tensor:
    """F first + (1 - F) second with F = sigmoid(scores + bias), and 0 where the mask is.

    Args:
        scores, first, second: (G, N, D).
        bias: (D), or (G', D) where each row serves one of G' equal parts of the rows.
        mask: (G, N) or, the same for all groups, (N): true at vectors that count.
        out: where the first N' <= N vectors of each group are to be written, (G, N', D) with features side by side;
            only where no gradient is wanted.
    """
    scores, first, second = scores.contiguous(), first.contiguous(), second.contiguous()
    bias = bias.view(-1, scores.shape[-1])
    if torch.is_grad_enabled():
        return _gated_sum(scores, bias, first, second, mask)
    if out is None:
        out = torch.empty_like(scores)
    _gated_sum_(scores, bias, first, second, mask, out)
    return out


def _repeat(rows: int, bias: Tensor) -> int:
    return max(1, rows // max(1, len(bias)))


@torch.library.custom_op("hf_blosan::elu_", mutates_args=("x",))
def _elu_(x: Tensor, bias: Tensor) -> None:
    over_rows(elu_loop, len(x), x.numel(), x, bias, _repeat(len(x), bias), x, x.shape[1])


@torch.library.custom_op("hf_blosan::elu", mutates_args=())
def _elu(x: Tensor, bias: Tensor) -> Tensor:
    out = torch.empty_like(x)
    over_rows(elu_loop, len(x), x.numel(), x, bias, _repeat(len(x), bias), out, x.shape[1])
    return out


@torch.library.custom_op("hf_blosan::elu_backward", mutates_args=())
def _elu_backward(grad: Tensor, y: Tensor) -> Tensor:
    out = torch.empty_like(y)
    over_rows(elu_backward_loop, len(y), y.numel(), grad.contiguous(), y, out, y.shape[1])
    return out


def _mask(mask: Tensor | None, length: int) -> tuple[Tensor | int, int]:
    """A mask and how far it is from one group to the next, below 0 for no mask."""
    if mask is None:
        return 0, -1
    return mask.bool().contiguous(), length if mask.dim() == 2 else 0


def _write_gated_sum(scores, bias, first, second, mask, out) -> None:
    groups, length, _ = scores.shape
    inputs = (scores, bias, _repeat(groups * length, bias), first, second, *_mask(mask, length))
    to = (out, *out.stride()[:2], out.shape[1])
    over_rows(gated_sum_loop, groups * out.shape[1], out.numel(), *inputs, *to, *scores.shape[1:])


@torch.library.custom_op("hf_blosan::gated_sum_", mutates_args=("out",))
def _gated_sum_(scores: Tensor, bias: Tensor, first: Tensor, second: Tensor, mask: Tensor | None, out: Tensor) -> None:
    _write_gated_sum(scores, bias, first, second, mask, out)


@torch.library.custom_op("hf_blosan::gated_sum", mutates_args=())
def _gated_sum(scores: Tensor, bias: Tensor, first: Tensor, second: Tensor, mask: Tensor | None) -> Tensor:
    out = torch.empty_like(scores)
    _write_gated_sum(scores, bias, first, second, mask, out)
    return out


@torch.library.custom_op("hf_blosan::gated_sum_backward", mutates_args=())
def _gated_sum_backward(
    grad: Tensor, scores: Tensor, bias: Tensor, first: Tensor, second: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    groups, length, _ = scores.shape
    gradients = tuple(torch.empty_like(scores) for _ in range(3))
    if grad.stride(-1) != 1:
        grad = grad.contiguous()
    inputs = (
        grad,
        *grad.stride()[:2],
        scores,
        bias,
        _repeat(groups * length, bias),
        first,
        second,
        *_mask(mask, length),
    )
    over_rows(gated_sum_backward_loop, groups * length, scores.numel(), *inputs, *gradients, *scores.shape[1:])
    return gradients


@_elu.register_fake
def _(x, bias):
    return torch.empty_like(x)


@_elu_backward.register_fake
def _(grad, y):
    return torch.empty_like(y)


@_gated_sum.register_fake
def _(scores, bias, first, second, mask):
    return torch.empty_like(scores)


@_gated_sum_backward.register_fake
def _(grad, scores, bias, first, second, mask):
    return tuple(torch.empty_like(scores) for _ in range(3))


def _sum_parts(rows: Tensor, bias: Tensor) -> Tensor:
    """The gradient of a bias from that of the rows it was added to."""
    return rows.reshape(len(bias), -1, bias.shape[-1]).sum(1)


def _save_elu(ctx, inputs, output):
    ctx.save_for_backward(inputs[1], output)


def _differentiate_elu(ctx, grad):
    bias, y = ctx.saved_tensors
    # With grad enabled somebody wants to differentiate once more.
    to_x = grad * (y + 1).clamp(max=1) if torch.is_grad_enabled() else _elu_backward(grad, y)
    return to_x, _sum_parts(to_x, bias) if ctx.needs_input_grad[1] else None


def _save_gated_sum(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _differentiate_gated_sum(ctx, grad):
    scores, bias, first, second, mask = saved = ctx.saved_tensors  # a checkpoint gives them out once
    if torch.is_grad_enabled():
        gate = torch.sigmoid((scores.reshape(len(bias), -1, bias.shape[-1]) + bias[:, None]).view(scores.shape))
        share = grad if mask is None else grad * mask[..., None]
        to_first, to_second = share * gate, share * (1 - gate)
        to_scores = (first - second) * to_first * (1 - gate)
    else:
        to_scores, to_first, to_second = _gated_sum_backward(grad, *saved)
    to_bias = _sum_parts(to_scores, bias) if ctx.needs_input_grad[1] else None
    return to_scores, to_bias, to_first, to_second, None


_elu.register_autograd(_differentiate_elu, setup_context=_save_elu)
_gated_sum.register_autograd(_differentiate_gated_sum, setup_context=_save_gated_sum)
