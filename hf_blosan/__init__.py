"""Feature-wise self-attention sentence encoders (DiSAN, Bi-BloSAN, MTSA) for the Hugging Face ecosystem.

Importing the package only registers the encoders with transformers' Auto classes, as soon as these are
imported. Model classes, such as ``hf_blosan.DiSANModel``, are imported on first use;
``registry.FAMILIES`` lists the encoders.
"""

from .registry import MODULES, load, pair_regression_class, register

__version__ = "0.1.0"
__all__ = ["AutoModelForPairRegression", *sorted(MODULES)]

register()


def __getattr__(name: str):
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = load(name) if name in MODULES else pair_regression_class()
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
