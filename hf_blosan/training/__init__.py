"""Training: `train(RunArguments(...))` in Python, `run_glue_style.py` on the command line.

Everything is imported on first use. The optimisers need only torch, the options nothing, the rest the extra `train`.
"""

from ..errors import require
from ..registry import attach

_get, __dir__, __all__ = attach(__name__, __file__)


def check_extra() -> None:
    """Raise InputError if a package of the extra `train` is not installed."""
    require("training needs", "train", "accelerate", "datasets", "evaluate", "jinja2", "scipy", "sklearn")


def __getattr__(name: str):
    if name in ("evaluate", "main", "train"):
        check_extra()
    return _get(name)
