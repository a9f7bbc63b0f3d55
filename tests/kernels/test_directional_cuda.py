"""The Triton kernels: in Triton's interpreter, compiled for a Hopper GPU without one, and on a GPU where there is one.

Triton decides on import whether it interprets. A fresh process, this file as a program, computes all CASES; the tests
judge what it reports.
"""

import importlib.util
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from packaging.version import Version

from hf_blosan.kernels.directional import cuda as kernels
from hf_blosan.kernels.directional.chunks import Options
from hf_blosan.models import attention as F  # which computes padding as well

ROOT = Path(__file__).parents[2]
DIRECTIONS = ("forward", "backward", "diagonal", "full")
NAMES = ("out", "grad_keys", "grad_queries", "grad_values")
# The interpreter of older ones does not run with numpy 2.4.
has_triton = importlib.util.find_spec("triton") and Version(version("triton")) >= Version("3.9")
needs_triton = pytest.mark.skipif(not has_triton, reason="needs triton 3.9 or later")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

# implementation, direction, length, window, spread (largest |key| + |query|). The row 0 is padding only.
CASES = [
    *[("fused", direction, length, None, 4.0) for length in (1, 2) for direction in DIRECTIONS],
    *[("linear", direction, 1, window, 4.0) for direction, window in zip(DIRECTIONS, (None, 0, 5, 40), strict=True)],
    *[("fused", direction, 17, 0, 4.0) for direction in DIRECTIONS],
    *[("fused", direction, 17, 5, spread) for direction, spread in zip(DIRECTIONS, (0.1, 12, 40, 200), strict=True)],
    ("fused", "backward", 63, None, 4.0),
    ("fused", "full", 33, 40, 12.0),
    ("fused", "forward", 100, None, 200.0),
    ("linear", "diagonal", 17, 5, 4.0),
    ("linear", "backward", 17, None, 0.1),
    ("linear", "forward", 63, None, 4.0),
    ("linear", "full", 63, None, 12.0),
    ("linear", "diagonal", 49, 40, 1.0),
    ("linear", "backward", 100, 40, 7.0),
    ("linear", "full", 63, None, 200.0),
    # Scores of the first feature block reach beyond the last tier, those of the second do not.
    ("linear", "diagonal", 33, None, "mixed"),
]
# Triton's interpreter takes seconds for a case: `make test` runs these, `make test-all` all of them.
FEW = [
    ("fused", "backward", 2, None, 4.0),
    ("fused", "diagonal", 17, 5, 40),
    ("linear", "backward", 17, None, 0.1),
    ("linear", "diagonal", 17, 5, 4.0),
]
OPTIONS = {"scale": 5.0, "implementation": "eager"}


def inputs_of(length, spread, features=32, rows=2, seed=0):
    """Keys, queries, values, the gradient of the result and a ragged mask, in float32."""
    generator = torch.Generator().manual_seed(seed)
    if spread == "mixed":
        features, spread = 40, torch.tensor([60.0] * 32 + [4.0] * 8)
    shape = (rows, length, features)
    keys, queries = (torch.empty(shape).uniform_(-0.5, 0.5, generator=generator) * spread for _ in range(2))
    values, grad = (torch.randn(shape, generator=generator) for _ in range(2))
    mask = torch.rand(rows, length, generator=generator) > 0.3
    mask[0] = False
    return keys, queries, values, grad, mask


def run(dtype, inputs, **options):
    """The result and its gradients."""
    *leaves, grad, mask = inputs
    leaves = [x.to(dtype).detach().requires_grad_() for x in leaves]
    out = F.directional_attention(*leaves, key_mask=mask, **OPTIONS | options)
    out.backward(grad.to(dtype))
    return [out.detach(), *(leaf.grad for leaf in leaves)]


def errors_of(got, inputs, **options):
    """Errors as multiples of the eager float32 form's, root mean squares as in test_directional.py; 2 is allowed."""
    truth, rough = (run(dtype, inputs, **options) for dtype in (torch.float64, torch.float32))
    eps, errors = torch.finfo(torch.float32).eps, {}
    for name, actual, eager, exact in zip(NAMES, got, rough, truth, strict=True):
        # Gradients of a query with a single key are 0, of which only roundings are left.
        allowed = max(rms(eager - exact), eps / 4 * rms(exact)) + eps * 0.5e-2
        errors[name] = rms(actual - exact) / allowed  # NaN where there is any
    return errors


def rms(x):
    return x.double().pow(2).mean().sqrt().item()


def both_passes(inputs, direction, window, implementation):
    """What the operator does, without its choice of a kernel."""
    keys, queries, values, grad, mask = inputs
    arguments = (keys, queries, values, mask, None)
    options = Options(direction, 5.0, window, implementation)
    out, denominators = kernels.forward(*arguments, options)
    return [out, *kernels.backward(grad, *arguments, out, denominators, options)]


