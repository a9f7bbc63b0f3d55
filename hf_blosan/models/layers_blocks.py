"""Bi-BloSAN's layers as modules. Shape suffixes: see equations.py; conventions: see layers.py."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import kernels, source2token_attention
from .equations import source2token_weights, weighted_sum
from .layers import ACTIVATIONS, DirectionalSelfAttention, FeatureAttention, FusionGate, Layer, mix, spread, with_maps
from .masks import broadcast_blocks_to_tokens, in_blocks, out_of_blocks, zero_padding


class BlockSelfAttention(nn.Module):
    """Attention between blocks as printed (Bi-BloSAN Eq. 13-15), (B, M, D) -> (B, M, D), for ``formulation="paper"``.

    o = attention over the block vectors v themselves; e = G o + (1 - G) v. The authors' code has a complete
    :class:`DirectionalSelfAttention` instead.
    """

    def __init__(self, size, *, direction, dropout=0.0):
        super().__init__()
        self.attention = FeatureAttention(size, direction=direction, dropout=dropout)
        self.gate = FusionGate(size, formulation="paper", dropout=dropout)

    def forward(self, blocks_BMD: Tensor, mask_BM: Tensor | None, output_attentions=False):
        if output_attentions:
            (fused_BMD,), maps = with_maps(self.steps(blocks_BMD, mask_BM))
            return fused_BMD, maps
        return self.gate(self.attention(blocks_BMD, mask_BM), blocks_BMD), None

    def steps(self, blocks_BMD: Tensor, mask_BM: Tensor | None):
        """The layer with its maps; see :func:`with_maps`."""
        weights_BMMD = yield "attentions", self.attention(blocks_BMD, mask_BM, output_weights=True)
        attended_BMD = weighted_sum(weights_BMMD, blocks_BMD[:, None])
        gate_BMD = yield "gates", self.gate(attended_BMD, blocks_BMD, output_gate=True)
        return mix(attended_BMD, blocks_BMD, gate_BMD)


class MaskedBlockSelfAttention(Layer):
    """mBloSA (Bi-BloSAN Eq. 9-18), (B, N, in) -> (B, N, D): attention inside blocks of R tokens, then between blocks.

    ``fuse_local=False`` leaves the results inside blocks out of the fusion (block vectors are still computed from
    them), ``fuse_global=False`` leaves out everything between blocks.

    Maps, if requested: weights inside the blocks (B, M, R, R, D), of the block vectors (B, M, R, D), between blocks
    (B, M, M, D); gates between blocks (B, M, D) and of the result (B, N, D). Without ``fuse_global`` only the first
    of the weights and the last of the gates. ``places_BN``: see ``ContextFusion``.
    """

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
        self.block_length, self.mask_padding_blocks = block_length, mask_padding_blocks
        self.fuse_local, self.fuse_global = fuse_local, fuse_global
        self.dense_map = nn.Linear(in_features, size)
        options = {"direction": direction, "dropout": dropout}
        self.block_attention = FeatureAttention(size, joint=formulation == "released", **options)
        if fuse_global and formulation == "released":
            self.block_pooling = nn.Linear(size, size)
            self.global_attention = DirectionalSelfAttention(size, size, activation=activation, **options)
        elif fuse_global:
            self.block_pooling = nn.ModuleList([nn.Linear(size, size), nn.Linear(size, size)])
            self.global_attention = BlockSelfAttention(size, **options)
        self.fusion = nn.Linear((1 + fuse_local + fuse_global) * size, 2 * size)

    def forward(self, tokens_BNE: Tensor, mask_BN: Tensor, output_attentions=False, places_BN=None):
        if output_attentions:
            (fused_BND,), maps = with_maps(self.steps(tokens_BNE, mask_BN))
            return fused_BND, maps
        R, words_1VD, blocks_BMD = self.block_length, self.dense(self.dense_map, tokens_BNE), None
        mapped_BND = spread(words_1VD, places_BN)
        local_BND = self.block_attention(mapped_BND, mask_BN, block_length=R, words=(words_1VD, places_BN))
        local_BND = zero_padding(local_BND, mask_BN)
        if self.fuse_global:
            tensors = (self.pooling_scores(local_BND), local_BND, mask_BN)
            if torch.compiler.is_compiling() and self.mask_padding_blocks:
                # A block of padding more: torch specialises sizes of 1, here rows of a single block.
                tensors = (F.pad(x, (0, 0) * (x.dim() - 2) + (0, R)) for x in tensors)
            scores, values, mask = tensors
            options = {"mask": mask, "block_length": R, "implementation": self.implementation}
            blocks_BMD = source2token_attention(scores, values, **options)
            blocks_BMD, _ = self.global_attention(blocks_BMD, self.block_mask(mask))
        return self.fuse(mapped_BND, local_BND, blocks_BMD), None

    def steps(self, tokens_BNE: Tensor, mask_BN: Tensor):
        """The layer with its maps; see :func:`with_maps`."""
        R, mapped_BND, blocks_BMD = self.block_length, self.dense(self.dense_map, tokens_BNE), None
        (B, N), by_block = mask_BN.shape, {"block_length": R, "output_weights": True}
        weights_BMRRD = yield "attentions", self.block_attention(mapped_BND, mask_BN, **by_block)
        M = (N + R - 1) // R
        values_BMRD = in_blocks(mapped_BND, R).unflatten(0, (B, M))
        local_BMRD = weighted_sum(weights_BMRRD, values_BMRD[:, :, None])
        local_BND = zero_padding(out_of_blocks(local_BMRD.flatten(0, 1), B, N), mask_BN)
        if self.fuse_global:
            tensors = (self.pooling_scores(local_BND), local_BND, mask_BN)
            scores, values, mask = (in_blocks(x, R).unflatten(0, (B, M)) for x in tensors)
            weights_BMRD = yield "attentions", source2token_weights(scores, mask=mask)
            blocks_BMD = weighted_sum(weights_BMRD, values)
            blocks_BMD = yield from self.global_attention.steps(blocks_BMD, self.block_mask(mask_BN))
        candidate_BND, gate_BND = self.candidate_and_gate(mapped_BND, local_BND, blocks_BMD)
        gate_BND = yield "gates", gate_BND
        return mix(candidate_BND, mapped_BND, gate_BND)

    def block_mask(self, mask_BN: Tensor) -> Tensor | None:
        """(B, M), true at blocks with a real token; None if blocks of padding are not masked."""
        if not self.mask_padding_blocks:
            return None
        (B, N), R = mask_BN.shape, self.block_length
        return in_blocks(mask_BN, R).any(-1).unflatten(0, (B, (N + R - 1) // R))

    def pooling_scores(self, local_BND: Tensor) -> Tensor:
        """Source2token scores of the tokens in a block (Eq. 11): one map in the authors' code, two as printed."""
        if isinstance(self.block_pooling, nn.ModuleList):
            hidden, scores = self.block_pooling
            return self.linear(scores, self.dense(hidden, local_BND))
        return self.linear(self.block_pooling, local_BND)

    def fuse(self, mapped_BND: Tensor, local_BND: Tensor, blocks_BMD: Tensor | None) -> Tensor:
        """F act(a) + (1 - F) h with [a; b] = W [h; local; global], F = sigmoid(b) (Eq. 17-18)."""
        undropped = not (self.training and self.dropout) and self.activation == "elu"
        if undropped and self.can_use_kernel(mapped_BND, maps=[self.fusion]):
            parts = (mapped_BND, local_BND if self.fuse_local else None, blocks_BMD)
            weights = (self.fusion.weight, self.fusion.bias)
            block_length = None if blocks_BMD is None else self.block_length
            return kernels.block_fusion(*parts, *weights, block_length=block_length)
        candidate_BND, gate_BND = self.candidate_and_gate(mapped_BND, local_BND, blocks_BMD)
        return mix(candidate_BND, mapped_BND, gate_BND)

    def candidate_and_gate(self, mapped_BND: Tensor, local_BND: Tensor, blocks_BMD: Tensor | None):
        """act(a) and F."""
        parts = [mapped_BND, local_BND] if self.fuse_local else [mapped_BND]
        if blocks_BMD is not None:
            parts.append(broadcast_blocks_to_tokens(blocks_BMD, self.block_length, mapped_BND.shape[1]))
        candidate_BND, gate_BND = self.linear(self.fusion, torch.cat(parts, dim=-1)).chunk(2, dim=-1)
        return ACTIVATIONS[self.activation](candidate_BND), torch.sigmoid(gate_BND)
