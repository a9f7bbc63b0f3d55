"""What layers do number by number, each in one pass over memory: elu(x + b) and gated sums.

Kernels of numba for float32 on the CPU (extra ``fast``): torch's ELU computes several times as long, and the bias of
a product, a sigmoid, an interpolation, a mask and a concatenation are five passes. Ask ``kernel_takes`` first:
elsewhere, in layers that are set to ``"eager"``, and under ``torch.compile``, which fuses such things itself, layers
call torch's operators.
"""

import torch
from torch import Tensor

from .functional_blosan import in_blocks
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


def elu_of_sum(x: Tensor, bias: Tensor, block_length: int | None = None) -> Tensor:
    """elu(x + bias), in the memory of x where no gradient is wanted.

    Args:
        x: (..., D); nobody else may need it.
        bias: (D), or (G, D) where each row serves one of G equal parts of the rows of x. With ``block_length`` x is
            (B, N, D) and the bias (B, M, D), each row of which serves that many tokens, the last perhaps fewer.
    """
    length, repeat = _length_and_repeat(x, bias, block_length)
    rows, bias = x.contiguous().view(-1, x.shape[-1]), bias.reshape(-1, x.shape[-1])
    if torch.is_grad_enabled():
        return _elu(rows, bias, length, repeat).view(x.shape)
    _elu_(rows, bias, length, repeat)
    return rows.view(x.shape)


def gated_sum(
    scores: Tensor,
    bias: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    mask: Tensor | None = None,
    out: Tensor | None = None,
    block_length: int | None = None,
) -> Tensor:
    """F first + (1 - F) second with F = sigmoid(scores + bias), and 0 where the mask is.

    Args:
        scores, first, second: (G, N, D).
        bias, block_length: as in :func:`elu_of_sum`.
        mask: (G, N) or, the same for all groups, (N): true at vectors that count.
        out: where the result is to be written, (G, N, D) with features side by side; only where no gradient is wanted.

    Raises:
        ValueError: tensors of other shapes, or a memory for the result where a gradient is wanted.
    """
    shapes = {"first": first, "second": second, "out": scores if out is None else out}
    for name, x in shapes.items():
        if x.shape != scores.shape:
            raise ValueError(f"{name} is {tuple(x.shape)} and the scores are {tuple(scores.shape)}; give equal shapes")
    if mask is not None and mask.shape not in (scores.shape[:2], scores.shape[1:2]):
        raise ValueError(f"mask is {tuple(mask.shape)} and the scores are {tuple(scores.shape)}; give (G, N) or (N)")
    if out is not None and torch.is_grad_enabled():
        raise ValueError("out: what is written there has no gradient; leave it out or use torch.no_grad()")
    scores, first, second = scores.contiguous(), first.contiguous(), second.contiguous()
    length, repeat = _length_and_repeat(scores, bias, block_length)
    bias = bias.reshape(-1, scores.shape[-1])
    if torch.is_grad_enabled():
        return _gated_sum(scores, bias, first, second, mask, length, repeat)
    if out is None:
        out = torch.empty_like(scores)
    _gated_sum_(scores, bias, first, second, mask, out, length, repeat)
    return out


