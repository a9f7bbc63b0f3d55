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


@inlined
def _elu(x):
    negative = maximum(zeros_like(x) - LIMIT, minimum(x, 0))
    return maximum(zeros_like(x), x) + expm1(negative)


@inlined
def _first_bias(row, length, repeat):
    """The row of a bias that goes with a row; how many rows it serves from there on, and how many are left of a group.

    In groups of ``length`` rows each row of the bias serves ``repeat``, the last perhaps fewer. Rows are counted from
    there on by :func:`_next_bias`: divisions cost as much as the work on a row.
    """
    i = row % length
    served, left = repeat - i % repeat, length - i
    return row // length * ((length + repeat - 1) // repeat) + i // repeat, min(served, left), left


@inlined
def _next_bias(bias_row, served, left, length, repeat):
    """The same for the next row."""
    served, left = served - 1, left - 1
    if served:
        return bias_row, served, left
    left = left if left else length
    return bias_row + 1, min(repeat, left), left


@whole_loop
def elu(arguments):
    """out = elu(x + bias). Each row of the bias serves a group of rows of x."""
    start, stop, _ = share(arguments)
    x, bias, out, group, size = unpack(arguments, HEADER, "fffnn")
    n, i = start // group, start % group
    for row in range(start, stop):
        shift = n * size
        n, i = (n, i + 1) if i + 1 < group else (n + 1, 0)
        for first in range(0, size, LANES):
            place, count = row * size + first, size - first
            store_row(out, place, count, _elu(load_row(x, place, count) + load_row(bias, shift + first, count)))


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
    """Row i of group n of the result stands at ``group_step n + row_step i``; bias and mask have a step of groups too.

    A mask step below 0: there is no mask.
    """
    start, stop, _ = share(arguments)
    scores, bias, bias_step, first, second, mask, mask_step = unpack(arguments, HEADER, "ffnffbn")
    out, group_step, row_step, group, size = unpack(arguments, HEADER + 7, "fnnnn")
    n, i = start // group, start % group
    for row in range(start, stop):
        to, shift = group_step * n + row_step * i, bias_step * n
        seen = mask_step < 0 or get(mask, n * mask_step + i)
        n, i = (n, i + 1) if i + 1 < group else (n + 1, 0)
        for d in range(0, size, LANES):
            place, count = row * size + d, size - d
            result = zeros_like(out)
            if seen:
                gate = _sigmoid(load_row(scores, place, count) + load_row(bias, shift + d, count))
                other = load_row(second, place, count)
                result = other + gate * (load_row(first, place, count) - other)
            store_row(out, to + d, count, result)


@whole_loop
def gated_sum_backward(arguments):
    """Gradients of the scores and of both vectors; ``grad`` lies as the result of :func:`gated_sum` may."""
    start, stop, _ = share(arguments)
    scores, bias, bias_step, first, second, mask, mask_step = unpack(arguments, HEADER, "ffnffbn")
    grad, group_step, row_step, to_scores, to_first, to_second, group, size = unpack(arguments, HEADER + 7, "fnnfffnn")
    n, i = start // group, start % group
    for row in range(start, stop):
        source, shift = group_step * n + row_step * i, bias_step * n
        seen = mask_step < 0 or get(mask, n * mask_step + i)
        n, i = (n, i + 1) if i + 1 < group else (n + 1, 0)
        for d in range(0, size, LANES):
            place, count = row * size + d, size - d
            one, two, score = zeros_like(grad), zeros_like(grad), zeros_like(grad)
            if seen:
                g = load_row(grad, source + d, count)
                gate = _sigmoid(load_row(scores, place, count) + load_row(bias, shift + d, count))
                one = g * gate
                two = g - one
                score = (load_row(first, place, count) - load_row(second, place, count)) * one * (ONE - gate)
            store_row(to_first, place, count, one)
            store_row(to_second, place, count, two)
            store_row(to_scores, place, count, score)


@inlined
def _gate_and_candidate(scores, place, bias, shift, size, count):
    """Of 16 features, from the candidate's scores at ``place`` and the gate's ``size`` further on; so the bias."""
    gate = _sigmoid(load_row(scores, place + size, count) + load_row(bias, shift + size, count))
    return gate, _elu(load_row(scores, place, count) + load_row(bias, shift, count))


@whole_loop
def gated_candidate(arguments):
    """A row of scores and of the bias: the candidate's, then the gate's. The result lies as that of gated_sum."""
    start, stop, _ = share(arguments)
    scores, bias, length, repeat, second = unpack(arguments, HEADER, "ffnnf")
    out, group_step, row_step, group, size = unpack(arguments, HEADER + 5, "fnnnn")
    n, i = start // group, start % group
    bias_row, served, left = _first_bias(start, length, repeat)
    for row in range(start, stop):
        to, shift = group_step * n + row_step * i, 2 * bias_row * size
        bias_row, served, left = _next_bias(bias_row, served, left, length, repeat)
        n, i = (n, i + 1) if i + 1 < group else (n + 1, 0)
        for d in range(0, size, LANES):
            place, count = 2 * row * size + d, size - d
            gate, candidate = _gate_and_candidate(scores, place, bias, shift + d, size, count)
            other = load_row(second, row * size + d, count)
            store_row(out, to + d, count, other + gate * (candidate - other))


@whole_loop
def gated_candidate_backward(arguments):
    """Gradients of the scores, which lie as they do, and of the vector beside the candidate."""
    start, stop, _ = share(arguments)
    scores, bias, length, repeat, second = unpack(arguments, HEADER, "ffnnf")
    grad, group_step, row_step, to_scores, to_second, group, size = unpack(arguments, HEADER + 5, "fnnffnn")
    n, i = start // group, start % group
    bias_row, served, left = _first_bias(start, length, repeat)
    for row in range(start, stop):
        source, shift = group_step * n + row_step * i, 2 * bias_row * size
        bias_row, served, left = _next_bias(bias_row, served, left, length, repeat)
        n, i = (n, i + 1) if i + 1 < group else (n + 1, 0)
        for d in range(0, size, LANES):
            place, count = 2 * row * size + d, size - d
            gate, candidate = _gate_and_candidate(scores, place, bias, shift + d, size, count)
            g = load_row(grad, source + d, count)
            to_candidate = g * gate
            change = (candidate - load_row(second, row * size + d, count)) * to_candidate * (ONE - gate)
            store_row(to_scores, place, count, to_candidate * minimum(candidate + ONE, 1))
            store_row(to_scores, place + size, count, change)
            store_row(to_second, row * size + d, count, g - to_candidate)
