"""Directional attention on the CPU: what ``loops_cpu_blosan`` needs."""

from functools import cache

import numpy as np
import torch
from torch import Tensor

from .far_field_blosan import tiers
from .team_cpu_blosan import field, over_items

try:
    from .loops_cpu_blosan import backward as backward_loop
    from .loops_cpu_blosan import forward as forward_loop
    from .loops_cpu_blosan import scratch_rows
except ImportError:  # no numba
    forward_loop = None

# The exp(c) of a weight and sums of it must stay within float32.
MAX_SCALE = 40.0
# Half range of the scores, in units of c, up to which exponentials of single tokens are as exact as those of sums.
MAX_HALF_RANGE = 2.4
# The sentence length from which each tier of the expansion is faster than all pairs under a forward mask:
# benchmarks/crossovers.py on 2 cores of an Intel Xeon with AVX-512.
CROSSOVERS = {"forward": (40, 48, 64, 72, 96, 128, 224), "backward": (56, 56, 96, 112, 160, 192, 384)}
NEVER, UNLIMITED = 1 << 40, 1 << 40


def available(values: Tensor | None = None, scale: float = 0.0) -> bool:
    """Whether a kernel can take this: numba is installed, float32 on the CPU, a scale whose weights fit float32."""
    fits = values is None or (values.is_cpu and values.dtype == torch.float32)
    return forward_loop is not None and fits and scale <= MAX_SCALE


@cache  # a loop holds nothing but their addresses
def _tables(scale: float, implementation: str, pass_: str) -> tuple[list[int], int, tuple[np.ndarray, ...]]:
    """The fields ``loops_cpu_blosan.TABLE_FIELDS``, the terms of the widest tier, and the memory they tell of."""
    table = tiers(scale)
    shortest = {"fused": [NEVER] * len(table), "linear": [0] * len(table), "auto": CROSSOVERS[pass_][: len(table)]}
    sizes = np.array([(tier.half_range, tier.tilt, len(tier.weight)) for tier in table], np.float64)
    table32, table64 = _stack(table, np.float32), _stack(table, np.float64)
    shortest = np.array(shortest[implementation], np.int64)
    widths = table32.shape[-1], table64.shape[-1]
    fields = sizes, len(table), shortest, len(table32), table32, widths[0], table64, widths[1]
    return [field(x) for x in fields], max(widths), (sizes, shortest, table32, table64)


def _stack(table, kind) -> np.ndarray:
    """The coefficients of those tiers that are summed in this type, filled up with zeros to one size."""
    chosen = [tier for tier in table if tier.float32 == (kind is np.float32)]
    size = max((len(tier.weight) for tier in chosen), default=0)
    stacked = np.zeros((len(chosen), 2, size, size), kind)
    for tier, coefficients in zip(chosen, stacked, strict=True):
        coefficients[:, : len(tier.weight), : len(tier.weight)] = tier.weight, tier.slope
    return stacked


def _evenly_apart(x: Tensor) -> tuple[Tensor, int]:
    """x (B, N, D), or a copy, with features side by side and the tokens of all sentences a step apart; the step."""
    if x.stride(2) == 1 and x.stride(0) == x.shape[1] * x.stride(1):
        return x, x.stride(1)
    return x.contiguous(), x.shape[2]  # whose strides say nothing where there is one token or one feature


def _fields(pass_, keys, queries, values, bias, key_mask, direction, scale, window, implementation, block_length):
    """The first fields of a loop, see ``loops_cpu_blosan``; options and work of ``over_items``."""
    mask = values.new_ones(values.shape[:2], dtype=torch.bool) if key_mask is None else key_mask.bool()
    bias = values.new_zeros(values.shape[2]) if bias is None else bias
    reach = UNLIMITED if window is None else window
    see = (direction != "backward", direction != "forward", direction == "full", reach)
    tables, terms, _ = _tables(float(scale), implementation, pass_)
    inputs = *_evenly_apart(keys), *_evenly_apart(queries), bias.contiguous(), values.contiguous(), mask.contiguous()
    _, N, D = values.shape
    length = N if block_length is None else min(N, block_length)
    shape = length, D, N, -(-N // max(1, length))
    options = {"rows": shape[-1], "scratch": 64 * scratch_rows(length, terms)[-1]}
    return [float(scale), MAX_HALF_RANGE * scale, *shape, *see, *tables, *inputs], options, values.numel() * length


def forward(
    keys: Tensor,
    queries: Tensor,
    values: Tensor,
    bias: Tensor | None,
    key_mask: Tensor | None,
    direction: str,
    scale: float,
    window: int | None,
    implementation: str,
    block_length: int | None,
    save: bool,
) -> tuple[Tensor, Tensor]:
    """Result and denominators of every query, both (B, N, D); the second is empty unless it is to be saved."""
    inputs = (keys, queries, values, bias, key_mask, direction, scale, window, implementation, block_length)
    fields, options, pairs = _fields("forward", *inputs)
    out, denominators = (values.new_empty(x.shape) for x in (values, values if save else values[:0]))
    over_items(forward_loop, values, pairs, *fields, out, denominators, save, **options)
    return out, denominators


def backward(
    grad: Tensor,
    keys: Tensor,
    queries: Tensor,
    values: Tensor,
    bias: Tensor | None,
    key_mask: Tensor | None,
    out: Tensor,
    denominators: Tensor,
    direction: str,
    scale: float,
    window: int | None,
    implementation: str,
    block_length: int | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of keys, queries and values, each (B, N, D)."""
    inputs = (keys, queries, values, bias, key_mask, direction, scale, window, implementation, block_length)
    fields, options, pairs = _fields("backward", *inputs)
    gradients = tuple(values.new_empty(values.shape) for _ in range(3))
    saved = (x.contiguous() for x in (out, denominators, grad))
    over_items(backward_loop, values, pairs, *fields, *saved, *gradients, **options)
    return gradients
