"""The loops of ``kernels_cpu_blosan``, compiled by numba. Work is cut into items: 16 features of one row.

Near pairs, one by one: with p = exp(2 k_i / c) exp(2 q_j / c) and t = (p - 1) / (p + 1) the score
c tanh((k_i + q_j) / c) is c t. A pair costs one reciprocal and one short exponential, and tanh' = 1 - t^2 comes for
free. What is kept of an exponential is exp - 1, which is exact for small scores. Far keys go through the expansion
of ``far_field_blosan``. Long sums are taken in parts of ``CHUNK``.
"""

import numpy as np

from .compiled_cpu_blosan import (
    HALF,
    HEADER,
    LOG2_E,
    ONE,
    TWO,
    expm1,
    first_item,
    inlined,
    load_features,
    next_item,
    part_of_a_loop,
    power_of_two,
    share,
    store_features,
    whole_loop,
)
from .far_field_blosan import CHUNK
from .loops_cpu_far_blosan import backward_far, clear, forward_far, num_chunks
from .vector_cpu_blosan import (
    LANES,
    divide_or_zero,
    get,
    largest,
    load,
    maximum,
    memory_at,
    minimum,
    put,
    reciprocal,
    skip,
    store,
    unpack,
    zeros_like,
)

LARGEST = np.float32(80)  # exp(2 u / c) is cut off there, where the tanh has long been 1


@part_of_a_loop
def _tanh(m):
    """tanh(u / c) from m = exp(2 u / c) - 1; the last term takes back the error of r, but for its square."""
    s = m + TWO
    r = reciprocal(s)
    t = m * r
    return t + t * (ONE - r * s)


@part_of_a_loop
def _pair(key, query):
    """exp(2 u / c) - 1 from exp(2 k / c) - 1 and exp(2 q / c) - 1."""
    return key * query + (key + query)


@part_of_a_loop
def _wide_pair(key, query, factor):
    """The same from k, q and 2 / c; the exponential is cut off where the tanh has long been 1."""
    y = minimum((key + query) * factor, LARGEST)
    return expm1(zeros_like(y) - minimum(zeros_like(y) - y, LARGEST))


@inlined
def _visible(j, n, length, see, first_real, side):
    """The real keys of chunk n that query j sees, as a range of ``real``, the list of their positions.

    Where it sees both sides but not itself, side 0 is the keys before it and side 1 those behind, else side 0 is all.
    ``first_real[i]`` counts the real keys before position i.
    """
    before, after, same, window = see
    start = j - window if before else j
    stop = j + 1 + window if after else j + 1
    if not same:
        start = j + 1 if side == 1 or not before else start
        stop = j if side == 0 and before else stop
    start, stop = max(start, n * CHUNK), min(stop, (n + 1) * CHUNK, length)
    return (get(first_real, start), get(first_real, stop)) if start < stop else (0, 0)


@inlined
def _sides(see):
    before, after, same, _ = see
    return 2 if before and after and not same else 1


@part_of_a_loop
def _is_near(m, n, before, after, far, window):
    """Whether queries of chunk m see keys of chunk n pair by pair."""
    distance = abs(m - n)
    return m == n or ((before if n < m else after) and far < distance and (distance - 1) * CHUNK < window)


@part_of_a_loop
def _near(m, n, length, see, c, wide, real, first_real, exp_keys, exp_queries, values, numerator, denominator):
    """Add the keys of chunk n to the queries of chunk m."""
    for j in range(m * CHUNK, min(length, (m + 1) * CHUNK)):
        q = load(exp_queries, j)
        for side in range(_sides(see)):
            first, last = _visible(j, n, length, see, first_real, side)
            if first < last:
                if wide:
                    num, den = _wide_pairs(first, last, c, wide, real, exp_keys, q, values)
                else:
                    num, den = _narrow_pairs(first, last, c, real, exp_keys, q, values)
                store(denominator, j, load(denominator, j) + den)
                store(numerator, j, load(numerator, j) + num)


