"""The far keys of directional attention, through the expansion of ``far_field_blosan``; loops of ``loops_cpu_blosan``.

Moments of each chunk of keys are summed over the chunks that a query sees, turned into the terms of a polynomial of
the query, and evaluated.
"""

import numpy as np

from .compiled_cpu_blosan import exp, inlined, part_of_a_loop
from .far_field_blosan import CHUNK
from .vector_cpu_blosan import get, load, skip, store, zeros_like


@inlined
def num_chunks(length):
    return (length + CHUNK - 1) // CHUNK


@part_of_a_loop
def clear(to, first, count):
    for r in range(first, first + count):
        store(to, r, zeros_like(to))


@part_of_a_loop
def _moments(points, length, tilt, h, starts, values, terms, moments):
    """Row (2 m) terms + r is the sum of starts exp(tilt a) T_r(a / h) over chunk m, (2 m + 1) terms + r times values.

    Two points at a time: sums are loaded and stored half as often. An odd last one meets a point that counts 0.
    """
    for m in range(num_chunks(length)):
        one, other = 2 * m * terms, (2 * m + 1) * terms
        clear(moments, one, 2 * terms)
        last = min(length, (m + 1) * CHUNK)
        for i in range(m * CHUNK, last, 2):
            i1 = min(i + 1, last - 1)
            a, b = load(points, i), load(points, i1)
            y0 = zeros_like(moments) + exp(a * tilt) * load(starts, i)
            z0 = zeros_like(moments) + exp(b * tilt) * load(starts, i1) * np.float32(i1 - i)
            y, z = (zeros_like(moments) + a) / h, (zeros_like(moments) + b) / h
            y1, z1 = y0 * y, z0 * z
            y, z = y + y, z + z
            v, w = zeros_like(moments) + load(values, i), zeros_like(moments) + load(values, i1)
            for r in range(terms):
                store(moments, one + r, load(moments, one + r) + (y0 + z0))
                store(moments, other + r, load(moments, other + r) + y0 * v + z0 * w)
                y0, y1 = y1, y * y1 - y0
                z0, z1 = z1, z * z1 - z0


@inlined
def _evaluate(x, tilt, h, terms, first, second, third):
    """exp(tilt x) sum_r terms[n + r] T_r(x / h) for n = first, second and third, where they are not -1."""
    z = (zeros_like(terms) + x) / h
    z0 = zeros_like(terms) + exp(x * tilt)
    z1 = z0 * z
    z = z + z
    one, two, three = zeros_like(terms), zeros_like(terms), zeros_like(terms)
    if third < 0:
        for r in range(second - first):
            one = one + z0 * load(terms, first + r)
            two = two + z0 * load(terms, second + r)
            z0, z1 = z1, z * z1 - z0
    else:
        for r in range(second - first):
            one = one + z0 * load(terms, first + r)
            two = two + z0 * load(terms, second + r)
            three = three + z0 * load(terms, third + r)
            z0, z1 = z1, z * z1 - z0
    return one, two, three


@part_of_a_loop
def _expand(table, width, size, moments, first, terms, to):
    """terms[to + r] = sum_s table[r, s] moments[first + s], for r < size, a multiple of 4; rows are ``width`` long."""
    for r in range(0, size, 4):
        a, b, c, d = zeros_like(terms), zeros_like(terms), zeros_like(terms), zeros_like(terms)
        row = r * width
        for s in range(size):
            moment = zeros_like(terms) + load(moments, first + s)
            a = a + moment * get(table, row + s)
            b = b + moment * get(table, row + width + s)
            c = c + moment * get(table, row + 2 * width + s)
            d = d + moment * get(table, row + 3 * width + s)
        store(terms, to + r, a)
        store(terms, to + r + 1, b)
        store(terms, to + r + 2, c)
        store(terms, to + r + 3, d)


@part_of_a_loop
def _add(total, moments, rows, m, sign):
    """Add the moments of chunk m, or take them away."""
    for r in range(rows):
        store(total, r, load(total, r) + load(moments, m * rows + r) * sign)


