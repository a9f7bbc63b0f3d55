"""Directional attention on the CPU: what ``loops_cpu_blosan`` needs, and the threads of all such loops."""

import ctypes
import glob
import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from .far_field_blosan import tiers

try:
    from .loops_cpu_blosan import LANES
    from .loops_cpu_blosan import backward as backward_loop
    from .loops_cpu_blosan import forward as forward_loop
except ImportError:  # no numba
    forward_loop = None

# The exp(c) of a weight and sums of it must stay within float32.
MAX_SCALE = 40.0
# Half range of the scores, in units of c, up to which exponentials of single tokens are as exact as those of sums.
MAX_HALF_RANGE = 2.4
# Pairs of tokens times features from which a second thread pays for being woken (about 0.1 ms of work).
WORK_PER_THREAD = 200_000
# The sentence length from which each tier of the expansion is faster than all pairs under a forward mask:
# benchmarks/crossovers.py on 2 cores of AMD Zen 4.
CROSSOVERS = {"forward": (40, 40, 56, 64, 96, 112, 192), "backward": (48, 56, 96, 96, 144, 176, 320)}
NEVER, UNLIMITED = 1 << 40, 1 << 40


def available(values: Tensor | None = None, scale: float = 0.0) -> bool:
    """Whether a kernel can take this: numba is installed, float32 on the CPU, a scale whose weights fit float32."""
    fits = values is None or (values.device.type == "cpu" and values.dtype == torch.float32)
    return forward_loop is not None and fits and scale <= MAX_SCALE


@lru_cache
def _tables(scale: float, implementation: str, pass_: str) -> tuple[np.ndarray, ...]:
    """tiers, shortest, tables32 and tables64 of ``loops_cpu_blosan.forward``."""
    table = tiers(scale)
    shortest = {"fused": [NEVER] * len(table), "linear": [0] * len(table), "auto": CROSSOVERS[pass_][: len(table)]}
    sizes = np.array([(tier.half_range, tier.tilt, len(tier.weight)) for tier in table]).reshape(-1, 3)
    return (
        sizes,
        np.array(shortest[implementation], np.int64),
        *(_stack(table, kind) for kind in (np.float32, np.float64)),
    )


def _stack(table, kind) -> np.ndarray:
    """The coefficients of those tiers that are summed in this type, filled up with zeros to one size."""
    chosen = [tier for tier in table if tier.float32 == (kind is np.float32)]
    size = max((len(tier.weight) for tier in chosen), default=0)
    stacked = np.zeros((len(chosen), 2, size, size), kind)
    for tier, coefficients in zip(chosen, stacked, strict=True):
        coefficients[:, : len(tier.weight), : len(tier.weight)] = tier.weight, tier.slope
    return stacked


def _arguments(pass_, keys, queries, values, key_mask, direction, scale, window, implementation):
    mask = torch.ones(values.shape[:2], dtype=torch.bool) if key_mask is None else key_mask.bool().contiguous()
    reach = UNLIMITED if window is None else window
    see = (direction != "backward", direction != "forward", direction == "full", reach)
    tensors = (x.contiguous() for x in (keys, queries, values, mask))
    return float(scale), MAX_HALF_RANGE * scale, *_tables(float(scale), implementation, pass_), *tensors, see


_threads: ThreadPoolExecutor | None = None


def _forget_threads() -> None:
    global _threads
    _threads = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)  # a forked process has none of its parent's threads


@lru_cache
def _openmp() -> ctypes.CDLL | None:
    """The OpenMP library that torch brings along on Linux, if it does."""
    found = glob.glob(os.path.join(os.path.dirname(torch.__file__), "lib", "libgomp*"))
    return ctypes.CDLL(found[0]) if len(found) == 1 else None


def over_items(loop, values: Tensor, work: int, *arguments) -> None:
    """Run a loop over all items of values (B, N, D) on as many threads as torch uses, or on one for little work.

    Tensors among the arguments are handed over as arrays. ``work`` is in pairs of tokens times features.

    On torch's own threads where they can be had: these wait for more work by spinning, for milliseconds, and would
    take the processor from threads of ours. numba's pool, a second OpenMP, is worse still: each resizes the other.
    """
    global _threads
    B, _, D = values.shape
    items = B * -(-D // LANES)
    arguments = [x.numpy() if isinstance(x, Tensor) else x for x in arguments]
    workers = min(torch.get_num_threads(), items) if work > WORK_PER_THREAD else 1
    bounds = [items * worker // max(workers, 1) for worker in range(workers + 1)]

    def part(worker: int) -> None:
        loop(bounds[worker], bounds[worker + 1], *arguments)

    if workers <= 1:
        loop(0, items, *arguments)
    elif _openmp() is not None:
        _in_team(_openmp(), part, workers)
    else:
        if _threads is None:
            _threads = ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="hf_blosan")
        list(_threads.map(part, range(workers)))


def _in_team(openmp: ctypes.CDLL, part, workers: int) -> None:
    """part(worker) for every worker, each in a thread of torch's team (``#pragma omp parallel``)."""
    errors = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def run(_):
        try:
            # A team may turn out smaller than asked for.
            for worker in range(openmp.omp_get_thread_num(), workers, openmp.omp_get_num_threads()):
                part(worker)
        except BaseException as error:
            errors.append(error)

    openmp.GOMP_parallel(run, None, ctypes.c_uint(workers), ctypes.c_uint(0))
    if errors:
        raise errors[0]


def _pairs(values: Tensor) -> int:
    return values.numel() * values.shape[1]


def forward(
    keys: Tensor,
    queries: Tensor,
    values: Tensor,
    key_mask: Tensor | None,
    direction: str,
    scale: float,
    window: int | None,
    implementation: str,
    save: bool = True,
) -> tuple[Tensor, Tensor]:
    """Result and denominators of every query, both (B, N, D); the second is empty unless it is to be saved."""
    arguments = _arguments("forward", keys, queries, values, key_mask, direction, scale, window, implementation)
    out, denominators = torch.empty(values.shape), torch.empty((values if save else values[:0]).shape)
    over_items(forward_loop, values, _pairs(values), *arguments, out, denominators)
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
    window: int | None,
    implementation: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of keys, queries and values, each (B, N, D)."""
    arguments = _arguments("backward", keys, queries, values, key_mask, direction, scale, window, implementation)
    gradients = tuple(torch.empty(values.shape) for _ in range(3))
    saved = (x.contiguous() for x in (out, denominators, grad))
    over_items(backward_loop, values, _pairs(values), *arguments, *saved, *gradients)
    return gradients
