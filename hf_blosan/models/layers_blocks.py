"""Bi-BloSAN's layers as modules. Shape suffixes: see equations.py; conventions: see layers.py."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import ACTIVATIONS, in_rows, source2token_attention
from .attention_blocks import block_fusion, mblosa
from .equations import (
    directional_attention_weights,
    in_blocks,
    on_blocks,
    out_of_blocks,
    source2token_weights,
    weighted_sum,
    zero_padding,
)
from .layers import DirectionalSelfAttention, FeatureAttention, FusionGate, FusionLayer, Part, mix


def blocks_of(x: Tensor, block_length: int) -> Tensor:
    """(B, N, ...) -> (B, M, R, ...), the last block of each sentence padded with zeros."""
    B, N = x.shape[:2]
    return in_blocks(x, block_length).unflatten(0, (B, (N + block_length - 1) // block_length))


class AttentionInBlocks(FeatureAttention):
    """Attention of a token to those of its own block (Bi-BloSAN Eq. 9); its map is the weights, (B, M, R, R, D)."""

    is_exact_in_blocks = True  # as is_exact, for another equation

    def __init__(self, size, *, block_length, **options):
        super().__init__(size, **options)
        self.block_length = block_length

    def explained(self, tokens_BND, mask_BN):
        (B, N), R = mask_BN.shape, self.block_length
        values_BMRD, weights_of = blocks_of(tokens_BND, R), partial(directional_attention_weights, **self.order)
        weights_BMRRD = on_blocks(weights_of, R, self.align(tokens_BND), mask_BN).unflatten(0, values_BMRD.shape[:2])

        def attend(weights_BMRRD):
            return out_of_blocks(weighted_sum(weights_BMRRD, values_BMRD[:, :, None]).flatten(0, 1), B, N)

        return weights_BMRRD, attend


class BlockPooling(Part):
    """Source2token in each block (Bi-BloSAN Eq. 10-12): scores and tokens (B, N, D) -> vectors of blocks (B, M, D).

    Returns these and a mask (B, M), true at blocks with a real token, or ``None`` without ``mask_padding``. Its map is
    the weights, (B, M, R, D).
    """

    is_exact = True

    def __init__(self, block_length, *, mask_padding):
        super().__init__()
        self.block_length, self.mask_padding = block_length, mask_padding

    def real_blocks(self, mask_BN: Tensor) -> Tensor | None:
        return blocks_of(mask_BN, self.block_length).any(-1) if self.mask_padding else None

    def fast(self, scores_BND: Tensor, local_BND: Tensor, mask_BN: Tensor) -> tuple[Tensor, Tensor | None]:
        R, tensors = self.block_length, (scores_BND, local_BND, mask_BN)
        if torch.compiler.is_compiling() and self.mask_padding:
            # A block of padding more: torch specialises sizes of 1, here rows of a single block.
            tensors = [F.pad(x, (0, 0) * (x.dim() - 2) + (0, R)) for x in tensors]
        scores, local, mask = tensors
        options = {"mask": mask, "block_length": R, "implementation": self.implementation}
        return source2token_attention(scores, local, **options), self.real_blocks(mask)

    def explained(self, scores_BND, local_BND, mask_BN):
        R, local_BMRD = self.block_length, blocks_of(local_BND, self.block_length)
        weights = on_blocks(source2token_weights, R, [scores_BND], mask_BN, "mask").unflatten(0, local_BMRD.shape[:2])
        return weights, lambda weights: (weighted_sum(weights, local_BMRD), self.real_blocks(mask_BN))


class BlockSelfAttention(FusionLayer):
    """Attention between blocks as printed (Bi-BloSAN Eq. 13-15), (B, M, D) -> (B, M, D), for ``formulation="paper"``.

    o = attention over the block vectors v themselves; e = G o + (1 - G) v. The authors' code has a complete
    :class:`DirectionalSelfAttention` instead.
    """

    def __init__(self, size, *, direction, dropout=0.0):
        super().__init__()
        self.attention = FeatureAttention(size, direction=direction, dropout=dropout)
        self.gate = FusionGate(size, formulation="paper", dropout=dropout)

    def steps(self, blocks_BMD: Tensor, mask_BM: Tensor | None):
        attended_BMD = yield self.attention, blocks_BMD, mask_BM
        return (yield self.gate, attended_BMD, blocks_BMD)


class BlockFusion(Part):
    """F act(a) + (1 - F) h with [a; b] = W [h; local; global], F = sigmoid(b) (Bi-BloSAN Eq. 16-18); its map is F.

    The tokens h and what they attended to in their block are (B, N, D), the vectors of the blocks (B, M, D); the last
    two may be ``None``.
    """

    kind, is_exact = "gates", True

    def __init__(self, block_length, **options):
        super().__init__(**options)
        self.block_length = block_length

    fast = block_fusion

    def explained(self, map_, mapped, local, blocks):
        mapped_BND = in_rows(mapped)
        if blocks is not None:  # each token gets the vector of its block
            blocks = blocks.index_select(
                1, torch.arange(mapped_BND.shape[1], device=blocks.device) // self.block_length
            )
        parts = [part for part in (mapped_BND, local, blocks) if part is not None]
        candidate_BND, gate_BND = self.linear(map_, torch.cat(parts, dim=-1)).chunk(2, dim=-1)
        candidate_BND = ACTIVATIONS[self.activation](candidate_BND)
        return gate_BND.sigmoid(), lambda gate_BND: mix(candidate_BND, mapped_BND, gate_BND)


class MaskedBlockSelfAttention(FusionLayer):
    """mBloSA (Bi-BloSAN Eq. 9-18), (B, N, in) -> (B, N, D): attention inside blocks of R tokens, then between blocks.

    ``fuse_local=False`` leaves the results inside blocks out of the fusion (block vectors are still computed from
    them), ``fuse_global=False`` leaves out everything between blocks.

    Maps, if requested: weights inside the blocks (B, M, R, R, D), of the block vectors (B, M, R, D), between blocks
    (B, M, M, D); gates between blocks (B, M, D) and of the result (B, N, D). Without ``fuse_global`` there are only
    the first of the weights and the last of the gates.
    """

    is_exact = True

    def __init__(
        self,
        in_features,
        size,
        *,
        direction,
        block_length,
        activation,
        formulation="released",
        mask_padding_blocks=True,
        fuse_local=True,
        fuse_global=True,
        dropout=0.0,
    ):
        super().__init__(activation=activation, dropout=dropout)
        self.block_length, self.fuse_local, self.fuse_global = block_length, fuse_local, fuse_global
        options, released = {"direction": direction, "dropout": dropout}, formulation == "released"
        self.dense_map = nn.Linear(in_features, size)
        self.block_attention = AttentionInBlocks(size, block_length=block_length, joint=released, **options)
        if fuse_global and released:
            self.block_pooling = nn.Linear(size, size)
            self.global_attention = DirectionalSelfAttention(size, size, activation=activation, **options)
        elif fuse_global:
            self.block_pooling = nn.ModuleList([nn.Linear(size, size), nn.Linear(size, size)])
            self.global_attention = BlockSelfAttention(size, **options)
        self.pool = BlockPooling(block_length, mask_padding=mask_padding_blocks)
        self.fusion = nn.Linear((1 + fuse_local + fuse_global) * size, 2 * size)
        self.fuse = BlockFusion(block_length, activation=activation, dropout=dropout)

    def forward(self, tokens, mask, output_attentions: bool = False):
        whole = None if output_attentions else mblosa([self], tokens, mask)
        return super().forward(tokens, mask, output_attentions) if whole is None else (whole, None)

    def steps(self, tokens_BNE: Tensor, mask_BN: Tensor):
        mapped_BND, blocks_BMD = self.dense(self.dense_map, tokens_BNE), None
        local_BND = yield self.block_attention, mapped_BND, mask_BN
        local_BND = zero_padding(local_BND, mask_BN)
        if self.fuse_global:
            vectors_BMD, mask_BM = yield self.pool, self.pooling_scores(local_BND), local_BND, mask_BN
            blocks_BMD, _ = yield self.global_attention, vectors_BMD, mask_BM
        return (yield self.fuse, self.fusion, mapped_BND, local_BND if self.fuse_local else None, blocks_BMD)

    def pooling_scores(self, local_BND: Tensor) -> Tensor:
        """Source2token scores of the tokens in a block (Eq. 11): one map in the authors' code, two as printed."""
        if isinstance(self.block_pooling, nn.ModuleList):
            hidden, scores = self.block_pooling
            return self.linear(scores, self.dense(hidden, local_BND))
        return self.linear(self.block_pooling, local_BND)
