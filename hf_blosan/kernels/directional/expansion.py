"""Directional attention in linear time: distant keys through a short expansion, near keys pair by pair.

The weight of a pair is a smooth function of a single sum, w = K(a_i + b_j), K(u) = exp(c tanh(u / c)). Over a bounded
range such a function separates: with |a|, |b| <= H,

    K(a + b) = exp(tilt (a + b)) sum_rs C_rs T_r(a / H) T_s(b / H)        (T: Chebyshev polynomials)

to float32 accuracy with few terms (the tilt flattens K, so that terms do not cancel). Tokens are divided into chunks
of ``CHUNK``. A query meets the keys of its own chunk pair by pair, and all keys of another chunk at once through the
chunk's moments sum_i exp(tilt a_i) T_r(a_i / H) (1, x_i), which are summed along the sentence. Time and
memory are O(N D). The derivative K' = K (1 - tanh^2) has an expansion of the same form.

A Fourier series would need no chunks, but takes two to three times the operations per token, and in float32 its error
is 2 to 40 times the eager form's (most at the first tokens, which see few keys). This expansion's error stays within a
factor of 2.

A ``Tier`` holds the expansion for one H; the range of the data picks the tier. Beyond the last one all pairs are near.

The gradient to agree with, pair by pair: ``backward_in_chunks`` in ``chunks.py``.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..visibility import Options, visibility

CHUNK = 16
# Half ranges H in units of the scale c. In the wide tiers terms cancel, so sums are taken in float64.
HALF_RANGES = (0.3, 0.4, 0.6, 0.8, 1.2, 1.6, 2.4)
LAST_FLOAT32 = 0.4
TOLERANCE = 5e-8
# Beyond it, exp(-c) drowns in the rounding errors of sums of exp(c), and the widest tiers do not converge.
MAX_SCALE = 10.0


class Tier(NamedTuple):
    """``weight[r, s]`` and ``slope[r, s]``, float64: the coefficients of K and K', sizes a multiple of 4."""

    half_range: float
    tilt: float
    weight: np.ndarray
    slope: np.ndarray
    float32: bool


@lru_cache
def tiers(scale: float) -> tuple[Tier, ...]:
    """The expansions for a scale c, from the narrowest range to the widest; none beyond MAX_SCALE."""
    if scale > MAX_SCALE:
        return ()
    return tuple(_tier(scale, scale * half_range, half_range <= LAST_FLOAT32) for half_range in HALF_RANGES)


def _tier(scale: float, half_range: float, float32: bool) -> Tier:
    nodes = 128
    angles = np.pi * (np.arange(nodes) + 0.5) / nodes
    u = half_range * (np.cos(angles)[:, None] + np.cos(angles))
    tilt = scale * np.tanh(2 * half_range / scale) / (2 * half_range)
    tanh = np.tanh(u / scale)
    flat = np.exp(scale * tanh - tilt * u)
    functions = flat, flat * (1 - tanh**2)
    # Interpolation at the nodes of T_128; its first terms are the expansion.
    coefficients = [_chebyshev_transform(_chebyshev_transform(f).T).T for f in functions]
    # Every other node is enough to see an error, and keeps the products too small for numpy to start its threads.
    seen = slice(None, None, 2)
    basis = np.cos(np.outer(np.arange(nodes), angles[seen]))
    for terms in range(4, nodes, 4):
        first = basis[:terms]
        errors = [
            np.abs(first.T @ full[:terms, :terms] @ first - f[seen, seen]) / flat[seen, seen]
            for full, f in zip(coefficients, functions, strict=True)
        ]
        if np.max(errors) <= TOLERANCE:
            weight, slope = (full[:terms, :terms].copy() for full in coefficients)
            return Tier(half_range, tilt, weight, slope, float32)
    raise ArithmeticError(f"no expansion for scale {scale} and half range {half_range}; lower MAX_SCALE")


def _chebyshev_transform(values: np.ndarray) -> np.ndarray:
    """From values at the Chebyshev nodes to the coefficients of T_0, T_1, ..., along the first axis."""
    nodes = len(values)
    phases = np.exp(-0.5j * np.pi * np.arange(nodes) / nodes)[:, None]
    transformed = np.fft.rfft(np.concatenate([values, values[::-1]]), axis=0)[:nodes] * phases
    return transformed.real / nodes * np.where(np.arange(nodes) == 0, 0.5, 1.0)[:, None]


