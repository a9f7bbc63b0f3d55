"""Directional attention in operators that every runtime of ONNX graphs has, in O(N D) time and memory.

Like the C++ it sums near keys one by one and distant keys together; README.md has the
mathematics. What differs is due to graphs, where every operator passes over its
tensors:

* Near keys go through the expansion too, in chunks of ``CHUNK`` tokens. With A_ir = sum_s C_rs T_s(k_i / h), so that
  K(k_i + q_j) = exp(tilt (k_i + q_j)) sum_r A_ir T_r(q_j / h), a query meets the prefix sums over i of
  exp(tilt k_i) A_ir (x_i, 1), within a chunk by a product with a triangular matrix of ones, across chunks by the state
  of a loop. exp(tilt q_j) cancels.
* The coefficients C are computed when the graph runs, for the half range h of this batch, and as many of them are used
  as are not negligible: about 6 at h = 0.1 c, 14 at 0.6 c, 30 at 1.5 c.

Sentences too short for that, ranges too wide, and masks of single pairs are computed pair by pair, a few queries at a
time. A window bounds the keys of a query, which are then cut out of the sentence; the pairs of a narrow window are
computed without a loop, all of the same distance together. Short sentences should take few operators: a step of a loop
takes each of its operators anew, which costs microseconds, and more in a browser.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from .chunks import Options, visible_keys

# Windows up to this have no loop.
NARROW = 4
# Tokens of a step of the expansion's loop. More leave the cache, fewer have more steps.
CHUNK = 8
# Queries of a step where pairs are computed: the best of 1 to 64 from 1 x 12 to 2 x 256.
QUERIES = 4
# Chebyshev nodes: so many that the coefficients of the widest range fade.
NODES = 64
# A range that needs more terms, h = 2.8 c at c = 5, is left to pairs: float32 has errors of 1e-4 there.
MOST_TERMS = 40
# Coefficients below this part of the largest are left out.
NEGLIGIBLE = 1e-7
# All pairs take as long as the expansion with t terms if there are PAIRS_PER_TERM (t + FIXED_TERMS) tokens.
PAIRS_PER_TERM = 3
FIXED_TERMS = 3
# Fewer terms are for very small ranges only: sentences for which these do not pay are not asked for their range.
LEAST_TERMS = 6


def directional_attention_graph(
    keys: Tensor,
    queries: Tensor,
    values: Tensor,
    *,
    direction: str,
    bias: Tensor | None = None,
    key_mask: Tensor | None = None,
    token_mask: Tensor | None = None,
    scale: float = 5.0,
    window: int | None = None,
) -> Tensor:
    """What ``directional_attention`` computes, with arguments and result as there; for graphs.

    The error is at most 3e-6 of the largest value up to a half range of 1.2 c, and 1e-4 at the widest, 2.8 c: narrow
    weights are sums of terms that cancel. Other rows of a batch change a result by as much, because the range is
    theirs, too. Queries of padding, which no model reads, are not computed.
    """
    queries = queries if bias is None else queries + bias
    real = torch.ones_like(keys[..., 0], dtype=torch.bool) if key_mask is None else key_mask.bool()
    options = Options(direction, scale, window)
    length = keys.shape[1]
    short = isinstance(length, int) and length <= PAIRS_PER_TERM * FIXED_TERMS  # blocks of a fixed length
    if token_mask is not None or short:
        return _pairs(keys, queries, values, real, token_mask, options)
    if window is not None:
        near = _nearest if window <= NARROW else _near
        return near(keys, queries, values, real, options)
    return _expanded_or_pairs(keys, queries, values, real, options)


def _pairs(keys, queries, values, real, token_mask, options: Options) -> Tensor:
    """All pairs, a few queries at a time; the last slice is filled up with the first query."""
    length = keys.shape[1]
    rows = torch.arange(length, device=keys.device)
    keys, queries = keys / options.scale, queries / options.scale

    def step(rows: Tensor) -> Tensor:
        visible = visible_keys(length, real, token_mask, options, rows, slice(None), keys.device)
        return _attend(keys, queries.index_select(1, rows), values, visible, options.scale)

    if isinstance(length, int) and length <= QUERIES:
        return step(rows)
    slices = F.pad(rows, (0, _multiple(length, QUERIES) - length)).unflatten(0, (-1, QUERIES))
    return _loop(step, slices, length)


def _near(keys, queries, values, real, options: Options) -> Tensor:
    """The pairs of a window: the keys of a few queries are those from `reach` before the first to `reach` after the
    last, among which visibility depends on distances alone."""
    length = keys.shape[1]
    reach = torch.sym_min(options.window, length)
    margins = (reach, reach + _multiple(length, QUERIES) - length)
    tensors = (keys / options.scale, queries / options.scale, values)
    keys, queries, values = (F.pad(x, (0, 0, *margins)) for x in tensors)
    real = F.pad(real, margins)
    inner = reach + torch.arange(QUERIES, device=keys.device)

    def step(places: Tensor) -> Tensor:
        cut = [x.index_select(1, places) for x in (keys, values, real)]
        visible = visible_keys(places.shape[0], cut[2], None, options, inner, slice(None), keys.device)
        return _attend(cut[0], queries.index_select(1, places[inner]), cut[1], visible, options.scale)

    starts = torch.arange(0, length, QUERIES, device=keys.device)
    return _loop(step, starts[:, None] + torch.arange(QUERIES + 2 * reach, device=keys.device), length)


def _nearest(keys, queries, values, real, options: Options) -> Tensor:
    """The pairs of a narrow window: those of one distance are the sentence and the sentence shifted by it."""
    rows, reach = torch.arange(keys.shape[1], device=keys.device), options.window
    seen = {
        "forward": range(-reach, 0),
        "backward": range(1, reach + 1),
        "diagonal": [*range(-reach, 0), *range(1, reach + 1)],
        "full": range(-reach, reach + 1),
    }
    keys, queries = keys / options.scale, queries / options.scale
    padded = [F.pad(x, (0, 0, reach, reach)) for x in (keys, values, real[..., None].to(keys.dtype))]
    numerators, denominators = torch.zeros_like(values), torch.zeros_like(values)
    for distance in seen[options.direction]:
        key, value, is_key = (x.index_select(1, rows + (reach + distance)) for x in padded)
        weights = (torch.tanh(queries + key) * options.scale).exp() * is_key
        numerators, denominators = numerators + weights * value, denominators + weights
    return _divide(numerators, denominators)


def _attend(keys: Tensor, queries: Tensor, values: Tensor, visible: Tensor, scale: float) -> Tensor:
    """The equation for a few queries (B, Q, D), of which each sees some keys (B or 1, Q, K): both divided by c."""
    weights = (torch.tanh(queries[:, :, None] + keys[:, None]) * scale).exp()
    weights = weights * visible[..., None].to(keys.dtype)  # `where` takes four times as long
    return _divide((weights * values[:, None]).sum(2), weights.sum(2))


def _expanded_or_pairs(keys, queries, values, real, options: Options) -> Tensor:
    """By the expansion where it is exact and faster, else pair by pair: decided when the graph runs."""

    def expanded(keys, queries, values, real, half_range, tilt, coefficients, terms):
        degrees = torch.arange(NODES, device=keys.device)
        degrees = degrees[degrees < terms]
        tensors = (keys, queries, values, real, half_range, tilt, coefficients, degrees)
        return _expanded(*tensors, options).flatten()

    def pair_by_pair(keys, queries, values, real, *others):
        return _pairs(keys, queries, values, real, None, options).flatten()

    def by_range(keys, queries, values, real):
        keys, queries, half_range = _centred(keys, queries, real)
        tilt, coefficients, terms = _coefficients(half_range, options.scale)
        few = (terms <= MOST_TERMS) & (torch.scalar_tensor(keys.shape[1]) > PAIRS_PER_TERM * (terms + FIXED_TERMS))
        operands = (keys, queries, values, real, half_range, tilt, coefficients, terms)
        return torch.cond(few, expanded, pair_by_pair, operands)

    long = torch.scalar_tensor(keys.shape[1]) > PAIRS_PER_TERM * (LEAST_TERMS + FIXED_TERMS)
    # With more dimensions torch.export does not see that the strides are those of a whole tensor.
    return torch.cond(long, by_range, pair_by_pair, (keys, queries, values, real)).view(keys.shape)


def _centred(keys: Tensor, queries: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and queries, shifted against each other for each feature so that both fit into the smallest [-h, h]; and h,
    the same for all. No sum of a key and a query changes."""
    real = real[..., None]
    low_key, high_key, low_query, high_query = (
        torch.where(real, sign * x, -torch.inf).amax(1, keepdim=True) * sign
        for x in (keys, queries)
        for sign in (-1, 1)
    )
    widths = (high_key - low_key, high_query - low_query, (high_key + high_query).abs(), (low_key + low_query).abs())
    half_ranges = torch.stack(widths).amax(0) / 2
    shifts = torch.maximum(-half_ranges - low_key, high_query - half_ranges)
    known = real.any(1, keepdim=True)  # a row without tokens has no range
    half_range = torch.where(known, half_ranges, 0.0).max().clamp(min=1e-2)
    shifts = torch.where(known, shifts, 0.0)
    return keys + shifts, queries - shifts, half_range


