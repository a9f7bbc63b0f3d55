"""MTSA's attention in fast forms, with the signature of equations and an ``implementation``.

``"eager"``  the equation with its (B, H, N, N) weights; what everything is tested against.
``"fused"``  the same in O(N D) memory: weights exist for some queries at a time, the backward pass computes them
             again. On a GPU with narrow heads FlexAttention; elsewhere matrix products over tiles that leave out the
             keys that word order and windows hide. With a ``token_mask``, itself of size N^2, it is "eager".
``"linear"`` the same as ``"fused"``: attention by dot products has no form of linear cost. The name is taken so that
             one setting serves every encoder.
``"auto"``   the fastest that is at hand.

Shape suffixes as in equations; n rows of a batch that are worked on together, Q queries and K keys of a tile.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from .equations import (
    IMPLEMENTATIONS,
    MASKED,
    SCORE_FUNCTIONS,
    _divide,
    _source_weights,
    for_each_head,
    full_precision,
)
from .equations import tensorized_attention as tensorized_attention_eager
from .kernels_cpu_blosan import available as cpu_kernel_available
from .masks import DIRECTIONS, check_shapes, check_window
from .operator_blosan import operator
from .team_cpu_blosan import over_items, over_rows

if cpu_kernel_available():
    from .loops_cpu_tensorized_blosan import quotients, source_weights

# Queries of a tile: enough for matrix products at full speed, few enough to leave out most of what is hidden and to
# keep a tile in the cache. Elements of [v E_S ; E_S] of the rows that are worked on together: few operations more.
# Best of 128k..4M and 64..512 on 2 cores of AMD Zen 4 at the shapes of the benchmarks.
TILE_QUERIES = 128
GROUP_ELEMENTS = 1 << 20

# FlexAttention holds a tile of queries and one of [v E_S ; E_S] on the chip; its kernels are made for up to 256
# features, and twice the width of a head must fit.
FLEX_WIDTH = 128

# Further than any token is away: the window of a head that has none.
NO_WINDOW = 1 << 40


@full_precision
def tensorized_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    source_scores: Tensor,
    *,
    directions: str | Sequence[str],
    windows: int | Sequence[int | None] | None = None,
    key_mask: Tensor | None = None,
    token_mask: Tensor | None = None,
    score_function: str = "sigmoid",
    include_self: bool = False,
    dropout: float = 0.0,
    implementation: str = "auto",
) -> Tensor:
    """Multi-mask tensorized self-attention by matrix products only (MTSA Eq. 8-12, Algorithm 1).

    The weight of key j for query i and feature d is f(q_i . k_j / sqrt(D)) exp(S_jd), normalised over the visible j:

        H = (E_R (E_S * V)) / (E_R E_S),   E_R = f(Q K' / sqrt(D)) * M,   E_S = exp(S)

    Args:
        q, k, v: queries, keys, values, shape (B, H, N, D).
        source_scores: source2token scores S, shape (B, H, N, D).
        directions: the order mask of all heads, or one name for each head; see ``order_mask``.
        windows: let a query see only keys at most that many tokens away: one number for all heads, or for each head a
            number, or ``None`` for any distance.
        key_mask: (B, N), true at real tokens; all tokens are real by default.
        token_mask: (N, N) or (B, N, N), true where the query (row) may see the key (column), as far as the other
            masks let it; ``mask_from_heads`` makes one.
        score_function: f, ``"sigmoid"`` (the authors' single-layer models) or ``"exp"``.
        include_self: let a token attend to itself under a forward, backward or diagonal mask.
        dropout: probability with which weights of E_R and of E_S are dropped in the numerator; the authors leave the
            denominator whole. Dropped weights are those of the eager form, whatever the implementation.
        implementation: ``"auto"``, ``"eager"``, ``"fused"`` or ``"linear"`` (the same as fused); they differ in speed
            and memory, not in the function. Second derivatives exist for ``"eager"`` only.

    Returns:
        (B, H, N, D) in the dtype of ``v``; 0 for a query that sees no key.

    Raises:
        ValueError: unknown direction, score function or implementation, a wrong number of directions or windows, a
            window below 0, or a token mask of another shape or of floating-point numbers.
    """
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f"implementation is {implementation!r}; choose one of {', '.join(IMPLEMENTATIONS)}")
    check_shapes(v.shape[0], v.shape[2], key_mask, q=q, k=k, v=v, source_scores=source_scores)
    options = {"key_mask": key_mask, "score_function": score_function, "include_self": include_self}
    eager = implementation == "eager" or dropout > 0 or token_mask is not None
    if eager or (implementation == "auto" and _eager_is_faster(v)):
        options |= {"directions": directions, "windows": windows, "token_mask": token_mask, "dropout": dropout}
        return tensorized_attention_eager(q, k, v, source_scores, **options)
    heads = _check(for_each_head(directions, windows, v.shape[1]), score_function)
    low = v.dtype in (torch.bfloat16, torch.float16)
    inputs = [x.float() if low else x.to(v.dtype) for x in (q, k, v, source_scores)]
    if v.is_cuda and v.shape[-1] <= FLEX_WIDTH:
        return _flex(*inputs, heads=heads, **options).to(v.dtype)
    save = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    directions = ",".join(direction for direction, _ in heads)
    windows = [NO_WINDOW if window is None else window for _, window in heads]
    return _fused(*inputs, key_mask, directions, windows, score_function, include_self, save)[0].to(v.dtype)


def _eager_is_faster(v_BHND: Tensor) -> bool:
    """Short and few sentences, where the time goes into calls and not into numbers.

    Measured on 2 cores of AMD Zen 4, float32: the forms meet at about 2^15 elements of values and weights of one head
    (8 x 16 or 1 x 128 tokens with 300 features a head, 32 x 16 or 4 x 128 with 75). Not measured on a GPU: there the
    limit only keeps FlexAttention from being compiled for short sentences.
    """
    B, _, N, D = v_BHND.shape
    return N <= 128 if v_BHND.is_cuda else B * N * (D + N) < 1 << 15


def _check(heads: list[tuple[str, int | None]], score_function: str) -> list[tuple[str, int | None]]:
    for direction, window in heads:
        check_window(window)
        if direction not in DIRECTIONS:
            raise ValueError(f"direction is {direction!r}; choose one of {', '.join(DIRECTIONS)}")
    if score_function not in SCORE_FUNCTIONS:
        raise ValueError(f"score_function is {score_function!r}; choose one of {', '.join(SCORE_FUNCTIONS)}")
    return heads


def _flex(q, k, v, source_scores, *, heads, key_mask, score_function, include_self) -> Tensor:
    """H = attention(q, k, [v E_S ; E_S]) split in two and divided: the normaliser of a softmax cancels.

    sigmoid(s) = exp(log sigmoid(s)) is a modified score. Tiles that the masks hide are skipped.
    """
    B, H, N, _ = v.shape
    before, after, itself = (
        torch.tensor([direction in names for direction, _ in heads], device=v.device)
        for names in (("forward", "diagonal", "full"), ("backward", "diagonal", "full"), ("full",))
    )
    reach = None
    if any(window is not None for _, window in heads):
        reach = torch.tensor([NO_WINDOW if window is None else window for _, window in heads], device=v.device)

    def visible(b, h, query, key):
        seen = (before[h] & (key < query)) | (after[h] & (key > query)) | ((itself[h] | include_self) & (key == query))
        seen = seen if reach is None else seen & ((key - query).abs() <= reach[h])
        return seen if mask_BN is None else seen & mask_BN[b, key]

    def log_sigmoid(score, b, h, query, key):
        return torch.nn.functional.logsigmoid(score)

    mask_BN = None if key_mask is None else key_mask.bool()
    block_mask = create_block_mask(visible, B, H, N, N, device=v.device, _compile=v.is_cuda)
    source_BHND = _source_weights(source_scores, key_mask)
    both_BHND = torch.cat([source_BHND * v, source_BHND], dim=-1)
    attend = _compiled_flex_attention() if v.is_cuda else flex_attention
    score_mod = log_sigmoid if score_function == "sigmoid" else None
    return _divide(*attend(q, k, both_BHND, score_mod=score_mod, block_mask=block_mask).chunk(2, dim=-1))


@functools.cache
def _compiled_flex_attention():
    return torch.compile(flex_attention)


@operator("tensorized_attention")
def _fused(
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
    """Result, E_S and denominators, all (B, H, N, D); the last two are empty unless they are to be saved."""
    out, source, denominators = _empty_results(v, save)
    N, D = v.shape[2:]
    penalty_BN = _penalty(key_mask, v)
    mask_BN = None if penalty_BN is None else key_mask.bool()
    scratch = _Scratch(v)
    for seen, here in _groups(directions, windows, include_self, v.shape):
        q_nND, k_nND, v_nND, out_nND = (x[here] for x in (q, k, v, out))
        n = len(v_nND)
        penalty_nN = None if penalty_BN is None else penalty_BN[here[0]]
        values = scratch("values", n, N, 2 * D)
        mask_nN = None if mask_BN is None else mask_BN[here[0]]
        _weigh_values(values, source_scores[here], v_nND, mask_nN, source[here] if save else None)
        for queries, keys in _tiles(N, seen):
            Q, K = queries.stop - queries.start, keys.stop - keys.start
            weights = scratch("weights", n, Q, K)
            _token_weights_(weights, q_nND, k_nND, penalty_nN, seen, score_function, queries, keys)
            both = torch.bmm(weights, values[:, keys], out=scratch("both", n, Q, 2 * D))
            _divide_halves(both, out_nND[:, queries], denominators[here][:, queries] if save else None)
    return out, source, denominators


@operator("tensorized_attention_backward")
def _fused_backward(
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
    N, D = v.shape[2:]
    scale = 1 / math.sqrt(q.shape[-1])
    gradients = _fused_backward_fake(grad, q, k, v)
    penalty_BN = _penalty(key_mask, v) if score_function == "exp" else None
    scratch, zero = _Scratch(v), v.new_zeros(())
    for seen, here in _groups(directions, windows, include_self, v.shape):
        q_nND, k_nND, v_nND, source_nND = (x[here] for x in (q, k, v, source))
        grad_q, grad_k, grad_v, grad_scores = (x[here] for x in gradients)
        n = len(v_nND)
        penalty_nN = None if penalty_BN is None else penalty_BN[here[0]]
        values, grad_values, share = (scratch(name, n, N, 2 * D) for name in ("values", "grad_values", "share"))
        torch.mul(source_nND, v_nND, out=values[..., :D])
        values[..., D:] = source_nND
        # Gradients of numerator and denominator: g / d and -g out / d.
        torch.div(grad[here], denominators[here], out=share[..., :D])
        torch.addcmul(zero, share[..., :D], out[here], value=-1, out=share[..., D:])
        several = int(N > TILE_QUERIES)  # tiles: then sums over queries are collected
        if several:
            grad_values.zero_()
            grad_k.zero_()
        for queries, keys in _tiles(N, seen):
            shape = (n, queries.stop - queries.start, keys.stop - keys.start)
            weights, grad_weights = scratch("weights", *shape), scratch("grad_weights", *shape)
            _token_weights_(weights, q_nND, k_nND, penalty_nN, seen, score_function, queries, keys)
            torch.bmm(share[:, queries], values[:, keys].transpose(1, 2), out=grad_weights)
            grad_values[:, keys].baddbmm_(weights.transpose(1, 2), share[:, queries], beta=several)
            if score_function == "sigmoid":
                torch.ops.aten.sigmoid_backward.grad_input(grad_weights, weights, grad_input=grad_weights)
            else:
                grad_weights.mul_(weights)
            _hide_(grad_weights, seen, queries, keys)  # 0 times what is no number there
            grad_q[:, queries].baddbmm_(grad_weights, k_nND[:, keys], beta=0, alpha=scale)
            grad_k[:, keys].baddbmm_(grad_weights.transpose(1, 2), q_nND[:, queries], beta=several, alpha=scale)
        torch.mul(grad_values[..., :D], source_nND, out=grad_v)
        torch.mul(grad_values[..., D:], source_nND, out=grad_scores).addcmul_(grad_v, v_nND)
    return gradients


class _Seen(NamedTuple):
    """The keys that a query of a head sees: ``before`` and ``after`` it at most that many tokens away, and itself."""

    before: int
    after: int
    itself: bool


class _Scratch:
    """Memory by name that is used again in every tile: fresh memory costs more than the arithmetic on it."""

    def __init__(self, like: Tensor):
        self.like, self.memory = like, {}

    def __call__(self, name: str, *shape: int) -> Tensor:
        size = math.prod(shape)
        if name not in self.memory or self.memory[name].numel() < size:
            self.memory[name] = self.like.new_empty(size)
        return self.memory[name][:size].view(shape)


def _groups(
    directions: str, windows: Sequence[int], include_self: bool, shape: torch.Size
) -> Iterator[tuple[_Seen, tuple[slice, int]]]:
    """What is seen, and (rows, head) worked on together; one head, so that inputs of any layout need no copy."""
    B, _, N, D = shape
    size = max(1, GROUP_ELEMENTS // max(1, 2 * N * D))
    for head, (direction, window) in enumerate(zip(directions.split(","), windows, strict=True)):
        before, after = (0 if direction == hides else window for hides in ("backward", "forward"))
        seen = _Seen(before, after, include_self or direction == "full")
        for start in range(0, B, size):
            yield seen, (slice(start, min(B, start + size)), head)


def _tiles(length: int, seen: _Seen) -> Iterator[tuple[slice, slice]]:
    """Ranges of queries, each with the range of keys that they may see."""
    for start in range(0, length, TILE_QUERIES):
        stop = min(length, start + TILE_QUERIES)
        yield slice(start, stop), slice(max(0, start - seen.before), min(length, stop + seen.after))


def _weigh_values(
    values_nN2D: Tensor, scores_nND: Tensor, v_nND: Tensor, mask_nN: Tensor | None, source_nND: Tensor | None
) -> None:
    """[v E_S ; E_S], and E_S where it is to be saved."""
    n, N, D = v_nND.shape
    if not _kernel_takes(values_nN2D, scores_nND, v_nND):
        weights_nND = _source_weights(scores_nND[:, None], mask_nN)[:, 0]
        torch.mul(weights_nND, v_nND, out=values_nN2D[..., :D])
        values_nN2D[..., D:] = weights_nND
        if source_nND is not None:
            source_nND.copy_(weights_nND)
        return
    mask = (0, -1) if mask_nN is None else (mask_nN.contiguous(), N)
    source = (0, -1, -1) if source_nND is None else _steps(source_nND)
    fields = (*_steps(scores_nND), *_steps(v_nND), *mask, values_nN2D, *source)
    over_items(source_weights, v_nND, 4 * v_nND.numel(), *fields, N, D)


def _divide_halves(both_nQ2D: Tensor, out_nQD: Tensor, divisors_nQD: Tensor | None) -> None:
    """The first half of every row by the second, or by 1 where nothing was summed; and what it was divided by."""
    n, Q, D = out_nQD.shape
    if _kernel_takes(both_nQ2D, out_nQD):
        divisors = (0, -1, -1) if divisors_nQD is None else _steps(divisors_nQD)
        fields = (both_nQ2D, *_steps(out_nQD), *divisors)
        over_rows(quotients, n * Q, out_nQD.numel(), *fields, Q, D)
        return
    totals = both_nQ2D[..., D:]
    totals += totals == 0
    torch.div(both_nQ2D[..., :D], totals, out=out_nQD)
    if divisors_nQD is not None:
        divisors_nQD.copy_(totals)


def _kernel_takes(*tensors: Tensor) -> bool:
    return all(cpu_kernel_available(x) and x.stride(-1) == 1 for x in tensors)


def _steps(x_nND: Tensor) -> tuple[Tensor, int, int]:
    """Memory, and the steps from row to row and from token to token."""
    return x_nND, *x_nND.stride()[:2]


def _token_weights_(out_nQK, q_nND, k_nND, penalty_nN, seen, score_function, queries, keys) -> None:
    """E_R of a tile, 0 where the key is hidden. Padded keys need no 0 here: theirs are the zeros of E_S."""
    scale = 1 / math.sqrt(q_nND.shape[-1])
    torch.baddbmm(out_nQK, q_nND[:, queries], k_nND[:, keys].transpose(1, 2), beta=0, alpha=scale, out=out_nQK)
    if score_function == "sigmoid":
        out_nQK.sigmoid_()
    else:
        # A factor that depends on the query alone cancels: take out the largest visible score.
        hidden_QK = 1 - _hide_(torch.ones_like(out_nQK[0]), seen, queries, keys)
        out_nQK.add_(hidden_QK, alpha=MASKED)
        if penalty_nN is not None:
            out_nQK.add_(penalty_nN[:, None, keys])
        out_nQK.sub_(out_nQK.amax(-1, keepdim=True)).exp_()
    _hide_(out_nQK, seen, queries, keys)


def _hide_(tile_nQK: Tensor, seen: _Seen, queries: slice, keys: slice) -> Tensor:
    """Set to 0 what is hidden, in place."""
    diagonal = queries.start - keys.start
    # A side without keys takes the query along, where that is hidden too.
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
    """(B, N): 0 at real tokens, "minus infinity" at padding; nothing on the CPU if there is no padding."""
    if key_mask is None or (not key_mask.is_cuda and key_mask.all()):
        return None
    return (~key_mask.bool()).to(like.dtype) * MASKED


def _empty_by_head(like_BHND: Tensor) -> Tensor:
    """(B, H, N, D) that lies head by head: rows of one head are what a batched product writes without a copy."""
    B, H, N, D = like_BHND.shape
    return like_BHND.new_empty(H, B, N, D).transpose(0, 1)


def _empty_results(v: Tensor, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    saved = v if save else v[:0]
    return torch.empty_like(v), _empty_by_head(saved), _empty_by_head(saved)


def _fused_fake(q, k, v, source_scores, key_mask, directions, windows, score_function, include_self, save):
    return _empty_results(v, save)


def _fused_backward_fake(grad, q, k, v, *_):
    return _empty_by_head(q), _empty_by_head(k), torch.empty_like(v), _empty_by_head(v)


_fused.register_fake(_fused_fake)


_fused_backward.register_fake(_fused_backward_fake)


def _save(ctx, inputs, output):
    q, k, v, _, key_mask, *ctx.options, _ = inputs
    ctx.save_for_backward(q, k, v, key_mask, *output)
    ctx.set_materialize_grads(False)  # no zeros for the outputs that are only saved


def _differentiate(ctx, grad, *_):
    if grad is None:
        return (None,) * 10
    gradients = _fused_backward(grad, *ctx.saved_tensors, *ctx.options)
    return *gradients, None, None, None, None, None, None


_fused.register_autograd(_differentiate, setup_context=_save)
