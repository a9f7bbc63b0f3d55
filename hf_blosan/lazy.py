"""The public names of a package, imported on first use."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The ``__getattr__``, ``__dir__`` and ``__all__`` of a package, from the imports in its ``__init__.pyi``.

    Args:
        package: its ``__name__``.
        file: its ``__file__``.
    """
    stub = Path(file).with_suffix(".pyi").read_text(encoding="utf-8")
    modules = {name: module for module, name in re.findall(r"^from (\.\w+) import (\w+)", stub, re.MULTILINE)}

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name], package), name)

    return get, lambda: sorted(modules), list(modules)
