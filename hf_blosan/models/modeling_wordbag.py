"""Word vectors without context: the baseline of the papers' ablations."""

from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from .configuration_wordbag import WordBagConfig
from .encoder import SentenceEncoderModel, SentenceEncoderPreTrainedModel
from .heads import SequenceClassificationMixin
from .layers import Layer


class WordBagLayer(GradientCheckpointingLayer, Layer):
    """act(W x + b) with ``config.dense_map``, else x, for each token separately."""

    def __init__(self, config: WordBagConfig):
        super().__init__(activation=config.activation, dropout=config.fusion_dropout)
        self.dense_map = nn.Linear(config.input_size, config.hidden_size) if config.dense_map else None

    def forward(self, hidden_BNE, mask_BN, output_attentions=False):
        return hidden_BNE if self.dense_map is None else self.dense(self.dense_map, hidden_BNE), None


class WordBagPreTrainedModel(SentenceEncoderPreTrainedModel):
    config: WordBagConfig
    _no_split_modules = ["WordBagLayer"]


class WordBagModel(WordBagPreTrainedModel, SentenceEncoderModel):
    """Word vectors as an encoder; there are no ``attentions`` or ``gates``, only the pooler's weights."""

    layer_class = WordBagLayer


class WordBagForSequenceClassification(SequenceClassificationMixin, WordBagPreTrainedModel):
    encoder_class = WordBagModel
