"""The equations of DiSAN, Bi-BloSAN and MTSA as short functions: the truth that every fast form is tested against.

Shape suffixes, here and in the layers:
    B batch   N tokens   D features of one direction or one head   H heads   M blocks   R block length
Two N in a row are (query, key): ``scores_BNND[b, i, j, d]`` belongs to query i, key j, feature d.

Papers: DiSAN = Shen et al. 2017 (arXiv 1709.04696); Bi-BloSAN = Shen et al. 2018 (ICLR, arXiv 1804.00857);
MTSA = Shen et al. 2019 (NAACL, arXiv 1805.00912).

bfloat16 and float16 are computed in float32 and cast back. A query that sees no key (the first token under the forward
mask, any token of an empty sentence) yields exactly 0 and finite gradients. ``rows`` restricts the attention functions
to some of the queries: :mod:`attention` processes a sentence in such slices where no kernel is available.
"""

import functools
import math
from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor

from .masks import check_bias, check_block_length, full_token_mask, on_blocks, order_mask

SCORE_FUNCTIONS = ("sigmoid", "exp")
# The values of ``implementation`` in attention.py.
IMPLEMENTATIONS = ("auto", "eager", "fused", "linear")

# The authors' "minus infinity". Finite, so that the softmax of a row without keys is uniform instead of NaN.
MASKED = -1e30


def full_precision(operator):
    """Turn autocast off inside an operator: exponentials overflow in float16, long sums lose digits in bfloat16."""

    @functools.wraps(operator)
    def in_full_precision(first: Tensor, *args, **kwargs):
        with torch.autocast(first.device.type, enabled=False):
            return operator(first, *args, **kwargs)

    return in_full_precision


@full_precision
def directional_attention_weights(
    keys: Tensor,
    queries: Tensor,
    *,
    direction: str,
    bias: Tensor | None = None,
    key_mask: Tensor | None = None,
    token_mask: Tensor | None = None,
    scale: float = 5.0,
    window: int | None = None,
    rows: slice = slice(None),
) -> Tensor:
    """Feature-wise attention weights of DiSAN Eq. 15-18, shape (B, N queries, N keys, D).

    score_ij = c tanh((W1 h_i + W2 h_j + b1) / c), with a softmax over the visible keys for each feature separately.
    Arguments as in :func:`directional_attention`. A query without a visible key has weights 0.
    """
    check_bias(bias, keys.shape[-1])
    keys_BND, queries_BND = _upcast(keys, queries[:, rows])
    queries_BND = queries_BND if bias is None else queries_BND + bias.to(queries_BND.dtype)
    scores_BNND = scale * torch.tanh((queries_BND[:, :, None] + keys_BND[:, None]) / scale)
    visible_NN = order_mask(keys.shape[1], direction, window=window, device=keys.device, queries=rows)
    visible_BNN = visible_NN[None] if key_mask is None else visible_NN & key_mask[:, None].bool()
    if token_mask is not None:
        visible_BNN = visible_BNN & full_token_mask(token_mask, *keys.shape[:2])[:, rows]
    # |score| <= c: exp cannot overflow, so no maximum is subtracted, and an empty sum is exactly 0.
    weights_BNND = torch.where(visible_BNN[..., None], scores_BNND.exp(), 0.0)
    return _divide(weights_BNND, weights_BNND.sum(2, keepdim=True))


@full_precision
def directional_attention(
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
    block_length: int | None = None,
    rows: slice = slice(None),
) -> Tensor:
    """Directional self-attention (DiSAN Eq. 15-18): s_j = sum_i softmax_i(c tanh((k_i + q_j + b) / c)) * x_i.

    Args:
        keys: W1 h, shape (B, N, D).
        queries: W2 h, shape (B, N, D).
        values: h, the vectors to average, shape (B, N, D).
        direction: ``"forward"``, ``"backward"``, ``"diagonal"`` or ``"full"``, see :func:`order_mask`.
        bias: b1, shape (D); 0 by default.
        key_mask: (B, N), true at real tokens; by default all tokens are real.
        token_mask: (N, N) or (B, N, N), true where the query (row) may see the key (column), in addition to the other
            masks; :func:`mask_from_heads` makes one.
        scale: the constant c that bounds the scores; 5 in all three papers.
        window: hide keys more than that many tokens away; any distance by default.
        block_length: split sentences into blocks of that many tokens (the last may be shorter); tokens see only keys
            of the same block.
        rows: compute these queries only; not supported with blocks.

    Returns:
        (B, N, D) in the dtype of ``values``; 0 for a query that sees no key.

    Raises:
        ValueError: the direction is unknown, the window is negative, the block length is below 1, the bias has the
            wrong shape, or the token mask has the wrong shape, is floating-point or is combined with blocks.
    """
    check_block_length(block_length, token_mask)
    if block_length is not None:
        options = {"direction": direction, "bias": bias, "scale": scale, "window": window}
        operator = functools.partial(directional_attention, **options)
        tokens = on_blocks(operator, block_length, (keys, queries, values), key_mask).flatten(1, 2)
        return tokens[:, : values.shape[1]]
    options = {"bias": bias, "key_mask": key_mask, "token_mask": token_mask, "scale": scale, "window": window}
    options["rows"] = rows
    weights_BNND = directional_attention_weights(keys, queries, direction=direction, **options)
    return weighted_sum(weights_BNND, values[:, None])


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """sum_i w_i * x_i over the tokens, the last dimension but one, in the precision of the weights."""
    return (weights * values.to(weights.dtype)).sum(-2).to(values.dtype)