@inlined
def _narrow_pairs(first, last, c, real, exp_keys, q, values):
    """Weights of the keys, times their values and alone. Two at a time hide one another's latency."""
    num, den = zeros_like(values), zeros_like(values)
    for r in range(first, last - 1, 2):
        i, i1 = get(real, r), get(real, r + 1)
        weight = power_of_two(_tanh(_pair(load(exp_keys, i), q)), c)
        weight1 = power_of_two(_tanh(_pair(load(exp_keys, i1), q)), c)
        den = den + (weight + weight1)
        num = (num + weight * load(values, i)) + weight1 * load(values, i1)
    if (last - first) % 2:
        i = get(real, last - 1)
        weight = power_of_two(_tanh(_pair(load(exp_keys, i), q)), c)
        den = den + weight
        num = num + weight * load(values, i)
    return num, den


@inlined
def _wide_pairs(first, last, c, wide, real, keys, q, values):
    num, den = zeros_like(values), zeros_like(values)
    for r in range(first, last):
        i = get(real, r)
        weight = power_of_two(_tanh(_wide_pair(load(keys, i), q, wide)), c)
        den = den + weight
        num = num + weight * load(values, i)
    return num, den


@inlined
def _pair_backward(i, q, scaled, s, c, wide, exp_keys, values):
    """Gradients of a pair's value and of its score."""
    k = load(exp_keys, i)
    t = _tanh(_wide_pair(k, q, wide) if wide else _pair(k, q))
    weight = power_of_two(t, c) * scaled
    return weight, weight * (load(values, i) - s) * (ONE - t * t)


@part_of_a_loop
def _near_backward(
    m,
    n,
    length,
    see,
    c,
    wide,
    real,
    first_real,
    exp_keys,
    exp_queries,
    values,
    shares,
    out,
    to_keys,
    to_queries,
    to_values,
    part,
):
    """Gradients of query chunk m and key chunk n; ``part`` is memory for sums of the latter.

    The loss changes with w_ij by G_j (x_i - s_j), where G = grad / denominator, the shares, and s is the result.
    """
    clear(part, 0, 2 * CHUNK)
    for j in range(m * CHUNK, min(length, (m + 1) * CHUNK)):
        q, scaled, s = load(exp_queries, j), load(shares, j), load(out, j)
        to_query = zeros_like(values)
        for side in range(_sides(see)):
            first, last = _visible(j, n, length, see, first_real, side)
            for r in range(first, last - 1, 2):
                i, i1 = get(real, r), get(real, r + 1)
                row, row1 = 2 * (i - n * CHUNK), 2 * (i1 - n * CHUNK)
                weight, score = _pair_backward(i, q, scaled, s, c, wide, exp_keys, values)
                weight1, score1 = _pair_backward(i1, q, scaled, s, c, wide, exp_keys, values)
                to_query = to_query + (score + score1)
                store(part, row, load(part, row) + score)
                store(part, row + 1, load(part, row + 1) + weight)
                store(part, row1, load(part, row1) + score1)
                store(part, row1 + 1, load(part, row1 + 1) + weight1)
            if (last - first) % 2:
                i = get(real, last - 1)
                row = 2 * (i - n * CHUNK)
                weight, score = _pair_backward(i, q, scaled, s, c, wide, exp_keys, values)
                to_query = to_query + score
                store(part, row, load(part, row) + score)
                store(part, row + 1, load(part, row + 1) + weight)
        store(to_queries, j, load(to_queries, j) + to_query)
    for i in range(n * CHUNK, min(length, (n + 1) * CHUNK)):
        row = 2 * (i - n * CHUNK)
        store(to_keys, i, load(to_keys, i) + load(part, row))
        store(to_values, i, load(to_values, i) + load(part, row + 1))


