"""The loops of ``fused_pointwise_blosan``, compiled by numba, over rows of features; file dates as in
``loops_cpu_blosan``."""

import numpy as np

from .loops_cpu_blosan import HEADER, ONE, _exp, _expm1, inlined, share, whole_loop
from .vector_cpu_blosan import (
    LANES,
    get,
    load_at,
    load_part_at,
    maximum,
    minimum,
    reciprocal,
    store_at,
    store_part_at,
    unpack,
    zeros_like,
)

LIMIT = np.float32(87)  # exp of it is a float32, and of minus it one that is not rounded to fewer digits


@inlined
def _get(source, offset, count):
    """16 numbers, 0 behind the first ``count``."""
    return load_at(source, offset) if count >= LANES else load_part_at(source, offset, count)


@inlined
def _put(to, offset, count, vector):
    if count >= LANES:
        store_at(to, offset, vector)
    else:
        store_part_at(to, offset, vector, count)


@inlined
def _sigmoid(x):
    """1 / (1 + exp(-x)); the last term takes back the error of r, but for its square."""
    minus = maximum(zeros_like(x) - LIMIT, minimum(zeros_like(x) - x, LIMIT))
    s = ONE + _exp(minus)
    r = reciprocal(s)
    return r + r * (ONE - r * s)


@whole_loop
def elu(arguments):
    """out = elu(x + bias); a row of ``bias`` serves ``repeat`` rows."""
    start, stop, _ = share(arguments)
    x, bias, repeat, out, size = unpack(arguments, HEADER, "ffnfn")
    for row in range(start, stop):
        for first in range(0, size, LANES):
            place, count = row * size + first, size - first
            y = _get(x, place, count) + _get(bias, row // repeat * size + first, count)
            negative = maximum(zeros_like(y) - LIMIT, minimum(y, 0))
            _put(out, place, count, maximum(zeros_like(y), y) + _expm1(negative))


@whole_loop
def elu_backward(arguments):
    """out = grad elu', which is 1 for positive results y and y + 1 for others."""
    start, stop, _ = share(arguments)
    grad, y, out, size = unpack(arguments, HEADER, "fffn")
    for row in range(start, stop):
        for first in range(0, size, LANES):
            place, count = row * size + first, size - first
            slope = minimum(_get(y, place, count) + ONE, 1)
            _put(out, place, count, _get(grad, place, count) * slope)


@whole_loop
def gated_sum(arguments):
    """The result takes the first ``new_length`` rows of each group.

    Row i of group n of it stands at ``group_step n + row_step i``, the mask of group n at ``mask_step n``; a step
    below 0: there is no mask.
    """
    start, stop, _ = share(arguments)
    (scores, bias, repeat, first, second, mask, mask_step, out, group_step, row_step, new_length, length, size) = (
        unpack(arguments, HEADER, "ffnffbnfnnnnn")
    )
    for item in range(start, stop):
        n, i = item // new_length, item % new_length
        row, to = n * length + i, group_step * n + row_step * i
        seen = mask_step < 0 or get(mask, n * mask_step + i)
        for d in range(0, size, LANES):
            place, count = row * size + d, size - d
            result = zeros_like(out)
            if seen:
                gate = _sigmoid(_get(scores, place, count) + _get(bias, row // repeat * size + d, count))
                other = _get(second, place, count)
                result = other + gate * (_get(first, place, count) - other)
            _put(out, to + d, count, result)


@whole_loop
def gated_sum_backward(arguments):
    """Gradients of the scores and of both vectors; ``grad`` lies as the result of :func:`gated_sum` may."""
    start, stop, _ = share(arguments)
    grad, group_step, row_step, scores, bias, repeat, first, second, mask, mask_step = unpack(
        arguments, HEADER, "fnnffnffbn"
    )
    to_scores, to_first, to_second, length, size = unpack(arguments, HEADER + 10, "fffnn")
    for row in range(start, stop):
        n, i = row // length, row % length
        source = group_step * n + row_step * i
        seen = mask_step < 0 or get(mask, n * mask_step + i)
        for d in range(0, size, LANES):
            place, count = row * size + d, size - d
            one, two, score = zeros_like(grad), zeros_like(grad), zeros_like(grad)
            if seen:
                g = _get(grad, source + d, count)
                gate = _sigmoid(_get(scores, place, count) + _get(bias, row // repeat * size + d, count))
                one = g * gate
                two = g - one
                score = (_get(first, place, count) - _get(second, place, count)) * one * (ONE - gate)
            _put(to_first, place, count, one)
            _put(to_second, place, count, two)
            _put(to_scores, place, count, score)
