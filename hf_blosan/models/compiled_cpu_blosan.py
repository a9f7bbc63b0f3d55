"""Loops as C functions, and what they have in common: threads, exponentials, rows of a tensor.

numba's cache on disk looks at the age of the file of a ``whole_loop`` alone: after a change to this file,
``vector_cpu_blosan``, ``loops_cpu_far_blosan``, ``loops_cpu_pointwise_blosan`` or ``far_field_blosan.CHUNK``, touch
all ``loops_cpu_*.py``.
"""

import threading
from functools import cached_property

import numpy as np

from .vector_cpu_blosan import (
    LANES,
    call,
    load_at,
    load_part_at,
    multiply_add,
    prefetch_at,
    scale_by_power,
    store_at,
    store_part_at,
    unpack,
    zeros_like,
)

try:
    import numba
except ImportError:  # kernels_cpu_blosan goes without
    raise

ROUND = np.float32(1.5 * 2**23)  # adding it leaves the nearest integer in the lowest bits
LOG2_E, LN2_HIGH, LN2_LOW = np.float32(np.log2(np.e)), np.float32(0.693359375), np.float32(-2.12194440e-4)
# 2^x on [-1/2, 1/2], lowest coefficient first, to 4e-9.
_fit = np.polynomial.chebyshev.Chebyshev.interpolate(np.exp2, 6, domain=[-0.5, 0.5])
P0, P1, P2, P3, P4, P5, P6 = _fit.convert(kind=np.polynomial.Polynomial).coef.astype(np.float32)
ONE, TWO, HALF = (np.float32(x) for x in (1, 2, 0.5))

# error_model="numpy": no test for a division by zero.
OPTIONS = {"error_model": "numpy", "nogil": True}
part_of_a_loop = numba.njit(**OPTIONS)
inlined = numba.njit(inline="always", **OPTIONS)  # a call costs as much as ten pairs


_compiling = threading.RLock()


class whole_loop:
    """A C function: threads that run it need no interpreter, whose lock would make them wait for one another.

    It is compiled when first called for, and kept on disk for the next process where there is a place to write. Its
    argument is an array of 8-byte fields, of which :func:`share` reads the first; ``team_cpu_blosan`` writes them.
    """

    def __init__(self, function):
        self.function = function

    @cached_property
    def call(self):
        with _compiling:
            return self._compile()

    def _compile(self):
        signature = numba.types.void(numba.types.voidptr)
        try:
            self.compiled = numba.cfunc(signature, cache=True, **OPTIONS)(self.function)
        except RuntimeError:  # "no locator available": nowhere to keep it
            self.compiled = numba.cfunc(signature, **OPTIONS)(self.function)
        return self.compiled.ctypes


HEADER = 7  # fields before a loop's own


@part_of_a_loop
def share(arguments):
    """The rows this thread is to do, start ... stop, and the address of memory for it alone.

    Fields: how many rows there are; the addresses of functions that tell the number of this thread and how many there
    are, or 0; these numbers themselves; the memory of the first thread and how much each has.
    """
    count, ask_thread, ask_threads, thread, threads, scratch, size = unpack(arguments, 0, "nnnnnnn")
    if ask_thread:
        thread, threads = call(ask_thread), call(ask_threads)
    return count * thread // threads, count * (thread + 1) // threads, scratch + thread * size


@part_of_a_loop
def power_of_two(t, c):
    """2^(t c) for |t c| < 127."""
    rounded = multiply_add(t, c, ROUND)
    f = multiply_add(t, c, ROUND - rounded)
    y = (((((P6 * f + P5) * f + P4) * f + P3) * f + P2) * f + P1) * f + P0
    return scale_by_power(y, rounded)


@part_of_a_loop
def _reduced(y):
    """n, f and 1.5 2^23 + n with exp(y) = 2^(n + f), |f| <= 1/2."""
    rounded = y * LOG2_E + ROUND
    n = rounded - ROUND
    return n, ((y - n * LN2_HIGH) - n * LN2_LOW) * LOG2_E, rounded


@part_of_a_loop
def exp(y):
    """exp(y), below 2^127."""
    _, f, rounded = _reduced(y)
    return scale_by_power((((((P6 * f + P5) * f + P4) * f + P3) * f + P2) * f + P1) * f + P0, rounded)


@part_of_a_loop
def expm1(y):
    """exp(y) - 1, exact near 0 too."""
    n, f, rounded = _reduced(y)
    power = scale_by_power(zeros_like(f) + ONE, rounded)
    return power * ((((((P6 * f + P5) * f + P4) * f + P3) * f + P2) * f + P1) * f) + (power - ONE)


@inlined
def first_item(item, slices, length, sentence, rows):
    """What an item is: its row, which part of a sentence that is, its first token and the first of its features.

    A sentence of ``sentence`` tokens is cut into ``rows`` parts of ``length``, the last of which may have fewer, and a
    row into ``slices`` of features. :func:`next_item` goes on from there: divisions cost as much as a token.
    """
    row = item // slices
    part = row % rows
    return row, part, row // rows * sentence + part * length, item % slices * LANES


@inlined
def next_item(row, part, begin, first, shape, sentence, rows):
    """The same for the next item; ``shape`` as in :func:`load_features`."""
    length, size, _ = shape
    if first + LANES < size:
        return row, part, begin, first + LANES
    if part + 1 < rows:
        return row + 1, part + 1, begin + length, 0
    return row + 1, 0, begin + sentence - part * length, 0


@inlined
def load_features(source, shape, token, first):
    """Features first ... first + 15 of a token, 0 beyond the last; those of the next row are asked for meanwhile.

    ``shape`` is the length and the features of a row, and how far apart its tokens are.
    """
    length, size, step = shape
    offset = token * step + first
    prefetch_at(source, offset + length * step)
    return load_at(source, offset) if first + LANES <= size else load_part_at(source, offset, size - first)


@inlined
def store_features(to, shape, token, first, vector):
    """The counterpart of :func:`load_features`."""
    length, size, step = shape
    offset = token * step + first
    prefetch_at(to, offset + length * step)
    if first + LANES <= size:
        store_at(to, offset, vector)
    else:
        store_part_at(to, offset, vector, size - first)
