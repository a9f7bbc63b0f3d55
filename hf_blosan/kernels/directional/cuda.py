"""Directional attention on CUDA, in Triton. A program works on ``CHUNK`` tokens and ``BLOCK`` features of one row.

"fused"   A program loops over the keys that its queries see; sums stay in registers. The backward pass recomputes all
          pairs twice, in programs for queries and in programs for keys, so that no two programs write to the same
          address.
"linear"  The same kernels, but distant keys go through the expansion of ``csrc/expansion.cpp``, where that is
          compiled: ``_range_kernel`` picks the tier of each row and feature block on the device, ``_gather_kernel``
          expands the chunks, ``_scan_kernel`` sums them along the sentence. Beyond the last tier all keys are near.

``BLOCK`` is the width of a warp: a lane holds one feature of its tokens, so sums over tokens need no other lane.

The gradient to agree with, in plain torch: ``backward`` in ``chunks.py``.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..library import OPERATORS, has_cpu_kernels
from ..sources import CHUNK
from .chunks import Options
from .cuda_loops import (
    _backward_keys_kernel,
    _backward_queries_kernel,
    _forward_kernel,
    _gather_kernel,
    _range_kernel,
    _scan_kernel,
    triton,
)

# "auto" uses "linear" from this length on and for so many pairs of tokens and features: fewer take less time than
# three more launches. Forward on an H200 (cuda_crossover.json and cuda_float32.json in benchmarks/reports), of 16
# sentences "linear" is slower at 256 tokens, as fast at 384 and faster at 512; of 64 as fast at 128, faster at 256.
CROSSOVER, CROSSOVER_PAIRS = 192, 1 << 29
# Compute capabilities with float64 at half the speed of float32. On others (1/64) the expansion pays off later.
FAST_FLOAT64, SLOW_FLOAT64_FACTOR = ((7, 0), (8, 0), (9, 0), (10, 0)), 8
BLOCK = 32
# Tokens per warp; tokens that _range_kernel, and chunks that _scan_kernel, reads at a time.
WARP_TOKENS, RANGE_TILE, SCAN_TILE = 8, 64, 16
# Terms of the largest expansion in use, for which memory is allocated whatever tier the data picks; terms per program.
TERMS, PART = 32, 16
MIRRORED = {"forward": "backward", "backward": "forward"}
# Fused multiply-add is not the default after Triton 3.9.
FUSE = {"enable_fp_fusion": True}


class Far(NamedTuple):
    """The expansion's tensors, on the device.

    ``shifts`` (B, D) are subtracted from keys and added to queries, so that both are in [-H, H]; ``tiers`` (B, blocks)
    are the rows of ``sizes`` and ``table`` for that H, -1 for none. ``sizes`` holds half range, tilt and number of
    terms, ``table`` (tiers, 2, TERMS, TERMS) the coefficients of K and K', transposed. ``terms`` (B, chunks, sets,
    TERMS, D) are the sums over the distant chunks that each chunk sees. They are float64: in float32 the error is up
    to 5 times the eager form's.
    """

    shifts: Tensor
    tiers: Tensor
    sizes: Tensor
    table: Tensor
    terms: Tensor | None = None


def available(values: Tensor) -> bool:
    """Whether the kernels support this: triton, and float32 on CUDA."""
    return triton is not None and values.is_cuda and values.dtype == torch.float32


@lru_cache
def _tables(scale: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """``sizes`` and ``table`` of :class:`Far`, of no tiers where the scale has no expansion or none is compiled."""
    if not has_cpu_kernels():
        return torch.empty(0, 3), torch.empty(0)
    sizes, table = OPERATORS.expansion(torch.empty(0, dtype=torch.float64), scale)
    usable = sizes[:, 2] <= TERMS
    missing = TERMS - table.shape[-1]
    table = F.pad(table[usable], (0, missing, 0, missing))  # cuts off zeros where this is negative
    return sizes[usable].to(device), table.mT.contiguous().to(device)


def _measure(keys, queries, key_mask, options) -> tuple[Far | None, int]:
    """Shifts and tiers, and how many chunks away distant keys may be; ``None`` and 0 if all keys are near."""
    _, scale, window, implementation = options
    B, N, D = keys.shape
    chunks = -(-N // CHUNK)
    reach = chunks if window is None else min(chunks, max(0, (window + 1 - CHUNK) // CHUNK))
    slow = keys.is_cuda and torch.cuda.get_device_capability(keys.device) not in FAST_FLOAT64
    factor = SLOW_FLOAT64_FACTOR if slow else 1
    long = N >= CROSSOVER * factor and B * N * N * D >= CROSSOVER_PAIRS * factor
    wanted = implementation == "linear" or (implementation == "auto" and long)
    if not wanted or reach == 0 or chunks == 1:
        return None, 0
    sizes, table = _tables(float(scale), keys.device)
    if len(sizes) == 0:
        return None, 0
    blocks = -(-D // BLOCK)
    shifts, chosen = keys.new_empty(B, D), keys.new_empty(B, blocks, dtype=torch.int32)
    arguments = (keys, queries, key_mask, shifts, chosen, sizes, len(sizes), N)
    _range_kernel[(B * blocks,)](*arguments, D, RANGE_TILE, BLOCK, **FUSE)
    return Far(shifts, chosen, sizes, table), reach


def _expansion(far: Far, reach: int, points, shares, others, key_mask, direction, slope) -> Far:
    """``far`` with the terms for the tokens of each chunk; arguments as in ``_gather_kernel``."""
    B, N, D = points.shape
    chunks, blocks, sets = -(-N // CHUNK), -(-D // BLOCK), 2 if shares is None else 3
    far = far._replace(terms=points.new_empty(B, chunks, sets, TERMS, D, dtype=torch.float64))
    options = {"D": D, "TERMS": TERMS, "BLOCK": BLOCK, "num_warps": 1, **FUSE}
    grid = (B * chunks * blocks, -(-TERMS // PART))
    _gather_kernel[grid](points, shares, others, key_mask, N, far, SLOPE=int(slope), PART=PART, TILE=CHUNK, **options)
    # In place if every chunk is read only for itself.
    target = far.terms if reach >= chunks else torch.empty_like(far.terms)
    scan = {"DIRECTION": direction, "SETS": sets, "TILE": SCAN_TILE}
    _scan_kernel[(B * blocks, sets * TERMS)](far, target, chunks, reach, **scan, **options)
    return far._replace(terms=target)


def _over_tiles(kernel, tensors, options, far, reach) -> None:
    direction, scale, window, _ = options
    B, N, D = tensors[0].shape
    tile = CHUNK if far else min(CHUNK, triton.next_power_of_2(N))
    grid = (B * -(-N // tile) * -(-D // BLOCK),)
    window = N if window is None else min(window, N)
    constants = {"DIRECTION": direction, "D": D, "TERMS": TERMS, "TILE": tile, "BLOCK": BLOCK}
    curve = (1 / scale, scale / math.log(2), math.exp(scale), math.exp(-scale))
    constants |= {"num_warps": max(1, tile // WARP_TOKENS), **FUSE}
    kernel[grid](*tensors, N, curve, window, far, reach, **constants)


def forward(
    keys: Tensor, queries: Tensor, values: Tensor, key_mask: Tensor | None, token_mask: None, options: Options
) -> tuple[Tensor, Tensor]:
    """Result and denominators of all queries, both (B, N, D)."""
    keys, queries, values = (x.contiguous() for x in (keys, queries, values))
    key_mask = None if key_mask is None else key_mask.bool().contiguous().view(torch.uint8)
    out, denominators = torch.empty_like(values), torch.empty_like(values)
    if values.numel() == 0:
        return out, denominators
    with torch.cuda.device_of(values):
        far, reach = _measure(keys, queries, key_mask, options)
        if far:
            far = _expansion(far, reach, keys, None, values, key_mask, options.direction, slope=False)
        tensors = (keys, queries, values, key_mask, out, denominators)
        _over_tiles(_forward_kernel, tensors, options, far, reach)
    return out, denominators


def backward(
    grad: Tensor,
    keys: Tensor,
    queries: Tensor,
    values: Tensor,
    key_mask: Tensor | None,
    token_mask: None,
    out: Tensor,
    denominators: Tensor,
    options: Options,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of keys, queries and values, each (B, N, D)."""
    grad, keys, queries, values, out, denominators = (
        x.contiguous() for x in (grad, keys, queries, values, out, denominators)
    )
    key_mask = None if key_mask is None else key_mask.bool().contiguous().view(torch.uint8)
    grad_keys, grad_queries, grad_values, shares = (torch.empty_like(values) for _ in range(4))
    if values.numel() == 0:
        return grad_keys, grad_queries, grad_values
    # Gradients flow from queries to keys, which see them in the other direction.
    mirrored = options._replace(direction=MIRRORED.get(options.direction, options.direction))
    with torch.cuda.device_of(values):
        ranges, reach = _measure(keys, queries, key_mask, options)
        far = ranges and _expansion(ranges, reach, keys, None, values, key_mask, options.direction, slope=True)
        tensors = (grad, keys, queries, values, key_mask, out, denominators, shares, grad_queries)
        _over_tiles(_backward_queries_kernel, tensors, options, far, reach)
        far = ranges and _expansion(ranges, reach, queries, shares, out, key_mask, mirrored.direction, slope=True)
        tensors = (keys, queries, values, key_mask, out, shares, grad_keys, grad_values)
        _over_tiles(_backward_keys_kernel, tensors, mirrored, far, reach)
    return grad_keys, grad_queries, grad_values