def source2token_weights(scores: Tensor, *, mask: Tensor, empty_rows: str = "zero") -> Tensor:
    """The weights of :func:`source2token_attention`, shape (B, N, D): a softmax over the tokens for each feature."""
    (scores_BND,) = _upcast(scores)
    mask_BN1 = mask[..., None].bool()
    weights_BND = torch.softmax(scores_BND + torch.where(mask_BN1, 0.0, MASKED).to(scores_BND.dtype), dim=-2)
    return weights_BND * mask_BN1 if empty_rows == "zero" else weights_BND


def source2token_attention(
    scores: Tensor, values: Tensor, *, mask: Tensor, empty_rows: str = "zero", block_length: int | None = None
) -> Tensor:
    """Source2token self-attention (DiSAN Eq. 12-14): one vector per sentence, with separate weights for each feature.

    Args:
        scores: W2 act(W1 x + b1) + b2, shape (B, N, D); or (B, N, 1), one score per token for all features.
        values: x, shape (B, N, D).
        mask: (B, N), true at real tokens.
        empty_rows: the vector of a row without real tokens: ``"zero"``, or ``"mean"`` of its padding as in the
            authors' code (which depends on the contents of the padding).
        block_length: split sentences into M blocks of that many tokens (the last may be shorter) and return a vector
            for each block.

    Returns:
        (B, D) in the dtype of ``values``; (B, M, D) with blocks.
    """
    check_block_length(block_length)
    if block_length is not None:

        def operator(scores, values, key_mask):
            return source2token_attention(scores, values, mask=key_mask, empty_rows=empty_rows)

        return on_blocks(operator, block_length, (scores, values), mask)
    weights_BND = source2token_weights(scores, mask=mask, empty_rows=empty_rows)
    return weighted_sum(weights_BND, values)


def additive_attention(scores: Tensor, values: Tensor, *, mask: Tensor, empty_rows: str = "zero") -> Tensor:
    """Vanilla additive attention (DiSAN Eq. 3-5): :func:`source2token_attention` with one score per token, (B, N)."""
    return source2token_attention(scores[..., None], values, mask=mask, empty_rows=empty_rows)


def for_each_head(
    directions: str | Sequence[str], windows: int | Sequence[int | None] | None, num_heads: int
) -> list[tuple[str, int | None]]:
    """Direction and window of every head.

    Raises:
        ValueError: the number of directions or windows differs from that of the heads.
    """
    directions = [directions] * num_heads if isinstance(directions, str) else list(directions)
    windows = [windows] * num_heads if windows is None or isinstance(windows, Integral) else list(windows)
    for name, given in (("direction", directions), ("window", windows)):
        if len(given) != num_heads:
            raise ValueError(f"{len(given)} {name}s for {num_heads} heads; give one {name} or one for each head")
    return list(zip(directions, windows, strict=True))


def _visible_to_heads(q_BHND, directions, windows, key_mask, token_mask, include_self, rows=slice(None)) -> Tensor:
    """The multi-mask of MTSA Alg. 1 combined with padding, booleans (B or 1, H, N, N)."""
    B, num_heads, length, _ = q_BHND.shape
    heads = for_each_head(directions, windows, num_heads)
    options = {"include_self": include_self, "device": q_BHND.device, "queries": rows}
    masks = {head: order_mask(length, head[0], window=head[1], **options) for head in set(heads)}
    visible_BHNN = torch.stack([masks[head] for head in heads])[None]
    if key_mask is not None:
        visible_BHNN = visible_BHNN & key_mask[:, None, None].bool()
    if token_mask is not None:
        visible_BHNN = visible_BHNN & full_token_mask(token_mask, B, length)[:, None, rows]
    return visible_BHNN