def _coefficients(half_range: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """The tilt, the coefficients C (NODES, NODES) of its interpolation, and how many of them count."""
    degrees = torch.arange(NODES, dtype=torch.float64, device=half_range.device)
    angles = (degrees + 0.5) * (math.pi / NODES)
    transform = torch.cos(degrees[:, None] * angles) * torch.where(degrees > 0, 2 / NODES, 1 / NODES)[:, None]
    half_range = half_range.double()
    tilt = scale * torch.tanh(2 * half_range / scale) / (2 * half_range)
    sums = half_range * (angles.cos()[:, None] + angles.cos())
    weights = (scale * torch.tanh(sums / scale) - tilt * sums).exp()
    coefficients = transform @ weights @ transform.T
    sizes = coefficients.abs().amax(0)  # the matrix is symmetric
    terms = torch.where(sizes > NEGLIGIBLE * sizes.max(), degrees, 0.0).max() + 1
    return tilt, coefficients, terms


def _expanded(keys, queries, values, real, half_range, tilt, coefficients, degrees, options: Options) -> Tensor:
    B, N, D = keys.shape
    S = degrees.shape[0]
    precision = keys.dtype
    coefficients = coefficients.index_select(0, degrees).index_select(1, degrees).to(precision)
    tilt, degrees = tilt.to(precision), degrees.to(precision)
    positions = [(x / half_range).clamp(-1, 1) for x in (keys, queries)]  # padding may lie anywhere
    weights = (tilt * half_range * positions[0]).exp() * real[..., None]
    key_angles, query_angles = (torch.arccos(x) for x in positions)
    tensors = [_in_chunks(x) for x in (key_angles, query_angles, weights * values, weights)]  # each (M, B, R, D)
    ones = torch.ones(CHUNK, CHUNK, dtype=precision, device=keys.device)

    def polynomials(angles_BRD: Tensor) -> Tensor:  # cos(s arccos x) = T_s(x), in one row for each s
        return torch.cos(degrees[:, None] * angles_BRD.flatten())

    def step(state_SVB1D: Tensor, slices, earlier_RR: Tensor):
        key_angles, query_angles, *weighted = slices
        terms_SBRD = (coefficients @ polynomials(key_angles)).unflatten(1, key_angles.shape)
        terms_SVBRD = terms_SBRD[:, None] * torch.stack(weighted)
        sums_SVBRD = earlier_RR @ terms_SVBRD + state_SVB1D
        queries_SBRD = polynomials(query_angles).unflatten(1, query_angles.shape)
        sums_VBRD = (sums_SVBRD * queries_SBRD[:, None]).sum(0)
        return state_SVB1D + terms_SVBRD.sum(3, keepdim=True), sums_VBRD

    from torch._higher_order_ops.scan import scan  # takes long to import

    start = torch.zeros(S, 2, B, 1, D, dtype=precision, device=keys.device)
    sums = 0.0
    if options.direction != "backward":
        sums = scan(lambda state, slices: step(state, slices, ones.tril(-1)), start, tensors)[1]
    if options.direction != "forward":
        tensors = [x.flip(0) for x in tensors]
        sums = sums + scan(lambda state, slices: step(state, slices, ones.triu(1)), start, tensors)[1].flip(0)
    numerators, denominators = (_first(x.transpose(0, 1).flatten(1, 2), N) for x in sums.unbind(1))
    if options.direction == "full":
        own = (options.scale * torch.tanh((keys + queries) / options.scale) - tilt * queries).exp() * real[..., None]
        numerators, denominators = numerators + own * values, denominators + own
    return _divide(numerators, denominators)


def _loop(step: Callable[[Tensor], Tensor], slices: Tensor, length: int) -> Tensor:
    """The outputs (B, R, D) of a loop over slices, as one tensor (B, length, D)."""
    from torch._higher_order_ops.scan import scan  # takes long to import

    outputs = scan(lambda state, slices: (state.clone(), step(slices)), slices.new_zeros(1), slices)[1]
    return _first(outputs.transpose(0, 1).flatten(1, 2), length)


def _first(x: Tensor, length: int) -> Tensor:
    """The first tokens of (B, N, D), as a tensor of its own: a slice would have the strides of the whole."""
    return x.index_select(1, torch.arange(length, device=x.device))


def _in_chunks(x: Tensor) -> Tensor:
    """(B, N, D) -> (M, B, CHUNK, D), filled up with zeros."""
    length = x.shape[1]
    return F.pad(x, (0, 0, 0, _multiple(length, CHUNK) - length)).unflatten(1, (-1, CHUNK)).transpose(0, 1)


def _multiple(length: int, size: int) -> int:
    return (length + size - 1) // size * size


def _divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    return numerator / torch.where(denominator > 0, denominator, 1.0)
