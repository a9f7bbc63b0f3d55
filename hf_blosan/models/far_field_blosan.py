"""Directional attention in linear time: far keys through a short expansion, near keys as they are.

The weight of a pair is a smooth function of one sum, w = K(a_i + b_j), K(u) = exp(c tanh(u / c)). Over a bounded range
such a function separates: with |a|, |b| <= H,

    K(a + b) = exp(tilt (a + b)) sum_rs C_rs T_r(a / H) T_s(b / H)        (T: Chebyshev polynomials)

to float32 accuracy with few terms (the tilt flattens K, so that nothing cancels). Tokens are cut into chunks of
``CHUNK``. A query meets the keys of its own chunk pair by pair, and all keys of another chunk at once through the
chunk's moments sum_i exp(tilt a_i) T_r(a_i / H) (1, x_i): sums that are added up along the sentence. Time and
memory are O(N D). The derivative K' = K (1 - tanh^2) has an expansion of the same form.

Why not a Fourier series, whose sums need no chunks: each token takes two to three times the operations, and in float32
its error is 2 to 40 times the eager form's (most at the first tokens, which see few keys); this one's stays within the
factor of 2 that the house allows.

A ``Tier`` holds the expansion for one H; the data's range picks the tier, beyond the last one all pairs are near.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .masks import order_mask

CHUNK = 16
# Half ranges H in units of the scale c. In the wide tiers terms cancel, so that sums are taken in float64.
HALF_RANGES = (0.3, 0.4, 0.6, 0.8, 1.2, 1.6, 2.4)
LAST_FLOAT32 = 0.4
TOLERANCE = 5e-8
# Beyond, exp(-c) no longer stands out from what is rounded off sums of exp(c), and the widest tiers do not converge.
MAX_SCALE = 10.0


class Tier(NamedTuple):
    """``weight[r, s]`` and ``slope[r, s]``, float64, are the coefficients of K and K', a multiple of 4 each way."""

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
    flat = np.exp(scale * np.tanh(u / scale) - tilt * u)
    # Interpolation in the nodes of T_128; the first terms of it are the expansion.
    basis = np.cos(np.outer(np.arange(nodes), angles))
    weights = np.where(np.arange(nodes)[:, None] == 0, 1, 2) / nodes * basis
    weight, slope = (weights @ f @ weights.T for f in (flat, flat * (1 - np.tanh(u / scale) ** 2)))
    for terms in range(4, nodes, 4):
        error = [
            np.abs(basis[:terms].T @ full[:terms, :terms] @ basis[:terms] - basis.T @ full @ basis) / flat
            for full in (weight, slope)
        ]
        if np.max(error) <= TOLERANCE:
            first = slice(terms)
            return Tier(half_range, tilt, weight[first, first].copy(), slope[first, first].copy(), float32)
    raise ArithmeticError(f"no expansion for scale {scale} and half range {half_range}; lower MAX_SCALE")


def directional_attention_sums(
    keys: Tensor,
    queries: Tensor,
    values: Tensor,
    key_mask: Tensor | None,
    direction: str,
    scale: float,
    window: int | None,
) -> tuple[Tensor, Tensor] | None:
    """Numerator and denominator of directional attention in O(N D), both (B, N, D).

    What the kernels compute, in torch: for reading, for testing them, and where there are none. ``None`` if the scores
    reach beyond the last tier.
    """
    keys, queries, mask_BN1, tier = _centre(keys, queries, key_mask, scale)
    if tier is None:
        return None
    streams = (mask_BN1.to(values.dtype).expand_as(values), values.masked_fill(~mask_BN1, 0.0))
    denominator, numerator = _kernel_sums(keys, queries, streams, direction, scale, window, tier, slope=False)
    return numerator, denominator