def scratch_rows(length, terms):
    """Where things begin in a thread's memory, in rows of 64 bytes: buffers, sums of a chunk, running total, moments.

    The last is the size of it all. In front stand the positions of real tokens and two counts up to each position.
    """
    chunks = (length + CHUNK - 1) // CHUNK
    buffers = (3 * (length + 1) + 7) // 8
    sums = buffers + NUM_BUFFERS * length
    total = sums + 2 * CHUNK
    moments = total + 2 * 2 * terms
    return buffers, sums, total, moments, moments + 2 * (chunks * 2 * terms + 5 * terms)


NUM_BUFFERS = 11
_scratch_rows = part_of_a_loop(scratch_rows)


@inlined
def _rows(scratch, row):
    return memory_at(scratch + 64 * row, "f")


@inlined
def _scratch(scratch, length, terms):
    """The parts of a thread's memory; moments of every chunk are float32 or, for wide tiers, float64.

    With them go their running total, in float64 and as it is used, and the terms of one chunk.
    """
    buffers, sums, total, moments, _ = _scratch_rows(length, terms)
    real = memory_at(scratch, "i")
    moments32, moments64 = _rows(scratch, moments), memory_at(scratch + 64 * moments, "d")
    total, all_moments = memory_at(scratch + 64 * total, "d"), num_chunks(length) * 2 * terms * LANES
    current32, current64 = skip(moments32, all_moments), skip(moments64, all_moments)
    far32 = moments32, total, current32, skip(current32, 2 * terms * LANES)
    far64 = moments64, total, current64, skip(current64, 2 * terms * LANES)
    return real, skip(real, length + 1), scratch + 64 * buffers, _rows(scratch, sums), far32, far64