def _length_and_repeat(x: Tensor, bias: Tensor, block_length: int | None) -> tuple[int, int]:
    """How many rows of x a group of rows of the bias serves, and how many each of them."""
    if block_length is not None:
        return x.shape[-2], block_length
    rows = x.numel() // max(1, x.shape[-1])
    return max(1, rows), max(1, rows // max(1, bias.numel() // max(1, x.shape[-1])))


@torch.library.custom_op("hf_blosan::elu_", mutates_args=("x",))
def _elu_(x: Tensor, bias: Tensor, length: int, repeat: int) -> None:
    fields = (x, bias.contiguous(), length, repeat, x, x.shape[1])
    over_rows(elu_loop, len(x), x.numel(), *fields)


@torch.library.custom_op("hf_blosan::elu", mutates_args=())
def _elu(x: Tensor, bias: Tensor, length: int, repeat: int) -> Tensor:
    x, out = x.contiguous(), x.new_empty(x.shape)
    fields = (x, bias.contiguous(), length, repeat, out, x.shape[1])
    over_rows(elu_loop, len(x), x.numel(), *fields)
    return out


@torch.library.custom_op("hf_blosan::elu_backward", mutates_args=())
def _elu_backward(grad: Tensor, y: Tensor) -> Tensor:
    out = torch.empty_like(y)
    over_rows(elu_backward_loop, len(y), y.numel(), grad.contiguous(), y, out, y.shape[1])
    return out


def _gate_fields(scores, bias, first, second, mask, length: int, repeat: int) -> tuple:
    group = scores.shape[1]
    # How far it is from the mask of one group to that of the next; below 0 for no mask.
    mask = (0, -1) if mask is None else (mask.bool().contiguous(), group if mask.dim() == 2 else 0)
    return scores, bias.contiguous(), length, repeat, first, second, *mask


def _write_gated_sum(scores, bias, first, second, mask, out, length, repeat) -> None:
    groups, group, size = scores.shape
    fields = (*_gate_fields(scores, bias, first, second, mask, length, repeat), out, *out.stride()[:2], group, size)
    over_rows(gated_sum_loop, groups * group, out.numel(), *fields)


@torch.library.custom_op("hf_blosan::gated_sum_", mutates_args=("out",))
def _gated_sum_(
    scores: Tensor,
    bias: Tensor,
    first: Tensor,
    second: Tensor,
    mask: Tensor | None,
    out: Tensor,
    length: int,
    repeat: int,
) -> None:
    _write_gated_sum(scores, bias, first, second, mask, out, length, repeat)


@torch.library.custom_op("hf_blosan::gated_sum", mutates_args=())
def _gated_sum(
    scores: Tensor, bias: Tensor, first: Tensor, second: Tensor, mask: Tensor | None, length: int, repeat: int
) -> Tensor:
    out = torch.empty_like(scores)
    _write_gated_sum(scores, bias, first, second, mask, out, length, repeat)
    return out


@torch.library.custom_op("hf_blosan::gated_sum_backward", mutates_args=())
def _gated_sum_backward(
    grad: Tensor,
    scores: Tensor,
    bias: Tensor,
    first: Tensor,
    second: Tensor,
    mask: Tensor | None,
    length: int,
    repeat: int,
) -> tuple[Tensor, Tensor, Tensor]:
    groups, group, size = scores.shape
    gradients = tuple(torch.empty_like(scores) for _ in range(3))
    if grad.stride(-1) != 1:
        grad = grad.contiguous()
    inputs = _gate_fields(scores, bias, first, second, mask, length, repeat)
    fields = (*inputs, grad, *grad.stride()[:2], *gradients, group, size)
    over_rows(gated_sum_backward_loop, groups * group, scores.numel(), *fields)
    return gradients


@_elu.register_fake
def _(x, bias, length, repeat):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@_elu_backward.register_fake
def _(grad, y):
    return torch.empty_like(y)


@_gated_sum.register_fake
def _(scores, bias, first, second, mask, length, repeat):
    return torch.empty_like(scores)


@_gated_sum_backward.register_fake
def _(grad, scores, bias, first, second, mask, length, repeat):
    return tuple(torch.empty_like(scores) for _ in range(3))


def _sum_parts(x: Tensor, bias: Tensor, length: int, repeat: int) -> Tensor:
    """The gradient of a bias from that of the rows it was added to."""
    if not x.numel():
        return torch.zeros_like(bias)
    return in_blocks(x.reshape(-1, length, x.shape[-1]), repeat).sum(1).view(bias.shape)


def _spread(bias: Tensor, x: Tensor, length: int, repeat: int) -> Tensor:
    """The bias of every row of x."""
    groups = x.numel() // max(1, length * x.shape[-1])
    bias = bias.view(max(1, groups), -1, x.shape[-1]).repeat_interleave(repeat, dim=1)
    return bias[:, :length].reshape(x.shape)


def _save_elu(ctx, inputs, output):
    _, bias, *ctx.places = inputs
    ctx.save_for_backward(bias, output)


def _differentiate_elu(ctx, grad):
    bias, y = ctx.saved_tensors
    # With grad enabled somebody wants to differentiate once more.
    to_x = grad * (y + 1).clamp(max=1) if torch.is_grad_enabled() else _elu_backward(grad, y)
    return to_x, _sum_parts(to_x, bias, *ctx.places) if ctx.needs_input_grad[1] else None, None, None


def _save_gated_sum(ctx, inputs, output):
    *tensors, length, repeat = inputs
    ctx.places = length, repeat
    ctx.save_for_backward(*tensors)


def _differentiate_gated_sum(ctx, grad):
    scores, bias, first, second, mask = saved = ctx.saved_tensors  # a checkpoint gives them out once
    if torch.is_grad_enabled():
        gate = torch.sigmoid(scores + _spread(bias, scores, *ctx.places))
        share = grad if mask is None else grad * mask[..., None]
        to_first, to_second = share * gate, share * (1 - gate)
        to_scores = (first - second) * to_first * (1 - gate)
    else:
        to_scores, to_first, to_second = _gated_sum_backward(grad, *saved, *ctx.places)
    to_bias = _sum_parts(to_scores, bias, *ctx.places) if ctx.needs_input_grad[1] else None
    return to_scores, to_bias, to_first, to_second, None, None, None


_elu.register_autograd(_differentiate_elu, setup_context=_save_elu)
_gated_sum.register_autograd(_differentiate_gated_sum, setup_context=_save_gated_sum)
