"""The way of operators past torch's dispatcher, and when they go through it."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hf_blosan import functional as F
from hf_blosan.models.operator_blosan import operator

seen = []


@operator("for_tests")
def double(x: torch.Tensor, times: int) -> torch.Tensor:
    seen.append(type(x))
    return x * 2 * times


@double.register_fake
def _(x, times):
    seen.append("fake")
    return torch.empty_like(x)


class Names(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def test_without_observers_the_function_itself_is_called(monkeypatch):
    x = torch.ones(2)
    monkeypatch.setattr(double, "op", None)
    with torch.no_grad():
        assert torch.equal(double(x, 2), x * 4)
    with pytest.raises(TypeError):  # with gradients there would be the operator
        double(x, 2)


@pytest.mark.parametrize("grad", [False, True])
def test_modes_and_profilers_see_the_operator(grad):
    x = torch.ones(2)
    with torch.set_grad_enabled(grad), Names() as mode:
        double(x, 1)
    assert "hf_blosan.for_tests.default" in mode.names
    with torch.set_grad_enabled(grad), torch.profiler.profile() as profile:
        double(x, 1)
    assert "hf_blosan::for_tests" in {event.key for event in profile.key_averages()}


def test_tensors_without_numbers_get_the_fake():
    seen.clear()
    with torch.no_grad():
        assert double(torch.ones(2, device="meta"), 1).is_meta
    assert seen == ["fake"]


def test_a_tensor_of_another_kind_is_left_to_the_dispatcher():
    class Kind(torch.Tensor):
        pass

    seen.clear()
    with torch.no_grad(), Names() as mode:
        double(torch.ones(2).as_subclass(Kind), 1)
    assert "hf_blosan.for_tests.default" in mode.names


def test_vmap():
    with torch.no_grad():
        assert torch.equal(torch.vmap(lambda x: double(x, 1))(torch.ones(3, 2)), torch.full((3, 2), 2.0))


@pytest.mark.parametrize("implementation", F.IMPLEMENTATIONS)
def test_gradients_for_several_directions_at_once(implementation):
    """Backward passes run without gradients of their own, here on tensors of vmap."""
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.randn(2, 5, 4, generator=generator).requires_grad_() for _ in range(3)]
    out = F.directional_attention(*leaves, direction="forward", implementation=implementation)
    directions = torch.randn(3, *out.shape, generator=generator)
    together = torch.autograd.grad(out, leaves, directions, is_grads_batched=True, retain_graph=True)
    for i, direction in enumerate(directions):
        for found, expected in zip(
            together, torch.autograd.grad(out, leaves, direction, retain_graph=True), strict=True
        ):
            torch.testing.assert_close(found[i], expected)


def test_a_trace_holds_the_operator():
    with torch.no_grad():
        traced = torch.jit.trace(lambda x: double(x, 1), torch.ones(2))
        assert torch.equal(traced(torch.full((2,), 3.0)), torch.full((2,), 6.0))