@part_of_a_loop
def _reach(half_range, length, window, tiers, num_tiers, shortest):
    """The tier of an item, and how many chunks away its far keys lie: 0 for none."""
    for tier in range(num_tiers if length > CHUNK else 0):
        if half_range <= get(tiers, 3 * tier):
            far = max(0, (window + 1 - CHUNK) // CHUNK)
            return tier, far if length >= get(shortest, tier) else 0
    return 0, 0


@part_of_a_loop
def _tier(tiers, tier):
    """Half range, tilt and terms of a tier."""
    return get(tiers, 3 * tier), np.float32(get(tiers, 3 * tier + 1)), int(get(tiers, 3 * tier + 2))


@part_of_a_loop
def _set_up(
    shape,
    begin,
    length,
    first,
    scale,
    limit,
    keys,
    key_step,
    queries,
    query_step,
    bias,
    values,
    mask,
    k,
    q,
    x,
    ones,
    exp_k,
    exp_q,
    real,
    first_real,
):
    """Read keys, queries, values and mask of ``length`` tokens from ``begin`` on into k, q, x, ones; the features from
    ``first`` on. And exp - 1 of keys and queries.

    The keys of two tokens, and the queries, are a step apart. The bias is added to all queries.

    Keys and queries of each feature are moved against one another until both fit into the smallest [-H, H]; sums stay
    as they are. Returns the largest H. Where that is beyond the limit nothing is moved and ``wide`` = 2 / c, else 0:
    exponentials of single tokens lose digits where these lie far apart, so that wide scores are summed first.
    """
    high = zeros_like(k) - np.float32(np.inf)
    low = high
    count = 0
    row_length, size, _ = shape
    key_shape, query_shape, vector = (row_length, size, key_step), (row_length, size, query_step), (0, size, 0)
    added = load_features(bias, vector, 0, first)
    for i in range(length):
        put(first_real, i, count)
        query = load_features(queries, query_shape, begin + i, first) + added
        store(q, i, query)
        high, low = maximum(zeros_like(k) - query, high), maximum(query, low)
        if get(mask, begin + i):
            key = load_features(keys, key_shape, begin + i, first)
            high, low = maximum(key, high), maximum(zeros_like(k) - key, low)
            store(k, i, key)
            store(x, i, load_features(values, shape, begin + i, first))
            store(ones, i, zeros_like(k) + ONE)
            put(real, count, i)
            count += 1
        else:
            store(k, i, zeros_like(k))
            store(x, i, zeros_like(k))
            store(ones, i, zeros_like(k))
    put(first_real, length, count)
    shift, factor = (high - low) * HALF, np.float32(2 / scale)
    half_range = largest((high + low) * HALF + (shift - shift))  # NaN where the shift is no number
    if half_range <= limit:
        for i in range(length):
            key, query = load(k, i) - shift * load(ones, i), load(q, i) + shift
            store(k, i, key)
            store(q, i, query)
            store(exp_k, i, expm1(key * factor))
            store(exp_q, i, expm1(query * factor))
        return half_range, np.float32(0)
    for i in range(length):
        store(exp_k, i, load(k, i))
        store(exp_q, i, load(q, i))
    return half_range, factor


# The first fields of both loops, written by ``kernels_cpu_blosan``: what queries see, coefficients, inputs.
OPTION_FIELDS, TABLE_FIELDS, INPUT_FIELDS = "xxnnnnnnnn", "dninfndn", "fnfnffb"
TABLES = HEADER + len(OPTION_FIELDS)
INPUTS = TABLES + len(TABLE_FIELDS)
TENSORS = INPUTS + len(INPUT_FIELDS)


@whole_loop
def forward(arguments):
    """Results and, unless there is no memory for them, denominators.

    Half ranges up to ``limit`` take exponentials of single tokens, see ``_set_up``. ``tiers[t]`` = (half range, tilt,
    terms), ``shortest[t]`` the sentence length from which it is used; coefficients (tier, weight or slope, terms,
    terms) stand in ``table32``, those of the last tiers in ``table64``.
    ``see`` = (before, after, same, window): which keys a query sees. A sentence is cut into ``rows`` of ``length``
    tokens, which do not see one another.
    """
    start, stop, scratch = share(arguments)
    scale, limit, length, size, sentence, rows, before, after, same, window = unpack(arguments, HEADER, OPTION_FIELDS)
    tiers, num_tiers, shortest, num_tiers32, table32, width32, table64, width64 = unpack(
        arguments, TABLES, TABLE_FIELDS
    )
    inputs = unpack(arguments, INPUTS, INPUT_FIELDS)
    out, denominators, save = unpack(arguments, TENSORS, "ffn")
    shape, slices = (length, size, size), (size + LANES - 1) // LANES
    see, c = (before, after, same, window), np.float32(scale) * LOG2_E
    real, first_real, buffers, _, far32, far64 = _scratch(scratch, length, max(width32, width64))
    k, q, x, ones = _rows(buffers, 0), _rows(buffers, length), _rows(buffers, 2 * length), _rows(buffers, 3 * length)
    exp_k, exp_q = _rows(buffers, 4 * length), _rows(buffers, 5 * length)
    num, den = _rows(buffers, 6 * length), _rows(buffers, 7 * length)
    row, part, begin, first = first_item(start, slices, length, sentence, rows)
    for _ in range(start, stop):
        here = min(length, sentence - part * length)
        clear(num, 0, here)
        clear(den, 0, here)
        half_range, wide = _set_up(
            shape, begin, here, first, scale, limit, *inputs, k, q, x, ones, exp_k, exp_q, real, first_real
        )
        tier, far = _reach(half_range, here, window, tiers, num_tiers, shortest)
        if far:
            h, tilt, n = _tier(tiers, tier)
            points, results = (k, q, ones, x, first_real, here, tilt), (before, after, far, num, den)
            if tier < num_tiers32:
                table = skip(table32, tier * 2 * width32 * width32)
                forward_far(*points, np.float32(h), n, table, width32, far32, *results)
            else:
                table = skip(table64, (tier - num_tiers32) * 2 * width64 * width64)
                forward_far(*points, h, n, table, width64, far64, *results)
        for m in range(num_chunks(here)):
            for n in range(num_chunks(here)):
                if _is_near(m, n, before, after, far, window):
                    _near(m, n, here, see, c, wide, real, first_real, exp_k, exp_q, x, num, den)
        for j in range(here):
            total = load(den, j)
            store_features(out, shape, begin + j, first, divide_or_zero(load(num, j), total))
            if save:
                store_features(denominators, shape, begin + j, first, total)
        row, part, begin, first = next_item(row, part, begin, first, shape, sentence, rows)


@whole_loop
def backward(arguments):
    """As :func:`forward`."""
    start, stop, scratch = share(arguments)
    scale, limit, length, size, sentence, rows, before, after, same, window = unpack(arguments, HEADER, OPTION_FIELDS)
    tiers, num_tiers, shortest, num_tiers32, table32, width32, table64, width64 = unpack(
        arguments, TABLES, TABLE_FIELDS
    )
    inputs = unpack(arguments, INPUTS, INPUT_FIELDS)
    out, denominators, grad, grad_keys, grad_queries, grad_values = unpack(arguments, TENSORS, "ffffff")
    shape, slices = (length, size, size), (size + LANES - 1) // LANES
    see, c = (before, after, same, window), np.float32(scale) * LOG2_E
    real, first_real, buffers, sums, far32, far64 = _scratch(scratch, length, max(width32, width64))
    k, q, x, ones = _rows(buffers, 0), _rows(buffers, length), _rows(buffers, 2 * length), _rows(buffers, 3 * length)
    exp_k, exp_q = _rows(buffers, 4 * length), _rows(buffers, 5 * length)
    parts, s, to_k = _rows(buffers, 6 * length), _rows(buffers, 7 * length), _rows(buffers, 8 * length)
    to_q, to_x = _rows(buffers, 9 * length), _rows(buffers, 10 * length)
    everyone = skip(first_real, length + 1)
    for i in range(length + 1):
        put(everyone, i, i)
    row, part, begin, first = first_item(start, slices, length, sentence, rows)
    for _ in range(start, stop):
        here = min(length, sentence - part * length)
        half_range, wide = _set_up(
            shape, begin, here, first, scale, limit, *inputs, k, q, x, ones, exp_k, exp_q, real, first_real
        )
        for j in range(here):
            total = load_features(denominators, shape, begin + j, first)
            store(parts, j, divide_or_zero(load_features(grad, shape, begin + j, first), total))
            store(s, j, load_features(out, shape, begin + j, first))
        for to in (to_k, to_q, to_x):
            clear(to, 0, here)
        tier, far = _reach(half_range, here, window, tiers, num_tiers, shortest)
        if far:
            h, tilt, n = _tier(tiers, tier)
            points = (k, q, ones, x, parts, s, first_real, everyone, here, tilt)
            results = (before, after, far, to_k, to_q, to_x)
            if tier < num_tiers32:
                table = skip(table32, tier * 2 * width32 * width32)
                backward_far(*points, np.float32(h), n, table, width32, far32, *results)
            else:
                table = skip(table64, (tier - num_tiers32) * 2 * width64 * width64)
                backward_far(*points, h, n, table, width64, far64, *results)
        for m in range(num_chunks(here)):
            for n in range(num_chunks(here)):
                if _is_near(m, n, before, after, far, window):
                    inside = (real, first_real, exp_k, exp_q, x, parts, s)
                    _near_backward(m, n, here, see, c, wide, *inside, to_k, to_q, to_x, sums)
        for i in range(here):
            store_features(grad_keys, shape, begin + i, first, load(to_k, i))
            store_features(grad_queries, shape, begin + i, first, load(to_q, i))
            store_features(grad_values, shape, begin + i, first, load(to_x, i))
        row, part, begin, first = next_item(row, part, begin, first, shape, sentence, rows)
