"""Tensorized attention in plain torch: matrix products over tiles of queries.

Shape suffixes: B batch, H heads, N tokens, D features; n rows of a batch that are processed together, Q queries and K
keys of a tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

# Queries per tile: enough for matrix products at full speed, few enough to skip most hidden keys and to keep a tile in
# the cache. Elements of [v E_S; E_S] of the rows that are processed together, so that there are few calls.
# The best of 64..512 and 128k..4M on 2 cores of AMD Zen 4 at the shapes of the benchmarks.
TILE_QUERIES = 128
GROUP_ELEMENTS = 1 << 20
# On a GPU, where there should be few calls; chosen, not measured against others. Elements of a tile, which has as many
# queries as fit, and never fewer than on the CPU.
CUDA_GROUP_ELEMENTS = 1 << 26
CUDA_TILE_ELEMENTS = 1 << 24

# "Minus infinity" that survives arithmetic.
MASKED = -1e30

# Range of the exponents of source weights.
LOWEST, HIGHEST = -85.0, 75.0


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    source_scores: Tensor,
    key_mask: Tensor | None,
    directions: str,
    windows: Sequence[int],
    score_function: str,
    include_self: bool,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Result, E_S and denominators, all (B, H, N, D); the last two are empty unless they are to be saved.

    E_S is saved with a minus sign where its exponent was clamped: there the score has no gradient.
    """
    out, source, denominators = results(v, save)
    N, D = v.shape[2:]
    penalty_BN = _penalty(key_mask, v)
    scratch = _Scratch(v)
    for seen, here in _groups(directions, windows, include_self, v):
        q_nND, k_nND, v_nND, out_nND = (x[here] for x in (q, k, v, out))
        n = len(v_nND)
        mask_nN, penalty_nN = (None if penalty_BN is None else x[here[0]] for x in (key_mask, penalty_BN))
        values = scratch("values", n, N, 2 * D)
        source_nND, clamped_nND = _source_weights(source_scores[here], mask_nN)
        torch.mul(source_nND, v_nND, out=values[..., :D])
        values[..., D:] = source_nND
        if mask_nN is not None:
            values[..., :D].masked_fill_(~mask_nN[..., None], 0.0)
        if save:
            torch.where(clamped_nND, -source_nND, source_nND, out=source[here])
        for queries, keys in _tiles(N, seen, _tile_queries(v_nND)):
            Q, K = queries.stop - queries.start, keys.stop - keys.start
            weights = scratch("weights", n, Q, K)
            _token_weights_(weights, q_nND, k_nND, penalty_nN, seen, score_function, queries, keys)
            both = torch.bmm(weights, values[:, keys], out=scratch("both", n, Q, 2 * D))
            totals = both[..., D:]
            totals += totals == 0
            torch.div(both[..., :D], totals, out=out_nND[:, queries])
            if save:
                denominators[here][:, queries].copy_(totals)
    return out, source, denominators


