"""Calls a function as soon as somebody imports a module."""

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder


class AfterImport(MetaPathFinder):
    """Finds one module as the other finders do, and calls ``function`` when it has been executed."""

    def __init__(self, name: str, function: Callable[[], object]):
        self.name, self.function = name, function

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_call(module) -> None:
            execute(module)
            if self in sys.meta_path:  # until here, so that an import that fails can be tried again
                sys.meta_path.remove(self)
            self.function()

        spec.loader.exec_module = execute_and_call
        return spec


def after_import(name: str, function: Callable[[], object]) -> None:
    """Call ``function`` after the module ``name`` is imported; at once if it already is."""
    if name in sys.modules:
        function()
    else:
        sys.meta_path.insert(0, AfterImport(name, function))