def interpret(cases):
    """Errors of cases, with uninitialised memory full of NaN."""
    torch.use_deterministic_algorithms(True)  # fills what torch.empty and the like return
    report = {}
    for implementation, direction, length, window, spread in cases:
        # The interpreter's time goes with the number of programs, and that with TERMS. The widest tier needs 28.
        kernels.TERMS = 32 if spread == 12 else 16
        kernels._tables.cache_clear()
        inputs = inputs_of(length, spread)
        got = both_passes(inputs, direction, window, implementation)
        errors = errors_of(got, inputs, direction=direction, window=window)
        errors["padding"] = max(x[0].abs().max().item() for x in got)
        report[str((implementation, direction, length, window, spread))] = errors

    keys, queries, values, _, mask = inputs_of(21, 4.0)
    queries[1, 20, 1] = torch.nan
    fused, linear = (Options("full", 5.0, None, implementation) for implementation in ("fused", "linear"))
    for implementation, options in (("fused", fused), ("linear", linear)):
        out, _ = kernels.forward(keys, queries, values, mask, None, options)
        report["nan " + implementation] = out.isnan().nonzero().tolist()
    nothing = torch.empty(2, 0, 3)
    out, _ = kernels.forward(nothing, nothing, nothing, None, None, linear)
    report["no tokens"] = list(out.shape)
    without_mask = kernels.forward(keys, keys, values, None, None, fused)[0]
    all_real = kernels.forward(keys, keys, values, torch.ones_like(mask), None, fused)[0]
    report["no mask"] = torch.equal(without_mask, all_real)
    print(json.dumps(report))


def program(*arguments, **variables):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@needs_triton
@pytest.mark.parametrize("cases", ["few", pytest.param("all", marks=pytest.mark.slow)])
def test_kernels_are_as_exact_as_the_eager_form(cases):
    interpreted = program(cases, TRITON_INTERPRET="1")
    for case in FEW if cases == "few" else CASES:
        errors = interpreted[str(case)]
        assert errors.pop("padding") == 0
        assert all(error <= 2 for error in errors.values()), (case, errors)
    for implementation in ("fused", "linear"):
        assert interpreted["nan " + implementation] == [[1, 20, 1]]
    assert interpreted["no tokens"] == [2, 0, 3]
    assert interpreted["no mask"] is True


def compile_all():
    """Every kernel for compute capability 9.0, the way a launch compiles it, without launching."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import JITFunction, driver

    driver.set_active(
        SimpleNamespace(
            get_current_device=lambda: 0,
            get_current_stream=lambda _: 0,
            get_current_target=lambda: GPUTarget("cuda", 90, 32),
        )
    )
    launch, compiled = JITFunction.run, {}

    def compile_only(self, *arguments, grid, warmup, **options):
        compiled[self.__name__] = launch(self, *arguments, grid=grid, warmup=True, **options).metadata.target.arch

    JITFunction.run = compile_only
    for length, direction, window, implementation in ((40, "diagonal", None, "linear"), (5, "forward", 3, "fused")):
        both_passes(inputs_of(length, 4.0, features=300), direction, window, implementation)
    print(json.dumps(compiled))


@needs_triton
@pytest.mark.slow
def test_kernels_compile_for_hopper(tmp_path):
    """The interpreter forgives what the compiler does not."""
    pytest.importorskip("triton.backends.nvidia")
    compiled = program("compile", TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0")
    assert set(compiled.values()) == {90}
    assert set(compiled) == {
        *("_forward_kernel", "_backward_queries_kernel", "_backward_keys_kernel"),
        *("_range_kernel", "_gather_kernel", "_scan_kernel"),
    }


def test_cpu_tensors_are_left_to_the_cpu(monkeypatch):
    """Even where Triton interprets."""
    monkeypatch.setattr(kernels, "triton", object())
    assert not kernels.available(torch.zeros(1, 2, 3))


@needs_gpu
@pytest.mark.parametrize("window", [None, 0, 5, 40])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("implementation", ["fused", "linear"])
def test_on_a_gpu(implementation, direction, window):
    for length in (1, 2, 17, 63, 100, 384):
        for spread in (0.1, 4.0, 12.0, 40.0, 200.0):
            inputs = [x.cuda() for x in inputs_of(length, spread, features=75, rows=4)]
            options = {"direction": direction, "window": window}
            got, again = (run(torch.float32, inputs, **options, implementation=implementation) for _ in range(2))
            errors = errors_of(got, inputs, **options)
            assert all(error <= 2 for error in errors.values()), (length, spread, errors)
            assert all((x[0] == 0).all() for x in got)
            assert all(torch.equal(x, y) for x, y in zip(got, again, strict=True)), "the same twice"


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_on_a_gpu(dtype):
    inputs = [x.cuda() for x in inputs_of(300, 4.0)]
    *leaves, mask = (x.to(dtype) if x.is_floating_point() else x for x in inputs)
    keys, queries, values, grad = (x.requires_grad_() for x in leaves)
    compiled = torch.compile(F.directional_attention, fullgraph=True)
    results = []
    for operator in (compiled, F.directional_attention):
        out = operator(keys, queries, values, direction="forward", key_mask=mask)
        results.append([out, *torch.autograd.grad(out, (keys, queries, values), grad)])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected)


@needs_gpu
@pytest.mark.parametrize("implementation", ["fused", "linear"])
def test_gradients_are_the_slopes_on_a_gpu(implementation):
    """In float32, so by differences wide enough for it, along a random line."""
    keys, queries, values, grad, mask = (x.cuda() for x in inputs_of(40, 4.0))
    _, *gradients = run(
        torch.float32, (keys, queries, values, grad, mask), direction="full", implementation=implementation
    )
    steps = [1e-2 * torch.randn_like(x) for x in (keys, queries, values)]

    def loss(sign):
        moved = [x + sign * step for x, step in zip((keys, queries, values), steps, strict=True)]
        options = {"direction": "full", "key_mask": mask, "implementation": implementation}
        return (F.directional_attention(*moved, **options).double() * grad).sum()

    slope = sum((gradient.double() * step).sum() for gradient, step in zip(gradients, steps, strict=True))
    torch.testing.assert_close((loss(1) - loss(-1)) / 2, slope, rtol=1e-2, atol=1e-3)


if __name__ == "__main__":
    compile_all() if sys.argv[1] == "compile" else interpret(FEW if sys.argv[1] == "few" else CASES)