def expansion_tables(scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """The expansions for a scale as the C++ loops read them.

    Returns:
        Half range, tilt and number of terms of every tier, float64 (tiers, 3); coefficients of K and K' of the tiers
        that are summed in float32, (tiers, 2, terms, terms), padded with zeros to one number of terms; and, likewise,
        those of the tiers summed in float64.
    """
    groups = [[tier for tier in tiers(scale) if tier.float32 == float32] for float32 in (True, False)]
    widths = [max((len(tier.weight) for tier in group), default=0) for group in groups]
    (narrow, first), (wide, others) = (stack_tiers(*group) for group in zip(groups, widths, strict=True))
    return torch.cat([narrow, wide]), first.float(), others


def stack_tiers(chosen: Sequence[Tier], terms: int) -> tuple[Tensor, Tensor]:
    """(half range, tilt, number of terms) of each tier, and its coefficients padded to (2, terms, terms), float64."""
    sizes = [(tier.half_range, tier.tilt, len(tier.weight)) for tier in chosen]
    coefficients = torch.zeros(len(chosen), 2, terms, terms, dtype=torch.float64)
    for rows, tier in zip(coefficients, chosen, strict=True):
        size = len(tier.weight)
        rows[:, :size, :size] = torch.from_numpy(np.stack([tier.weight, tier.slope]))
    return torch.tensor(sizes, dtype=torch.float64).reshape(-1, 3), coefficients


def directional_attention_sums(
    keys: Tensor, queries: Tensor, values: Tensor, key_mask: Tensor | None, options: Options
) -> tuple[Tensor, Tensor] | None:
    """Numerator and denominator of directional attention in O(N D), both (B, N, D).

    The kernels' computation in torch: for reading, for tests, and where there is no kernel. ``None`` if the scores
    reach beyond the last tier.
    """
    keys, queries, mask_BN1, tier = _centre(keys, queries, key_mask, options.scale)
    if tier is None:
        return None
    streams = (mask_BN1.to(values.dtype).expand_as(values), values.masked_fill(~mask_BN1, 0.0))
    denominator, numerator = _kernel_sums(keys, queries, streams, options, tier, slope=False)
    return numerator, denominator


def directional_attention_gradients(
    grad: Tensor,
    keys: Tensor,
    queries: Tensor,
    values: Tensor,
    key_mask: Tensor | None,
    out: Tensor,
    denominators: Tensor,
    options: Options,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Gradients of keys, queries and values: that of w_ij is G_j (x_i - s_j), with G = grad / denominator."""
    keys, queries, mask_BN1, tier = _centre(keys, queries, key_mask, options.scale)
    if tier is None:
        return None
    values = values.masked_fill(~mask_BN1, 0.0)
    share = grad / torch.where(denominators > 0, denominators, 1.0)
    streams = (mask_BN1.to(values.dtype).expand_as(values), values)
    ones_BND, values_BND = _kernel_sums(keys, queries, streams, options, tier, slope=True)
    grad_queries = share * (values_BND - out * ones_BND)
    options = options.mirrored()
    (grad_values,) = _kernel_sums(queries, keys, (share,), options, tier, slope=False)
    share_BND, out_BND = _kernel_sums(queries, keys, (share, share * out), options, tier, slope=True)
    return (values * share_BND - out_BND) * mask_BN1, grad_queries, grad_values * mask_BN1


def _centre(keys: Tensor, queries: Tensor, key_mask: Tensor | None, scale: float):
    """Shift keys and queries of each feature in opposite directions, so that both fit into the smallest [-H, H].

    Their sums do not change. Returns both (masked keys 0), the mask (B, N, 1) and the tier for the largest H, or None.
    """
    mask_BN1 = torch.ones_like(keys[..., :1], dtype=torch.bool) if key_mask is None else key_mask[..., None].bool()
    high = torch.maximum(keys.masked_fill(~mask_BN1, -torch.inf).amax(1), (-queries).amax(1))
    low = torch.maximum((-keys).masked_fill(~mask_BN1, -torch.inf).amax(1), queries.amax(1))
    shift_B1D, largest = ((high - low) / 2)[:, None], ((high + low) / 2).max().item()
    tier = next((tier for tier in tiers(scale) if largest <= tier.half_range), None)
    return (keys - shift_B1D).masked_fill(~mask_BN1, 0.0), queries + shift_B1D, mask_BN1, tier


def _kernel_sums(
    points: Tensor, queries: Tensor, streams: tuple[Tensor, ...], options: Options, tier: Tier, slope: bool
) -> list[Tensor]:
    """sum_i K(a_i + b_j) x_i over the points i that query j sees, or with K', for every stream x; all (B, N, D)."""
    direction, scale, window = options
    B, N, D = points.shape
    M, R = -(-N // CHUNK), CHUNK
    # Chunks up to ``far`` away are visible to all queries of a chunk or to none, those beyond ``reach`` to none.
    far, reach = (M, M) if window is None else (max(0, (window + 1 - R) // R), -(-window // R))
    cut = [F.pad(x, (0, 0, 0, M * R - N)).unflatten(1, (M, R)) for x in (points, queries, *streams)]
    points_BMRD, queries_BMRD, *streams_BMRD = cut

    kind = points.dtype if tier.float32 else torch.float64
    coefficients = torch.as_tensor(tier.slope if slope else tier.weight, device=points.device)
    start_BMRD = (tier.tilt * points_BMRD).exp()
    basis = _chebyshev(points_BMRD.to(kind) / tier.half_range, len(coefficients))
    moments = [torch.stack([(start_BMRD * t * x).sum(2) for t in basis], 2).double() for x in streams_BMRD]
    terms = [coefficients @ _far_moments(moment, direction, far) for moment in moments]  # (B, M, terms, D)
    start_BMRD = (tier.tilt * queries_BMRD).exp()
    basis = _chebyshev(queries_BMRD.to(kind) / tier.half_range, len(coefficients))
    sums = [sum(t * x.to(kind)[:, :, [r]] for r, t in enumerate(basis)) * start_BMRD for x in terms]
    sums = [x.to(points.dtype) for x in sums]

    for distance in range(-min(reach, M - 1), min(reach, M - 1) + 1):
        if distance and abs(distance) <= far:
            continue
        # Pairs of each chunk with the one ``distance`` chunks before it.
        offset = max(0, -distance)
        positions_R = torch.arange(R, device=points.device)
        visible_RR = visibility(positions_R + distance * R, positions_R, direction, window)
        there = slice(offset, M - max(0, distance))
        here = slice(there.start + distance, there.stop + distance)
        tanh = torch.tanh((queries_BMRD[:, here, :, None] + points_BMRD[:, there, None]) / scale)
        weights = (scale * tanh).exp() * visible_RR[..., None]
        weights = weights * (1 - tanh * tanh) if slope else weights
        for total, x in zip(sums, streams_BMRD, strict=True):
            total[:, here] += (weights * x[:, there, None]).sum(3)
    return [x.flatten(1, 2)[:, :N] for x in sums]


def _far_moments(moments: Tensor, direction: str, far: int) -> Tensor:
    """For each chunk the sum of the moments (B, M, terms, D) of the visible chunks up to ``far`` chunks away."""
    totals = torch.zeros_like(moments)
    for sees, flip in ((direction != "backward", False), (direction != "forward", True)):
        if sees:
            ordered = moments.flip(1) if flip else moments
            if far < moments.shape[1]:
                # Summed separately for each chunk: a difference of running sums would leave rounding errors where
                # there are no tokens.
                windows = F.pad(ordered, (0, 0, 0, 0, far, 0))[:, :-1].unfold(1, max(far, 1), 1)
                before = windows.sum(-1) if far else totals
            else:
                before = F.pad(ordered.cumsum(1), (0, 0, 0, 0, 1, 0))[:, :-1]
            totals = totals + (before.flip(1) if flip else before)
    return totals


def _chebyshev(x: Tensor, terms: int) -> list[Tensor]:
    """T_0(x) ... T_{terms - 1}(x)."""
    basis = [torch.ones_like(x), x]
    for _ in range(terms - 2):
        basis.append(2 * x * basis[-1] - basis[-2])
    return basis
