"""The Triton kernels of ``cuda.py``: one program for some tokens and features of one row.

The gradient to agree with, in plain torch: ``backward`` in ``chunks.py``.
"""

from __future__ import annotations

try:
    import triton
    import triton.language as tl
except ImportError:  # other forms are used
    triton = None


def kernel(function):
    """``triton.jit`` if triton is installed. Varying numbers stay variables, so lengths share the compiled code."""
    variable = ["length", "window", "reach", "chunks", "count"]
    return function if triton is None else triton.jit(function, do_not_specialize=variable)


@kernel
def _place(length, D: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """This program's row, tile and feature block; first token of the row; tokens, features, offsets and their mask."""
    tiles, blocks = tl.cdiv(length, TILE), tl.cdiv(D, BLOCK)
    program = tl.program_id(0)
    row, tile, block = (program // (tiles * blocks)).to(tl.int64), program // blocks % tiles, program % blocks
    tokens, features = tile * TILE + tl.arange(0, TILE), block * BLOCK + tl.arange(0, BLOCK)
    offsets = (row * length + tokens)[:, None] * D + features[None, :]
    inside = (tokens < length)[:, None] & (features < D)[None, :]
    return row, tile, block, row * length, tokens, features, offsets, inside


@kernel
def _near_tiles(tile, length, window, reach, DIRECTION: tl.constexpr, TILE: tl.constexpr):
    """Tiles are seen from ``first`` on. ``left`` ... ``right`` - 1, except this one, are far; how many are near."""
    first, last = tile, tile + 1
    if DIRECTION != "backward":
        first = tl.maximum(tile * TILE - window, 0) // TILE
    if DIRECTION != "forward":
        last = tl.cdiv(tl.minimum((tile + 1) * TILE + window, length), TILE)
    left, right = tl.maximum(tile - reach, first), tl.minimum(tile + 1 + reach, last)
    return first, left, right, last - first - (tile - left) - (right - tile - 1)


@kernel
def _nth_near(n, tile, first, left, right):
    near = first + n
    near += tl.where(near >= left, tile - left, 0)
    return near + tl.where(near > tile, right - tile - 1, 0)


@kernel
def _is_real(tokens, start, length, key_mask):
    real = tokens < length
    if key_mask is not None:
        real = tl.load(key_mask + start + tokens, mask=real, other=0) != 0
    return real


@kernel
def _end(tile, start, length, key_mask, TILE: tl.constexpr):
    """The end of a tile without trailing padding; its start if it is all padding."""
    tokens = tile * TILE + tl.arange(0, TILE)
    return tl.max(tl.where(_is_real(tokens, start, length, key_mask), tokens + 1, tile * TILE), 0)


@kernel
def _sees(tokens, other, window, DIRECTION: tl.constexpr):
    """Whether ``tokens`` see the token ``other``, (TILE, 1)."""
    distance = other - tokens
    seen = tl.abs(distance) <= window
    if DIRECTION == "forward":
        seen = seen & (distance < 0)
    if DIRECTION == "backward":
        seen = seen & (distance > 0)
    if DIRECTION == "diagonal":
        seen = seen & (distance != 0)
    return seen[:, None]


@kernel
def _weigh(u, curve):
    """exp(c tanh(u / c)) and 1 - tanh^2; ``curve`` = 1 / c, c log2(e), exp(c), exp(-c).

    Away from 0 both are computed from ``rest`` = 1 - |tanh| without cancellation. Near 0, where ``rest`` is inexact,
    tanh is a polynomial (from Cephes).
    """
    inverse, steep, top, bottom = curve
    x = u * inverse
    z = x * x
    tanh = (((-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2) * z + 1.33314422036e-1) * z
    tanh = x + x * (z * (tanh - 3.33332819422e-1))
    rest = 2.0 / (tl.exp2(tl.abs(x) * 2.8853900817779268) + 1.0)
    is_small = tl.abs(x) < 0.625
    exponent = steep * tl.where(is_small, tanh, tl.where(x < 0, rest, -rest))
    weight = tl.exp2(exponent) * tl.where(is_small, 1.0, tl.where(x < 0, bottom, top))
    return weight, tl.where(is_small, 1.0 - tanh * tanh, rest * (2.0 - rest))


@kernel
def _basis(x, tier, sizes):
    """exp(tilt x) T_r(x / h) for r = 0 and 1; 2 x / h for the recursion from term to term; the number of terms."""
    x = x.to(tl.float64)
    z = x / tl.load(sizes + 3 * tier)
    y = tl.exp(x * tl.load(sizes + 3 * tier + 1))
    return y, y * z, z + z, tl.load(sizes + 3 * tier + 2).to(tl.int32)


@kernel
def _tier(row, block, features, far, D: tl.constexpr, BLOCK: tl.constexpr):
    """The tier of a feature block and its shift, (1, BLOCK)."""
    shifts, tiers, _, _, _ = far
    shift = tl.load(shifts + row * D + features, mask=features < D, other=0.0)
    return tl.load(tiers + row * tl.cdiv(D, BLOCK) + block), shift[None, :]


@kernel
def _far_sums(
    x, SIGN: tl.constexpr, row, tile, block, features, length, far, reach,
    D: tl.constexpr, TERMS: tl.constexpr, SETS: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """How many tiles away distant ones may be, and exp(tilt x) sum_r terms[s, r] T_r(x / h) for sets s = 0, 1, 2."""
    one, two, three = tl.zeros_like(x), tl.zeros_like(x), tl.zeros_like(x)
    if far is not None:
        tier, shift = _tier(row, block, features, far, D, BLOCK)
        reach = tl.where(tier < 0, 0, reach)
        if tier >= 0:
            _, _, sizes, _, terms = far
            chunk = row * tl.cdiv(length, TILE) + tile
            at = terms + chunk * (SETS * TERMS * D) + tl.where(features < D, features, 0)
            y, next_y, z, count = _basis(x + SIGN * shift, tier, sizes)
            a, b, c = tl.zeros_like(y), tl.zeros_like(y), tl.zeros_like(y)
            for _ in range(count):
                a += y * tl.load(at)[None, :]
                b += y * tl.load(at + TERMS * D)[None, :]
                if SETS == 3:
                    c += y * tl.load(at + 2 * TERMS * D)[None, :]
                y, next_y = next_y, z * next_y - y
                at += D
            one, two, three = a.to(tl.float32), b.to(tl.float32), c.to(tl.float32)
    return reach, one, two, three


@kernel
def _forward_kernel(
    keys, queries, values, key_mask, out, denominators, length, curve, window, far, reach,
    DIRECTION: tl.constexpr, D: tl.constexpr, TERMS: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """s_j = sum_i w_ij x_i / sum_i w_ij, and the denominator, for a tile of queries."""
    row, tile, block, start, tokens, features, offsets, inside = _place(length, D, TILE, BLOCK)
    q = tl.load(queries + offsets, mask=inside, other=0.0)
    reach, den, num, _ = _far_sums(q, 1, row, tile, block, features, length, far, reach, D, TERMS, 2, TILE, BLOCK)
    first, left, right, count = _near_tiles(tile, length, window, reach, DIRECTION, TILE)
    for n in range(count):
        near = _nth_near(n, tile, first, left, right)
        # Long sums are taken in parts to stay accurate.
        part_num, part_den = tl.zeros_like(q), tl.zeros_like(q)
        for i in range(near * TILE, _end(near, start, length, key_mask, TILE)):
            real = _is_real(i, start, length, key_mask)
            at, there = (start + i) * D + features, features < tl.where(real, D, 0)
            k = tl.load(keys + at, mask=there, other=0.0)
            x = tl.load(values + at, mask=there, other=0.0)
            weight, _ = _weigh(q + k[None, :], curve)
            weight = tl.where(_sees(tokens, i, tl.where(real, window, -1), DIRECTION), weight, 0.0)
            part_num += weight * x[None, :]
            part_den += weight
        num += part_num
        den += part_den
    # Less than the smallest weight: a rounding error, where no key is visible. NaN stays.
    none = den < 0.5 * curve[3]
    tl.store(out + offsets, tl.where(none, 0.0, tl.div_rn(num, tl.where(none, 1.0, den))), mask=inside)
    tl.store(denominators + offsets, tl.where(none, 0.0, den), mask=inside)


@kernel
def _backward_queries_kernel(
    grad, keys, queries, values, key_mask, out, denominators, shares, grad_queries, length, curve, window, far, reach,
    DIRECTION: tl.constexpr, D: tl.constexpr, TERMS: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dq_j = G_j sum_i w'_ij (x_i - s_j) with w' = w (1 - tanh^2), and the shares G = grad / denominator."""
    row, tile, block, start, tokens, features, offsets, inside = _place(length, D, TILE, BLOCK)
    q = tl.load(queries + offsets, mask=inside, other=0.0)
    s = tl.load(out + offsets, mask=inside, other=0.0)
    reach, ones, total, _ = _far_sums(q, 1, row, tile, block, features, length, far, reach, D, TERMS, 2, TILE, BLOCK)
    total -= s * ones
    first, left, right, count = _near_tiles(tile, length, window, reach, DIRECTION, TILE)
    for n in range(count):
        near = _nth_near(n, tile, first, left, right)
        part = tl.zeros_like(q)
        for i in range(near * TILE, _end(near, start, length, key_mask, TILE)):
            real = _is_real(i, start, length, key_mask)
            at, there = (start + i) * D + features, features < tl.where(real, D, 0)
            k = tl.load(keys + at, mask=there, other=0.0)
            x = tl.load(values + at, mask=there, other=0.0)
            weight, slope = _weigh(q + k[None, :], curve)
            weight = tl.where(_sees(tokens, i, tl.where(real, window, -1), DIRECTION), weight, 0.0)
            part += weight * slope * (x[None, :] - s)
        total += part
    den = tl.load(denominators + offsets, mask=inside, other=0.0)
    share = tl.div_rn(tl.load(grad + offsets, mask=inside, other=0.0), tl.where(den == 0, 1.0, den))
    tl.store(shares + offsets, tl.where(den == 0, 0.0, share), mask=inside)
    tl.store(grad_queries + offsets, tl.where(den == 0, 0.0, share * total), mask=inside)


@kernel
def _backward_keys_kernel(
    keys, queries, values, key_mask, out, shares, grad_keys, grad_values, length, curve, window, far, reach,
    DIRECTION: tl.constexpr, D: tl.constexpr, TERMS: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dk_i = sum_j w'_ij G_j (x_i - s_j) and dx_i = sum_j w_ij G_j. ``DIRECTION``: in which keys see queries."""
    row, tile, block, start, tokens, features, offsets, inside = _place(length, D, TILE, BLOCK)
    real = inside & _is_real(tokens, start, length, key_mask)[:, None]
    k = tl.load(keys + offsets, mask=real, other=0.0)
    x = tl.load(values + offsets, mask=real, other=0.0)
    reach, push, pull, to_values = _far_sums(
        k, -1, row, tile, block, features, length, far, reach, D, TERMS, 3, TILE, BLOCK
    )
    to_keys = x * push - pull
    first, left, right, count = _near_tiles(tile, length, window, reach, DIRECTION, TILE)
    if _end(tile, start, length, key_mask, TILE) == tile * TILE:
        count = 0
    for n in range(count):
        near = _nth_near(n, tile, first, left, right)
        part_keys, part_values = tl.zeros_like(k), tl.zeros_like(k)
        for j in range(near * TILE, tl.minimum((near + 1) * TILE, length)):
            at = (start + j) * D + features
            q = tl.load(queries + at, mask=features < D, other=0.0)
            s = tl.load(out + at, mask=features < D, other=0.0)
            share = tl.load(shares + at, mask=features < D, other=0.0)
            weight, slope = _weigh(k + q[None, :], curve)
            weight = tl.where(_sees(tokens, j, window, DIRECTION), weight * share[None, :], 0.0)
            part_values += weight
            part_keys += weight * slope * (x - s[None, :])
        to_keys += part_keys
        to_values += part_values
    tl.store(grad_keys + offsets, tl.where(real, to_keys, 0.0), mask=inside)
    tl.store(grad_values + offsets, tl.where(real, to_values, 0.0), mask=inside)


@kernel
def _range_kernel(
    keys, queries, key_mask, shifts, tiers, sizes, count, length,
    D: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The shifts and the tier of a feature block; ``count`` is the number of tiers."""
    blocks = tl.cdiv(D, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    features = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    high = tl.full((TILE, BLOCK), float("-inf"), tl.float32)
    low = tl.full((TILE, BLOCK), float("-inf"), tl.float32)
    for first in range(0, length, TILE):
        tokens = first + tl.arange(0, TILE)
        offsets = (row * length + tokens)[:, None] * D + features[None, :]
        inside = (tokens < length)[:, None] & (features < D)[None, :]
        real = inside & _is_real(tokens, row * length, length, key_mask)[:, None]
        k = tl.load(keys + offsets, mask=real, other=0.0)
        q = tl.load(queries + offsets, mask=inside, other=0.0)
        # A maximum ignores NaN, so NaN becomes infinity, which belongs to no tier.
        k, q = tl.where(k == k, k, float("inf")), tl.where(q == q, q, float("inf"))
        high = tl.maximum(high, tl.maximum(tl.where(real, k, float("-inf")), -q))
        low = tl.maximum(low, tl.maximum(tl.where(real, -k, float("-inf")), q))
    top, bottom = tl.max(high, 0), tl.max(low, 0)
    half = (top + bottom) / 2
    largest = tl.max(tl.where(half < 1e30, half, float("inf")), 0)
    tier = 0
    for t in range(count):
        tier += (largest > tl.load(sizes + 3 * t)).to(tl.int32)
    tl.store(tiers + tl.program_id(0), tl.where(tier < count, tier, -1))
    tl.store(shifts + row * D + features, (top - bottom) / 2, mask=features < D)


@kernel
def _gather_kernel(
    points, shares, others, key_mask, length, far, SLOPE: tl.constexpr,
    D: tl.constexpr, TERMS: tl.constexpr, PART: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """terms[s, r] = sum_p C_rp sum_i exp(tilt a_i) T_p(a_i / h) x_i, ``PART`` of the r, for the tokens i of a chunk.

    Keys: x is 1, then the value, and C belongs to K or (``SLOPE``) to K'. Queries, which come with ``shares`` G and
    the result s: x is G and G s, C belongs to K', and last x = G again with the C of K.
    """
    row, tile, block, start, tokens, features, offsets, inside = _place(length, D, TILE, BLOCK)
    tier, shift = _tier(row, block, features, far, D, BLOCK)
    if shares is None:
        inside = inside & _is_real(tokens, start, length, key_mask)[:, None]
        one, shift = inside.to(tl.float32), -shift
    else:
        one = tl.load(shares + offsets, mask=inside, other=0.0)
    two = one * tl.load(others + offsets, mask=inside, other=0.0)
    _, _, sizes, table, terms = far
    # Masked tokens become 0, within the expansion's range, so that 0 times their terms is 0.
    a = tl.where(inside, tl.load(points + offsets, mask=inside, other=0.0) + shift, 0.0)
    y, next_y, z, count = _basis(a, tl.maximum(tier, 0), sizes)
    count = tl.where(tl.program_id(1) * PART < tl.where(tier < 0, 0, count), count, 0)
    numbers = tl.program_id(1) * PART + tl.arange(0, PART)
    coefficients = table + tl.maximum(tier, 0) * (2 * TERMS * TERMS) + numbers
    first = tl.zeros((PART, BLOCK), tl.float64)
    second, third = tl.zeros_like(first), tl.zeros_like(first)
    for _ in range(count):
        moment = tl.sum(y * one, 0)[None, :]
        chosen = tl.load(coefficients + SLOPE * TERMS * TERMS)[:, None]
        first += chosen * moment
        second += chosen * tl.sum(y * two, 0)[None, :]
        if shares is not None:
            third += tl.load(coefficients)[:, None] * moment
        coefficients += TERMS
        y, next_y = next_y, z * next_y - y
    SETS: tl.constexpr = 2 if shares is None else 3
    at = (row * tl.cdiv(length, TILE) + tile) * (SETS * TERMS * D) + numbers[:, None] * D + features[None, :]
    exists = (features < tl.where(count > 0, D, 0))[None, :] & (numbers < TERMS)[:, None]
    tl.store(terms + at, first, mask=exists)
    tl.store(terms + at + TERMS * D, second, mask=exists)
    if shares is not None:
        tl.store(terms + at + 2 * TERMS * D, third, mask=exists)


@kernel
def _scan_kernel(
    far, target, chunks, reach, DIRECTION: tl.constexpr, D: tl.constexpr, TERMS: tl.constexpr, SETS: tl.constexpr,
    TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """target[m] = the sum of terms[n] over the chunks n that are 1 ... ``reach`` away on the visible sides of m."""
    _, tiers, sizes, _, source = far
    blocks = tl.cdiv(D, BLOCK)
    row, term = (tl.program_id(0) // blocks).to(tl.int64), tl.program_id(1)
    features = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    tier = tl.load(tiers + tl.program_id(0))
    used = (tier >= 0) & (term % TERMS < tl.load(sizes + 3 * tl.maximum(tier, 0) + 2))
    exists = (features < tl.where(used, D, 0))[None, :]
    at = (row * chunks * (SETS * TERMS) + term) * D + features[None, :]
    STRIDE: tl.constexpr = SETS * TERMS * D
    carry = tl.zeros((BLOCK,), tl.float64)
    if DIRECTION != "forward":
        ahead = tl.where(used, tl.minimum(reach, chunks), 0)
        for m in range(0, ahead, TILE):
            n = (m + tl.arange(0, TILE)).to(tl.int64)[:, None]
            carry += tl.sum(tl.load(source + at + n * STRIDE, mask=exists & (n < ahead), other=0.0), 0)
    for m in range(0, tl.where(used, chunks, 0), TILE):
        n = (m + tl.arange(0, TILE)).to(tl.int64)[:, None]
        inside = exists & (n < chunks)
        own = tl.load(source + at + n * STRIDE, mask=inside, other=0.0)
        step, enters = tl.zeros_like(own), tl.zeros_like(own)
        if DIRECTION != "backward":
            enters = own - tl.load(source + at + (n - reach) * STRIDE, mask=inside & (n >= reach), other=0.0)
            step += enters
        if DIRECTION != "forward":
            step += tl.load(source + at + (n + reach) * STRIDE, mask=inside & (n + reach < chunks), other=0.0) - own
        tl.store(target + at + n * STRIDE, carry[None, :] + tl.cumsum(step, 0) - enters, mask=inside)
        carry += tl.sum(step, 0)
