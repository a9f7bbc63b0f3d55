"""The equations of DiSAN and Bi-BloSAN as short functions: the truth that every fast form is tested against.

Shape suffixes, here and in the layers:
    B batch   N tokens   D features of one direction or one head   H heads   M blocks   R block length
Two N in a row are (query, key): ``scores_BNND[b, i, j, d]`` belongs to query i, key j, feature d.

Papers: DiSAN = Shen et al. 2017 (arXiv 1709.04696); Bi-BloSAN = Shen et al. 2018 (ICLR, arXiv 1804.00857);
MTSA = Shen et al. 2019 (NAACL, arXiv 1805.00912), in equations_mtsa.py.

bfloat16 and float16 are computed in float32 and cast back. A query that sees no key (the first token under the forward
mask, any token of an empty sentence) yields exactly 0 and finite gradients. ``rows`` restricts the attention functions
to some of the queries: :mod:`attention` processes a sentence in such slices where no kernel is available.
"""

import functools
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from .masks import check_choice, full_token_mask, order_mask

IMPLEMENTATIONS = ("auto", "eager", "fused", "linear")  # see attention.py
Operator = TypeVar("Operator", bound=Callable[..., Tensor])

# The authors' "minus infinity". Finite, so that the softmax of a row without keys is uniform instead of NaN.
MASKED = -1e30


def full_precision(operator: Operator) -> Operator:
    """Turn autocast off inside an operator: exponentials overflow in float16, long sums lose digits in bfloat16."""

    @functools.wraps(operator)
    def in_full_precision(*args, **kwargs):
        device = next(x.device.type for x in (*args, *kwargs.values()) if isinstance(x, Tensor))
        if device == "meta" or not torch.is_autocast_enabled(device):  # graphs: no loop in a branch inside autocast
            return operator(*args, **kwargs)
        with torch.autocast(device, enabled=False):
            return operator(*args, **kwargs)

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
    check_shapes(*keys.shape[:2], key_mask, keys=keys, queries=queries)
    check_scores(scale, bias, keys.shape[-1])
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
def directional_attention(keys: Tensor, queries: Tensor, values: Tensor, **options) -> Tensor:
    """Directional self-attention (DiSAN Eq. 15-18): s_j = sum_i softmax_i(c tanh((k_i + q_j + b) / c)) * x_i.

    Arguments and result as in :func:`attention.directional_attention`, without blocks; or ``rows``: compute these
    queries only.
    """
    return weighted_sum(directional_attention_weights(keys, queries, **options), values[:, None])


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """sum_i w_i * x_i over the tokens, the last dimension but one, in the precision of the weights."""
    return (weights * values.to(weights.dtype)).sum(-2).to(values.dtype)


def source2token_weights(scores: Tensor, *, mask: Tensor, empty_rows: str = "zero") -> Tensor:
    """The weights of :func:`source2token_attention`, shape (B, N, D): a softmax over the tokens for each feature."""
    check_shapes(*scores.shape[:2], mask)
    check_choice("empty_rows", empty_rows, ("zero", "mean"))
    (scores_BND,) = upcast(scores)
    mask_BN1 = mask[..., None].bool()
    weights_BND = torch.softmax(scores_BND + torch.where(mask_BN1, 0.0, MASKED).to(scores_BND.dtype), dim=-2)
    return weights_BND * mask_BN1 if empty_rows == "zero" else weights_BND


def source2token_attention(scores: Tensor, values: Tensor, *, mask: Tensor, empty_rows: str = "zero") -> Tensor:
    """Source2token self-attention (DiSAN Eq. 12-14): one vector per sentence, with separate weights for each feature.

    Arguments and result as in :func:`attention.source2token_attention`, without blocks.
    """
    return weighted_sum(source2token_weights(scores, mask=mask, empty_rows=empty_rows), values)