def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_mask: Tensor | None,
    out: Tensor,
    source: Tensor,
    denominators: Tensor,
    directions: str,
    windows: Sequence[int],
    score_function: str,
    include_self: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v and the source scores."""
    N, D = v.shape[2:]
    scale = 1 / math.sqrt(q.shape[-1])
    gradients = tuple(empty_by_head(v) for _ in range(4))
    penalty_BN = _penalty(key_mask, v)
    scratch, zero = _Scratch(v), v.new_zeros(())
    for seen, here in _groups(directions, windows, include_self, v):
        q_nND, k_nND, v_nND, signed_nND = (x[here] for x in (q, k, v, source))
        grad_q, grad_k, grad_v, grad_scores = (x[here] for x in gradients)
        n = len(v_nND)
        mask_nN, penalty_nN = (None if penalty_BN is None else x[here[0]] for x in (key_mask, penalty_BN))
        values, grad_values, share = (scratch(name, n, N, 2 * D) for name in ("values", "grad_values", "share"))
        source_nND = torch.abs(signed_nND, out=values[..., D:])
        torch.mul(source_nND, v_nND, out=values[..., :D])
        if mask_nN is not None:
            values[..., :D].masked_fill_(~mask_nN[..., None], 0.0)
        # Gradients of numerator and denominator: g / d and -g out / d.
        torch.div(grad[here], denominators[here], out=share[..., :D])
        torch.addcmul(zero, share[..., :D], out[here], value=-1, out=share[..., D:])
        size = _tile_queries(v_nND)
        several = int(N > size)  # several tiles: sums over queries are accumulated
        if several:
            grad_values.zero_()
            grad_k.zero_()
        for queries, keys in _tiles(N, seen, size):
            shape = (n, queries.stop - queries.start, keys.stop - keys.start)
            weights, grad_weights = scratch("weights", *shape), scratch("grad_weights", *shape)
            tops_nQ1 = _token_weights_(weights, q_nND, k_nND, penalty_nN, seen, score_function, queries, keys)
            torch.bmm(share[:, queries], values[:, keys].transpose(1, 2), out=grad_weights)
            grad_values[:, keys].baddbmm_(weights.transpose(1, 2), share[:, queries], beta=several)
            grad_weights.mul_(weights)
            if score_function == "sigmoid":  # w' = w (1 - sigmoid) = w (1 - w e^top)
                grad_weights.addcmul_(grad_weights * weights, tops_nQ1.exp(), value=-1)
            # NaN where the weight is 0, because the pair is hidden or the exponential has underflowed.
            grad_weights.masked_fill_(weights < torch.finfo(weights.dtype).tiny, 0.0)
            grad_q[:, queries].baddbmm_(grad_weights, k_nND[:, keys], beta=0, alpha=scale)
            grad_k[:, keys].baddbmm_(grad_weights.transpose(1, 2), q_nND[:, queries], beta=several, alpha=scale)
        torch.mul(grad_values[..., :D], source_nND, out=grad_v)
        torch.mul(grad_values[..., D:], source_nND, out=grad_scores).addcmul_(grad_v, v_nND)
        grad_scores.masked_fill_(signed_nND <= 0, 0.0)  # at padding and where the exponent was clamped
    return gradients


def results(v: Tensor, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    saved = v if save else v[:0]
    return empty_by_head(v), empty_by_head(saved), empty_by_head(saved)


def empty_by_head(like_BHND: Tensor) -> Tensor:
    """(B, H, N, D) stored head by head: a batched product writes the rows of one head without a copy."""
    B, H, N, D = like_BHND.shape
    return like_BHND.new_empty(H, B, N, D).transpose(0, 1)


def _source_weights(scores_nND: Tensor, mask_nN: Tensor | None) -> tuple[Tensor, Tensor]:
    """E_S = exp(S), 0 at padding, up to a factor per feature, which cancels; and where the exponent was clamped.

    The factor centres the scores: subtracting the maximum would let a query that sees only low scores (word order may
    hide the high ones) underflow to 0/0. Only rounding exceeds the upper limit.
    """
    hidden = None if mask_nN is None else ~mask_nN[..., None]
    top = (scores_nND if hidden is None else scores_nND.masked_fill(hidden, MASKED)).amax(1, keepdim=True)
    low = (scores_nND if hidden is None else scores_nND.masked_fill(hidden, -MASKED)).amin(1, keepdim=True)
    exponents_nND = scores_nND - (top - ((top - low) / 2).clamp(min=0.0, max=HIGHEST))
    weights_nND = exponents_nND.clamp(LOWEST, HIGHEST).exp()
    return weights_nND if hidden is None else weights_nND.masked_fill_(hidden, 0.0), exponents_nND < LOWEST


class _Seen(NamedTuple):
    """The keys that a query sees: up to ``before`` tokens before it, up to ``after`` after it, and ``itself``."""

    before: int
    after: int
    itself: bool


class _Scratch:
    """Named memory that tiles reuse: fresh memory costs more than the arithmetic on it."""

    def __init__(self, like: Tensor):
        self.like, self.memory = like, {}

    def __call__(self, name: str, *shape: int) -> Tensor:
        size = math.prod(shape)
        if name not in self.memory or self.memory[name].numel() < size:
            self.memory[name] = self.like.new_empty(size)
        return self.memory[name][:size].view(shape)


def _groups(
    directions: str, windows: Sequence[int], include_self: bool, v: Tensor
) -> Iterator[tuple[_Seen, tuple[slice, int]]]:
    """What is seen, and (rows, head) to process together; one head, so that inputs of any layout need no copy."""
    B, _, N, D = v.shape
    size = max(1, (CUDA_GROUP_ELEMENTS if v.is_cuda else GROUP_ELEMENTS) // max(1, 2 * N * D))
    B = B if N else 0
    for head, (direction, window) in enumerate(zip(directions.split(","), windows, strict=True)):
        before, after = (0 if direction == hides else window for hides in ("backward", "forward"))
        seen = _Seen(before, after, include_self or direction == "full")
        for start in range(0, B, size):
            yield seen, (slice(start, min(B, start + size)), head)


def _tile_queries(like_nND: Tensor) -> int:
    """Queries of a tile: on a GPU as many as ``CUDA_TILE_ELEMENTS`` allow for these rows and keys."""
    n, N, _ = like_nND.shape
    return max(TILE_QUERIES, CUDA_TILE_ELEMENTS // (n * N)) if like_nND.is_cuda else TILE_QUERIES


def _tiles(length: int, seen: _Seen, size: int) -> Iterator[tuple[slice, slice]]:
    """Ranges of ``size`` queries, each with the range of keys that they may see."""
    for start in range(0, length, size):
        stop = min(length, start + size)
        yield slice(start, stop), slice(max(0, start - seen.before), min(length, stop + seen.after))


def _token_weights_(out_nQK, q_nND, k_nND, penalty_nN, seen, score_function, queries, keys) -> Tensor:
    """E_R of a tile, 0 where word order hides the key; padded keys need no 0 here, their E_S is 0.

    A factor that depends only on the query cancels: the largest visible exp becomes 1, the largest visible sigmoid 1/2
    or more. Returns the logarithm of what they were divided by.
    """
    scale = 1 / math.sqrt(q_nND.shape[-1])
    torch.baddbmm(out_nQK, q_nND[:, queries], k_nND[:, keys].transpose(1, 2), beta=0, alpha=scale, out=out_nQK)
    if score_function == "sigmoid":
        out_nQK.copy_(torch.nn.functional.logsigmoid(out_nQK))
    out_nQK.masked_fill_(_hide_(torch.ones_like(out_nQK[0]), seen, queries, keys) == 0, MASKED)
    if penalty_nN is not None:
        out_nQK.add_(penalty_nN[:, None, keys])
    tops_nQ1 = out_nQK.amax(-1, keepdim=True)
    if score_function == "sigmoid":
        tops_nQ1 = (tops_nQ1 - math.log(0.5)).clamp(max=0.0)
    _hide_(out_nQK.sub_(tops_nQ1).exp_(), seen, queries, keys)
    return tops_nQ1


def _hide_(tile_nQK: Tensor, seen: _Seen, queries: slice, keys: slice) -> Tensor:
    """Set hidden pairs to 0, in place."""
    diagonal = queries.start - keys.start
    # If a side has no visible keys and the query does not see itself, the limit excludes the query too.
    low = -seen.before if seen.before or seen.itself else 1
    high = seen.after if seen.after or seen.itself else -1
    if keys.start - (queries.stop - 1) < low:
        tile_nQK.triu_(diagonal + low)
    if keys.stop - 1 - queries.start > high:
        tile_nQK.tril_(diagonal + high)
    if not seen.itself and low < 0 < high:
        tile_nQK.diagonal(diagonal, -2, -1).zero_()
    return tile_nQK


def _penalty(key_mask: Tensor | None, like: Tensor) -> Tensor | None:
    """(B, N): 0 at real tokens, "minus infinity" at padding; None on the CPU if there is no padding."""
    if key_mask is None or (not key_mask.is_cuda and key_mask.all()):
        return None
    return (~key_mask).to(like.dtype) * MASKED
