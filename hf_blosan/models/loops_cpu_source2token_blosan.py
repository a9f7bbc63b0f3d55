"""The loops of ``fused_source2token_blosan``, compiled by numba; items as in ``loops_cpu_blosan``."""

import numpy as np

from .compiled_cpu_blosan import HEADER, exp, first_item, load_features, next_item, share, store_features, whole_loop
from .far_field_blosan import CHUNK
from .vector_cpu_blosan import LANES, divide_or_zero, get, maximum, unpack, zeros_like

LOWEST = np.float32(-87)  # exp of it is the smallest normal number, next to weights of 1


@whole_loop
def forward(arguments):
    """``tops`` and ``totals`` are the largest score and the sum of exp(score - top)."""
    start, stop, _ = share(arguments)
    scores, values, mask, out, tops, totals, length, size, sentence, rows = unpack(arguments, HEADER, "ffbfffnnnn")
    shape, vector, slices = (length, size, size), (1, size, size), (size + LANES - 1) // LANES
    row, part, begin, first = first_item(start, slices, length, sentence, rows)
    for _ in range(start, stop):
        here = min(length, sentence - part * length)
        top = zeros_like(scores) - np.float32(np.inf)
        for i in range(here):
            if get(mask, begin + i):
                top = maximum(top, load_features(scores, shape, begin + i, first))
        num, den = zeros_like(scores), zeros_like(scores)
        for m in range(0, here, CHUNK):
            products, weights = zeros_like(scores), zeros_like(scores)
            for i in range(m, min(here, m + CHUNK)):
                if get(mask, begin + i):
                    score = load_features(scores, shape, begin + i, first) - top
                    weight = exp(maximum(zeros_like(scores) + LOWEST, score))
                    weights = weights + weight
                    products = products + weight * load_features(values, shape, begin + i, first)
            num, den = num + products, den + weights
        store_features(out, vector, row, first, divide_or_zero(num, den))
        store_features(tops, vector, row, first, top)
        store_features(totals, vector, row, first, den)
        row, part, begin, first = next_item(row, part, begin, first, shape, sentence, rows)


@whole_loop
def backward(arguments):
    """With weights w: grad_values = w grad, grad_scores = w (values - out) grad."""
    start, stop, _ = share(arguments)
    grad, scores, values, mask, out, tops, totals, grad_scores, grad_values, length, size, sentence, rows = unpack(
        arguments, HEADER, "fffbfffffnnnn"
    )
    shape, vector, slices = (length, size, size), (1, size, size), (size + LANES - 1) // LANES
    row, part, begin, first = first_item(start, slices, length, sentence, rows)
    for _ in range(start, stop):
        here = min(length, sentence - part * length)
        top, result = load_features(tops, vector, row, first), load_features(out, vector, row, first)
        total = load_features(totals, vector, row, first)
        scaled = divide_or_zero(load_features(grad, vector, row, first), total)
        for i in range(here):
            to_value, to_score = zeros_like(scores), zeros_like(scores)
            if get(mask, begin + i):
                score = load_features(scores, shape, begin + i, first) - top
                to_value = exp(maximum(zeros_like(scores) + LOWEST, score)) * scaled
                to_score = to_value * (load_features(values, shape, begin + i, first) - result)
            store_features(grad_values, shape, begin + i, first, to_value)
            store_features(grad_scores, shape, begin + i, first, to_score)
        row, part, begin, first = next_item(row, part, begin, first, shape, sentence, rows)
