"""Directional attention as an operator of torch: its signature, its gradient, and the choice of a form.

| tensors | form |
| --- | --- |
| CPU, float32 and float64 | C++ (``csrc/directional.h``, ``csrc/expansion.h``): every mask, blocks, ``cu_seqlens`` |
| CUDA, float32, without a token mask | Triton (``cuda.py``) |
| all others, and where a kernel is missing | plain torch (``chunks.py``; ``expansion.py`` for "linear") |

``"fused"`` computes all pairs in O(N D) memory. ``"linear"`` also takes O(N D) time: near keys pair by pair, distant
keys together through the expansion of ``expansion.py``, exact to float32; features whose scores reach beyond the
expansion, and float64 tensors, are computed as ``"fused"``. ``"auto"`` picks the faster one by sentence length.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..library import LIBRARY, NAMESPACE, OPERATORS, distinct, has_cpu_kernels, is_recorded
from ..visibility import Options
from . import cuda
from .chunks import backward_in_chunks, forward_in_chunks
from .expansion import CHUNK, directional_attention_gradients, directional_attention_sums, expansion_tables

DIRECTIONS = ("forward", "backward", "diagonal", "full")
IMPLEMENTATIONS = ("auto", "fused", "linear")

# exp(c), and sums of it, must stay within float32.
MAX_SCALE = 40.0

MASKS = "Tensor? bias, Tensor? key_mask, Tensor? token_mask, Tensor? cu_seqlens"
OPTIONS = "str direction, float scale, int? window, str implementation, int? block_length"
for name in ("directional_attention", "directional_attention_in_torch"):
    LIBRARY.define(
        f"{name}(Tensor keys, Tensor queries, Tensor values, {MASKS}, {OPTIONS}, bool save) -> (Tensor, Tensor)"
    )
    LIBRARY.define(
        f"{name}_backward(Tensor grad, Tensor keys, Tensor queries, Tensor values, {MASKS}, Tensor out, "
        f"Tensor denominators, {OPTIONS}) -> (Tensor, Tensor, Tensor)"
    )
LIBRARY.define("expansion(float scale) -> (Tensor, Tensor, Tensor)")
LIBRARY.impl("expansion", expansion_tables, "CompositeExplicitAutograd")


def directional_attention(
    keys: Tensor,
    queries: Tensor,
    values: Tensor,
    *,
    direction: str,
    bias: Tensor | None = None,
    key_mask: Tensor | None = None,
    token_mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    scale: float = 5.0,
    window: int | None = None,
    block_length: int | None = None,
    implementation: str = "auto",
) -> Tensor:
    """s_j = sum_i softmax_i(c tanh((k_i + q_j + b) / c)) * x_i over the keys i that query j sees (DiSAN Eq. 15-18).

    Args:
        keys, queries, values: (B, N, D), all of one dtype, float32 or float64.
        direction: ``"forward"``, ``"backward"``, ``"diagonal"`` or ``"full"``.
        bias: b, (D), added to every query; 0 by default.
        key_mask: (B, N) booleans, true at real tokens; all tokens are real by default.
        token_mask: (B, N, N) booleans, true where the query (row) may see the key (column).
        cu_seqlens: (S + 1,) int64: S sentences lie one after the other in a single row, without padding, each from
            one of these places to the next; only where :func:`takes_parts`, and without a token mask.
        scale: c, the bound of the scores.
        window: see only keys at most that many tokens away.
        block_length: see only keys of the same block of that many tokens; only where :func:`takes_parts`.
        implementation: ``"auto"``, ``"fused"`` or ``"linear"``.

    Returns:
        (B, N, D); 0 for a query that sees no key. Differentiable once.

    Raises:
        RuntimeError: shapes, dtypes or devices do not match, the scale is not above 0 or above 80, the direction or
            the implementation is unknown.
    """
    name = "directional_attention"
    has_kernel = _has_cpu_kernel(values, scale) or (token_mask is None and cuda.available(values, scale))
    if not has_kernel:
        name = "directional_attention_in_torch"
    tensors = distinct(keys, queries, values, bias, key_mask, token_mask, cu_seqlens)
    options = (direction, float(scale), window, implementation, block_length)
    if is_recorded(*tensors):
        return _DirectionalAttention.apply(name, *tensors, *options)[0]
    return getattr(OPERATORS, name).default(*tensors, *options, False)[0]


def takes_parts(values: Tensor, scale: float = 5.0) -> bool:
    """Whether ``block_length`` and ``cu_seqlens`` are supported for such tensors."""
    return _has_cpu_kernel(values, scale)


def _has_cpu_kernel(values: Tensor, scale: float) -> bool:
    known = values.dtype in (torch.float32, torch.float64) and 0 < scale <= MAX_SCALE
    return values.device.type == "cpu" and known and has_cpu_kernels()


class _DirectionalAttention(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(name, *arguments):
        return getattr(OPERATORS, name).default(*arguments, True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.name, *tensors = inputs[:8]
        ctx.options = inputs[8:]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*tensors, *output)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, _):
        operator = getattr(OPERATORS, f"{ctx.name}_backward").default
        gradients = operator(grad, *ctx.saved_tensors, *ctx.options)
        to_bias = gradients[1].sum((0, 1)) if ctx.needs_input_grad[4] else None
        return None, *gradients, to_bias, *(None,) * 8


def _forward_in_torch(keys, queries, values, key_mask, token_mask, options, implementation):
    if token_mask is None and _may_expand(values, implementation):
        sums = directional_attention_sums(keys, queries, values, key_mask, options)
        if sums is not None:
            return sums[0] / torch.where(sums[1] > 0, sums[1], 1.0), sums[1]
    return forward_in_chunks(keys, queries, values, key_mask, token_mask, options)


def _backward_in_torch(grad, keys, queries, values, key_mask, token_mask, out, denominators, options, implementation):
    if token_mask is None and _may_expand(values, implementation):
        results = (out, denominators, options)
        gradients = directional_attention_gradients(grad, keys, queries, values, key_mask, *results)
        if gradients is not None:
            return gradients
    return backward_in_chunks(grad, keys, queries, values, key_mask, token_mask, out, denominators, options)


def _may_expand(values: Tensor, implementation: str) -> bool:
    """Whether "linear" uses the expansion here: its tier depends on values, for which a GPU would synchronize."""
    long = values.shape[1] > CHUNK and values.numel() > 0
    return implementation == "linear" and long and values.device.type == "cpu" and values.dtype == torch.float32


def _check(options: Options, implementation: str, block_length: int | None, cu_seqlens: Tensor | None) -> None:
    """What the C++ checks too, and that rows are not divided."""
    if options.direction not in DIRECTIONS:
        raise RuntimeError(f"direction is {options.direction!r}; choose one of {', '.join(DIRECTIONS)}")
    if not 0 < options.scale <= 80:
        raise RuntimeError(f"scale is {options.scale}; give a bound of the scores above 0 and up to 80")
    if options.window is not None and options.window < 0:
        raise RuntimeError(f"window is {options.window}; give a number of tokens, 0 or more")
    if implementation not in IMPLEMENTATIONS:
        raise RuntimeError(f"implementation is {implementation!r}; choose one of {', '.join(IMPLEMENTATIONS)}")
    if block_length is not None or cu_seqlens is not None:
        name = "cu_seqlens" if block_length is None else f"block_length={block_length}"
        raise RuntimeError(
            f"{name}: this form of directional attention does not divide rows; a graph exported with the compiled CPU "
            "kernels needs them to run: export it again where they are missing"
        )


def _implement(name: str, dispatch_key: str, forward, backward) -> None:
    """Implement an operator and its gradient by a form without bias, blocks and the choice of what to save."""

    def operator(
        keys, queries, values, bias, key_mask, token_mask, cu_seqlens, direction, scale, window, implementation,
        block_length, save,
    ):  # fmt: skip
        queries, options = queries if bias is None else queries + bias, Options(direction, scale, window)
        _check(options, implementation, block_length, cu_seqlens)
        out, denominators = forward(keys, queries, values, key_mask, token_mask, options, implementation)
        return out, denominators if save else denominators.new_empty(0, *out.shape[1:])

    def gradient(
        grad, keys, queries, values, bias, key_mask, token_mask, cu_seqlens, out, denominators, direction, scale,
        window, implementation, block_length,
    ):  # fmt: skip
        queries, options = queries if bias is None else queries + bias, Options(direction, scale, window)
        _check(options, implementation, block_length, cu_seqlens)
        tensors = (grad, keys, queries, values, key_mask, token_mask, out, denominators)
        return backward(*tensors, options, implementation)

    LIBRARY.impl(name, operator, dispatch_key)
    LIBRARY.impl(f"{name}_backward", gradient, dispatch_key)


def _fake_forward(keys, queries, values, *others):
    save = others[-1]
    return values.new_empty(values.shape), values.new_empty(values.shape if save else values[:0].shape)


def _fake_backward(grad, keys, queries, values, *others):
    return tuple(values.new_empty(values.shape) for _ in range(3))


_implement("directional_attention", "CUDA", cuda.forward, cuda.backward)
_implement("directional_attention_in_torch", "CompositeExplicitAutograd", _forward_in_torch, _backward_in_torch)
for name in ("directional_attention", "directional_attention_in_torch"):
    torch.library.register_fake(f"{NAMESPACE}::{name}", _fake_forward, lib=LIBRARY)
    torch.library.register_fake(f"{NAMESPACE}::{name}_backward", _fake_backward, lib=LIBRARY)