def _token_weights(q_BHND: Tensor, k_BHND: Tensor, visible_BHNN: Tensor, score_function: str) -> Tensor:
    """MTSA Alg. 1, steps 2-5: the token2token weights E_R (B, H, N, N), 0 where the key is not visible."""
    scores_BHNN = q_BHND @ k_BHND.transpose(-1, -2) / math.sqrt(q_BHND.shape[-1])
    if score_function == "sigmoid":
        weights_BHNN = scores_BHNN.sigmoid()
    elif score_function == "exp":
        # A factor that depends only on the query cancels: the largest visible score is subtracted.
        top_BHN1 = scores_BHNN.masked_fill(~visible_BHNN, MASKED).amax(-1, keepdim=True).detach()
        weights_BHNN = (scores_BHNN - top_BHN1).clamp(max=0.0).exp()
    else:
        raise ValueError(f"score_function is {score_function!r}; choose one of {', '.join(SCORE_FUNCTIONS)}")
    return torch.where(visible_BHNN, weights_BHNN, 0.0)


def _source_weights(scores_BHND: Tensor, key_mask: Tensor | None) -> Tensor:
    """MTSA Alg. 1, step 6: E_S = exp(source2token scores), up to a factor per feature, which cancels.

    The factor centres the scores: if the maximum were subtracted, a query that sees only low scores (word order may
    hide the high ones) would underflow to 0/0. Scores that differ by up to 150 are exact in float32.
    """
    mask_B1N1 = None if key_mask is None else key_mask[:, None, :, None].bool()
    scores = scores_BHND.detach()
    top = (scores if mask_B1N1 is None else scores.masked_fill(~mask_B1N1, MASKED)).amax(2, keepdim=True)
    low = (scores if mask_B1N1 is None else scores.masked_fill(~mask_B1N1, -MASKED)).amin(2, keepdim=True)
    shift = top - ((top - low) / 2).clamp(min=0.0, max=75.0)
    weights_BHND = (scores_BHND - shift).clamp(min=-85.0, max=76.0).exp()  # 75 but for rounding
    return weights_BHND if mask_B1N1 is None else torch.where(mask_B1N1, weights_BHND, 0.0)


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
    rows: slice = slice(None),
) -> Tensor:
    """Multi-mask tensorized self-attention by matrix products only (MTSA Eq. 8-12, Algorithm 1).

    The weight of key j for query i and feature d is f(q_i . k_j / sqrt(D)) exp(S_jd), normalised over the visible j:

        H = (E_R (E_S * V)) / (E_R E_S),   E_R = f(Q K' / sqrt(D)) * M,   E_S = exp(S)

    Args:
        q, k, v: queries, keys, values, shape (B, H, N, D).
        source_scores: source2token scores S, shape (B, H, N, D).
        directions: the order mask of all heads, or one name per head; see :func:`order_mask`.
        windows: hide keys more than that many tokens away: one number for all heads, or one per head, ``None`` for
            any distance.
        key_mask: (B, N), true at real tokens; by default all tokens are real.
        token_mask: (N, N) or (B, N, N), true where the query (row) may see the key (column), in addition to the other
            masks; :func:`mask_from_heads` makes one.
        score_function: f, ``"sigmoid"`` (the authors' single-layer models) or ``"exp"``.
        include_self: let a token attend to itself under a forward, backward or diagonal mask.
        dropout: probability of dropping weights of E_R and of E_S in the numerator; as in the authors' code, the
            denominator keeps them.
        rows: compute these queries only.

    Returns:
        (B, H, N, D) in the dtype of ``v``; 0 for a query that sees no key.

    Raises:
        ValueError: a direction or the score function is unknown, the number of directions or windows is wrong, a
            window is negative, or the token mask has the wrong shape or is floating-point.
    """
    q_BHND, k_BHND, v_BHND, scores_BHND = _upcast(q, k, v, source_scores)
    visible_BHNN = _visible_to_heads(q_BHND, directions, windows, key_mask, token_mask, include_self, rows)
    token_weights_BHNN = _token_weights(q_BHND[:, :, rows], k_BHND, visible_BHNN, score_function)
    source_weights_BHND = _source_weights(scores_BHND, key_mask)
    if dropout == 0.0:
        both = token_weights_BHNN @ torch.cat([source_weights_BHND * v_BHND, source_weights_BHND], dim=-1)
        numerator_BHND, denominator_BHND = both.chunk(2, dim=-1)
    else:
        denominator_BHND = token_weights_BHNN @ source_weights_BHND
        dropped = torch.nn.functional.dropout
        numerator_BHND = dropped(token_weights_BHNN, dropout) @ (dropped(source_weights_BHND, dropout) * v_BHND)
    return _divide(numerator_BHND, denominator_BHND).to(v.dtype)


