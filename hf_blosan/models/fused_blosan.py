"""Directional attention in fast forms, with the signature of equations and an ``implementation``.

``"eager"``   the equation with its (B, N, N, D) tensor; what everything is tested against.
``"fused"``   the same in O(N D) memory: nothing of size N^2 is stored, the backward pass computes scores again. In
              float32 a numba kernel on the CPU (extra ``fast``) and a Triton kernel on CUDA; elsewhere, and without
              them, some queries at a time.
``"linear"``  O(N D) time too: near keys one by one, far keys together through the expansion of ``far_field_blosan``,
              exact to float32. Feature blocks whose scores reach further than the expansion are computed as "fused",
              and so is all that is not float32 in the end (float64 inputs).
``"auto"``    the fastest that is at hand: on the CPU "linear" from the lengths in ``kernels_cpu_blosan.CROSSOVERS`` on
              and "fused" below; on CUDA "linear" from ``kernels_cuda_blosan.CROSSOVER`` tokens on.

No kernel and no expansion knows a ``token_mask``: with one, all but "eager" work on some queries at a time.
"""

from functools import partial

import torch
from torch import Tensor

from .equations import IMPLEMENTATIONS
from .equations import directional_attention as directional_attention_eager
from .far_field_blosan import directional_attention_gradients, directional_attention_sums
from .kernels_cpu_blosan import available as cpu_kernel_available
from .kernels_cpu_blosan import backward as cpu_backward
from .kernels_cpu_blosan import forward as cpu_forward
from .kernels_cuda_blosan import available as cuda_kernel_available
from .kernels_cuda_blosan import backward as cuda_backward
from .kernels_cuda_blosan import forward as cuda_forward
from .masks import (
    DIRECTIONS,
    check_bias,
    check_block_length,
    check_shapes,
    check_window,
    full_token_mask,
    on_blocks,
    order_mask,
)
from .operator_blosan import operator

NO_BLOCKS = "a graph made for the CPU kernel runs where there is none; export the model on this device and with numba"

# Elements of a (B, queries, N, D) tensor that are worked on at a time where there is no kernel.
CHUNK_ELEMENTS = 1 << 21


def directional_attention(
    keys: Tensor,
    queries: Tensor,
    values: Tensor,
    *,
    direction: str,
    bias: Tensor | None = None,
    key_mask: Tensor | None = None,
    token_mask: Tensor | None = None,
    scale: float = 5.0,
    window: int | None = None,
    block_length: int | None = None,
    implementation: str = "auto",
) -> Tensor:
    """Directional self-attention (DiSAN Eq. 15-18): s_j = sum_i softmax_i(c tanh((k_i + q_j + b) / c)) * x_i.

    Args:
        keys: W1 h, shape (B, N, D).
        queries: W2 h, shape (B, N, D).
        values: h, the vectors that are averaged, shape (B, N, D).
        direction: ``"forward"``, ``"backward"``, ``"diagonal"`` or ``"full"``, see ``order_mask``.
        bias: b1, shape (D); 0 by default.
        key_mask: (B, N), true at real tokens; all tokens are real by default.
        token_mask: (N, N) or (B, N, N), true where the query (row) may see the key (column), as far as the other
            masks let it; ``mask_from_heads`` makes one.
        scale: the constant c that bounds the scores; 5 in all three papers.
        window: let a query see only keys at most that many tokens away; any distance by default.
        block_length: cut sentences into blocks of that many tokens, the last of which may have fewer, and let tokens
            see those of their own block only.
        implementation: ``"auto"``, ``"eager"``, ``"fused"`` or ``"linear"``; they differ in speed and memory, not in
            the function. Second derivatives exist for ``"eager"`` only.

    Returns:
        (B, N, D) in the dtype of ``values``; 0 for a query that sees no key.

    Raises:
        ValueError: unknown direction or implementation, a window below 0, blocks of no token, tensors, a bias or masks
            of other shapes, a token mask of floating-point numbers, or one together with blocks.
    """
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f"implementation is {implementation!r}; choose one of {', '.join(IMPLEMENTATIONS)}")
    if direction not in DIRECTIONS:
        raise ValueError(f"direction is {direction!r}; choose one of {', '.join(DIRECTIONS)}")
    check_window(window)
    check_block_length(block_length, token_mask)
    check_shapes(*values.shape[:2], key_mask, keys=keys, queries=queries, values=values)
    check_bias(bias, values.shape[2])
    if token_mask is not None:
        token_mask = full_token_mask(token_mask, *values.shape[:2])
    if implementation == "eager":
        masks = {"direction": direction, "window": window, "key_mask": key_mask, "token_mask": token_mask}
        options = {"bias": bias, "scale": scale, "block_length": block_length}
        return directional_attention_eager(keys, queries, values, **masks, **options)
    precision = torch.float32 if values.dtype in (torch.bfloat16, torch.float16) else values.dtype
    inputs = [x.to(precision) for x in (keys, queries, values)]
    bias = None if bias is None else bias.to(precision)
    if block_length is not None and not cpu_kernel_available(inputs[-1], scale):
        options = {"direction": direction, "bias": bias, "window": window}
        options |= {"scale": scale, "implementation": implementation}
        rows = on_blocks(partial(directional_attention, **options), block_length, inputs, key_mask).flatten(1, 2)
        return rows[:, : values.shape[1]].to(values.dtype)
    save = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (*inputs, bias))
    options = (direction, float(scale), window, implementation, block_length, save)
    return _fused(*inputs, bias, key_mask, token_mask, *options)[0].to(values.dtype)


