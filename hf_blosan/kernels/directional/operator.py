"""Directional attention as an operator of torch: its signature, its gradient, and the choice of a form.

| tensors | form |
| --- | --- |
| CPU, float32 and float64 | C++ (``csrc/directional.h``, ``csrc/expansion.h``): every mask, blocks, ``cu_seqlens`` |
| CUDA, float32, without a token mask | Triton (``cuda.py``) |
| all others, and where a kernel is missing | plain torch (``chunks.py``) |

``"fused"`` computes all pairs in O(N D) memory. ``"linear"`` also takes O(N D) time in C++ and Triton: near keys pair
by pair, distant keys together through the expansion of ``csrc/expansion.cpp``, exact to float32; features whose scores
reach beyond the expansion, and float64 tensors, are computed as ``"fused"``. ``"auto"`` picks the faster one by
sentence length.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..library import define, has_cpu_kernels
from ..sources import MAX_SCALE
from . import chunks
from .chunks import DIRECTIONS, Options

IMPLEMENTATIONS = ("auto", "fused", "linear")


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

    Arguments and result are as in ``hf_blosan.functional``, but keys, queries and values have one dtype, float32 or
    float64; masks are booleans, a token mask (B, N, N); and there is no ``"eager"``. ``cu_seqlens``, in int64, and
    ``block_length`` exclude each other and a token mask, and are only for tensors that :func:`takes_parts` accepts.

    Differentiable once. Raises RuntimeError if shapes, dtypes or devices do not match, the scale is not above 0 or
    above 60, or the direction or the implementation is unknown.
    """
    tensors = (keys, queries, values, bias, key_mask, token_mask, cu_seqlens)
    return _OPERATOR(direction, float(scale), window, implementation, block_length, *tensors)


def takes_parts(values: Tensor) -> bool:
    """Whether ``block_length`` and ``cu_seqlens`` are supported for such tensors."""
    return values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64) and has_cpu_kernels()


def forward(
    keys, queries, values, bias, key_mask, token_mask, cu_seqlens, direction, scale, window, implementation,
    block_length, save,
):  # fmt: skip
    """The operator where there is no C++ for it."""
    options = _checked(Options(direction, scale, window, implementation), block_length, cu_seqlens)
    queries = queries if bias is None else queries + bias
    out, denominators = _form(values, token_mask).forward(keys, queries, values, key_mask, token_mask, options)
    return out, denominators if save else denominators.new_empty(0, *out.shape[1:])


def backward(
    grad, keys, queries, values, bias, key_mask, token_mask, cu_seqlens, out, denominators, direction, scale, window,
    implementation, block_length,
):  # fmt: skip
    """Gradients of keys, queries and values."""
    options = _checked(Options(direction, scale, window, implementation), block_length, cu_seqlens)
    tensors = (grad, keys, queries if bias is None else queries + bias, values, key_mask, token_mask)
    return _form(values, token_mask).backward(*tensors, out, denominators, options)


def _form(values: Tensor, token_mask: Tensor | None):
    if token_mask is None and values.is_cuda:
        from . import cuda  # late, because triton takes a tenth of a second

        if cuda.available(values):
            return cuda
    return chunks


def _checked(options: Options, block_length: int | None, cu_seqlens: Tensor | None) -> Options:
    """What the C++ checks too, and that rows are not divided."""
    direction, scale, window, implementation = options
    if direction not in DIRECTIONS:
        raise RuntimeError(f"direction is {direction!r}; choose one of {', '.join(DIRECTIONS)}")
    if not 0 < scale <= MAX_SCALE:
        raise RuntimeError(f"scale is {scale}; give a bound of the scores above 0 and up to {MAX_SCALE}")
    if window is not None and window < 0:
        raise RuntimeError(f"window is {window}; give a number of tokens, 0 or more")
    if implementation not in IMPLEMENTATIONS:
        raise RuntimeError(f"implementation is {implementation!r}; choose one of {', '.join(IMPLEMENTATIONS)}")
    if block_length is not None or cu_seqlens is not None:
        name = "cu_seqlens" if block_length is None else f"block_length={block_length}"
        raise RuntimeError(
            f"{name}: this form of directional attention does not divide rows; a graph exported with the compiled CPU "
            "kernels needs them to run: export it again where they are missing"
        )
    return options


_OPERATOR = define(
    "directional_attention",
    "Tensor keys, Tensor queries, Tensor values, Tensor? bias, Tensor? key_mask, Tensor? token_mask, "
    "Tensor? cu_seqlens",
    ("str direction", "float scale", "int? window", "str implementation", "int? block_length"),
    saved=1,
    gradients=3,
    more=lambda needed, gradients: (gradients[1].sum((0, 1)) if needed[3] else None,),  # of the bias
    forms=(forward, backward),
    fake=lambda _, __, values, *others: (
        values.new_empty(values.shape),
        values.new_empty(values.shape if others[-1] else values[:0].shape),
    ),
)