@full_precision
def tensorized_attention_weights(
    q: Tensor,
    k: Tensor,
    source_scores: Tensor,
    *,
    directions: str | Sequence[str],
    windows: int | Sequence[int | None] | None = None,
    key_mask: Tensor | None = None,
    token_mask: Tensor | None = None,
    score_function: str = "sigmoid",
    include_self: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """The weights that :func:`tensorized_attention` never builds (MTSA Eq. 10-11), shape (B, H, N, N, D).

    For inspection and tests; memory grows with N^2 D. Arguments as in :func:`tensorized_attention`.
    """
    dropped = torch.nn.functional.dropout
    q_BHND, k_BHND, scores_BHND = _upcast(q, k, source_scores)
    visible_BHNN = _visible_to_heads(q_BHND, directions, windows, key_mask, token_mask, include_self)
    token_weights_BHNN = _token_weights(q_BHND, k_BHND, visible_BHNN, score_function)
    source_weights_BHND = _source_weights(scores_BHND, key_mask)
    denominator_BHND = token_weights_BHNN @ source_weights_BHND
    factors = dropped(token_weights_BHNN, dropout)[..., None], dropped(source_weights_BHND, dropout)[:, :, None]
    return _divide(factors[0] * factors[1], denominator_BHND[:, :, :, None])


@full_precision
def linear_recurrence(forget: Tensor, values: Tensor) -> Tensor:
    """The states of a simple recurrent unit (arXiv 1709.02755): c_t = f_t * c_(t-1) + (1 - f_t) * x_t, c_0 = 0.

    Args:
        forget: gates f between 0 and 1, shape (B, N, D).
        values: x, shape (B, N, D).

    Returns:
        c, shape (B, N, D), in the dtype of ``values``.
    """
    forget_BND, values_BND = _upcast(forget, values)
    states = [torch.zeros_like(values_BND[:, :1])]
    for forget_B1D, values_B1D in zip(forget_BND.split(1, dim=1), values_BND.split(1, dim=1), strict=True):
        states.append(forget_B1D * states[-1] + (1 - forget_B1D) * values_B1D)
    return torch.cat(states, dim=1)[:, 1:].to(values.dtype)


def optimal_block_length(length: float, *, length_std: float = 0.0, batch_size: int = 1) -> int:
    """The block length that needs the least memory (Bi-BloSAN Appendix A): r = (2 n)^(1/3), rounded up.

    For sentences of varying length, n is the expected length of the longest sentence in a batch:
    n = length + length_std sqrt(2 ln batch_size).

    Args:
        length: number of tokens, or their mean over a data set.
        length_std: standard deviation of the number of tokens; 0 for a fixed length.
        batch_size: sentences per batch; matters only if lengths vary.

    Raises:
        ValueError: the length or its deviation is negative, or the batch size is below 1.
    """
    if length < 0 or length_std < 0 or batch_size < 1:
        raise ValueError(
            f"length={length}, length_std={length_std}, batch_size={batch_size}: "
            "lengths must not be negative and a batch holds at least one sentence"
        )
    longest = length + length_std * math.sqrt(2 * math.log(batch_size))
    # The small offset keeps exact cubes from being rounded up: (2 * 32) ** (1/3) is 3.9999999999999996 or 4.
    return max(1, math.ceil((2 * longest) ** (1 / 3) - 1e-9))


def spread_scores(scores: Tensor, *, score_min: float, score_max: float, num_classes: int) -> Tensor:
    """A score as a distribution over evenly spaced classes, with weight on the two nearest (Tai et al. 2015, Eq. 15).

    Args:
        scores: (B,), each within [score_min, score_max]; values outside are clamped to the range.
        score_min, score_max: the scores of the first and the last class.
        num_classes: K.

    Returns:
        (B, K); each row sums to 1 and has the score as its expectation.
    """
    positions_B = (scores - score_min) / (score_max - score_min) * (num_classes - 1)
    positions_B1 = positions_B.clamp(0, num_classes - 1)[:, None]
    classes_K = torch.arange(num_classes, device=scores.device, dtype=positions_B1.dtype)
    return (1 - (positions_B1 - classes_K).abs()).clamp(min=0)


def _upcast(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(t.float() if t.dtype in (torch.bfloat16, torch.float16) else t for t in tensors)


def _divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator / denominator, and 0 with gradient 0 where nothing was summed."""
    return numerator / torch.where(denominator > 0, denominator, 1.0)
