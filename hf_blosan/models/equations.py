"""The equations of DiSAN and Bi-BloSAN as short functions: the truth that every fast form is tested against.

Those of MTSA are in equations_mtsa.py.

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
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .masks import check_bias, check_block_length, check_scale, full_token_mask, on_blocks, order_mask, out_of_blocks

IMPLEMENTATIONS = ("auto", "eager", "fused", "linear")  # see attention.py
Operator = TypeVar("Operator", bound=Callable[..., Tensor])

# The authors' "minus infinity". Finite, so that the softmax of a row without keys is uniform instead of NaN.
MASKED = -1e30


def full_precision(operator: Operator) -> Operator:
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
    check_scale(scale)
    keys_BND, queries_BND = upcast(keys, queries[:, rows])
    queries_BND = queries_BND if bias is None else queries_BND + bias.to(queries_BND.dtype)
    scores_BNND = scale * torch.tanh((queries_BND[:, :, None] + keys_BND[:, None]) / scale)
    visible_NN = order_mask(keys.shape[1], direction, window=window, device=keys.device, queries=rows)
    visible_BNN = visible_NN[None] if key_mask is None else visible_NN & key_mask[:, None].bool()
    if token_mask is not None:
        visible_BNN = visible_BNN & full_token_mask(token_mask, *keys.shape[:2])[:, rows]
    # |score| <= c: exp cannot overflow, so no maximum is subtracted, and an empty sum is exactly 0.
    weights_BNND = torch.where(visible_BNN[..., None], scores_BNND.exp(), 0.0)
    return divide(weights_BNND, weights_BNND.sum(2, keepdim=True))


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

    Arguments and result as in :func:`attention.directional_attention`; ``rows``: compute these queries only, not
    supported with blocks.
    """
    check_block_length(block_length, token_mask)
    options = {"direction": direction, "bias": bias, "scale": scale, "window": window}
    if block_length is not None:
        operator = functools.partial(directional_attention, **options)
        return out_of_blocks(on_blocks(operator, block_length, (keys, queries, values), key_mask), *values.shape[:2])
    options |= {"key_mask": key_mask, "token_mask": token_mask, "rows": rows}
    weights_BNND = directional_attention_weights(keys, queries, **options)
    return weighted_sum(weights_BNND, values[:, None])


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """sum_i w_i * x_i over the tokens, the last dimension but one, in the precision of the weights."""
    return (weights * values.to(weights.dtype)).sum(-2).to(values.dtype)


def source2token_weights(scores: Tensor, *, mask: Tensor, empty_rows: str = "zero") -> Tensor:
    """The weights of :func:`source2token_attention`, shape (B, N, D): a softmax over the tokens for each feature."""
    (scores_BND,) = upcast(scores)
    mask_BN1 = mask[..., None].bool()
    weights_BND = torch.softmax(scores_BND + torch.where(mask_BN1, 0.0, MASKED).to(scores_BND.dtype), dim=-2)
    return weights_BND * mask_BN1 if empty_rows == "zero" else weights_BND


def source2token_attention(
    scores: Tensor, values: Tensor, *, mask: Tensor, empty_rows: str = "zero", block_length: int | None = None
) -> Tensor:
    """Source2token self-attention (DiSAN Eq. 12-14): one vector per sentence, with separate weights for each feature.

    Arguments and result as in :func:`attention.source2token_attention`.
    """
    check_block_length(block_length)
    if block_length is not None:

        def operator(scores, values, key_mask):
            return source2token_attention(scores, values, mask=key_mask, empty_rows=empty_rows)

        B, N = mask.shape
        rows = on_blocks(operator, block_length, (scores, values), mask)
        return rows.unflatten(0, (B, (N + block_length - 1) // block_length))
    weights_BND = source2token_weights(scores, mask=mask, empty_rows=empty_rows)
    return weighted_sum(weights_BND, values)


def scan(step: Callable, state, slices) -> Tensor:
    """The outputs of torch's scan over dimension 0, whose ``step`` may return one tensor as state and as output."""
    from torch._higher_order_ops.scan import scan  # takes long to import

    def apart(state, slices):
        state, output = step(state, slices)
        return pytree.tree_map(torch.clone, (state, output))

    return scan(apart, state, slices)[1]


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


def upcast(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(t.float() if t.dtype in (torch.bfloat16, torch.float16) else t for t in tensors)


def divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator / denominator, and 0 with gradient 0 where nothing was summed."""
    return numerator / torch.where(denominator > 0, denominator, 1.0)
