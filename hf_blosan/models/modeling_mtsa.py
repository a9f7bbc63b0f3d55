"""MTSA: multi-mask tensorized self-attention (Shen et al. 2019, arXiv 1805.00912)."""

import torch
from transformers import initialization as init

from .configuration_mtsa import MTSAConfig
from .encoder import SentenceEncoderModel, SentenceEncoderPreTrainedModel, StackableLayer
from .equations_mtsa import divided
from .heads import SequenceClassificationMixin
from .layers_mtsa import TensorizedSelfAttention


class MTSALayer(StackableLayer):
    """Tensorized self-attention in heads (MTSA Fig. 2); the heads are divided evenly among the order masks."""

    takes_token_mask = True

    def __init__(self, config: MTSAConfig):
        super().__init__(config)
        self.attention = TensorizedSelfAttention(
            self.in_features,
            config.hidden_size,
            directions=divided(config.directions, config.num_heads),
            windows=divided(config.windows, config.num_heads) if config.windows else None,
            activation=config.activation,
            score_function=config.score_function,
            attend_to_self=config.attend_to_self,
            distance_decay=config.distance_decay,
            scores_from=config.scores_from,
            token2token=config.token2token,
            source2token=config.source2token,
            source2token_layers=config.source2token_layers,
            value_bias=config.value_bias,
            value_activation=config.value_activation,
            fusion_gate=config.fusion_gate,
            output_size=config.hidden_size if config.output_layer else None,
            output_activation=config.activation if config.formulation == "released" else "linear",
            dropout=config.fusion_dropout,
            attention_dropout=config.attention_dropout,
        )

    def fuse(self, hidden_BNE, mask_BN, output_attentions=False, token_mask=None):
        return self.attention(hidden_BNE, mask_BN, output_attentions, token_mask)


class MTSAPreTrainedModel(SentenceEncoderPreTrainedModel):
    config: MTSAConfig
    _no_split_modules = ["MTSALayer"]

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, TensorizedSelfAttention) and module.decay is not None:
            init.copy_(module.decay, module.initial_decay(*module.decay.shape))


class MTSAModel(MTSAPreTrainedModel, SentenceEncoderModel):
    """MTSA as an encoder: a layer has ``attentions`` (B, H, N, N, D) and, if it has a gate, ``gates`` (B, H, N, D)."""

    layer_class = MTSALayer
    takes_words = True


class MTSAForSequenceClassification(SequenceClassificationMixin, MTSAPreTrainedModel):
    encoder_class = MTSAModel