@part_of_a_loop
def _count(first_real, length, start, stop):
    """The real tokens in chunks start ... stop - 1."""
    return get(first_real, min(length, max(0, stop * CHUNK))) - get(first_real, min(length, max(0, start * CHUNK)))


@part_of_a_loop
def _slide(total, current, moments, terms, m, length, before, after, far, first_real):
    """From the moments of all chunks far from chunk m - 1 to those far from m: up to ``far`` chunks away.

    The running total is kept in float64, so that what is taken out again leaves no trace; where no token is left, not
    even a rounding of it.
    """
    rows, chunks = 2 * terms, num_chunks(length)
    if m == 0:
        clear(total, 0, rows)
        for n in range(1, min(chunks, far + 1) if after else 0):
            _add(total, moments, rows, n, 1)
    if m > 0 and before:
        _add(total, moments, rows, m - 1, 1)
        if m - 1 - far >= 0:
            _add(total, moments, rows, m - 1 - far, -1)
    if m > 0 and after:
        _add(total, moments, rows, m, -1)
        if m + far < chunks:
            _add(total, moments, rows, m + far, 1)
    left = _count(first_real, length, m - far, m) if before else 0
    if left + (_count(first_real, length, m + 1, m + 1 + far) if after else 0) == 0:
        clear(total, 0, rows)
    for r in range(rows):
        store(current, r, load(total, r))


@part_of_a_loop
def forward_far(
    keys,
    queries,
    ones,
    values,
    first_real,
    length,
    tilt,
    h,
    size,
    weight,
    width,
    memory,
    before,
    after,
    far,
    numerator,
    denominator,
):
    """Add to every query the keys of chunks up to ``far`` chunks away."""
    moments, total, current, terms = memory
    _moments(keys, length, tilt, h, ones, values, size, moments)
    for m in range(num_chunks(length)):
        _slide(total, current, moments, size, m, length, before, after, far, first_real)
        _expand(weight, width, size, current, 0, terms, 0)
        _expand(weight, width, size, current, size, terms, size)
        for j in range(m * CHUNK, min(length, (m + 1) * CHUNK)):
            den, num, _ = _evaluate(load(queries, j), tilt, h, terms, 0, size, -1)
            store(denominator, j, load(denominator, j) + den)
            store(numerator, j, load(numerator, j) + num)


@part_of_a_loop
def backward_far(
    keys,
    queries,
    ones,
    values,
    shares,
    out,
    first_real,
    everyone,
    length,
    tilt,
    h,
    size,
    weight,
    width,
    memory,
    before,
    after,
    far,
    to_keys,
    to_queries,
    to_values,
):
    """The same for gradients, see ``_near_backward``."""
    moments, total, current, terms = memory
    slope = skip(weight, width * width)
    _moments(keys, length, tilt, h, ones, values, size, moments)
    for m in range(num_chunks(length)):
        _slide(total, current, moments, size, m, length, before, after, far, first_real)
        _expand(slope, width, size, current, 0, terms, 0)
        _expand(slope, width, size, current, size, terms, size)
        for j in range(m * CHUNK, min(length, (m + 1) * CHUNK)):
            den, num, _ = _evaluate(load(queries, j), tilt, h, terms, 0, size, -1)
            store(to_queries, j, load(to_queries, j) + load(shares, j) * (num - load(out, j) * den))
    # Keys before a query get their gradient from it: seen from the keys, the queries lie behind.
    _moments(queries, length, tilt, h, shares, out, size, moments)
    for m in range(num_chunks(length)):
        _slide(total, current, moments, size, m, length, after, before, far, everyone)
        _expand(weight, width, size, current, 0, terms, 0)
        _expand(slope, width, size, current, 0, terms, size)
        _expand(slope, width, size, current, size, terms, 2 * size)
        for i in range(m * CHUNK, min(length, (m + 1) * CHUNK)):
            to_value, share, pull = _evaluate(load(keys, i), tilt, h, terms, 0, size, 2 * size)
            store(to_values, i, load(to_values, i) + to_value * load(ones, i))
            store(to_keys, i, load(to_keys, i) + (load(values, i) * share - pull) * load(ones, i))
