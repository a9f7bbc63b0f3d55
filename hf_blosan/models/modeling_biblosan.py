"""Bi-BloSAN: bi-directional block self-attention network (Shen et al. 2018, arXiv 1804.00857)."""

from torch import nn

from .alignment import check_graph, with_left_aligned_tokens
from .attention_blocks import mblosa
from .configuration_biblosan import BiBloSANConfig
from .encoder import (
    ContextFusion,
    SentenceEncoderModel,
    SentenceEncoderPreTrainedModel,
    StackableLayer,
    fuse_directions,
)
from .heads import SequenceClassificationMixin
from .layers_blocks import MaskedBlockSelfAttention


class BiBloSANLayer(StackableLayer):
    """[mBloSA forward; mBloSA backward] (Bi-BloSAN Fig. 4): attention in blocks of tokens, then between the blocks."""

    def __init__(self, config: BiBloSANConfig):
        super().__init__(config)
        self.config = config
        size = config.hidden_size // len(config.directions)
        self.directions = nn.ModuleList(
            MaskedBlockSelfAttention(
                self.in_features,
                size,
                direction=direction,
                block_length=config.block_length,
                activation=config.activation,
                formulation=config.formulation,
                mask_padding_blocks=config.mask_padding_blocks,
                fuse_local=config.fuse_local,
                fuse_global=config.fuse_global,
                dropout=config.fusion_dropout,
            )
            for direction in config.directions
        )

    def fuse(self, hidden_BNE, mask_BN, output_attentions=False):
        check_graph(self.config, "mask_padding_blocks")
        # Blocks are counted from the first real token, wherever the padding is.
        return with_left_aligned_tokens(self.fuse_aligned, hidden_BNE, mask_BN, output_attentions)

    def fuse_aligned(self, hidden_BNE, mask_BN, output_attentions):
        whole = None if output_attentions else mblosa(self.directions, hidden_BNE, mask_BN)
        if whole is None:
            return fuse_directions(self.directions, hidden_BNE, mask_BN, output_attentions)
        return whole, None


class BiBloSANPreTrainedModel(SentenceEncoderPreTrainedModel):
    config: BiBloSANConfig
    _no_split_modules = ["BiBloSANLayer"]


class BiBloSANModel(BiBloSANPreTrainedModel, SentenceEncoderModel):
    """Bi-BloSAN as an encoder, with 2 directions and M blocks of R tokens.

    ``attentions`` holds the weights inside blocks (B, 2, M, R, R, D), of the tokens in their block's vector
    (B, 2, M, R, D) and between blocks (B, 2, M, M, D), ``gates`` those of blocks (B, 2, M, D) and tokens (B, 2, N, D),
    for each layer. Blocks start at the first real token, wherever the padding is; where it is on the left, gates of
    tokens are copies, without gradients of the result. Without ``config.fuse_global`` there are only the first of the
    weights and the last of the gates.
    """

    layer_class = BiBloSANLayer
    takes_words = True

    @classmethod
    def make_context(cls, config: BiBloSANConfig) -> ContextFusion:
        if config.block_length == "auto":
            raise ValueError(
                'block_length="auto" is resolved by the training command from its data; to build a model directly, '
                "set block_length=hf_blosan.functional.optimal_block_length(mean, length_std=..., batch_size=...)"
            )
        return super().make_context(config)


class BiBloSANForSequenceClassification(SequenceClassificationMixin, BiBloSANPreTrainedModel):
    encoder_class = BiBloSANModel
