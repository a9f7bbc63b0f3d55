"""The library of operators: what is loaded, for which processor, and that torch's tools see its operators."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hf_blosan import functional as F
from hf_blosan.kernels import library
from hf_blosan.kernels.sources import mark

ROOT = Path(__file__).resolve().parents[2]
needs_kernels = pytest.mark.skipif(not library.has_cpu_kernels(), reason="the C++ kernels are not compiled")


def test_what_is_missing_is_named(tmp_path):
    assert "holds no compiled C++ kernels; with a C++20 compiler (g++ 12" in library._load(tmp_path)
    (tmp_path / "_csrc.abi3.so").write_bytes(b"garbage")
    assert library._load(tmp_path).startswith("_csrc.abi3.so does not load (")


@needs_kernels
def test_a_checkout_uses_the_library_of_the_installed_copy(tmp_path):
    """A Python started in a checkout imports the checkout, in which nothing is compiled after `pip install .`"""
    package, installed = Path(library.__file__).parents[1], tmp_path / "site" / "hf_blosan" / "kernels"
    checkout = shutil.copytree(package, tmp_path / "checkout" / "hf_blosan", ignore=shutil.ignore_patterns("*.so"))
    installed.mkdir(parents=True)
    (compiled,) = (package / "kernels").glob("_csrc*.so")
    shutil.copy(compiled, installed)
    if not (checkout / "kernels" / "csrc").exists():
        pytest.skip("the package under test is installed from a wheel, which holds no C++ sources")
    command = [sys.executable, "-c", "import hf_blosan.kernels as k; print(k.__file__, k.instruction_set())"]
    environment = {**os.environ, "PYTHONPATH": str(installed.parents[1])}

    def started_in_the_checkout() -> tuple[str, str]:
        settings = {"cwd": checkout.parent, "env": environment, "capture_output": True, "text": True}
        run = subprocess.run(command, check=True, **settings)
        file, instruction_set = run.stdout.split()
        assert Path(file).is_relative_to(checkout)
        return instruction_set, run.stderr

    assert started_in_the_checkout() == (library.instruction_set(), "")
    broken = checkout / "kernels" / compiled.name  # of another machine, for instance
    broken.write_bytes(b"not a library, but " + mark(checkout / "kernels" / "csrc"))
    assert started_in_the_checkout() == (library.instruction_set(), "")
    broken.unlink()
    with (checkout / "kernels" / "csrc" / "operators.cpp").open("a") as file:
        file.write("// changed\n")
    instruction_set, warning = started_in_the_checkout()
    assert instruction_set == "None" and "2 to 6 times slower" in warning
    assert f"{checkout} hides the installed copy {installed.parent}, and the C++ kernels in {installed} are" in warning
    assert f"pip install --editable {checkout.parent} compiles them" in warning


class Names(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


@needs_kernels
@pytest.mark.parametrize("grad", [False, True])
def test_modes_and_profilers_see_the_operators(grad):
    x = torch.ones(2, 3, 4)
    with torch.set_grad_enabled(grad), Names() as mode:
        F.directional_attention(x, x, x, direction="full")
    assert "hf_blosan_kernels.directional_attention.default" in mode.names
    with torch.set_grad_enabled(grad), torch.profiler.profile() as profile:
        F.directional_attention(x, x, x, direction="full")
    assert "hf_blosan_kernels::directional_attention" in {event.key for event in profile.key_averages()}


@needs_kernels
@pytest.mark.parametrize("grad", [False, True])
def test_a_trace_holds_the_operator(grad, tmp_path):
    """And can be saved."""
    x = torch.randn(2, 3, 4)
    with torch.set_grad_enabled(grad):
        traced = torch.jit.trace(lambda x: F.directional_attention(x, x, x, direction="full"), x)
        traced.save(str(tmp_path / "traced.pt"))
        y = torch.randn(5, 7, 4)
        found = torch.jit.load(tmp_path / "traced.pt")(y)
        torch.testing.assert_close(found, F.directional_attention(y, y, y, direction="full"))


@pytest.mark.parametrize("implementation", F.IMPLEMENTATIONS)
def test_gradients_of_several_losses_at_once(implementation):
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.randn(2, 5, 4, generator=generator).requires_grad_() for _ in range(3)]
    out = F.directional_attention(*leaves, direction="forward", implementation=implementation)
    losses = torch.randn(3, *out.shape, generator=generator)
    together = torch.autograd.grad(out, leaves, losses, is_grads_batched=True, retain_graph=True)
    for i, loss in enumerate(losses):
        for found, expected in zip(together, torch.autograd.grad(out, leaves, loss, retain_graph=True), strict=True):
            torch.testing.assert_close(found[i], expected)


HERE = Path(__file__).parent
# Prints what is used, then runs the tests.
RUN = """
import sys
import pytest
from hf_blosan.kernels.library import OPERATORS
print(OPERATORS.instruction_set(), OPERATORS.has_own_products(), flush=True)
sys.exit(pytest.main(sys.argv[1:]))
"""
# Where not the processor but HF_BLOSAN_INSTRUCTION_SET and HF_BLOSAN_PRODUCTS choose the loops and the products.
NARROWER = [{"HF_BLOSAN_INSTRUCTION_SET": "avx2", "HF_BLOSAN_PRODUCTS": "0"}]
# The package's own products need AVX-512.
PRODUCTS = "1" if library.instruction_set() == "avx512" else "0"
NARROWER += [{"HF_BLOSAN_INSTRUCTION_SET": "baseline", "HF_BLOSAN_PRODUCTS": PRODUCTS}]
# An input of every kind for each operator; the last shape of test_pointwise.py has several parts of a product.
FEW = "test_forms and [kernel or exact_as_the_equation and shape3 or exact_as_torch and shape5"
FEW += " or exact_as_equation and [C++ or is_its_equation and 45 or test_gelu"
ALL = {
    "test_directional.py": "test_forms or float64 or other_scales or test_blocks or several_threads",
    "test_source2token.py": "exact",
    "test_recurrence.py": "exact",
    "test_pointwise.py": "exact or extremes or gelu",
    "test_int8.py": "is_its_equation or extremes",
    "test_disa.py": "is_its_steps or gelu",
    "test_tensorized.py": "exact",
}


@needs_kernels
@pytest.mark.parametrize("names", ["few", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("chosen", NARROWER, ids=lambda chosen: "-".join(chosen.values()))
def test_loops_for_other_processors(chosen, names):
    """The same source compiled for older processors meets the same rule, and so do both kinds of products."""
    environment = {**os.environ, **chosen, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    few = [file for file in ALL if file != "test_disa.py"]  # whose imports take as long as all of them
    for files, expression in [(few, FEW)] if names == "few" else [([file], ALL[file]) for file in ALL]:
        files = [str(HERE / file) for file in files]
        command = [sys.executable, "-c", RUN, "-q", "-p", "no:cacheprovider", *files, "-k", expression]
        run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
        assert run.returncode == 0, run.stdout[-3000:]
        loops, products = run.stdout.splitlines()[0].split()
        if library.instruction_set() != "baseline":  # else this processor runs no other
            assert loops == chosen["HF_BLOSAN_INSTRUCTION_SET"]
        assert products == str(chosen["HF_BLOSAN_PRODUCTS"] == "1")
