"""Multi-mask tensorized attention as an operator of torch: its signature, its gradient, and the choice of a form.

| tensors | form |
| --- | --- |
| CPU | tiles in C++ (``csrc/tensorized.cpp``, ``csrc/tensorized.h``) |
| others, and where the C++ is missing | tiles in plain torch (``tiles.py``) |

A tile holds the weights of some queries and leaves out keys that word order and windows hide; the backward pass
recomputes the weights. E_S is saved with a minus sign where its exponent was clamped: there the source score
has no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..library import define, has_cpu_kernels
from . import tiles

# The window of a head without one: larger than any distance.
NO_WINDOW = 1 << 40


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

    Arguments and result are as in ``hf_blosan.functional``, but q, k and v have one dtype, float32 or float64, the
    mask is of booleans, and every head has its direction and its window, ``None`` for any distance. Differentiable
    once. Raises RuntimeError if shapes, dtypes or devices do not match.
    """
    windows = [NO_WINDOW if window is None else window for window in windows]
    tensors = (q, k, v, source_scores, key_mask)
    options = (",".join(directions), windows, score_function, include_self)
    return _OPERATOR(*options, *tensors)


def short_for_tensorized_attention(v: Tensor) -> bool:
    """Whether to prefer the equation with its (B, H, N, N) weights, as for small batches of short sentences."""
    B, H, N, D = v.shape
    if v.is_cuda:  # it has the fewest calls; the limit, 128 MiB of weights, is for memory and not measured for speed
        return B * H * N * N <= 1 << 25
    # In plain torch the overhead of calls dominates there; measured on 2 cores of AMD Zen 4.
    return not has_cpu_kernels() and B * N * (D + N) < 1 << 15


_OPERATOR = define(
    "tensorized_attention",
    "Tensor q, Tensor k, Tensor v, Tensor source_scores, Tensor? key_mask",
    ("str directions", "int[] windows", "str score_function", "bool include_self"),
    saved=2,
    gradients=4,
    dropped=3,
    forms=(tiles.forward, tiles.backward),
    fake=lambda q, k, v, *others: tiles.results(v, others[-1]),
    fake_backward=lambda grad, q, k, v, *others: tuple(tiles.empty_by_head(v) for _ in range(4)),
)
