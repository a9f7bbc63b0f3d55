"""Training: `train(RunArguments(...))` in Python, `run_glue_style.py` on the command line.

The optimisers need only torch; everything else needs the extra `train` and is imported on first use.
"""

from importlib import import_module
from importlib.util import find_spec

from .optim import build_optimizer, l2_penalty

_LAZY = {"RunArguments": "arguments", "parse_arguments": "arguments", "main": "run", "train": "run"}
_NEEDED = {
    "accelerate": "accelerate",
    "datasets": "datasets",
    "evaluate": "evaluate",
    "jinja2": "jinja2",
    "scikit-learn": "sklearn",
    "scipy": "scipy",
    "tqdm": "tqdm",
}

__all__ = ["RunArguments", "build_optimizer", "l2_penalty", "main", "parse_arguments", "train"]


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    missing = [package for package, module in _NEEDED.items() if find_spec(module) is None]
    if missing:
        raise ImportError(f"training needs {', '.join(missing)}: pip install hf_blosan[train]")
    return getattr(import_module(f".{_LAZY[name]}", __name__), name)
