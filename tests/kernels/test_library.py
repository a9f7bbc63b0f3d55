"""The library of operators: what is loaded, for which processor, and that torch's tools see its operators."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hf_blosan import functional as F
from hf_blosan.kernels import library

needs_kernels = pytest.mark.skipif(not library.has_cpu_kernels(), reason="the C++ kernels are not compiled")


def test_what_is_missing_is_named(tmp_path):
    assert library._load(tmp_path) == "its C++ kernels are not compiled"
    (tmp_path / "_csrc.abi3.so").write_bytes(b"garbage")
    assert library._load(tmp_path).startswith("_csrc.abi3.so does not load (")


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
def test_a_trace_holds_the_operator():
    x = torch.randn(2, 3, 4)
    with torch.no_grad():
        traced = torch.jit.trace(lambda x: F.directional_attention(x, x, x, direction="full"), x)
        y = torch.randn(5, 7, 4)
        torch.testing.assert_close(traced(y), F.directional_attention(y, y, y, direction="full"))


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


EXACT = {
    "test_directional.py": "test_forms or float64 or other_scales or test_blocks or several_threads",
    "test_source2token.py": "exact",
    "test_recurrence.py": "exact",
    "test_pointwise.py": "exact or extremes",
    "test_tensorized.py": "exact",
}


@needs_kernels
@pytest.mark.slow
@pytest.mark.parametrize("instruction_set", ["avx2", "baseline"])
def test_narrower_instruction_sets(instruction_set):
    """The same source compiled for older processors meets the same rule."""
    if library.instruction_set() == "baseline":
        pytest.skip("this processor runs the baseline loops only, which all other tests use")
    here = Path(__file__).parent
    environment = {**os.environ, "HF_BLOSAN_INSTRUCTION_SET": instruction_set}
    check = f"from hf_blosan.kernels import instruction_set as f; assert f() == {instruction_set!r}, f()"
    subprocess.run([sys.executable, "-c", check], check=True, env=environment, cwd=here.parents[1])
    for file, names in EXACT.items():
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(here / file), "-k", names]
        run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=here.parents[1])
        assert run.returncode == 0, run.stdout[-3000:]
