"""Source2token attention in a fast form, with the signature of equations and an ``implementation``.

``"eager"`` is the equation; every other name takes one pass over the tokens in a numba kernel where it can: float32 on
the CPU, a score for every feature, and a vector of 0 for empty rows. Elsewhere all names mean the equation.
"""

import torch
from torch import Tensor

from .equations import IMPLEMENTATIONS
from .equations import source2token_attention as source2token_attention_eager
from .kernels_cpu_blosan import available as cpu_kernel_available
from .masks import check_shapes
from .operator_blosan import operator
from .team_cpu_blosan import over_items

if cpu_kernel_available():
    from .loops_cpu_source2token_blosan import backward as backward_loop
    from .loops_cpu_source2token_blosan import forward as forward_loop


def source2token_attention(
    scores: Tensor,
    values: Tensor,
    *,
    mask: Tensor,
    empty_rows: str = "zero",
    block_length: int | None = None,
    implementation: str = "auto",
) -> Tensor:
    """Source2token self-attention (DiSAN Eq. 12-14): one vector for a sentence, each feature with its own weights.

    Args:
        scores: W2 act(W1 x + b1) + b2, shape (B, N, D); or (B, N, 1), one score for all features.
        values: x, shape (B, N, D).
        mask: (B, N), true at real tokens.
        empty_rows: the vector of a row without any real token: ``"zero"``, or ``"mean"`` of its padding as the
            authors' code has it (that value depends on what the padding holds).
        block_length: cut sentences into M blocks of that many tokens, the last of which may have fewer, and give a
            vector for each.
        implementation: ``"auto"``, ``"eager"``, ``"fused"`` or ``"linear"`` (the same as fused); they differ in speed,
            not in the function. Second derivatives exist for ``"eager"`` only.

    Returns:
        (B, D) in the dtype of ``values``; (B, M, D) with blocks.

    Raises:
        ValueError: unknown implementation, blocks of no token, or a mask of another shape.
    """
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f"implementation is {implementation!r}; choose one of {', '.join(IMPLEMENTATIONS)}")
    check_shapes(*values.shape[:2], mask)
    same = scores.shape == values.shape and scores.dtype == values.dtype
    if implementation == "eager" or empty_rows != "zero" or not same or not cpu_kernel_available(values):
        options = {"mask": mask, "empty_rows": empty_rows, "block_length": block_length}
        return source2token_attention_eager(scores, values, **options)
    pooled = _fused(scores.contiguous(), values.contiguous(), mask.bool().contiguous(), block_length)[0]
    return pooled[:, 0] if block_length is None else pooled


@operator("source2token_attention")
def _fused(scores: Tensor, values: Tensor, mask: Tensor, block_length: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Result, largest scores and sums of weights, all (B, M, D)."""
    scores, values, mask = scores.contiguous(), values.contiguous(), mask.contiguous()
    results = _fused_fake(scores, values, mask, block_length)
    length, rows = _length_and_rows(values, block_length)
    shape = (length, values.shape[2], values.shape[1], rows)
    over_items(forward_loop, values, values.numel(), scores, values, mask, *results, *shape, rows=rows)
    return results


@operator("source2token_attention_backward")
def _fused_backward(
    grad: Tensor,
    scores: Tensor,
    values: Tensor,
    mask: Tensor,
    block_length: int | None,
    out: Tensor,
    tops: Tensor,
    totals: Tensor,
) -> tuple[Tensor, Tensor]:
    gradients = torch.empty_like(scores), torch.empty_like(values)
    inputs = tuple(x.contiguous() for x in (grad, scores, values, mask, out, tops, totals))
    length, rows = _length_and_rows(values, block_length)
    shape = (length, values.shape[2], values.shape[1], rows)
    over_items(backward_loop, values, values.numel(), *inputs, *gradients, *shape, rows=rows)
    return gradients


@_fused.register_fake
def _fused_fake(scores, values, mask, block_length):
    rows = _length_and_rows(values, block_length)[1]
    return tuple(values.new_empty(values.shape[0], rows, values.shape[2]) for _ in range(3))


@_fused_backward.register_fake
def _(grad, scores, values, mask, block_length, out, tops, totals):
    return torch.empty_like(scores), torch.empty_like(values)


def _length_and_rows(values: Tensor, block_length: int | None) -> tuple[int, int]:
    """Tokens of a row and rows of a sentence."""
    length = values.shape[1] if block_length is None else min(values.shape[1], block_length)
    return length, max(1, -(-values.shape[1] // max(1, length)))


def _save(ctx, inputs, output):
    *tensors, ctx.block_length = inputs
    ctx.save_for_backward(*tensors, *output)


def _differentiate(ctx, grad, *_):
    *inputs, out, tops, totals = ctx.saved_tensors
    return *_fused_backward(grad, *inputs, ctx.block_length, out, tops, totals), None, None


_fused.register_autograd(_differentiate, setup_context=_save)
