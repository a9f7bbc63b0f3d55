"""Feature-wise self-attention sentence encoders (DiSAN, Bi-BloSAN, MTSA) for the Hugging Face ecosystem.

Importing the package only registers the encoders with transformers' Auto classes, as soon as these are
imported. Model classes, such as ``hf_blosan.DiSANModel``, are imported on first use;
``registry.FAMILIES`` lists the encoders.
"""

import sys
from importlib import import_module
from types import ModuleType

from . import registry
from .registry import MODULES, load, pair_regression_class, register

__version__ = "0.1.0"
__all__ = ["AutoModelForPairRegression", "pretrained", *sorted(MODULES)]

register()


class Package(ModuleType):
    """The package, in which ``pretrained`` is always the function: Python takes the folder of that name for a module,
    which its import would put in the function's place."""

    pretrained = property(lambda self: registry.pretrained, lambda self, module: None)


sys.modules[__name__].__class__ = Package


def __getattr__(name: str):
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in MODULES:
        import_module("transformers.models.auto.modeling_auto")  # after which the encoders are registered
    globals()[name] = value = load(name) if name in MODULES else pair_regression_class()
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
