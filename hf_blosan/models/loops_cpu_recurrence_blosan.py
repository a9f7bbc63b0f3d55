"""The loops of ``fused_recurrence_blosan``, compiled by numba; items and file dates as in ``loops_cpu_blosan``."""

import numpy as np

from .loops_cpu_blosan import _get, _put, whole_loop
from .vector_cpu_blosan import LANES, zeros_like

ONE = np.float32(1)


@whole_loop
def forward(start, stop, forget, values, states):
    """Items start ... stop."""
    _, length, size = values.shape
    blocks = (size + LANES - 1) // LANES
    for item in range(start, stop):
        row, first = item // blocks, item % blocks * LANES
        state = zeros_like(values)
        for i in range(length):
            gate = _get(forget, row, i, first)
            state = gate * state + (ONE - gate) * _get(values, row, i, first)
            _put(states, row, i, first, state)


@whole_loop
def backward(start, stop, grad, forget, values, states, grad_forget, grad_values):
    """With g_t = grad_t + f_(t+1) g_(t+1): grad_forget = g_t (c_(t-1) - x_t), grad_values = (1 - f_t) g_t."""
    _, length, size = values.shape
    blocks = (size + LANES - 1) // LANES
    for item in range(start, stop):
        row, first = item // blocks, item % blocks * LANES
        later = zeros_like(values)
        for i in range(length - 1, -1, -1):
            gate, total = _get(forget, row, i, first), _get(grad, row, i, first) + later
            before = zeros_like(values)
            if i > 0:
                before = _get(states, row, i - 1, first)
            _put(grad_forget, row, i, first, total * (before - _get(values, row, i, first)))
            _put(grad_values, row, i, first, (ONE - gate) * total)
            later = gate * total
