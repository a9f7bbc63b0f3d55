"""Feature-wise self-attention sentence encoders (DiSAN, Bi-BloSAN, MTSA) for the Hugging Face ecosystem.

Importing the package registers the encoders with the Auto classes of transformers and does nothing else. Model
classes, such as ``hf_blosan.DiSANModel``, are imported on first use; ``auto.FAMILIES`` lists the encoders.
"""

from .auto import MODULES, AutoModelForPairRegression, load, register
from .version import __version__ as __version__

register()

__all__ = ["AutoModelForPairRegression", *sorted(MODULES)]


def __getattr__(name: str):
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = load(name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
