"""Multi-mask tensorized attention as an operator of torch: its signature, its gradient, and the choice of a form.

| tensors | form |
| --- | --- |
| CPU | tiles in C++ (``csrc/tensorized.cpp``, ``csrc/tensorized.h``) |
| CUDA, heads of at most 128 features | FlexAttention (``flex.py``) |
| all others, and where the C++ is missing | tiles in plain torch (``tiles.py``) |

A tile holds the weights of some queries and leaves out keys that word order and windows hide; the backward pass
recomputes the weights. E_S is saved with a minus sign where its exponent was clamped: there the source score
has no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..library import LIBRARY, NAMESPACE, OPERATORS, distinct, has_cpu_kernels, is_recorded
from . import flex, tiles

# The window of a head without one: larger than any distance.
NO_WINDOW = 1 << 40

OPTIONS = "str directions, int[] windows, str score_function, bool include_self"
for name in ("tensorized_attention", "tensorized_attention_in_torch"):
    LIBRARY.define(
        f"{name}(Tensor q, Tensor k, Tensor v, Tensor source_scores, Tensor? key_mask, {OPTIONS}, bool save) "
        "-> (Tensor, Tensor, Tensor)"
    )
    LIBRARY.define(
        f"{name}_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor? key_mask, Tensor out, Tensor source, "
        f"Tensor denominators, {OPTIONS}) -> (Tensor, Tensor, Tensor, Tensor)"
    )


def tensorized_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    source_scores: Tensor,
    *,
    directions: Sequence[str],
    windows: Sequence[int | None],
    key_mask: Tensor | None = None,
    score_function: str = "sigmoid",
    include_self: bool = False,
) -> Tensor:
    """H = (E_R (E_S * V)) / (E_R E_S) with E_R = f(Q K' / sqrt(D)) * M, E_S = exp(S) (MTSA Eq. 8-12, Algorithm 1).

    Args:
        q, k, v: (B, H, N, D), all of one dtype, float32 or float64.
        source_scores: S, (B, H, N, D).
        directions: per head, ``"forward"``, ``"backward"``, ``"diagonal"`` or ``"full"``.
        windows: per head, the distance up to which keys are visible, ``None`` for any distance.
        key_mask: (B, N) booleans, true at real tokens; all tokens are real by default.
        score_function: f, ``"sigmoid"`` or ``"exp"``.
        include_self: let a token see itself under every direction.

    Returns:
        (B, H, N, D); 0 for a query that sees no key. Differentiable once.

    Raises:
        RuntimeError: shapes, dtypes or devices do not match.
    """
    windows = [NO_WINDOW if window is None else window for window in windows]
    options = (key_mask, ",".join(directions), windows, score_function, include_self)
    if flex.available(v):
        return flex.tensorized_attention(q, k, v, source_scores, *options)
    compiled = v.device.type == "cpu" and has_cpu_kernels()
    name = "tensorized_attention" if compiled else "tensorized_attention_in_torch"
    tensors = distinct(q, k, v, source_scores)
    if is_recorded(*tensors):
        return _TensorizedAttention.apply(name, *tensors, *options)[0]
    return getattr(OPERATORS, name).default(*tensors, *options, False)[0]


class _TensorizedAttention(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(name, *arguments):
        return getattr(OPERATORS, name).default(*arguments, True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.name, q, k, v, _, key_mask, *ctx.options = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(q, k, v, key_mask, *output)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, *_):
        operator = getattr(OPERATORS, f"{ctx.name}_backward").default
        return None, *operator(grad, *ctx.saved_tensors, *ctx.options), *(None,) * 5


def _fake_forward(q, k, v, source_scores, key_mask, directions, windows, score_function, include_self, save):
    return tiles.results(v, save)


def _fake_backward(grad, q, k, v, *others):
    return tuple(tiles.empty_by_head(v) for _ in range(4))


LIBRARY.impl("tensorized_attention_in_torch", tiles.forward, "CompositeExplicitAutograd")
LIBRARY.impl("tensorized_attention_in_torch_backward", tiles.backward, "CompositeExplicitAutograd")
for name in ("tensorized_attention", "tensorized_attention_in_torch"):
    torch.library.register_fake(f"{NAMESPACE}::{name}", _fake_forward, lib=LIBRARY)
    torch.library.register_fake(f"{NAMESPACE}::{name}_backward", _fake_backward, lib=LIBRARY)


def short_for_tensorized_attention(v: Tensor) -> bool:
    """Whether the equation with its (B, H, N, N) weights is faster, as for small batches of short sentences.

    Not measured on a GPU, where the limit only avoids compiling FlexAttention for short sentences.
    """
    B, _, N, D = v.shape
    if v.is_cuda:
        return N <= 128
    # In plain torch the overhead of calls dominates there; measured on 2 cores of AMD Zen 4.
    return not has_cpu_kernels() and B * N * (D + N) < 1 << 15
