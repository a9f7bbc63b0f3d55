"""What type checkers see is what is there; `make types` runs mypy on tests/typed_use.py."""

import ast
import inspect
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAZY = ("hf_blosan", "hf_blosan.analysis", "hf_blosan.data", "hf_blosan.hub", "hf_blosan.tasks", "hf_blosan.training")


@pytest.mark.parametrize("name", LAZY)
def test_stubs_have_the_names_of_their_modules(name):
    module = import_module(name)
    tree = ast.parse((ROOT / name.replace(".", "/") / "__init__.pyi").read_text())
    imports = [statement for statement in tree.body if isinstance(statement, ast.ImportFrom) and statement.level]
    found = {alias.asname: statement.module for statement in imports for alias in statement.names}
    assert found.keys() == set(module.__all__)
    for attribute, place in found.items():
        assert getattr(import_module(f".{place}", name), attribute) is getattr(module, attribute)


@pytest.mark.parametrize("name", [*LAZY, "hf_blosan.functional"])
def test_public_functions_are_annotated(name):
    module = import_module(name)
    for function in filter(inspect.isfunction, (getattr(module, attribute) for attribute in module.__all__)):
        signature = inspect.signature(function)
        annotations = [parameter.annotation for parameter in signature.parameters.values()]
        assert inspect.Signature.empty not in (*annotations, signature.return_annotation), function


def test_installed_packages_say_that_they_are_typed():
    assert (ROOT / "hf_blosan" / "py.typed").exists()
    assert '"py.typed"' in (ROOT / "pyproject.toml").read_text()
