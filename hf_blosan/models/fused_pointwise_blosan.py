"""What layers do number by number, each in one pass over memory: elu(x + b) and gated sums.

Kernels of numba for float32 on the CPU (extra ``fast``): torch's ELU computes several times as long, and the bias of
a product, a sigmoid, an interpolation, a mask and a concatenation are five passes. Ask ``kernel_takes`` first:
elsewhere, in layers that are set to ``"eager"``, and under ``torch.compile``, which fuses such things itself, layers
call torch's operators.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from .kernels_cpu_blosan import available as cpu_kernel_available
from .masks import in_blocks, of_tokens
from .operator_blosan import operator
from .team_cpu_blosan import over_rows

if cpu_kernel_available():
    from .loops_cpu_pointwise_blosan import elu as elu_loop
    from .loops_cpu_pointwise_blosan import elu_backward as elu_backward_loop
    from .loops_cpu_pointwise_blosan import gated_candidate as gated_candidate_loop
    from .loops_cpu_pointwise_blosan import gated_candidate_backward as gated_candidate_backward_loop
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
    rows, bias = x.contiguous().view(-1, x.shape[-1]), bias.reshape(-1, x.shape[-1])
    if torch.is_grad_enabled():
        return _elu(rows, bias).view(x.shape)
    _elu_(rows, bias)
    return rows.view(x.shape)


def gated_sum(
    scores: Tensor,
    bias: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    mask: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """F first + (1 - F) second with F = sigmoid(scores + bias), and 0 where the mask is.

    Args:
        scores, first, second: (G, N, D).
        bias: (D), or (G, D), a row for each group.
        mask: (G, N) or, the same for all groups, (N): true at vectors that count.
        out: where the result is to be written, (G, N, D) with features side by side; only where no gradient is wanted.

    Raises:
        ValueError: tensors of other shapes; a memory for the result where a gradient is wanted, or one whose features
            do not lie side by side.
    """
    _check_arguments(scores.shape, first=first, second=second, out=out)
    if mask is not None and mask.shape not in (scores.shape[:2], scores.shape[1:2]):
        raise ValueError(f"mask is {tuple(mask.shape)} and the scores are {tuple(scores.shape)}; give (G, N) or (N)")
    if bias.shape not in (scores.shape[2:], scores.shape[::2]):
        raise ValueError(f"bias is {tuple(bias.shape)} and the scores are {tuple(scores.shape)}; give (D) or (G, D)")
    if torch.is_grad_enabled():
        return _gated_sum(scores, bias, first, second, mask)
    if out is None:
        out = scores.new_empty(scores.shape)
    _gated_sum_(scores, bias, first, second, mask, out)
    return out


def gated_candidate(
    scores: Tensor, bias: Tensor, second: Tensor, *, block_length: int | None = None, out: Tensor | None = None
) -> Tensor:
    """F elu(a) + (1 - F) second with F = sigmoid(b), where [a; b] = scores + bias (Bi-BloSAN Eq. 17-18).

    Args:
        scores: (B, N, 2 D).
        bias: (2 D); or, with ``block_length``, (B, M, 2 D), each row of which serves that many tokens, the last
            perhaps fewer.
        second: (B, N, D).
        out: as in :func:`gated_sum`.

    Raises:
        ValueError: as in :func:`gated_sum`.
    """
    B, N, D = second.shape
    _check_arguments((B, N, 2 * D), scores=scores)
    _check_arguments((2 * D,) if block_length is None else (B, -(-N // block_length), 2 * D), bias=bias)
    _check_arguments(second.shape, out=out)
    if torch.is_grad_enabled():
        return _gated_candidate(scores, bias, second, block_length)
    if out is None:
        out = second.new_empty(second.shape)
    _gated_candidate_(scores, bias, second, out, block_length)
    return out


def _check_arguments(shape: tuple[int, ...], out: Tensor | None = None, **tensors: Tensor) -> None:
    """Refuse other shapes, and a memory for the result that cannot take it."""
    for name, x in (tensors if out is None else tensors | {"out": out}).items():
        if x.shape != shape:
            raise ValueError(f"{name} is {tuple(x.shape)}; give {tuple(shape)}, as the other tensors ask for")
    if out is not None and torch.is_grad_enabled():
        raise ValueError("out: what is written there has no gradient; leave it out or use torch.no_grad()")
    if out is not None and out.stride(-1) != 1:
        raise ValueError(f"out has strides {out.stride()}; its features must lie side by side")


@operator("elu_", mutates_args=("x",))
def _elu_(x: Tensor, bias: Tensor) -> None:
    _write_elu(x, bias, x)


@operator("elu")
def _elu(x: Tensor, bias: Tensor) -> Tensor:
    return _write_elu(x.contiguous(), bias, x.new_empty(x.shape))


def _write_elu(x: Tensor, bias: Tensor, out: Tensor) -> Tensor:
    rows = max(1, len(x) // len(bias))
    over_rows(elu_loop, len(x), x.numel(), x, bias.contiguous(), out, rows, x.shape[1])
    return out


@operator("elu_backward")
def _elu_backward(grad: Tensor, y: Tensor) -> Tensor:
    out = y.new_empty(y.shape)
    over_rows(elu_backward_loop, len(y), y.numel(), grad.contiguous(), y.contiguous(), out, y.shape[1])
    return out


def _gate_fields(scores: Tensor, bias: Tensor, first: Tensor, second: Tensor, mask: Tensor | None) -> tuple:
    group, size = scores.shape[1:]
    # How far it is from the mask of one group to that of the next; below 0 for no mask.
    mask = (0, -1) if mask is None else (mask.bool().contiguous(), group if mask.dim() == 2 else 0)
    scores, bias, first, second = (x.contiguous() for x in (scores, bias, first, second))
    return scores, bias, size if bias.dim() == 2 else 0, first, second, *mask


def _write_gated_sum(scores, bias, first, second, mask, out) -> Tensor:
    groups, group, size = scores.shape
    fields = (*_gate_fields(scores, bias, first, second, mask), out, *out.stride()[:2], group, size)
    over_rows(gated_sum_loop, groups * group, out.numel(), *fields)
    return out


@operator("gated_sum_", mutates_args=("out",))
def _gated_sum_(scores: Tensor, bias: Tensor, first: Tensor, second: Tensor, mask: Tensor | None, out: Tensor) -> None:
    _write_gated_sum(scores, bias, first, second, mask, out)


@operator("gated_sum")
def _gated_sum(scores: Tensor, bias: Tensor, first: Tensor, second: Tensor, mask: Tensor | None) -> Tensor:
    return _write_gated_sum(scores, bias, first, second, mask, scores.new_empty(scores.shape))


@operator("gated_sum_backward")
def _gated_sum_backward(
    grad: Tensor, scores: Tensor, bias: Tensor, first: Tensor, second: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    groups, group, size = scores.shape
    gradients = tuple(scores.new_empty(scores.shape) for _ in range(3))
    grad = grad if grad.stride(-1) == 1 else grad.contiguous()
    inputs = _gate_fields(scores, bias, first, second, mask)
    fields = (*inputs, grad, *grad.stride()[:2], *gradients, group, size)
    over_rows(gated_sum_backward_loop, groups * group, scores.numel(), *fields)
    return gradients


def _candidate_fields(scores: Tensor, bias: Tensor, second: Tensor, block_length: int | None) -> tuple:
    """In groups of ``length`` rows each row of the bias serves ``repeat``; without blocks all rows are one group."""
    B, N, _ = second.shape
    length, repeat = (B * N, B * N) if block_length is None else (N, block_length)
    return scores.contiguous(), bias.contiguous(), length, repeat, second.contiguous()


def _write_gated_candidate(scores, bias, second, out, block_length) -> Tensor:
    B, N, D = second.shape
    fields = (*_candidate_fields(scores, bias, second, block_length), out, *out.stride()[:2], N, D)
    over_rows(gated_candidate_loop, B * N, 2 * out.numel(), *fields)
    return out


@operator("gated_candidate_", mutates_args=("out",))
def _gated_candidate_(scores: Tensor, bias: Tensor, second: Tensor, out: Tensor, block_length: int | None) -> None:
    _write_gated_candidate(scores, bias, second, out, block_length)


@operator("gated_candidate")
def _gated_candidate(scores: Tensor, bias: Tensor, second: Tensor, block_length: int | None) -> Tensor:
    return _write_gated_candidate(scores, bias, second, second.new_empty(second.shape), block_length)


@operator("gated_candidate_backward")
def _gated_candidate_backward(
    grad: Tensor, scores: Tensor, bias: Tensor, second: Tensor, block_length: int | None
) -> tuple[Tensor, Tensor]:
    B, N, D = second.shape
    gradients = scores.new_empty(scores.shape), second.new_empty(second.shape)
    grad = grad if grad.stride(-1) == 1 else grad.contiguous()
    inputs = _candidate_fields(scores, bias, second, block_length)
    fields = (*inputs, grad, *grad.stride()[:2], *gradients, N, D)
    over_rows(gated_candidate_backward_loop, B * N, 2 * second.numel(), *fields)
    return gradients


@_elu.register_fake
def _(x, bias):
    return x.new_empty(x.shape)


@_elu_backward.register_fake
def _(grad, y):
    return y.new_empty(y.shape)


@_gated_sum.register_fake
def _(scores, bias, first, second, mask):
    return scores.new_empty(scores.shape)


@_gated_sum_backward.register_fake
def _(grad, scores, bias, first, second, mask):
    return tuple(scores.new_empty(scores.shape) for _ in range(3))


@_gated_candidate.register_fake
def _(scores, bias, second, block_length):
    return second.new_empty(second.shape)


@_gated_candidate_backward.register_fake
def _(grad, scores, bias, second, block_length):
    return scores.new_empty(scores.shape), second.new_empty(second.shape)


def _save_elu(ctx, inputs, output):
    ctx.save_for_backward(inputs[1], output)


def _differentiate_elu(ctx, grad):
    bias, y = ctx.saved_tensors
    # With grad enabled somebody wants to differentiate once more.
    to_x = grad * (y + 1).clamp(max=1) if torch.is_grad_enabled() else _elu_backward(grad, y)
    to_bias = None
    if ctx.needs_input_grad[1]:
        to_bias = to_x.reshape(len(bias), len(to_x) // len(bias), to_x.shape[1]).sum(1)
    return to_x, to_bias


def _save_gated_sum(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _differentiate_gated_sum(ctx, grad):
    scores, bias, first, second, mask = saved = ctx.saved_tensors  # a checkpoint gives them out once
    if torch.is_grad_enabled():
        gate = torch.sigmoid(scores + (bias if bias.dim() == 1 else bias[:, None]))
        share = grad if mask is None else grad * mask[..., None]
        to_first, to_second = share * gate, share * (1 - gate)
        to_scores = (first - second) * to_first * (1 - gate)
    else:
        to_scores, to_first, to_second = _gated_sum_backward(grad, *saved)
    to_bias = to_scores.sum((0, 1) if bias.dim() == 1 else 1) if ctx.needs_input_grad[1] else None
    return to_scores, to_bias, to_first, to_second, None


def _save_gated_candidate(ctx, inputs, output):
    *tensors, ctx.block_length = inputs
    ctx.save_for_backward(*tensors)


def _differentiate_gated_candidate(ctx, grad):
    scores, bias, second = saved = ctx.saved_tensors
    if torch.is_grad_enabled():
        sums = scores + (bias if ctx.block_length is None else of_tokens(bias, ctx.block_length, scores.shape[1]))
        a, b = sums.chunk(2, dim=-1)
        gate, candidate = torch.sigmoid(b), F.elu(a)
        to_candidate, to_second = grad * gate, grad * (1 - gate)
        to_a = to_candidate * (candidate + 1).clamp(max=1)
        to_scores = torch.cat([to_a, (candidate - second) * to_candidate * (1 - gate)], dim=-1)
    else:
        to_scores, to_second = _gated_candidate_backward(grad, *saved, ctx.block_length)
    to_bias = None
    if ctx.needs_input_grad[1]:
        blocks = to_scores if ctx.block_length is None else in_blocks(to_scores, ctx.block_length)
        to_bias = blocks.sum((0, 1)) if ctx.block_length is None else blocks.sum(1).view(bias.shape)
    return to_scores, to_bias, to_second, None


_elu.register_autograd(_differentiate_elu, setup_context=_save_elu)
_gated_sum.register_autograd(_differentiate_gated_sum, setup_context=_save_gated_sum)
_gated_candidate.register_autograd(_differentiate_gated_candidate, setup_context=_save_gated_candidate)
