"""MTSA: multi-mask tensorized self-attention (Shen et al. 2019, arXiv 1805.00912)."""

from transformers.modeling_layers import GradientCheckpointingLayer

from .base_blosan import ContextFusion, SentenceEncoderModel, SentenceEncoderPreTrainedModel
from .configuration_mtsa import MTSAConfig
from .heads_blosan import PairRegressionMixin, SequenceClassificationMixin
from .layers_blosan import TensorizedSelfAttention


class MTSALayer(GradientCheckpointingLayer):
    """Tensorized self-attention in heads (MTSA Fig. 2); the heads are dealt out evenly to the order masks."""

    def __init__(self, config: MTSAConfig):
        super().__init__()
        heads_each = config.num_heads // len(config.directions)
        self.attention = TensorizedSelfAttention(
            config.embedding_size,
            config.hidden_size,
            directions=[direction for direction in config.directions for _ in range(heads_each)],
            activation=config.activation,
            score_function=config.score_function,
            attend_to_self=config.attend_to_self,
            scores_from=config.scores_from,
            source2token_layers=config.source2token_layers,
            value_activation=config.value_activation,
            fusion_gate=config.fusion_gate,
            output_size=config.hidden_size if config.output_layer else None,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
        )

    def forward(self, hidden_BNE, mask_BN, output_attentions=False):
        return self.attention(hidden_BNE, mask_BN, output_attentions)


class MTSAPreTrainedModel(SentenceEncoderPreTrainedModel):
    config: MTSAConfig
    config_class = MTSAConfig
    model_tags = ["mtsa"]
    _no_split_modules = ["MTSALayer"]


class MTSAModel(MTSAPreTrainedModel, SentenceEncoderModel):
    """MTSA as an encoder: ``attentions`` is one tensor (B, H, N, N, D), ``gates`` one (B, H, N, D), or none."""

    @staticmethod
    def make_context(config: MTSAConfig) -> ContextFusion:
        return ContextFusion([MTSALayer(config) for _ in range(config.num_hidden_layers)])


class MTSAForSequenceClassification(SequenceClassificationMixin, MTSAPreTrainedModel):
    encoder_class = MTSAModel


class MTSAForPairRegression(PairRegressionMixin, MTSAPreTrainedModel):
    encoder_class = MTSAModel


__all__ = ["MTSAForPairRegression", "MTSAForSequenceClassification", "MTSAModel", "MTSAPreTrainedModel"]
