"""elu(x + b) and gated sums by their kernels against torch's operators in float64, output and gradients."""

import pytest
import torch
from torch.nn import functional as F

from hf_blosan import DiSANConfig, DiSANModel
from hf_blosan.models import fused_pointwise_blosan as fused
from hf_blosan.models import team_cpu_blosan
from hf_blosan.models.kernels_cpu_blosan import available

pytestmark = pytest.mark.skipif(not available(), reason="numba (extra fast) is not installed")

SHAPES = ((1, 1, 5), (3, 4, 16), (2, 63, 37), (4, 100, 300))


def random(*shape, seed=0, spread=1.0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * spread


def elu_of_sum(x, bias):
    """As layers have it without the kernel: the derivative comes from the result."""
    return F.elu(x.view(len(bias), -1, x.shape[-1]) + bias[:, None], inplace=True).view(x.shape)


def gated_sum(scores, bias, first, second, mask=None):
    gate = torch.sigmoid(scores + (bias[:, None] if bias.dim() == 2 else bias))
    mixed = gate * first + (1 - gate) * second
    return mixed if mask is None else mixed * mask[..., None]


def with_mask(*inputs):
    return fused.gated_sum(*inputs[:-1], mask=inputs[-1])


def results(function, inputs, grad, *others):
    leaves = [x.clone().requires_grad_() for x in inputs]
    out = function(*leaves, *others)
    gradients = torch.autograd.grad(out, leaves, grad.to(out.dtype))
    return [x.detach().double() for x in (out, *gradients)]


def assert_as_exact(kernel, equation, inputs, grad, *others):
    """The error against float64: at most twice that of torch's operators in float32, or a rounding of the largest."""
    exact = results(equation, [x.double() for x in inputs], grad, *others)
    found, plain = results(kernel, inputs, grad, *others), results(equation, inputs, grad, *others)
    for fast, eager, truth in zip(found, plain, exact, strict=True):
        error, allowed = ((x - truth).square().mean().sqrt() for x in (fast, eager))
        rounding = torch.finfo(torch.float32).eps * truth.abs().max()  # for few numbers, which may be exact by chance
        assert error <= max(2 * allowed, rounding)


@pytest.mark.parametrize("spread", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_elu_of_sum(shape, parts, spread):
    x = random(*shape, spread=spread).repeat(parts, 1, 1)
    bias = random(parts, shape[-1], seed=1, spread=spread)
    assert_as_exact(fused.elu_of_sum, elu_of_sum, [x, bias], random(*x.shape, seed=2))
    with torch.no_grad():
        expected, memory = elu_of_sum(x.double(), bias.double()), x.clone()
        found = fused.elu_of_sum(memory, bias)
    assert found.data_ptr() == memory.data_ptr()
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-7 * spread)


@pytest.mark.parametrize("masked", ["no", "one", "each"])
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_gated_sum(shape, each, masked):
    G, N, D = 2 * shape[0], *shape[1:]
    scores, first, second = (random(G, N, D, seed=seed, spread=3) for seed in range(3))
    mask = {"no": None, "one": random(N, seed=5) > 0, "each": random(G, N, seed=5) > 0}[masked]
    inputs = [scores, random(*([G, D] if each else [D]), seed=4), first, second]
    assert_as_exact(with_mask, gated_sum, inputs, random(G, N, D, seed=6), mask)
    expected = gated_sum(*inputs, mask)
    wide = torch.full((G, N, 2 * D), 7.0)
    with torch.no_grad():
        fused.gated_sum(*inputs, mask=mask, out=wide[..., D:])
    torch.testing.assert_close(wide[..., D:], expected, rtol=1e-5, atol=1e-6)
    assert (wide[..., :D] == 7).all()


def gated_candidate(scores, bias, second, block_length=None):
    if block_length is not None:
        bias = torch.stack([bias[:, i // block_length] for i in range(scores.shape[1])], dim=1)
    candidate, gate = (scores + bias).chunk(2, dim=-1)
    return gated_sum(gate, torch.zeros_like(gate[0, 0]), F.elu(candidate), second)


def with_blocks(scores, bias, second, block_length=None):
    return fused.gated_candidate(scores, bias, second, block_length=block_length)


@pytest.mark.parametrize("block_length", [None, 1, 3])
@pytest.mark.parametrize("shape", [*SHAPES, (2, 2, 20), (2, 6, 20), (2, 7, 20)])
def test_gated_candidate(shape, block_length):
    B, N, D = shape
    bias = random(2 * D, seed=2) if block_length is None else random(B, -(-N // block_length), 2 * D, seed=2)
    inputs = [random(B, N, 2 * D, spread=3), bias, random(B, N, D, seed=1)]
    assert_as_exact(with_blocks, gated_candidate, inputs, random(B, N, D, seed=3), block_length)
    wide = torch.full((B, N, 2 * D), 7.0)
    with torch.no_grad():
        fused.gated_candidate(*inputs, block_length=block_length, out=wide[..., D:])
    torch.testing.assert_close(wide[..., D:], gated_candidate(*inputs, block_length), rtol=1e-5, atol=1e-6)
    assert (wide[..., :D] == 7).all()


def test_extremes():
    x = torch.tensor([[float("nan"), float("inf"), -float("inf"), 200.0, -200.0, 0.0, -1e-8]])
    zero = torch.zeros(7)
    with torch.no_grad():
        found = fused.elu_of_sum(x.clone(), zero)
        torch.testing.assert_close(found, F.elu(x), equal_nan=True)
        gates = fused.gated_sum(x[None], zero, torch.ones(1, 1, 7), torch.zeros(1, 1, 7))
        torch.testing.assert_close(gates[0], torch.sigmoid(x), equal_nan=True, atol=1e-37, rtol=1e-6)
        poisoned = torch.full((1, 1, 7), float("nan"))
        hidden = fused.gated_sum(poisoned, zero, poisoned, poisoned, mask=torch.tensor([False]))
    assert (hidden == 0).all()


def test_second_derivatives():
    inputs = [random(2, 3, 5), random(1, 5, seed=1), random(2, 3, 5, seed=2), random(2, 3, 5, seed=3)]
    of_blocks = [random(2, 3, 10), random(2, 2, 10, seed=1), random(2, 3, 5, seed=2)]
    pairs = (
        (fused.elu_of_sum, elu_of_sum, inputs[:2]),
        (fused.gated_sum, gated_sum, [inputs[0], random(2, 5, seed=1), *inputs[2:]]),
        (fused.gated_sum, gated_sum, [inputs[0], random(5, seed=1), *inputs[2:]]),
        (lambda *x: with_blocks(*x, 2), lambda *x: gated_candidate(*x, 2), of_blocks),
        (with_blocks, gated_candidate, [of_blocks[0], random(10, seed=1), of_blocks[2]]),
    )
    for kernel, equation, arguments in pairs:
        found = []
        for function in (kernel, equation):
            leaves = [x.clone().requires_grad_() for x in arguments]
            slopes = torch.autograd.grad(function(*leaves).pow(2).sum(), leaves, create_graph=True)
            found.append(torch.autograd.grad(sum(slope.sin().sum() for slope in slopes), leaves))
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_no_rows():
    x, bias = torch.zeros(0, 3, 4, requires_grad=True), torch.zeros(4, requires_grad=True)
    blocks = torch.zeros(0, 2, 4, requires_grad=True)
    for add, out in (
        (bias, fused.elu_of_sum(x, bias)),
        (bias, fused.gated_sum(x, bias, x, x)),
        (bias, fused.gated_candidate(x, bias, x[..., :2])),
        (blocks, fused.gated_candidate(x, blocks, x[..., :2], block_length=2)),
    ):
        assert out.shape[:2] == x.shape[:2]
        gradients = torch.autograd.grad(out.sum(), (x, add))
        assert [gradient.shape for gradient in gradients] == [x.shape, add.shape]


def test_rows_apart_in_memory():
    wide = random(4, 32)
    with torch.no_grad():
        found = fused.elu_of_sum(wide[:, :16], torch.zeros(16))
    torch.testing.assert_close(found, F.elu(random(4, 32)[:, :16]))
    assert torch.equal(wide[:, 16:], random(4, 32)[:, 16:])


def test_wrong_shapes_are_refused():
    x, bias = torch.zeros(2, 3, 4), torch.zeros(4)
    with torch.no_grad():
        for options, word in (
            ({"mask": torch.ones(2, dtype=torch.bool)}, "mask"),
            ({"out": torch.zeros(2, 3, 5)}, "out"),
            ({"out": torch.zeros(2, 4, 3).transpose(1, 2)}, "side by side"),
        ):
            with pytest.raises(ValueError, match=word):
                fused.gated_sum(x, bias, x, x, **options)
        with pytest.raises(ValueError, match="second"):
            fused.gated_sum(x, bias, x, x[:1])
        for scores, wrong, options in ((x, bias, {}), (x[..., :2], torch.zeros(2, 1, 4), {"block_length": 2})):
            with pytest.raises(ValueError, match="scores|bias"):
                fused.gated_candidate(scores, wrong, x[..., :2] if options else x, **options)
        with pytest.raises(ValueError, match="bias"):
            fused.gated_sum(x, torch.zeros(3, 4), x, x)
    with pytest.raises(ValueError, match="no gradient"):
        fused.gated_sum(x, bias, x, x, out=torch.zeros(2, 3, 4))


def test_a_hook_may_put_something_else_in_place():
    torch.manual_seed(0)
    context = DiSANModel(DiSANConfig(vocab_size=2, embedding_size=20, hidden_size=40)).context
    context.layers[0].directions[1].register_forward_hook(
        lambda module, inputs, out: (torch.zeros_like(out[0]), out[1])
    )
    with torch.no_grad():
        tokens = context(random(2, 6, 20))[0]
    assert (tokens[..., 20:] == 0).all()
    assert (tokens[..., :20] != 0).any()


def test_several_threads_give_the_same(monkeypatch):
    inputs = [random(3, 7, 20), random(20, seed=1), random(3, 7, 20, seed=2), random(3, 7, 20, seed=3)]
    of_blocks = [random(3, 7, 40), random(3, 3, 40, seed=1), random(3, 7, 20, seed=2)]

    def all_results():
        return [*results(fused.gated_sum, inputs, inputs[0]), *results(with_blocks, of_blocks, inputs[0], 3)]

    alone = all_results()
    monkeypatch.setattr(team_cpu_blosan, "WORK_PER_THREAD", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    for one, other in zip(all_results(), alone, strict=True):
        assert torch.equal(one, other)


def test_registration():
    x, bias = random(4, 20).requires_grad_(), random(2, 20, seed=1).requires_grad_()
    torch.library.opcheck(fused._elu.op, (x, bias))
    torch.library.opcheck(fused._elu_.op, (x.detach(), bias.detach()))
    scores, first, second = (random(2, 3, 20, seed=seed).requires_grad_() for seed in range(3))
    mask = torch.tensor([True, False, True])
    inputs = scores, bias, first, second, mask
    torch.library.opcheck(fused._gated_sum.op, inputs)
    out = torch.empty(2, 3, 20)
    torch.library.opcheck(fused._gated_sum_.op, (*(x.detach() for x in inputs), out))
    inputs = random(2, 3, 40).requires_grad_(), random(2, 2, 40, seed=1).requires_grad_(), second
    torch.library.opcheck(fused._gated_candidate.op, (*inputs, 2))
    torch.library.opcheck(fused._gated_candidate_.op, (*(x.detach() for x in inputs), out, 2))


def test_layers_are_the_same_with_torch_alone(monkeypatch):
    torch.manual_seed(0)
    context = DiSANModel(DiSANConfig(vocab_size=2, embedding_size=20, hidden_size=40)).context
    inputs = random(2, 6, 20), torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    with torch.no_grad():
        found = context(*inputs)[0]
    kept = context(*inputs)[0]
    for module in ("layers", "encoder"):
        monkeypatch.setattr(f"hf_blosan.models.{module}.kernel_takes", lambda implementation, *tensors: False)
    expected = context(*inputs)[0]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(kept, expected, rtol=1e-5, atol=1e-6)
