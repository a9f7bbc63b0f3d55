"""Dropout of the kernels has the distribution of torch's."""

import pytest
import torch

from hf_blosan.kernels import dropout

COUNT = 40_001


@pytest.mark.parametrize("p", [0.1, 0.35, 0.5, 0.999])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_distribution(p, dtype):
    torch.manual_seed(0)
    kept = dropout(torch.ones(COUNT, dtype=dtype), p) != 0
    deviation = (p * (1 - p) / COUNT) ** 0.5
    assert abs(kept.float().mean() - (1 - p)) < 4 * deviation
    # All four parts of a random word are uniform, and neighbours are independent.
    for part in range(4):
        assert abs(kept[part::4].float().mean() - (1 - p)) < 8 * deviation
    for distance in (1, 2, 3, 4):
        both = (kept[distance:] & kept[:-distance]).float().mean()
        assert abs(both - (1 - p) ** 2) < 8 * deviation


def test_values_and_gradient():
    torch.manual_seed(1)
    x = torch.randn(3, 5, 7, requires_grad=True)
    result = dropout(x, 0.3)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    kept = gradient != 0
    assert 0 < kept.sum() < x.numel()
    torch.testing.assert_close(gradient[kept], torch.full_like(gradient[kept], 1 / 0.7), rtol=2e-5, atol=0)
    assert torch.equal(result, x * gradient)


def test_same_generator_same_mask():
    x = torch.ones(100)
    torch.manual_seed(2)
    first, second = dropout(x, 0.5), dropout(x, 0.5)
    torch.manual_seed(2)
    assert torch.equal(dropout(x, 0.5), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize(("p", "training", "expected"), [(0.0, True, 1), (0.9, False, 1), (1.0, True, 0)])
def test_nothing_random(p, training, expected):
    state = torch.get_rng_state()
    assert torch.equal(dropout(torch.ones(4, 0, 9), p, training), torch.ones(4, 0, 9))
    assert torch.equal(dropout(torch.ones(9), p, training), torch.full((9,), float(expected)))
    assert p == 1 or torch.equal(torch.get_rng_state(), state)


def test_one_graph_in_training():
    torch.manual_seed(3)
    compiled = torch.compile(dropout, fullgraph=True, backend="aot_eager", dynamic=True)
    x = torch.randn(50, 40, requires_grad=True)
    result = compiled(x, 0.5)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    assert set(gradient.unique().tolist()) == {0, 2}
    torch.testing.assert_close(result, x * gradient)
