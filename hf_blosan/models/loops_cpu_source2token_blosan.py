"""The loops of ``fused_source2token_blosan``, compiled by numba; items and file dates as in ``loops_cpu_blosan``."""

import numpy as np

from .far_field_blosan import CHUNK
from .loops_cpu_blosan import _exp, _get, _put, whole_loop
from .vector_cpu_blosan import LANES, divide_or_zero, maximum, zeros_like

LOWEST = np.float32(-87)  # exp of it is the smallest normal number, next to weights of 1


@whole_loop
def forward(start, stop, scores, values, mask, out, tops, totals):
    """Items start ... stop; ``tops`` and ``totals`` are the largest score and the sum of exp(score - top)."""
    _, length, size = values.shape
    blocks = (size + LANES - 1) // LANES
    for item in range(start, stop):
        row, first = item // blocks, item % blocks * LANES
        top = zeros_like(values) - np.float32(np.inf)
        for i in range(length):
            if mask[row, i]:
                top = maximum(top, _get(scores, row, i, first))
        num, den = zeros_like(values), zeros_like(values)
        for m in range(0, length, CHUNK):
            part, weights = zeros_like(values), zeros_like(values)
            for i in range(m, min(length, m + CHUNK)):
                if mask[row, i]:
                    score = _get(scores, row, i, first) - top
                    weight = _exp(maximum(zeros_like(values) + LOWEST, score))
                    weights = weights + weight
                    part = part + weight * _get(values, row, i, first)
            num, den = num + part, den + weights
        _put(out, row, 0, first, divide_or_zero(num, den))
        _put(tops, row, 0, first, top)
        _put(totals, row, 0, first, den)


@whole_loop
def backward(start, stop, grad, scores, values, mask, out, tops, totals, grad_scores, grad_values):
    """With weights w: grad_values = w grad, grad_scores = w (values - out) grad."""
    _, length, size = values.shape
    blocks = (size + LANES - 1) // LANES
    for item in range(start, stop):
        row, first = item // blocks, item % blocks * LANES
        top, result = _get(tops, row, 0, first), _get(out, row, 0, first)
        share = divide_or_zero(_get(grad, row, 0, first), _get(totals, row, 0, first))
        for i in range(length):
            to_value, to_score = zeros_like(values), zeros_like(values)
            if mask[row, i]:
                score = _get(scores, row, i, first) - top
                to_value = _exp(maximum(zeros_like(values) + LOWEST, score)) * share
                to_score = to_value * (_get(values, row, i, first) - result)
            _put(grad_values, row, i, first, to_value)
            _put(grad_scores, row, i, first, to_score)
