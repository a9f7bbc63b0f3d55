"""DiSAN: directional self-attention network (Shen et al. 2017, arXiv 1709.04696)."""

from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from .base_blosan import ContextFusion, SentenceEncoderModel, SentenceEncoderPreTrainedModel, fuse_directions
from .configuration_disan import DiSANConfig
from .heads_blosan import PairRegressionMixin, SequenceClassificationMixin
from .layers_blosan import DirectionalSelfAttention


class DiSANLayer(GradientCheckpointingLayer):
    """[DiSA forward; DiSA backward] (DiSAN Fig. 3): a token attends to the words before it, and to those after it."""

    def __init__(self, config: DiSANConfig):
        super().__init__()
        size = config.hidden_size // len(config.directions)
        self.directions = nn.ModuleList(
            DirectionalSelfAttention(
                config.embedding_size,
                size,
                direction=direction,
                activation=config.activation,
                formulation=config.formulation,
                dropout=config.dropout,
            )
            for direction in config.directions
        )

    def forward(self, hidden_BNE, mask_BN, output_attentions=False):
        return fuse_directions(self.directions, hidden_BNE, mask_BN, output_attentions)


class DiSANPreTrainedModel(SentenceEncoderPreTrainedModel):
    config: DiSANConfig
    config_class = DiSANConfig
    model_tags = ["disan"]
    _no_split_modules = ["DiSANLayer"]


class DiSANModel(DiSANPreTrainedModel, SentenceEncoderModel):
    """DiSAN as an encoder: ``attentions`` holds one tensor (B, 2, N, N, D), ``gates`` one (B, 2, N, D)."""

    @staticmethod
    def make_context(config: DiSANConfig) -> ContextFusion:
        return ContextFusion([DiSANLayer(config) for _ in range(config.num_hidden_layers)])


class DiSANForSequenceClassification(SequenceClassificationMixin, DiSANPreTrainedModel):
    encoder_class = DiSANModel


class DiSANForPairRegression(PairRegressionMixin, DiSANPreTrainedModel):
    encoder_class = DiSANModel


__all__ = ["DiSANForPairRegression", "DiSANForSequenceClassification", "DiSANModel", "DiSANPreTrainedModel"]
