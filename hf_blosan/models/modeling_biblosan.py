"""Bi-BloSAN: bi-directional block self-attention network (Shen et al. 2018, arXiv 1804.00857)."""

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from .base_blosan import (
    ContextFusion,
    SentenceEncoderModel,
    SentenceEncoderPreTrainedModel,
    fuse_directions,
    real_tokens_first,
    reorder,
)
from .configuration_biblosan import BiBloSANConfig
from .heads_blosan import PairRegressionMixin, SequenceClassificationMixin
from .layers_blosan import MaskedBlockSelfAttention


class BiBloSANLayer(GradientCheckpointingLayer):
    """[mBloSA forward; mBloSA backward] (Bi-BloSAN Fig. 4): attention in blocks of tokens, then between the blocks."""

    def __init__(self, config: BiBloSANConfig):
        super().__init__()
        size = config.hidden_size // len(config.directions)
        self.directions = nn.ModuleList(
            MaskedBlockSelfAttention(
                config.embedding_size,
                size,
                direction=direction,
                block_length=config.block_length,
                activation=config.activation,
                formulation=config.formulation,
                mask_padding_blocks=config.mask_padding_blocks,
                dropout=config.dropout,
            )
            for direction in config.directions
        )

    def forward(self, hidden_BNE, mask_BN, output_attentions=False):
        # Blocks are counted from the first real token, wherever the padding is. Mostly it stands behind; to look costs
        # nothing on the CPU alone.
        may_look = mask_BN.device.type == "cpu" and not torch.compiler.is_compiling()
        if may_look and not (mask_BN[:, 1:] > mask_BN[:, :-1]).any():
            return fuse_directions(self.directions, hidden_BNE, mask_BN, output_attentions)
        order_BN = real_tokens_first(mask_BN)
        hidden_BNE, mask_BN = reorder(hidden_BNE, order_BN), mask_BN.gather(1, order_BN)
        tokens_BNH, maps = fuse_directions(self.directions, hidden_BNE, mask_BN, output_attentions)
        return reorder(tokens_BNH, order_BN.argsort(dim=1)), maps


class BiBloSANPreTrainedModel(SentenceEncoderPreTrainedModel):
    config: BiBloSANConfig
    config_class = BiBloSANConfig
    model_tags = ["biblosan"]
    _no_split_modules = ["BiBloSANLayer"]


class BiBloSANModel(BiBloSANPreTrainedModel, SentenceEncoderModel):
    """Bi-BloSAN as an encoder; in 2 directions and M blocks of R tokens

    ``attentions`` holds the weights inside blocks (B, 2, M, R, R, D), of the tokens in their block's vector
    (B, 2, M, R, D) and between blocks (B, 2, M, M, D), ``gates`` those of blocks (B, 2, M, D) and tokens (B, 2, N, D).
    """

    @staticmethod
    def make_context(config: BiBloSANConfig) -> ContextFusion:
        return ContextFusion([BiBloSANLayer(config) for _ in range(config.num_hidden_layers)])


class BiBloSANForSequenceClassification(SequenceClassificationMixin, BiBloSANPreTrainedModel):
    encoder_class = BiBloSANModel


class BiBloSANForPairRegression(PairRegressionMixin, BiBloSANPreTrainedModel):
    encoder_class = BiBloSANModel


__all__ = [
    "BiBloSANForPairRegression",
    "BiBloSANForSequenceClassification",
    "BiBloSANModel",
    "BiBloSANPreTrainedModel",
]
