"""Word vectors without context: what the papers' ablations compare their encoders with."""

from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from .configuration_wordbag import WordBagConfig
from .encoder import ContextFusion, SentenceEncoderModel, SentenceEncoderPreTrainedModel
from .heads import PairRegressionMixin, SequenceClassificationMixin
from .layers import Dense


class WordBagLayer(GradientCheckpointingLayer):
    """act(W x + b) with ``config.dense_map``, else x: every token by itself."""

    def __init__(self, config: WordBagConfig):
        super().__init__()
        self.dense_map = nn.Identity()
        if config.dense_map:
            options = {"activation": config.activation, "dropout": config.dropout}
            self.dense_map = Dense(config.embedding_size, config.hidden_size, **options)

    def forward(self, hidden_BNE, mask_BN, output_attentions=False):
        return self.dense_map(hidden_BNE), None


class WordBagPreTrainedModel(SentenceEncoderPreTrainedModel):
    config: WordBagConfig
    config_class = WordBagConfig
    model_tags = ["wordbag"]
    _no_split_modules = ["WordBagLayer"]


class WordBagModel(WordBagPreTrainedModel, SentenceEncoderModel):
    """Word vectors as an encoder; there are no ``attentions`` and no ``gates`` but the pooler's weights."""

    @staticmethod
    def make_context(config: WordBagConfig) -> ContextFusion:
        return ContextFusion([WordBagLayer(config)])


class WordBagForSequenceClassification(SequenceClassificationMixin, WordBagPreTrainedModel):
    encoder_class = WordBagModel


class WordBagForPairRegression(PairRegressionMixin, WordBagPreTrainedModel):
    encoder_class = WordBagModel


__all__ = ["WordBagForPairRegression", "WordBagForSequenceClassification", "WordBagModel", "WordBagPreTrainedModel"]
