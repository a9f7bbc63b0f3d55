"""The loops of ``fused_recurrence_blosan``, compiled by numba; items as in ``loops_cpu_blosan``."""

from .compiled_cpu_blosan import HEADER, ONE, load_features, share, store_features, whole_loop
from .vector_cpu_blosan import LANES, unpack, zeros_like


@whole_loop
def forward(arguments):
    """states_t = f_t states_(t-1) + (1 - f_t) x_t."""
    start, stop, _ = share(arguments)
    forget, values, states, length, size = unpack(arguments, HEADER, "fffnn")
    shape, blocks = (length, size, size), (size + LANES - 1) // LANES
    for item in range(start, stop):
        row, first = item // blocks, item % blocks * LANES
        state = zeros_like(values)
        for i in range(length):
            gate = load_features(forget, shape, row * length + i, first)
            state = gate * state + (ONE - gate) * load_features(values, shape, row * length + i, first)
            store_features(states, shape, row * length + i, first, state)


@whole_loop
def backward(arguments):
    """With g_t = grad_t + f_(t+1) g_(t+1): grad_forget = g_t (c_(t-1) - x_t), grad_values = (1 - f_t) g_t."""
    start, stop, _ = share(arguments)
    grad, forget, values, states, grad_forget, grad_values, length, size = unpack(arguments, HEADER, "ffffffnn")
    shape, blocks = (length, size, size), (size + LANES - 1) // LANES
    for item in range(start, stop):
        row, first = item // blocks, item % blocks * LANES
        later = zeros_like(values)
        for i in range(length - 1, -1, -1):
            gate = load_features(forget, shape, row * length + i, first)
            total = load_features(grad, shape, row * length + i, first) + later
            before = zeros_like(values)
            if i > 0:
                before = load_features(states, shape, row * length + i - 1, first)
            change = before - load_features(values, shape, row * length + i, first)
            store_features(grad_forget, shape, row * length + i, first, total * change)
            store_features(grad_values, shape, row * length + i, first, (ONE - gate) * total)
            later = gate * total
