"""Feature-wise self-attention sentence encoders (DiSAN, Bi-BloSAN, MTSA) for the Hugging Face ecosystem.

Importing the package registers the encoders with the Auto classes of transformers; nothing else happens.
"""

from .auto import AutoModelForPairRegression, register
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
from .version import __version__ as __version__

register()

__all__ = [
    "AutoModelForPairRegression",
    "BiBloSANConfig",
    "BiBloSANForPairRegression",
    "BiBloSANForSequenceClassification",
    "BiBloSANModel",
    "BiRNNConfig",
    "BiRNNForPairRegression",
    "BiRNNForSequenceClassification",
    "BiRNNModel",
    "DiSANConfig",
    "DiSANForPairRegression",
    "DiSANForSequenceClassification",
    "DiSANModel",
    "MTSAConfig",
    "MTSAForPairRegression",
    "MTSAForSequenceClassification",
    "MTSAModel",
    "MultiHeadConfig",
    "MultiHeadForPairRegression",
    "MultiHeadForSequenceClassification",
    "MultiHeadModel",
    "TextCNNConfig",
    "TextCNNForPairRegression",
    "TextCNNForSequenceClassification",
    "TextCNNModel",
    "WordBagConfig",
    "WordBagForPairRegression",
    "WordBagForSequenceClassification",
    "WordBagModel",
]
