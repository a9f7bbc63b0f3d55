"""Registration with transformers' Auto classes, and the Auto class transformers does not have."""

from collections import OrderedDict

from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification
from transformers.models.auto.auto_factory import _BaseAutoModelClass, _LazyAutoMapping
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from .models.configuration_biblosan import BiBloSANConfig
from .models.configuration_birnn import BiRNNConfig
from .models.configuration_disan import DiSANConfig
from .models.configuration_mtsa import MTSAConfig
from .models.configuration_multihead import MultiHeadConfig
from .models.configuration_textcnn import TextCNNConfig
from .models.configuration_wordbag import WordBagConfig
from .models.modeling_biblosan import BiBloSANForPairRegression, BiBloSANForSequenceClassification, BiBloSANModel
from .models.modeling_birnn import BiRNNForPairRegression, BiRNNForSequenceClassification, BiRNNModel
from .models.modeling_disan import DiSANForPairRegression, DiSANForSequenceClassification, DiSANModel
from .models.modeling_mtsa import MTSAForPairRegression, MTSAForSequenceClassification, MTSAModel
from .models.modeling_multihead import MultiHeadForPairRegression, MultiHeadForSequenceClassification, MultiHeadModel
from .models.modeling_textcnn import TextCNNForPairRegression, TextCNNForSequenceClassification, TextCNNModel
from .models.modeling_wordbag import WordBagForPairRegression, WordBagForSequenceClassification, WordBagModel

# config, encoder, classification head, pair regression head
ENCODERS = (
    (DiSANConfig, DiSANModel, DiSANForSequenceClassification, DiSANForPairRegression),
    (BiBloSANConfig, BiBloSANModel, BiBloSANForSequenceClassification, BiBloSANForPairRegression),
    (MTSAConfig, MTSAModel, MTSAForSequenceClassification, MTSAForPairRegression),
    (BiRNNConfig, BiRNNModel, BiRNNForSequenceClassification, BiRNNForPairRegression),
    (TextCNNConfig, TextCNNModel, TextCNNForSequenceClassification, TextCNNForPairRegression),
    (WordBagConfig, WordBagModel, WordBagForSequenceClassification, WordBagForPairRegression),
    (MultiHeadConfig, MultiHeadModel, MultiHeadForSequenceClassification, MultiHeadForPairRegression),
)


class AutoModelForPairRegression(_BaseAutoModelClass):
    """Scores for pairs of sentences, (B, 1), as in SICK relatedness; used like any other Auto class."""

    _model_mapping = _LazyAutoMapping(CONFIG_MAPPING_NAMES, OrderedDict())


def register() -> None:
    """Make ``AutoConfig`` and the Auto classes of models know every encoder; done on ``import hf_blosan``."""
    for config, encoder, classifier, regressor in ENCODERS:
        AutoConfig.register(config.model_type, config, exist_ok=True)
        AutoModel.register(config, encoder, exist_ok=True)
        # Where several classes stand behind a config, the Auto class picks the one named in config.architectures:
        # pipelines and AutoModelForSequenceClassification find a saved pair regression as well.
        AutoModelForSequenceClassification.register(config, (classifier, regressor), exist_ok=True)
        AutoModelForPairRegression.register(config, regressor, exist_ok=True)
