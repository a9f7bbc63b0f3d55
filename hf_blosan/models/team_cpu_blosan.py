"""Runs the loops of numba on torch's own threads.

Torch's threads wait for more work by spinning, for milliseconds, and would take the processor from threads of ours.
numba's pool, a second OpenMP, is worse still: each resizes the other. So loops are C functions (``whole_loop``) that
the OpenMP library of torch runs in its team.
"""

import array
import ctypes
import glob
import os
import struct
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

# Work from which a second thread pays for being woken (about 0.05 ms of it).
WORK_PER_THREAD = 100_000

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


@lru_cache
def _who_am_i() -> tuple[int, int]:
    """The addresses of functions that tell the number of a thread and how many there are."""
    functions = _openmp().omp_get_thread_num, _openmp().omp_get_num_threads
    return tuple(ctypes.cast(function, ctypes.c_void_p).value for function in functions)


def field(x: Tensor | np.ndarray | float | int) -> int:
    """What a loop is told of an argument: the address of a tensor or array, the bits of a number."""
    if isinstance(x, Tensor):
        if not x.is_cpu:
            raise ValueError(f"a tensor on {x.device} goes with others on the CPU; move all of them to one device")
        return x.data_ptr()
    if isinstance(x, np.ndarray):
        return x.ctypes.data
    return struct.unpack("q", struct.pack("d", x))[0] if isinstance(x, float) else int(x)


def over_items(loop, values: Tensor, work: int, *arguments, rows: int = 1, scratch: int = 0) -> None:
    """Run a loop over all items of values (B, N, D), 16 features of a row each; otherwise as :func:`over_rows`.

    A row is a sentence or one of ``rows`` parts of it.
    """
    B, _, D = values.shape
    over_rows(loop, B * rows * -(-D // 16), work, *arguments, scratch=scratch)


def over_rows(loop, count: int, work: int, *arguments, scratch: int = 0) -> None:
    """Run a loop over 0 ... count on as many threads as torch uses, or on one for little work.

    Args:
        loop: a ``whole_loop``.
        count: of rows or items.
        work: in pairs of tokens times features, or what takes as long (0.5 ns).
        arguments: the loop's own fields. Tensors and arrays must be of the types it says.
        scratch: bytes of memory each thread needs for itself.
    """
    global _threads
    if not count:
        return
    workers = min(torch.get_num_threads(), count) if work > WORK_PER_THREAD else 1
    memory = torch.empty(workers * scratch, dtype=torch.uint8, device="cpu") if scratch else 0
    fields = [x if type(x) is int else field(x) for x in (memory, scratch, *arguments)]
    if workers > 1 and _openmp() is not None:
        block = array.array("q", (count, *_who_am_i(), 0, 1, *fields))
        _openmp().GOMP_parallel(loop.call, _address(block), ctypes.c_uint(workers), ctypes.c_uint(0))
        return
    blocks = [array.array("q", (count, 0, 0, worker, workers, *fields)) for worker in range(workers)]
    if workers == 1:
        loop.call(_address(blocks[0]))
        return
    if _threads is None:
        _threads = ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="hf_blosan")
    futures = [_threads.submit(loop.call, _address(block)) for block in blocks]
    wait(futures)  # whatever happens: they work on memory of this call
    for future in futures:
        future.result()


def _address(block: array.array) -> ctypes.c_void_p:
    return ctypes.c_void_p(block.buffer_info()[0])
