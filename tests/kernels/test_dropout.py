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


def test_the_default_device_of_torch_does_not_matter():
    x = torch.ones(9)
    with torch.device("meta"):
        assert dropout(x, 0.5).device == x.device


def test_values_and_gradient():
    torch.manual_seed(1)
    x = torch.randn(3, 5, 7, requires_grad=True)
    result = dropout(x, 0.3)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    kept = gradient != 0
    assert 0 < kept.sum() < x.numel()
    torch.testing.assert_close(gradient[kept], torch.full_like(gradient[kept], 1 / 0.7), rtol=2e-5, atol=0)
    assert torch.equal(result, x * gradient)


LAYOUTS = {
    "vector": torch.randn(5001),
    "rows": torch.randn(40, 300),
    "heads first in memory": torch.randn(7, 5, 20, 33).transpose(0, 1),
    "features not last in memory": torch.randn(5, 33, 20, 7).transpose(1, 3),
    "expanded": torch.randn(4, 1, 30, 50).expand(4, 8, 30, 50),
    "five dimensions": torch.randn(3, 4, 5, 6, 70, dtype=torch.float64).transpose(1, 2),
}


@pytest.mark.parametrize("copies", [None, 1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_and_copies(layout, copies):
    """An element is dropped by its place, whatever the order in memory; gradients are those of a masked product."""

    def dropped(x):
        torch.manual_seed(5)
        return dropout(x, 0.3, copies=copies)

    x = LAYOUTS[layout].detach().requires_grad_()
    y, mask = dropped(x), dropped(torch.ones_like(x, memory_format=torch.contiguous_format))
    assert y.shape == mask.shape == ((copies, *x.shape) if copies else x.shape)
    assert abs((mask != 0).double().mean() - 0.7) < 5 * (0.21 / mask.numel()) ** 0.5
    torch.testing.assert_close(y, x * mask, rtol=1e-6, atol=0)
    grad = torch.randn_like(y)
    (to_x,) = torch.autograd.grad(y, x, grad)
    torch.testing.assert_close(to_x, (grad * mask).sum(0) if copies else grad * mask)
    (first,) = torch.autograd.grad(dropped(x * x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 2 * (mask.sum(0) if copies else mask))


def test_transforms_of_torch():
    """vmap says whether rows share their random numbers; forward mode has the derivative of the mask."""
    x = torch.ones(6, 500)
    same = torch.vmap(lambda row: dropout(row, 0.5), randomness="same")(x)
    different = torch.vmap(lambda row: dropout(row, 0.5), randomness="different")(x)
    assert torch.equal(same[0], same[5]) and not torch.equal(different[0], different[5])
    with torch.autograd.forward_ad.dual_level():
        y, tangent = torch.autograd.forward_ad.unpack_dual(
            dropout(torch.autograd.forward_ad.make_dual(x, torch.full_like(x, 3)), 0.5)
        )
    assert torch.equal(tangent, 3 * y) and (y == 0).any()


def test_copies_rows_and_seeds_are_unrelated():
    torch.manual_seed(0)
    masks = (dropout(torch.ones(300, 200), 0.5, copies=4) != 0).double() * 2 - 1
    later = (dropout(torch.ones(300, 200), 0.5, copies=4) != 0).double() * 2 - 1
    deviation = masks[0].numel() ** -0.5
    for first, second in [(masks[0], masks[1]), (masks[2], masks[3]), (masks[0], later[0]), (masks[3], later[2])]:
        assert abs((first * second).mean()) < 4 * deviation
    rows = masks.flatten(0, 1)
    products = rows @ rows.T / 200
    products.fill_diagonal_(0)
    assert products.abs().max() < 7 * 200**-0.5
    assert abs(products.std() - 200**-0.5) < 0.02 * 200**-0.5


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
