"""What type checkers see is what is there; `make types` runs mypy on tests/typed_use.py."""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from runpy import run_path

import pytest

import hf_blosan

ROOT = Path(__file__).resolve().parents[1]
LAZY = tuple(f"hf_blosan.{name}" for name in ("analysis", "data", "estimators", "hub", "tasks", "training"))


def test_the_stub_has_every_encoder():
    """Where it fails, `make test` or `python .ci/encoders.py` writes the file."""
    stub = run_path(str(ROOT / ".ci" / "encoders.py"))["stub"]()
    assert (ROOT / "hf_blosan" / "__init__.pyi").read_text(encoding="utf-8") == stub
    assert {*re.findall(r" as (\w+)$", stub, re.MULTILINE), "AutoModelForPairRegression"} == set(hf_blosan.__all__)


@pytest.mark.parametrize("name", LAZY)
def test_names_are_imported_from_where_the_stub_says(name):
    module = import_module(name)
    tree = ast.parse((ROOT / name.replace(".", "/") / "__init__.pyi").read_text())
    found = {alias.asname: statement.module for statement in tree.body for alias in statement.names}
    assert found.keys() == set(module.__all__) <= set(dir(module))
    for attribute, place in found.items():
        assert getattr(import_module(f".{place}", name), attribute) is getattr(module, attribute)
    with pytest.raises(AttributeError, match=f"'{name}' has no attribute 'nothing'"):
        _ = module.nothing


@pytest.mark.parametrize("name", ["hf_blosan", *LAZY, "hf_blosan.functional"])
def test_public_functions_are_annotated(name):
    module = import_module(name)
    for function in filter(inspect.isfunction, (getattr(module, attribute) for attribute in module.__all__)):
        signature = inspect.signature(function)
        annotations = [parameter.annotation for parameter in signature.parameters.values()]
        assert inspect.Signature.empty not in (*annotations, signature.return_annotation), function


def test_installed_packages_say_that_they_are_typed():
    assert (ROOT / "hf_blosan" / "py.typed").exists()
    assert '"py.typed"' in (ROOT / "pyproject.toml").read_text()
