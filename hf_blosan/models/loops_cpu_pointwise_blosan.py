"""The loops of ``fused_pointwise_blosan``, compiled by numba, over rows of features."""

import numpy as np

from .compiled_cpu_blosan import HEADER, ONE, exp, expm1, inlined, share, whole_loop
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
def load_row(source, offset, count):
    """16 numbers, 0 behind the first ``count``."""
    return load_at(source, offset) if count >= LANES else load_part_at(source, offset, count)


@inlined
def store_row(to, offset, count, vector):
    if count >= LANES:
        store_at(to, offset, vector)
    else:
        store_part_at(to, offset, vector, count)


@inlined
def _sigmoid(x):
    """1 / (1 + exp(-x)); the last term takes back the error of r, but for its square."""
    minus = maximum(zeros_like(x) - LIMIT, minimum(zeros_like(x) - x, LIMIT))
    s = ONE + exp(minus)
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
            y = load_row(x, place, count) + load_row(bias, row // repeat * size + first, count)
            negative = maximum(zeros_like(y) - LIMIT, minimum(y, 0))
            store_row(out, place, count, maximum(zeros_like(y), y) + expm1(negative))


@whole_loop
def elu_backward(arguments):
    """out = grad elu', which is 1 for positive results y and y + 1 for others."""
    start, stop, _ = share(arguments)
    grad, y, out, size = unpack(arguments, HEADER, "fffn")
    for row in range(start, stop):
        for first in range(0, size, LANES):
            place, count = row * size + first, size - first
            slope = minimum(load_row(y, place, count) + ONE, 1)
            store_row(out, place, count, load_row(grad, place, count) * slope)


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
                gate = _sigmoid(load_row(scores, place, count) + load_row(bias, row // repeat * size + d, count))
                other = load_row(second, place, count)
                result = other + gate * (load_row(first, place, count) - other)
            store_row(out, to + d, count, result)


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
                g = load_row(grad, source + d, count)
                gate = _sigmoid(load_row(scores, place, count) + load_row(bias, row // repeat * size + d, count))
                one = g * gate
                two = g - one
                score = (load_row(first, place, count) - load_row(second, place, count)) * one * (ONE - gate)
            store_row(to_first, place, count, one)
            store_row(to_second, place, count, two)
            store_row(to_scores, place, count, score)