@operator("directional_attention")
def _fused(
    keys: Tensor,
    queries: Tensor,
    values: Tensor,
    bias: Tensor | None,
    key_mask: Tensor | None,
    token_mask: Tensor | None,
    direction: str,
    scale: float,
    window: int | None,
    implementation: str,
    block_length: int | None,
    save: bool,
) -> tuple[Tensor, Tensor]:
    """Result and denominators, both (B, N, D); the second is empty unless it is to be saved.

    The CPU kernel alone knows blocks.
    """
    options = (key_mask, direction, scale, window, implementation)
    if token_mask is None and cpu_kernel_available(values, scale):
        return cpu_forward(keys, queries, values, bias, *options, block_length, save)
    queries = queries if bias is None else queries + bias
    arguments = (*(x.contiguous() for x in (keys, queries, values)), *options)
    if token_mask is not None:
        out, denominators = _in_chunks(*arguments[:-1], token_mask)
    elif block_length is not None:
        raise RuntimeError(NO_BLOCKS)
    else:
        out, denominators = _without_cpu_kernel(*arguments)
    return out, denominators if save else denominators.new_empty(0, *out.shape[1:])


def _without_cpu_kernel(keys, queries, values, key_mask, direction, scale, window, implementation):
    arguments = (keys, queries, values, key_mask, direction, scale, window, implementation)
    if cuda_kernel_available(values, scale):
        return cuda_forward(*arguments)
    if implementation == "linear" and values.device.type == "cpu" and values.dtype == torch.float32:
        sums = directional_attention_sums(*arguments[:-1])
        if sums is not None:
            return sums[0] / torch.where(sums[1] > 0, sums[1], 1.0), sums[1]
    return _in_chunks(*arguments[:-1])


def _in_chunks(keys, queries, values, key_mask, direction, scale, window, token_mask=None) -> tuple[Tensor, Tensor]:
    out, denominators = torch.empty_like(values), torch.empty_like(values)
    for rows, columns in _chunks(values, direction, window):
        weights = _weights(keys, queries, key_mask, direction, scale, window, token_mask, rows, columns)[0]
        total = weights.sum(2)
        denominators[:, rows] = total
        weights *= values[:, None, columns]
        out[:, rows] = weights.sum(2) / torch.where(total > 0, total, 1.0)
    return out, denominators


