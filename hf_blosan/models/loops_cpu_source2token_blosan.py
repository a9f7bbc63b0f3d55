"""The loops of ``fused_source2token_blosan``, compiled by numba; items and file dates as in ``loops_cpu_blosan``."""

import numpy as np

from .far_field_blosan import CHUNK
from .loops_cpu_blosan import _exp, _get, _put, whole_loop
from .vector_cpu_blosan import LANES, divide_or_zero, get, maximum, pointer, zeros_like

LOWEST = np.float32(-87)  # exp of it is the smallest normal number, next to weights of 1


@whole_loop
def forward(start, stop, scores, values, mask, out, tops, totals):
    """Items start ... stop; ``tops`` and ``totals`` are the largest score and the sum of exp(score - top)."""
    shape, blocks = values.shape[1:], (values.shape[2] + LANES - 1) // LANES
    length, vector = shape[0], (1, shape[1])
    scores, values, mask = pointer(scores), pointer(values), pointer(mask)
    out, tops, totals = pointer(out), pointer(tops), pointer(totals)
    for item in range(start, stop):
        row, first = item // blocks, item % blocks * LANES
        top = zeros_like(scores) - np.float32(np.inf)
        for i in range(length):
            if get(mask, row * length + i):
                top = maximum(top, _get(scores, shape, row, i, first))
        num, den = zeros_like(scores), zeros_like(scores)
        for m in range(0, length, CHUNK):
            part, weights = zeros_like(scores), zeros_like(scores)
            for i in range(m, min(length, m + CHUNK)):
                if get(mask, row * length + i):
                    score = _get(scores, shape, row, i, first) - top
                    weight = _exp(maximum(zeros_like(scores) + LOWEST, score))
                    weights = weights + weight
                    part = part + weight * _get(values, shape, row, i, first)
            num, den = num + part, den + weights
        _put(out, vector, row, 0, first, divide_or_zero(num, den))
        _put(tops, vector, row, 0, first, top)
        _put(totals, vector, row, 0, first, den)


@whole_loop
def backward(start, stop, grad, scores, values, mask, out, tops, totals, grad_scores, grad_values):
    """With weights w: grad_values = w grad, grad_scores = w (values - out) grad."""
    shape, blocks = values.shape[1:], (values.shape[2] + LANES - 1) // LANES
    length, vector = shape[0], (1, shape[1])
    grad, scores, values, mask = pointer(grad), pointer(scores), pointer(values), pointer(mask)
    out, tops, totals = pointer(out), pointer(tops), pointer(totals)
    grad_scores, grad_values = pointer(grad_scores), pointer(grad_values)
    for item in range(start, stop):
        row, first = item // blocks, item % blocks * LANES
        top, result = _get(tops, vector, row, 0, first), _get(out, vector, row, 0, first)
        share = divide_or_zero(_get(grad, vector, row, 0, first), _get(totals, vector, row, 0, first))
        for i in range(length):
            to_value, to_score = zeros_like(scores), zeros_like(scores)
            if get(mask, row * length + i):
                score = _get(scores, shape, row, i, first) - top
                to_value = _exp(maximum(zeros_like(scores) + LOWEST, score)) * share
                to_score = to_value * (_get(values, shape, row, i, first) - result)
            _put(grad_values, shape, row, i, first, to_value)
            _put(grad_scores, shape, row, i, first, to_score)
