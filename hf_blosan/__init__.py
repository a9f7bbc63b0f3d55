"""Feature-wise self-attention sentence encoders (DiSAN, Bi-BloSAN, MTSA) for the Hugging Face ecosystem.

Importing the package registers the encoders with the Auto classes of transformers; nothing else happens.
"""

from .auto import AutoModelForPairRegression, register
from .models.configuration_biblosan import BiBloSANConfig
from .models.configuration_disan import DiSANConfig
from .models.configuration_mtsa import MTSAConfig
from .models.modeling_biblosan import BiBloSANForPairRegression, BiBloSANForSequenceClassification, BiBloSANModel
from .models.modeling_disan import DiSANForPairRegression, DiSANForSequenceClassification, DiSANModel
from .models.modeling_mtsa import MTSAForPairRegression, MTSAForSequenceClassification, MTSAModel
from .version import __version__ as __version__

register()

__all__ = [
    "AutoModelForPairRegression",
    "BiBloSANConfig",
    "BiBloSANForPairRegression",
    "BiBloSANForSequenceClassification",
    "BiBloSANModel",
    "DiSANConfig",
    "DiSANForPairRegression",
    "DiSANForSequenceClassification",
    "DiSANModel",
    "MTSAConfig",
    "MTSAForPairRegression",
    "MTSAForSequenceClassification",
    "MTSAModel",
]
