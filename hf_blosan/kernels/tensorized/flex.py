"""Tensorized attention on a GPU by FlexAttention, which skips tiles that the masks hide.

H is attention(q, k, [v E_S; E_S]) split in two and divided: the normaliser of its softmax cancels.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from .tiles import divided, source_weights

# FlexAttention keeps a tile of queries and one of [v E_S; E_S] on the chip; its kernels support up to 256 features,
# into which twice the width of a head must fit.
MAX_WIDTH = 128


def available(v: Tensor) -> bool:
    return v.is_cuda and v.shape[-1] <= MAX_WIDTH


def tensorized_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    source_scores: Tensor,
    key_mask: Tensor | None,
    directions: str,
    windows: Sequence[int],
    score_function: str,
    include_self: bool,
) -> Tensor:
    """Arguments as those of the operators in ``operator.py``."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # slow to import

    B, H, N, _ = v.shape
    before, after, itself = (
        torch.tensor([direction in names for direction in directions.split(",")], device=v.device)
        for names in (("forward", "diagonal", "full"), ("backward", "diagonal", "full"), ("full",))
    )
    reach = torch.tensor(windows, device=v.device) if min(windows) < N else None

    def visible(b, h, query, key):
        seen = (before[h] & (key < query)) | (after[h] & (key > query)) | ((itself[h] | include_self) & (key == query))
        seen = seen if reach is None else seen & ((key - query).abs() <= reach[h])
        return seen if key_mask is None else seen & key_mask[b, key]

    def log_sigmoid(score, b, h, query, key):
        return torch.nn.functional.logsigmoid(score)  # sigmoid(s) = exp(log sigmoid(s))

    block_mask = create_block_mask(visible, B, H, N, N, device=v.device, _compile=v.is_cuda)
    source_BHND = source_weights(source_scores, key_mask)
    both_BHND = torch.cat([source_BHND * v, source_BHND], dim=-1)
    attend = _compiled() if v.is_cuda else flex_attention
    score_mod = log_sigmoid if score_function == "sigmoid" else None
    return divided(*attend(q, k, both_BHND, score_mod=score_mod, block_mask=block_mask).chunk(2, dim=-1))


@functools.cache
def _compiled():
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)
