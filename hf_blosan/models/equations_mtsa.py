"""The equations of MTSA as short functions; conventions and shape suffixes: see equations.py."""

import math
from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor

from .equations import MASKED, check_shapes, divide, full_precision, upcast
from .masks import check_choice, full_token_mask, order_mask

SCORE_FUNCTIONS = ("sigmoid", "exp")
LARGEST_DECAY = 120.0  # of the most distant tokens of a sentence; E_S is exact over a range of 150


def for_each_head(
    directions: str | Sequence[str], windows: int | Sequence[int | None] | None, num_heads: int
) -> list[tuple[str, int | None]]:
    """Direction and window of every head.

    Raises:
        ValueError: the number of directions or windows differs from the number of heads.
    """
    directions = [directions] * num_heads if isinstance(directions, str) else list(directions)
    windows = [windows] * num_heads if windows is None or isinstance(windows, Integral) else list(windows)
    for name, given in (("direction", directions), ("window", windows)):
        if len(given) != num_heads:
            raise ValueError(f"{len(given)} {name}s for {num_heads} heads; give one {name} or one for each head")
    return list(zip(directions, windows, strict=True))


def divided(values: Sequence, num_heads: int) -> list:
    """Each value for its share of consecutive heads."""
    return [value for value in values for _ in range(num_heads // len(values))]


def _visible_to_heads(q_BHND, key_mask, rows, directions, windows=None, token_mask=None, include_self=False) -> Tensor:
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
    """MTSA Alg. 1, steps 2-5: the token2token weights E_R (B, H, N, N), 0 where the key is not visible.

    Up to a factor per query, which cancels; without it a query whose scores are all far from 0 would overflow, or
    divide 0 by 0: the largest visible exp is 1, the largest visible sigmoid 1/2 or more.
    """
    check_choice("score_function", score_function, SCORE_FUNCTIONS)
    scores_BHNN = q_BHND @ k_BHND.transpose(-1, -2) / math.sqrt(q_BHND.shape[-1])
    if score_function == "sigmoid":
        if torch.compiler.is_exporting():  # log(sigmoid(x)), which graphs have in its place, is -inf below -18
            scores_BHNN = scores_BHNN.minimum(scores_BHNN.new_zeros(())) - scores_BHNN.abs().neg().exp().log1p()
        else:
            scores_BHNN = torch.nn.functional.logsigmoid(scores_BHNN)
    scores_BHNN = scores_BHNN.masked_fill(~visible_BHNN, MASKED)
    top_BHN1 = scores_BHNN.amax(-1, keepdim=True).detach()
    if score_function == "sigmoid":
        top_BHN1 = (top_BHN1 - math.log(0.5)).clamp(max=0.0)
    weights_BHNN = (scores_BHNN - top_BHN1).exp()
    # The gradient of a weight that has underflowed may be infinite, and 0 times that is NaN.
    counts_BHNN = visible_BHNN & ~(weights_BHNN < torch.finfo(weights_BHNN.dtype).tiny)
    return torch.where(counts_BHNN, weights_BHNN, 0.0)


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
    exponents_BHND = (scores_BHND - shift).clamp(max=76.0)  # 75 but for rounding and padding
    # No clamp, because the gradient at its limit depends on the version of torch.
    weights_BHND = exponents_BHND.masked_fill(exponents_BHND < -85.0, -85.0).exp()
    return weights_BHND if mask_B1N1 is None else torch.where(mask_B1N1, weights_BHND, 0.0)


def add_decay(
    scores_BHND: Tensor, decay_HD: Tensor, directions: Sequence[str], key_mask: Tensor | None = None
) -> Tensor:
    """Source2token scores that make the weight of a key fall with its distance, by exp(-a_hd |i - j|).

    Where all visible keys lie before the query, this is exp(a_hd j) up to a factor of the query, which cancels; where
    they lie after it, exp(-a_hd j). So it is one more term of a score, S_jd + a_hd j or S_jd - a_hd j, and the matrix
    products of Alg. 1 stay as they are. The paper has no such term; Im & Cho (2017, arXiv 1712.02047) put one into
    directional attention and ALiBi (Press et al. 2022, arXiv 2108.12409) into a Transformer's, not learned and the
    same for all features of a head.

    Distances count real tokens. In a sentence of n tokens a_hd is limited to 120 / n, so that weights stay within the
    range of float32.

    Args:
        scores_BHND: source2token scores S.
        decay_HD: a, per token of distance, for each head and feature.
        directions: for each head, ``"forward"`` (keys before the query) or ``"backward"``.
        key_mask: (B, N), true at real tokens; by default all tokens are real.

    Returns:
        Scores, (B, H, N, D), in float32 or float64.
    """
    if key_mask is None:
        key_mask = torch.ones_like(scores_BHND[:, 0, :, 0])
    key_mask = key_mask.bool()
    scores_BHND, decay_HD = upcast(scores_BHND, decay_HD)
    places_B1N1 = key_mask.cumsum(1)[:, None, :, None]
    limit_B111 = LARGEST_DECAY / key_mask.sum(1).clamp(min=1)[:, None, None, None]
    signs = torch.tensor([{"forward": 1.0, "backward": -1.0}[name] for name in directions], device=decay_HD.device)
    decay_BH1D = (signs[:, None] * decay_HD)[:, None].clamp(-limit_B111, limit_B111)
    return scores_BHND + decay_BH1D * places_B1N1


def _both_weights(
    q: Tensor, k: Tensor, source_scores: Tensor, *, key_mask=None, score_function="sigmoid", rows=slice(None), **seen
) -> tuple[Tensor, Tensor]:
    """E_R (B, H, N queries, N) and E_S (B, H, N, D)."""
    q_BHND, k_BHND, scores_BHND = upcast(q, k, source_scores)
    visible_BHNN = _visible_to_heads(q_BHND, key_mask, rows, **seen)
    token_weights_BHNN = _token_weights(q_BHND[:, :, rows], k_BHND, visible_BHNN, score_function)
    return token_weights_BHNN, _source_weights(scores_BHND, key_mask)


@full_precision
def tensorized_attention(
    q: Tensor, k: Tensor, v: Tensor, source_scores: Tensor, *, dropout: float = 0.0, **options
) -> Tensor:
    """Multi-mask tensorized self-attention by matrix products only (MTSA Eq. 8-12, Algorithm 1).

    The weight of key j for query i and feature d is f(q_i . k_j / sqrt(D)) exp(S_jd), normalised over the visible j:

        H = (E_R (E_S * V)) / (E_R E_S),   E_R = f(Q K' / sqrt(D)) * M,   E_S = exp(S)

    Arguments and result as in :func:`attention.tensorized_attention`; or ``rows``: compute these queries only.
    """
    if not v.shape[2]:  # no tokens, which have no largest score
        return v
    token_weights_BHNN, source_weights_BHND = _both_weights(q, k, source_scores, **options)
    (v_BHND,) = upcast(v)
    if dropout == 0.0:
        both = token_weights_BHNN @ torch.cat([source_weights_BHND * v_BHND, source_weights_BHND], dim=-1)
        numerator_BHND, denominator_BHND = both.chunk(2, dim=-1)
    else:
        denominator_BHND = token_weights_BHNN @ source_weights_BHND
        dropped = torch.nn.functional.dropout
        numerator_BHND = dropped(token_weights_BHNN, dropout) @ (dropped(source_weights_BHND, dropout) * v_BHND)
    return divide(numerator_BHND, denominator_BHND).to(v.dtype)


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
    check_shapes(q.shape[0], q.shape[2], key_mask, q=q, k=k, source_scores=source_scores)
    if not q.shape[2]:  # no tokens, which have no largest score
        return upcast(q[:, :, :, None].expand(-1, -1, -1, 0, -1))[0]
    dropped, options = torch.nn.functional.dropout, {"score_function": score_function, "include_self": include_self}
    options |= {"directions": directions, "windows": windows, "key_mask": key_mask, "token_mask": token_mask}
    token_weights_BHNN, source_weights_BHND = _both_weights(q, k, source_scores, **options)
    denominator_BHND = token_weights_BHNN @ source_weights_BHND
    factors = dropped(token_weights_BHNN, dropout)[..., None], dropped(source_weights_BHND, dropout)[:, :, None]
    return divide(factors[0] * factors[1], denominator_BHND[:, :, :, None])