def upcast(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(t.float() if t.dtype in (torch.bfloat16, torch.float16) else t for t in tensors)


def divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator / denominator, and 0 with gradient 0 where nothing was summed."""
    return numerator / torch.where(denominator > 0, denominator, 1.0)


def zero_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """x (B, N, D), 0 where the mask is false, whatever is there."""
    return x if mask is None or can_branch_on(mask) and mask.all() else torch.where(mask[..., None].bool(), x, 0.0)


def in_blocks(x: Tensor, block_length: int) -> Tensor:
    """(B, N, ...) -> (B M, R, ...): blocks of R tokens, the last of each sentence padded with zeros.

    R is the block length; in sentences shorter than that it is N, except in a graph.
    """
    B, N = x.shape[:2]
    block_length = block_length if in_graph() else min(block_length, max(N, 1))
    num_blocks = (N + block_length - 1) // block_length
    # In this form, unlike with cat and reshape, a graph holds for every N.
    x = F.pad(x, (0, 0) * (x.dim() - 2) + (0, num_blocks * block_length - N))
    return x.flatten(0, 1).unflatten(0, (B * num_blocks, block_length))


def out_of_blocks(rows: Tensor, batch: int, length: int) -> Tensor:
    """(B M, R, ...) -> (B, N, ...): undoes :func:`in_blocks`."""
    R = rows.shape[1]
    tokens = rows.flatten(0, 1).unflatten(0, (batch, (length + R - 1) // R * R))
    if torch.compiler.is_compiling():  # the strides of a slice would fix N
        return tokens.index_select(1, torch.arange(length, device=rows.device))
    return tokens[:, :length]


def on_blocks(operator, block_length: int, tensors: Sequence[Tensor], mask: Tensor | None, name="key_mask") -> Tensor:
    """``operator(*tensors, key_mask=...)`` with each block as a separate row, (B, N, D) each -> (B M, ...)."""
    mask_BN = tensors[0].new_ones(tensors[0].shape[:2], dtype=torch.bool) if mask is None else mask.bool()
    return operator(*(in_blocks(x, block_length) for x in tensors), **{name: in_blocks(mask_BN, block_length)})


def check_shapes(batch: int, length: int, mask: Tensor | None, **tensors: Tensor) -> None:
    """Refuse a mask that is not (B, N), and tensors of different shapes: kernels do not broadcast."""
    if mask is not None and mask.shape != (batch, length):
        raise ValueError(f"the mask of real tokens has shape {tuple(mask.shape)}; give (B, N), here {(batch, length)}")
    first = next(iter(tensors.values()), None)
    # Compared one by one: a set of shapes would hash symbolic sizes, and torch.compile would fix every length.
    if any(x.shape != first.shape for x in tensors.values()):
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in tensors.items())
        raise ValueError(f"shapes differ: {shapes}; give all of them the same")


def check_scores(scale: float, bias: Tensor | None, size: int) -> None:
    """Refuse a scale that bounds no scores or lets exp(c) N |x| leave float32, and a bias that is not (D)."""
    if not 0 < scale <= 60:
        raise ValueError(f"scale is {scale}; give a bound of the scores above 0 and up to 60")
    if bias is not None and bias.shape != (size,):
        raise ValueError(f"bias has shape {tuple(bias.shape)} for vectors of {size} features; give it ({size},)")


def check_block_length(block_length: int | None, token_mask: Tensor | None = None) -> None:
    """Refuse a block length that is not a positive integer, and blocks together with a mask of token pairs."""
    if block_length is not None and (not isinstance(block_length, Integral) or block_length < 1):
        raise ValueError(f"block_length is {block_length}; give a number of tokens, 1 or more")
    if block_length is not None and token_mask is not None:
        raise ValueError("token_mask and block_length exclude each other; give one of them")


def check_cu_seqlens(cu_seqlens: Tensor | None, batch: int, length: int, exclusive: dict) -> None:
    """Refuse sentence starts, (S + 1,), that do not divide a single row, and options that exclude them."""
    if cu_seqlens is None:
        return
    for name, value in exclusive.items():
        if value is not None:
            raise ValueError(f"cu_seqlens and {name} exclude each other; give one of them")
    whole = not cu_seqlens.is_floating_point() and cu_seqlens.dtype != torch.bool
    if not whole or cu_seqlens.dim() != 1 or not len(cu_seqlens) or batch != 1:
        raise ValueError(
            f"cu_seqlens has shape {tuple(cu_seqlens.shape)} and dtype {cu_seqlens.dtype} for {batch} rows of tokens; "
            "give S + 1 integers for S sentences stored one after another in a single row"
        )
    if not in_graph():
        starts = cu_seqlens.tolist()
        if starts[0] != 0 or starts[-1] != length or sorted(starts) != starts:
            raise ValueError(f"cu_seqlens is {starts}; give the starts of sentences, in order, from 0 to {length}")


def in_graph() -> bool:
    """Whether a graph is recorded, which must hold for other values and, unless fixed by the caller, other lengths."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def can_branch_on(x: Tensor) -> bool:
    """Whether Python may branch on values: free on the CPU, a synchronization elsewhere, impossible in a graph."""
    plain = not in_graph() and type(x) is Tensor and x.device.type == "cpu"
    return plain and torch._C._functorch.peek_interpreter_stack() is None  # a transform of torch.func is at work
