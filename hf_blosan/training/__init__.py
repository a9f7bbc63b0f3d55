"""Training: `train(RunArguments(...))` in Python, `run_glue_style.py` on the command line.

Everything is imported on first use. The optimisers need only torch, the options nothing, the rest the extra `train`.
"""

from importlib import import_module
from importlib.util import find_spec

from ..errors import MissingExtra, install

_LAZY = {
    "RunArguments": "arguments",
    "build_optimizer": "optim",
    "evaluate": "evaluate_model",
    "l2_penalty": "optim",
    "main": "run",
    "parse_arguments": "arguments",
    "train": "run",
}
_NEEDED = {
    "accelerate": "accelerate",
    "datasets": "datasets",
    "evaluate": "evaluate",
    "jinja2": "jinja2",
    "scikit-learn": "sklearn",
    "scipy": "scipy",
    "tqdm": "tqdm",
}

__all__ = ["RunArguments", "build_optimizer", "evaluate", "l2_penalty", "main", "parse_arguments", "train"]


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    missing = [package for package, module in _NEEDED.items() if find_spec(module) is None]
    if missing and _LAZY[name] not in ("arguments", "optim"):
        raise MissingExtra(f"training needs {', '.join(missing)}: {install('train')}")
    return getattr(import_module(f".{_LAZY[name]}", __name__), name)
