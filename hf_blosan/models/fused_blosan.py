"""The operators in fast forms, with the signatures of functional_blosan and an ``implementation``.

``directional_attention``
    ``"eager"``  the equation with its (B, N, N, D) tensor; what everything is tested against.
    ``"fused"``  the same in O(N D) memory: nothing of size N^2 is stored, the backward pass computes scores again. On
                 the CPU in float32 a numba kernel (extra ``fast``); elsewhere, and without numba, some queries at a
                 time.
    ``"auto"``   the fastest that is at hand.
"""

import torch
from torch import Tensor

from .functional_blosan import DIRECTIONS, order_mask
from .functional_blosan import directional_attention as directional_attention_eager
from .kernels_cpu_blosan import available as cpu_kernel_available
from .kernels_cpu_blosan import backward as cpu_backward
from .kernels_cpu_blosan import forward as cpu_forward

IMPLEMENTATIONS = ("auto", "eager", "fused")

# Elements of a (B, queries, N, D) tensor that are worked on at a time where there is no kernel.
CHUNK_ELEMENTS = 1 << 21


def directional_attention(
    keys: Tensor,
    queries: Tensor,
    values: Tensor,
    *,
    direction: str,
    key_mask: Tensor | None = None,
    scale: float = 5.0,
    implementation: str = "auto",
) -> Tensor:
    """Directional self-attention (DiSAN Eq. 15-18): s_j = sum_i softmax_i(c tanh((k_i + q_j) / c)) * x_i.

    Args:
        keys: W1 h, shape (B, N, D).
        queries: W2 h + b1, shape (B, N, D).
        values: h, the vectors that are averaged, shape (B, N, D).
        direction: ``"forward"``, ``"backward"``, ``"diagonal"`` or ``"full"``, see ``order_mask``.
        key_mask: (B, N), true at real tokens; all tokens are real by default.
        scale: the constant c that bounds the scores; 5 in all three papers.
        implementation: ``"auto"``, ``"eager"`` or ``"fused"``; they differ in speed and memory, not in the function.
            Second derivatives exist for ``"eager"`` only.

    Returns:
        (B, N, D) in the dtype of ``values``; 0 for a query that sees no key.

    Raises:
        ValueError: unknown direction or implementation.
    """
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f"implementation is {implementation!r}; choose one of {', '.join(IMPLEMENTATIONS)}")
    if implementation == "eager":
        return directional_attention_eager(keys, queries, values, direction=direction, key_mask=key_mask, scale=scale)
    if direction not in DIRECTIONS:
        raise ValueError(f"direction is {direction!r}; choose one of {', '.join(DIRECTIONS)}")
    low = values.dtype in (torch.bfloat16, torch.float16)
    inputs = [(x.float() if low else x.to(values.dtype)).contiguous() for x in (keys, queries, values)]
    return _fused(*inputs, key_mask, direction, scale)[0].to(values.dtype)


@torch.library.custom_op("hf_blosan::directional_attention", mutates_args=())
def _fused(
    keys: Tensor, queries: Tensor, values: Tensor, key_mask: Tensor | None, direction: str, scale: float
) -> tuple[Tensor, Tensor]:
    """Result and denominators, both (B, N, D)."""
    if cpu_kernel_available(keys, queries, scale):
        return cpu_forward(keys, queries, values, key_mask, direction, scale)
    out, denominators = torch.empty_like(values), torch.empty_like(values)
    for rows, columns in _chunks(values, direction):
        weights = _weights(keys, queries, key_mask, direction, scale, rows, columns)[0]
        total = weights.sum(2)
        denominators[:, rows] = total
        weights *= values[:, None, columns]
        out[:, rows] = weights.sum(2) / torch.where(total > 0, total, 1.0)
    return out, denominators


@torch.library.custom_op("hf_blosan::directional_attention_backward", mutates_args=())
def _fused_backward(
    grad: Tensor,
    keys: Tensor,
    queries: Tensor,
    values: Tensor,
    key_mask: Tensor | None,
    out: Tensor,
    denominators: Tensor,
    direction: str,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    if cpu_kernel_available(keys, queries, scale):
        return cpu_backward(grad, keys, queries, values, key_mask, out, denominators, direction, scale)
    grad_keys, grad_queries, grad_values = (torch.zeros_like(values) for _ in range(3))
    share = grad / torch.where(denominators > 0, denominators, 1.0)
    for rows, columns in _chunks(values, direction):
        weights, tanh = _weights(keys, queries, key_mask, direction, scale, rows, columns)
        weights *= share[:, rows, None]
        grad_values[:, columns] += weights.sum(1)
        weights *= values[:, None, columns] - out[:, rows, None]
        weights *= 1 - tanh * tanh
        grad_keys[:, columns] += weights.sum(1)
        grad_queries[:, rows] = weights.sum(2)
    return grad_keys, grad_queries, grad_values


def _chunks(values: Tensor, direction: str):
    """Ranges of queries, each with the range of keys that word order may let them see."""
    B, N, D = values.shape
    size = max(1, CHUNK_ELEMENTS // max(1, B * N * D))
    for start in range(0, N, size):
        stop = min(N, start + size)
        first, last = (start if direction == "backward" else 0), (stop if direction == "forward" else N)
        yield slice(start, stop), slice(first, last)


def _weights(keys, queries, key_mask, direction, scale, rows, columns) -> tuple[Tensor, Tensor]:
    """exp(c tanh) of some queries and keys, 0 where not visible, and the tanh."""
    tanh = torch.tanh((queries[:, rows, None] + keys[:, None, columns]) / scale)
    visible = order_mask(keys.shape[1], direction, device=keys.device, queries=rows, keys=columns)[None]
    if key_mask is not None:
        visible = visible & key_mask[:, None, columns].bool()
    return torch.where(visible[..., None], (scale * tanh).exp(), 0.0), tanh


@_fused.register_fake
def _(keys, queries, values, key_mask, direction, scale):
    return torch.empty_like(values), torch.empty_like(values)


@_fused_backward.register_fake
def _(grad, keys, queries, values, key_mask, out, denominators, direction, scale):
    return torch.empty_like(values), torch.empty_like(values), torch.empty_like(values)


def _save(ctx, inputs, output):
    keys, queries, values, key_mask, ctx.direction, ctx.scale = inputs
    ctx.save_for_backward(keys, queries, values, key_mask, *output)


def _differentiate(ctx, grad, _):
    keys, queries, values, key_mask, out, denominators = ctx.saved_tensors
    gradients = _fused_backward(
        grad.contiguous(), keys, queries, values, key_mask, out, denominators, ctx.direction, ctx.scale
    )
    return *gradients, None, None, None


_fused.register_autograd(_differentiate, setup_context=_save)
