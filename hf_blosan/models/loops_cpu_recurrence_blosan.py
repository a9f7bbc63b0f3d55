"""The loops of ``fused_recurrence_blosan``, compiled by numba; items and file dates as in ``loops_cpu_blosan``."""

import numpy as np

from .loops_cpu_blosan import HEADER, _get, _put, share, whole_loop
from .vector_cpu_blosan import LANES, unpack, zeros_like

ONE = np.float32(1)


@whole_loop
def forward(arguments):
    """states_t = f_t states_(t-1) + (1 - f_t) x_t."""
    start, stop, _ = share(arguments)
    forget, values, states, length, size = unpack(arguments, HEADER, "fffnn")
    shape, blocks = (length, size), (size + LANES - 1) // LANES
    for item in range(start, stop):
        row, first = item // blocks, item % blocks * LANES
        state = zeros_like(values)
        for i in range(length):
            gate = _get(forget, shape, row, i, first)
            state = gate * state + (ONE - gate) * _get(values, shape, row, i, first)
            _put(states, shape, row, i, first, state)


@whole_loop
def backward(arguments):
    """With g_t = grad_t + f_(t+1) g_(t+1): grad_forget = g_t (c_(t-1) - x_t), grad_values = (1 - f_t) g_t."""
    start, stop, _ = share(arguments)
    grad, forget, values, states, grad_forget, grad_values, length, size = unpack(arguments, HEADER, "ffffffnn")
    shape, blocks = (length, size), (size + LANES - 1) // LANES
    for item in range(start, stop):
        row, first = item // blocks, item % blocks * LANES
        later = zeros_like(values)
        for i in range(length - 1, -1, -1):
            gate, total = _get(forget, shape, row, i, first), _get(grad, shape, row, i, first) + later
            before = zeros_like(values)
            if i > 0:
                before = _get(states, shape, row, i - 1, first)
            _put(grad_forget, shape, row, i, first, total * (before - _get(values, shape, row, i, first)))
            _put(grad_values, shape, row, i, first, (ONE - gate) * total)
            later = gate * total