@operator("directional_attention_backward")
def _fused_backward(
    grad: Tensor,
    keys: Tensor,
    queries: Tensor,
    values: Tensor,
    bias: Tensor | None,
    key_mask: Tensor | None,
    token_mask: Tensor | None,
    out: Tensor,
    denominators: Tensor,
    direction: str,
    scale: float,
    window: int | None,
    implementation: str,
    block_length: int | None,
) -> tuple[Tensor, Tensor, Tensor]:
    options = (key_mask, out, denominators, direction, scale, window, implementation)
    if token_mask is None and cpu_kernel_available(values, scale):
        return cpu_backward(grad, keys, queries, values, bias, *options, block_length)
    queries = queries if bias is None else queries + bias
    arguments = (grad, *(x.contiguous() for x in (keys, queries, values)), *options)
    if token_mask is not None:
        return _backward_in_chunks(*arguments[:-1], token_mask)
    if block_length is not None:
        raise RuntimeError(NO_BLOCKS)
    if cuda_kernel_available(values, scale):
        return cuda_backward(*arguments)
    if implementation == "linear" and values.device.type == "cpu" and values.dtype == torch.float32:
        gradients = directional_attention_gradients(*arguments[:-1])
        if gradients is not None:
            return gradients
    return _backward_in_chunks(*arguments[:-1])


def _backward_in_chunks(
    grad, keys, queries, values, key_mask, out, denominators, direction, scale, window, token_mask=None
) -> tuple[Tensor, Tensor, Tensor]:
    grad_keys, grad_queries, grad_values = (torch.zeros_like(values) for _ in range(3))
    share = grad / torch.where(denominators > 0, denominators, 1.0)
    for rows, columns in _chunks(values, direction, window):
        weights, tanh = _weights(keys, queries, key_mask, direction, scale, window, token_mask, rows, columns)
        weights *= share[:, rows, None]
        grad_values[:, columns] += weights.sum(1)
        weights *= values[:, None, columns] - out[:, rows, None]
        weights *= 1 - tanh * tanh
        grad_keys[:, columns] += weights.sum(1)
        grad_queries[:, rows] = weights.sum(2)
    return grad_keys, grad_queries, grad_values


def _chunks(values: Tensor, direction: str, window: int | None):
    """Ranges of queries, each with the range of keys that word order and window may let them see."""
    B, N, D = values.shape
    reach = N if window is None else window
    size = max(1, CHUNK_ELEMENTS // max(1, B * N * D))
    for start in range(0, N, size):
        stop = min(N, start + size)
        first = start if direction == "backward" else max(0, start - reach)
        last = stop if direction == "forward" else min(N, stop + reach)
        yield slice(start, stop), slice(first, last)


def _weights(keys, queries, key_mask, direction, scale, window, token_mask, rows, columns) -> tuple[Tensor, Tensor]:
    """exp(c tanh) of some queries and keys, 0 where not visible, and the tanh."""
    tanh = torch.tanh((queries[:, rows, None] + keys[:, None, columns]) / scale)
    visible = order_mask(keys.shape[1], direction, window=window, device=keys.device, queries=rows, keys=columns)[None]
    if key_mask is not None:
        visible = visible & key_mask[:, None, columns].bool()
    if token_mask is not None:
        visible = visible & token_mask[:, rows, columns]
    return torch.where(visible[..., None], (scale * tanh).exp(), 0.0), tanh


@_fused.register_fake
def _(keys, queries, values, bias, key_mask, token_mask, direction, scale, window, implementation, block_length, save):
    return values.new_empty(values.shape), values.new_empty(values.shape if save else values[:0].shape)


@_fused_backward.register_fake
def _(grad, keys, queries, values, bias, key_mask, token_mask, out, denominators, *options):
    return tuple(values.new_empty(values.shape) for _ in range(3))


def _save(ctx, inputs, output):
    keys, queries, values, bias, key_mask, token_mask, *ctx.options, _ = inputs
    ctx.save_for_backward(keys, queries, values, bias, key_mask, token_mask, *output)


def _differentiate(ctx, grad, _):
    (*saved,) = ctx.saved_tensors
    gradients = _fused_backward(grad.contiguous(), *saved, *ctx.options)
    to_bias = gradients[1].sum((0, 1)) if ctx.needs_input_grad[3] else None
    return *gradients, to_bias, None, None, None, None, None, None, None, None


_fused.register_autograd(_differentiate, setup_context=_save)
