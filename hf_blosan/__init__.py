"""Feature-wise self-attention sentence encoders (DiSAN, Bi-BloSAN, MTSA) for the Hugging Face ecosystem.

Importing the package registers the encoders with the Auto classes of transformers, at the moment in which these are
imported, and does nothing else. Model classes, such as ``hf_blosan.DiSANModel``, are imported on first use;
``families.FAMILIES`` lists the encoders.
"""

from importlib import import_module

from .after_import import after_import
from .families import MODULES, load, register_configs
from .version import __version__ as __version__

# In two steps, because the first of these modules is imported in the middle of modules that the second one needs.
after_import("transformers.models.auto.configuration_auto", register_configs)
after_import("transformers.models.auto.modeling_auto", lambda: import_module(".auto", __name__))
after_import("transformers.pipelines", lambda: import_module(".auto", __name__).register_pipeline())

__all__ = ["AutoModelForPairRegression", *sorted(MODULES)]


def __getattr__(name: str):
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = load(name) if name in MODULES else getattr(import_module(".auto", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
