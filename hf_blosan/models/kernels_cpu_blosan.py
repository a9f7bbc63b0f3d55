"""Directional attention on the CPU with numba: one pass over the keys of a query, nothing of size N^2 stored.

With p = exp(2 k_i / c) exp(2 q_j / c) and t = 1 / (1 + p) - 1/2 the score c tanh((k_i + q_j) / c) is -2 c t. So a pair
costs one reciprocal and one polynomial for the exponential, and tanh' = 1 - 4 t^2 comes for free.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

try:
    import numba
except ImportError:
    numba = None

# The polynomial below is as exact as float32 up to here (the papers' scale is 5).
MAX_SCALE = 5.5
MAX_EXPONENT = 87.0
# Pairs of tokens times features from which a second thread pays for being woken (about 0.1 ms of work).
WORK_PER_THREAD = 200_000


@lru_cache
def exp_coefficients(scale: float) -> tuple[np.float32, ...]:
    """Coefficients of a polynomial P of degree 9 with P(t)^4 = exp(-2 scale t) on [-1/2, 1/2], lowest first."""
    fit = np.polynomial.chebyshev.Chebyshev.interpolate(lambda t: np.exp(-scale / 2 * t), 9, domain=[-0.5, 0.5])
    return tuple(fit.convert(kind=np.polynomial.Polynomial).coef.astype(np.float32))


if numba is not None:
    half, one = np.float32(0.5), np.float32(1)
    # error_model="numpy": a division that may raise ZeroDivisionError is never vectorised (ten times slower).
    # Without nnan and ninf: exp(2 k / c) may overflow to infinity, and 1 / (1 + inf) = 0 is then the right answer.
    FASTMATH = {"contract", "reassoc", "arcp", "nsz"}

    def compiled(function):
        """Machine code on the first call, kept on disk for the next process where there is a place to write."""
        try:
            return numba.njit(fastmath=FASTMATH, error_model="numpy", nogil=True, cache=True)(function)
        except RuntimeError:  # "no locator available": nowhere to keep it
            return numba.njit(fastmath=FASTMATH, error_model="numpy", nogil=True)(function)

    @numba.njit(fastmath=FASTMATH, error_model="numpy", inline="always")
    def _exp(t, c):
        y = c[9]
        y = y * t + c[8]
        y = y * t + c[7]
        y = y * t + c[6]
        y = y * t + c[5]
        y = y * t + c[4]
        y = y * t + c[3]
        y = y * t + c[2]
        y = y * t + c[1]
        y = y * t + c[0]
        y = y * y
        return y * y

    @compiled
    def _forward(first, last, c, keys, queries, values, mask, see_before, see_after, see_self, out, denominators):
        _, N, D = values.shape
        numerator = np.empty(D, np.float32)
        denominator = np.empty(D, np.float32)
        for b in range(first, last):
            for j in range(N):
                numerator[:] = 0
                denominator[:] = 0
                q_D = queries[b, j]
                for i in range(0 if see_before else j, N if see_after else j + 1):
                    if not mask[b, i] or (i == j and not see_self):
                        continue
                    k_D, v_D = keys[b, i], values[b, i]
                    for d in range(D):
                        weight = _exp(one / (k_D[d] * q_D[d] + one) - half, c)
                        denominator[d] += weight
                        numerator[d] += weight * v_D[d]
                for d in range(D):
                    seen = denominator[d] > 0
                    out[b, j, d] = numerator[d] / denominator[d] if seen else np.float32(0)
                    denominators[b, j, d] = denominator[d]

    @compiled
    def _backward(
        first,
        last,
        c,
        keys,
        queries,
        values,
        mask,
        see_before,
        see_after,
        see_self,
        out,
        denominators,
        grad,
        grad_keys,
        grad_queries,
        grad_values,
    ):
        _, N, D = values.shape
        share = np.empty(D, np.float32)
        grad_query = np.empty(D, np.float32)
        for b in range(first, last):
            for i in range(N):
                grad_keys[b, i, :] = 0
                grad_values[b, i, :] = 0
            for j in range(N):
                for d in range(D):
                    seen = denominators[b, j, d] > 0
                    share[d] = grad[b, j, d] / denominators[b, j, d] if seen else np.float32(0)
                    grad_query[d] = 0
                q_D, out_D = queries[b, j], out[b, j]
                for i in range(0 if see_before else j, N if see_after else j + 1):
                    if not mask[b, i] or (i == j and not see_self):
                        continue
                    k_D, v_D, grad_key, grad_value = keys[b, i], values[b, i], grad_keys[b, i], grad_values[b, i]
                    for d in range(D):
                        t = one / (k_D[d] * q_D[d] + one) - half
                        weight = _exp(t, c) * share[d]
                        grad_score = weight * (v_D[d] - out_D[d]) * (one - 4 * t * t)
                        grad_value[d] += weight
                        grad_key[d] += grad_score
                        grad_query[d] += grad_score
                for d in range(D):
                    grad_queries[b, j, d] = grad_query[d]


def available(keys: Tensor, queries: Tensor, scale: float) -> bool:
    """Whether the kernel can take this: numba is installed, float32 on the CPU, a scale the polynomial covers, and
    exp(2 k / c), exp(2 q / c) within float32."""
    if numba is None or keys.device.type != "cpu" or keys.dtype != torch.float32 or scale > MAX_SCALE:
        return False
    limit = MAX_EXPONENT * scale / 2
    # False for NaN too: the kernel would turn it into "sees no key".
    return keys.numel() == 0 or bool((keys.abs().max() <= limit) & (queries.abs().max() <= limit))


def _arguments(keys, queries, values, key_mask, direction, scale):
    exponentials = [(2 / scale * x).exp().contiguous().numpy() for x in (keys, queries)]
    mask = torch.ones(values.shape[:2], dtype=torch.bool) if key_mask is None else key_mask.bool().contiguous()
    see = (direction != "backward", direction != "forward", direction == "full")
    return exp_coefficients(scale), *exponentials, values.contiguous().numpy(), mask.numpy(), *see


_threads: ThreadPoolExecutor | None = None


def _forget_threads() -> None:
    global _threads
    _threads = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)  # a forked process has none of its parent's threads


def _over_rows(kernel, num_rows: int, work: int, *arguments) -> None:
    """Run a kernel over all rows on as many threads as torch uses.

    Threads of our own rather than numba's: its OpenMP pool and torch's take turns in resizing one another, which costs
    more than the work.
    """
    global _threads
    workers = min(torch.get_num_threads(), num_rows) if work > WORK_PER_THREAD else 1
    bounds = [num_rows * worker // workers for worker in range(workers + 1)]
    if _threads is None and workers > 1:
        _threads = ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="hf_blosan")
    waiting = [_threads.submit(kernel, *rows, *arguments) for rows in zip(bounds[1:-1], bounds[2:], strict=True)]
    kernel(bounds[0], bounds[1], *arguments)
    for task in waiting:
        task.result()


def forward(
    keys: Tensor, queries: Tensor, values: Tensor, key_mask: Tensor | None, direction: str, scale: float
) -> tuple[Tensor, Tensor]:
    """Result and denominators of every query, both (B, N, D)."""
    arguments = _arguments(keys, queries, values, key_mask, direction, scale)
    out, denominators = torch.empty_like(values, memory_format=torch.contiguous_format), torch.empty(values.shape)
    work = values.numel() * values.shape[1]
    _over_rows(_forward, len(values), work, *arguments, out.numpy(), denominators.numpy())
    return out, denominators


def backward(
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
    """Gradients of keys, queries and values, each (B, N, D)."""
    arguments = _arguments(keys, queries, values, key_mask, direction, scale)
    gradients = tuple(torch.empty(values.shape) for _ in range(3))
    saved = (out.contiguous().numpy(), denominators.contiguous().numpy(), grad.contiguous().numpy())
    work = values.numel() * values.shape[1]
    _over_rows(_backward, len(values), work, *arguments, *saved, *(gradient.numpy() for gradient in gradients))
    return gradients
