"""The recurrence of simple recurrent units in its fast forms against the equation in float64."""

import pytest
import torch

from hf_blosan.functional import linear_recurrence
from hf_blosan.kernels.library import OPERATORS, has_cpu_kernels
from hf_blosan.models.attention_recurrent import recurrence as equation

SHAPES = ((3, 1, 5), (2, 2, 16), (2, 63, 37), (4, 100, 300), (1, 1000, 20))


@pytest.fixture(params=["kernel", "scan"])
def fast_form(request, without_cpp):
    """The C++ loop, and the scan of other devices."""
    if request.param == "scan":
        without_cpp()
    elif not has_cpu_kernels():
        pytest.skip("the C++ kernels are not compiled")


def random_inputs(shape, spread=1.0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    gates, values, grad = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3))
    return (gates * spread).sigmoid().to(dtype), values.to(dtype), grad.to(dtype)


def results(operator, forget, values, grad):
    leaves = [x.detach().clone().requires_grad_() for x in (forget, values)]
    out = operator(*leaves)
    out.backward(grad)
    return [x.detach().double() for x in (out, *(leaf.grad for leaf in leaves))]


@pytest.mark.usefixtures("fast_form")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("spread", [0.1, 1, 10])
def test_as_exact_as_the_equation(shape, spread):
    inputs = random_inputs(shape, spread)
    exact = results(equation, *(x.double() for x in inputs))
    for fast, eager, truth in zip(results(linear_recurrence, *inputs), results(equation, *inputs), exact, strict=True):
        error, allowed = ((x - truth).square().mean().sqrt() for x in (fast, eager))
        assert error <= 2 * allowed


def test_the_equation_is_the_equation():
    forget, values, _ = random_inputs((2, 4, 3), dtype=torch.float64)
    state = torch.zeros(2, 3, dtype=torch.float64)
    for i in range(4):
        state = forget[:, i] * state + (1 - forget[:, i]) * values[:, i]
        torch.testing.assert_close(equation(forget, values)[:, i], state)


@pytest.mark.usefixtures("fast_form")
@pytest.mark.parametrize("length", [1, 2, 7])
def test_derivatives(length):
    forget, values, _ = random_inputs((2, length, 3), dtype=torch.float64)
    leaves = (forget.requires_grad_(), values.requires_grad_())
    assert torch.autograd.gradcheck(linear_recurrence, leaves)


@pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ kernels are not compiled")
def test_registration():
    forget, values, grad = random_inputs((2, 5, 20))
    torch.library.opcheck(OPERATORS.linear_recurrence.default, (forget, values))
    states = OPERATORS.linear_recurrence(forget, values)
    torch.library.opcheck(OPERATORS.linear_recurrence_backward.default, (grad, forget, values, states))
    with pytest.raises(RuntimeError, match=r"forget: its shape is \(2, 5, 19\); give \(2, 5, 20\)"):
        OPERATORS.linear_recurrence(forget[..., 1:], values)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_computed_in_float32(dtype):
    forget, values, _ = random_inputs((2, 63, 20))
    forget, values = forget.to(dtype), values.to(dtype)
    expected = equation(forget.float(), values.float()).to(dtype)
    for implementation in ("auto", "eager"):
        states = linear_recurrence(forget, values, implementation=implementation)
        assert states.dtype == dtype
        torch.testing.assert_close(states, expected)


@pytest.mark.usefixtures("fast_form")
def test_memory_layout_and_empty_inputs():
    forget, values, grad = random_inputs((3, 10, 40))
    turned = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in (forget, values, grad)]
    plain = results(linear_recurrence, forget, values, grad)
    for one, other in zip(plain, results(linear_recurrence, *turned), strict=True):
        assert torch.equal(one, other)
    for shape in ((0, 3, 4), (2, 0, 4)):
        assert linear_recurrence(torch.zeros(shape), torch.zeros(shape)).shape == shape


def test_bad_arguments():
    x = torch.zeros(1, 2, 3)
    with pytest.raises(ValueError, match="implementation is 'fast'"):
        linear_recurrence(x, x, implementation="fast")
    with pytest.raises(ValueError, match=r"gates have shape \(1, 2, 1\), values \(1, 2, 3\)"):
        linear_recurrence(x[..., :1], x)


def test_compiles_with_gradients():
    torch.manual_seed(0)
    inputs = [torch.rand(2, 7, 3, requires_grad=True), torch.randn(2, 7, 3, requires_grad=True)]
    compiled = torch.compile(linear_recurrence, backend="eager", fullgraph=True)
    found, expected = (torch.autograd.grad(f(*inputs).sum(), inputs) for f in (compiled, linear_recurrence))
    torch.testing.assert_close(found, expected)