def directional_attention_gradients(
    grad: Tensor,
    keys: Tensor,
    queries: Tensor,
    values: Tensor,
    key_mask: Tensor | None,
    out: Tensor,
    denominators: Tensor,
    direction: str,
    scale: float,
    window: int | None,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Gradients of keys, queries and values: the loss changes with w_ij by G_j (x_i - s_j), G = grad / denominator."""
    keys, queries, mask_BN1, tier = _centre(keys, queries, key_mask, scale)
    if tier is None:
        return None
    values = values.masked_fill(~mask_BN1, 0.0)
    share = grad / torch.where(denominators > 0, denominators, 1.0)
    options = {"scale": scale, "window": window, "tier": tier}
    streams = (mask_BN1.to(values.dtype).expand_as(values), values)
    ones_BND, values_BND = _kernel_sums(keys, queries, streams, direction, slope=True, **options)
    grad_queries = share * (values_BND - out * ones_BND)
    # Keys before a query get their gradient from it: seen from the keys, the queries lie behind.
    direction = {"forward": "backward", "backward": "forward"}.get(direction, direction)
    (grad_values,) = _kernel_sums(queries, keys, (share,), direction, slope=False, **options)
    share_BND, out_BND = _kernel_sums(queries, keys, (share, share * out), direction, slope=True, **options)
    return (values * share_BND - out_BND) * mask_BN1, grad_queries, grad_values * mask_BN1


def _centre(keys: Tensor, queries: Tensor, key_mask: Tensor | None, scale: float):
    """Move keys and queries of each feature against one another until both fit into the smallest [-H, H].

    Sums stay as they are. Returns both (masked keys 0), the mask (B, N, 1) and the tier for the largest H, or None.
    """
    mask_BN1 = torch.ones_like(keys[..., :1], dtype=torch.bool) if key_mask is None else key_mask[..., None].bool()
    high = torch.maximum(keys.masked_fill(~mask_BN1, -torch.inf).amax(1), (-queries).amax(1))
    low = torch.maximum((-keys).masked_fill(~mask_BN1, -torch.inf).amax(1), queries.amax(1))
    shift_B1D, largest = ((high - low) / 2)[:, None], ((high + low) / 2).max().item()
    tier = next((tier for tier in tiers(scale) if largest <= tier.half_range), None)
    return (keys - shift_B1D).masked_fill(~mask_BN1, 0.0), queries + shift_B1D, mask_BN1, tier


def _kernel_sums(
    points: Tensor,
    queries: Tensor,
    streams: tuple[Tensor, ...],
    direction: str,
    scale: float,
    window: int | None,
    tier: Tier,
    slope: bool,
) -> list[Tensor]:
    """sum_i K(a_i + b_j) x_i over the points i that query j sees, or with K', for every stream x; all (B, N, D)."""
    B, N, D = points.shape
    M, R = -(-N // CHUNK), CHUNK
    # Chunks up to ``far`` away are seen by all queries of a chunk or by none, those beyond ``reach`` by none.
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
        # Pairs of each chunk with the one that lies ``distance`` chunks before it.
        offset = max(0, -distance)
        visible_RR = order_mask(
            (abs(distance) + 1) * R,
            direction,
            window=window,
            device=points.device,
            queries=slice((offset + distance) * R, (offset + distance + 1) * R),
            keys=slice(offset * R, (offset + 1) * R),
        )
        there = slice(offset, M - max(0, distance))
        here = slice(there.start + distance, there.stop + distance)
        tanh = torch.tanh((queries_BMRD[:, here, :, None] + points_BMRD[:, there, None]) / scale)
        weights = (scale * tanh).exp() * visible_RR[..., None]
        weights = weights * (1 - tanh * tanh) if slope else weights
        for total, x in zip(sums, streams_BMRD, strict=True):
            total[:, here] += (weights * x[:, there, None]).sum(3)
    return [x.flatten(1, 2)[:, :N] for x in sums]


def _far_moments(moments: Tensor, direction: str, far: int) -> Tensor:
    """For every chunk the sum of the moments (B, M, terms, D) of the chunks up to ``far`` chunks away that it sees."""
    totals = torch.zeros_like(moments)
    for sees, flip in ((direction != "backward", False), (direction != "forward", True)):
        if sees:
            ordered = moments.flip(1) if flip else moments
            if far < moments.shape[1]:
                # Summed anew for each chunk: a difference of running sums would leave a rounding where no token is.
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
