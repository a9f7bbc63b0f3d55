"""The loops of ``fused_tensorized_blosan``, compiled by numba; items as in ``loops_cpu_blosan``."""

import numpy as np

from .compiled_cpu_blosan import HALF, HEADER, exp, share, whole_loop
from .loops_cpu_pointwise_blosan import load_row, store_row
from .vector_cpu_blosan import LANES, get, maximum, minimum, one_if_zero, unpack, zeros_like

LOWEST, HIGHEST = np.float32(-85), np.float32(75)  # exponents of source weights


@whole_loop
def source_weights(arguments):
    """[v E_S ; E_S] and, where there is memory for it, E_S. A step below 0: there is no mask, or E_S is not wanted.

    As in ``equations._source_weights``, E_S = exp(S - shift), where the shift, the same for all tokens, takes
    the largest exponent down to half the range or to 75.
    """
    start, stop, _ = share(arguments)
    scores, score_row, score_token, v, v_row, v_token, mask, mask_row, both = unpack(arguments, HEADER, "fnnfnnbnf")
    source, source_row, source_token, length, size = unpack(arguments, HEADER + 9, "fnnnn")
    blocks = (size + LANES - 1) // LANES
    for item in range(start, stop):
        row, first = item // blocks, item % blocks * LANES
        count = size - first
        top = zeros_like(scores) - np.float32(np.inf)
        bottom = top
        for i in range(length):
            if mask_row < 0 or get(mask, row * mask_row + i):
                score = load_row(scores, row * score_row + i * score_token + first, count)
                top, bottom = maximum(score, top), maximum(zeros_like(scores) - score, bottom)
        # half the range is (top + bottom) / 2, as bottom = -min
        shift = top - minimum(maximum((top + bottom) * HALF, zeros_like(scores)), HIGHEST)
        for i in range(length):
            weight, value = zeros_like(scores), zeros_like(scores)
            if mask_row < 0 or get(mask, row * mask_row + i):
                score = load_row(scores, row * score_row + i * score_token + first, count)
                weight = exp(minimum(maximum(zeros_like(scores) + LOWEST, score - shift), HIGHEST))
                value = weight * load_row(v, row * v_row + i * v_token + first, count)
            place = (row * length + i) * 2 * size + first
            store_row(both, place, count, value)
            store_row(both, place + size, count, weight)
            if source_row >= 0:
                store_row(source, row * source_row + i * source_token + first, count, weight)


@whole_loop
def quotients(arguments):
    """First half of each row by its second, where that is 0 by 1; and the divisors, unless their step is below 0."""
    start, stop, _ = share(arguments)
    both, out, out_row, out_token, divisors, divisor_row, divisor_token, length, size = unpack(
        arguments, HEADER, "ffnnfnnnn"
    )
    for item in range(start, stop):
        row, i = item // length, item % length
        for first in range(0, size, LANES):
            place, count = item * 2 * size + first, size - first
            divisor = one_if_zero(load_row(both, place + size, count))
            store_row(out, row * out_row + i * out_token + first, count, load_row(both, place, count) / divisor)
            if divisor_row >= 0:
                store_row(divisors, row * divisor_row + i * divisor_token + first, count, divisor)
