"""Training: `train(RunArguments(...))` in Python, `run_glue_style.py` on the command line.

Everything is imported on first use. The optimisers need only torch, the options nothing, the rest the extra `train`.
"""

from importlib.util import find_spec

from ..errors import MissingExtra, install
from ..lazy import attach

_get, __dir__, __all__ = attach(__name__, __file__)
_WITHOUT_EXTRA = ("RunArguments", "build_optimizer", "l2_penalty", "parse_arguments")
_NEEDED = {"scikit-learn": "sklearn"} | {
    name: name for name in ("accelerate", "datasets", "evaluate", "jinja2", "scipy", "tqdm")
}


def __getattr__(name: str):
    if name in __all__ and name not in _WITHOUT_EXTRA:
        missing = sorted(package for package, module in _NEEDED.items() if find_spec(module) is None)
        if missing:
            raise MissingExtra(f"training needs {', '.join(missing)}: {install('train')}")
    return _get(name)
