"""The int8 product of the CPU and its equation."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hf_blosan import kernels
from hf_blosan.kernels.int8 import packed
from hf_blosan.kernels.library import OPERATORS
from hf_blosan.models.attention_int8 import rounded_linear

fast = pytest.mark.skipif(
    kernels.instruction_set() not in ("avx2", "avx512"), reason="int8 products are for processors with AVX2"
)


def operands(rows=37, size=45, out=19, bias=True, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, size, generator=generator) * torch.rand(rows, 1, generator=generator) * 10
    weight = torch.randint(-63, 64, (out, size), generator=generator, dtype=torch.int8)
    scale = torch.rand(out, generator=generator)
    return x, weight, scale, torch.randn(out, generator=generator) if bias else None


def largest_difference(found, expected):
    return ((found - expected).abs().max() / expected.abs().max()).item()


@fast
@pytest.mark.parametrize("rows", [0, 1, 3, 4, 15, 16, 17, 31, 32, 33, 48, 100])
@pytest.mark.parametrize(("size", "out"), [(1, 1), (3, 16), (4, 15), (45, 19), (64, 48), (300, 300)])
def test_is_its_equation(rows, size, out):
    arguments = operands(rows, size, out, bias=rows % 2 == 0)
    found, expected = kernels.int8_linear(*arguments), rounded_linear(*arguments)
    assert found.shape == expected.shape == (rows, out)
    if rows:  # the integers are the same; what is left is the rounding of factors
        assert largest_difference(found, expected) < 1e-6


@fast
def test_extremes_do_not_overflow():
    """The largest features and weights everywhere: four times 127 * 63 is just below 2^15."""
    for sign in (1, -1):
        x, weight = torch.full((20, 2000), 3.0), torch.full((33, 2000), 63 * sign, dtype=torch.int8)
        x[::2] *= -1
        scale = torch.full((33,), 0.01)
        expected = x.sum(1, keepdim=True) * 63 * sign * scale
        assert largest_difference(kernels.int8_linear(x, weight, scale), expected) < 1e-6


@fast
def test_layouts():
    x, weight, scale, bias = operands(24, 40, 20)
    expected = rounded_linear(x, weight, scale, bias)
    assert torch.equal(
        kernels.int8_linear(x.view(2, 3, 4, 40), weight, scale, bias).flatten(0, 2),
        kernels.int8_linear(x, weight, scale, bias),
    )
    wide = torch.randn(24, 100)
    wide[:, 7:47] = x
    for other in (wide[:, 7:47], x.T.contiguous().T):
        assert largest_difference(kernels.int8_linear(other, weight, scale, bias), expected) < 1e-6
    assert kernels.int8_linear(x[0], weight, scale, bias).shape == (20,)
    assert largest_difference(kernels.int8_linear(x, weight.T.contiguous().T, scale, bias), expected) < 1e-6


@fast
def test_rows_of_zeros_and_numbers_that_are_not_finite():
    x, weight, scale, bias = operands(8, 40, 20)
    x[1] = 0
    x[3, 5], x[4, 6], x[5, 7] = float("nan"), float("inf"), -float("inf")
    x[6] *= 1e-35
    found = kernels.int8_linear(x, weight, scale, bias)
    assert torch.equal(found[1], bias) and torch.equal(found[6], bias)
    assert found[3:6].isnan().all() and found[[0, 2, 7]].isfinite().all()
    assert torch.equal(found.isnan(), rounded_linear(x, weight, scale, bias).isnan())


@fast
def test_a_changed_weight_is_packed_again():
    x, weight, scale, bias = operands()
    before = kernels.int8_linear(x, weight, scale, bias)
    assert packed(weight)[0] is packed(weight)[0]
    weight.neg_()
    after = kernels.int8_linear(x, weight, scale, bias)
    torch.testing.assert_close(after - bias, bias - before)
    with torch.inference_mode():
        made = weight.clone()
        torch.testing.assert_close(kernels.int8_linear(x, made, scale, bias), after)
        made.neg_()
        torch.testing.assert_close(kernels.int8_linear(x, made, scale, bias), before)


@fast
def test_several_threads_compute_the_same():
    arguments = operands(500, 64, 64)
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append(kernels.int8_linear(*arguments))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*results)


def test_left_to_the_equation():
    x, weight, scale, bias = operands()
    assert kernels.int8_linear(x.requires_grad_(), weight, scale, bias) is None
    x = x.detach()
    for other in (x.double(), x.bfloat16(), x.to("meta")):
        assert kernels.int8_linear(other, weight, scale, bias) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert kernels.int8_linear(x, weight, scale, bias) is None


@fast
def test_refuses_tensors_that_do_not_match():
    x, weight, scale, bias = operands()
    for wrong in (
        (x[:, :-5], weight, scale, bias),
        (x, weight, scale[:-3], bias[:-3]),
        (x, weight, scale, bias[:-1]),
        (x, weight.float(), scale, bias),
        (x, weight, scale[None], bias),
    ):
        with pytest.raises(RuntimeError, match="give"):
            kernels.int8_linear(*wrong)


@fast
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="AMX is used on Linux alone")
def test_amx_is_used_where_it_is():
    """With it off, as here in another process, the same integers come from the products of VNNI."""
    features = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    if "HF_BLOSAN_INSTRUCTION_SET" in os.environ:
        assert not OPERATORS.uses_amx()
        return
    assert OPERATORS.uses_amx() == ("amx_int8" in features and kernels.instruction_set() == "avx512")
    if OPERATORS.uses_amx():
        environment = {**os.environ, "HF_BLOSAN_INSTRUCTION_SET": "avx512", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
        run = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout[-3000:]


def test_the_equation():
    x, weight, scale, bias = operands()
    step = x.abs().amax(1, keepdim=True) / 63
    exact = torch.nn.functional.linear((x / step).round().double(), weight.double()) * step * scale + bias
    assert largest_difference(rounded_linear(x, weight, scale, bias), exact) < 1e-6
    wide = x.double().requires_grad_()
    rounded_linear(wide, weight, scale.double(), bias.double()).sum().backward()
    torch.testing.assert_close(wide.grad, (weight * scale.double()[:, None]).sum(0).expand_as(wide))
    for dtype in (torch.bfloat16, torch.float16):
        found = rounded_linear(x.detach().to(dtype), weight, scale.to(dtype), bias.to(dtype))
        assert found.dtype == dtype and largest_difference(found.float(), exact.float()) < 0.02
