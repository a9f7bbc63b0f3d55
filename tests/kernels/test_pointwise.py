"""Steps of layers against torch's own operators: precision, edges, and what torch asks of an operator."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hf_blosan.kernels import pointwise
from hf_blosan.kernels.library import OPERATORS
from hf_blosan.models.attention import dense
from hf_blosan.models.layers import FusionGate
from hf_blosan.models.layers_heads import HeadLinear

pytestmark = pytest.mark.skipif(not pointwise.available(), reason="the C++ kernels are not compiled")

# The last two: more rows than one product, of small and of large matrices.
SHAPES = ((1, 1, 5), (3, 4, 16), (2, 63, 37), (4, 100, 300), (11, 100, 24), (9, 130, 130))


def random(*shape, seed=0, draw=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(100 * draw + seed))


def weights(*shape, seed=0, draw=0):
    return random(*shape, seed=seed, draw=draw) / shape[-1] ** 0.5


# What layers compute without the kernels, products over all rows at once.
def linear(x, weight, bias=None, elu=False):
    return pointwise._linear(elu, x, weight, bias)


def fusion_gate(first, second, first_weight, second_weight, *biases, mask=None):
    return pointwise._gated(first, second, None, None, first_weight, second_weight, *biases, mask)


def block_fusion(mapped, local, blocks, weight, bias, block_length=None):
    return pointwise._fused(block_length, mapped, local, blocks, weight, bias)


def heads_linear(x, weight, bias=None, elu=False):
    H, out, _ = weight.shape
    B, N = x.shape[0], x.shape[-2]
    rows = x.flatten(0, 1).expand(H, -1, -1) if x.dim() == 3 else x.transpose(0, 1).flatten(1, 2)
    if x.dim() == 3 and H > 2:
        y = F.linear(x.flatten(0, 1), weight.flatten(0, 1)).view(B * N, H, out).transpose(0, 1)
    else:
        y = torch.bmm(rows, weight.mT)
    y = y if bias is None else y + bias[:, None]
    return (F.elu(y) if elu else y).view(H, B, N, out).transpose(0, 1)


def heads_fusion_gate(v, attended, weight, bias, mask):
    D = v.shape[-1]
    v_HXD, attended_HXD = (x.transpose(0, 1).flatten(1, 2) for x in (v, attended))
    scores_HXD = torch.baddbmm(torch.bmm(v_HXD, weight[..., :D].mT), attended_HXD, weight[..., D:].mT)
    gate_HXD = torch.sigmoid(scores_HXD + bias[:, None])
    mixed_HXD = (gate_HXD * v_HXD + (1 - gate_HXD) * attended_HXD) * mask.flatten()[:, None]
    return mixed_HXD.unflatten(1, mask.shape).permute(1, 2, 0, 3).flatten(2)


def cases(B, N, D, draw=0):
    """Step, equation and tensors, for every combination of parts and masks."""
    draws, scaled = partial(random, draw=draw), partial(weights, draw=draw)
    x, mask = draws(B, N, D), draws(B, N, seed=9) > -0.5
    second, biases = draws(B, N, D, seed=1), [draws(D, seed=seed) for seed in (2, 3, 4)]
    for elu in (False, True):
        for bias in ([], [draws(D + 3, seed=6)]):

            def dense(x, weight, bias=None, elu=elu):
                return pointwise.linear(x, weight, bias, elu)

            yield dense, partial(linear, elu=elu), [x, scaled(D + 3, D, seed=5), *bias]
    for given in (None, mask):
        for count in (1, 3):
            yield (
                lambda *tensors, given=given: pointwise.fusion_gate(*tensors, mask=given),
                lambda *tensors, given=given: fusion_gate(*tensors, mask=given),
                [x, second, scaled(D, D, seed=5), scaled(D, D, seed=6), *biases[:count]],
            )
    yield (
        lambda first, second, one, other, *weights_and_bias: pointwise.fusion_gate(
            first, second, *weights_and_bias, first_input=one, second_input=other
        ),
        lambda *tensors: pointwise._gated(*tensors, None),
        [x, second, 2 * x, 0.5 * second, scaled(D, D, seed=5), scaled(D, D, seed=6), biases[0]],
    )
    for length in (None, 1, 3, N + 2):
        blocks = [] if length is None else [draws(B, -(-N // length), D, seed=7)]
        for local in ([], [second]):
            parts = 1 + len(blocks) + len(local)

            def arguments(mapped, *others, local=local, blocks=blocks, length=length):
                others = list(others)
                own = others.pop(0) if local else None
                return mapped, own, others.pop(0) if blocks else None, *others, length

            yield (
                lambda *tensors, arguments=arguments: pointwise.block_fusion(*arguments(*tensors)),
                lambda *tensors, arguments=arguments: block_fusion(*arguments(*tensors)),
                [x, *local, *blocks, scaled(2 * D, parts * D, seed=5), draws(2 * D, seed=6)],
            )
    for H in (1, 2, 4):
        v, attended = (
            draws(B, H, N, D, seed=1),
            draws(B, H, N, D, seed=2).transpose(0, 1).contiguous().transpose(0, 1),
        )
        weight = scaled(H, D + 1, D, seed=5)
        for elu in (False, True):
            for inputs in ([x, weight], [x, weight, draws(H, D + 1, seed=6)], [v, weight]):

                def of_each_head(x, *parameters, elu=elu):
                    return pointwise.heads_linear(x, *(list(stack) for stack in parameters), elu=elu)

                yield of_each_head, partial(heads_linear, elu=elu), inputs
        yield (
            lambda v, attended, weight, bias: pointwise.heads_fusion_gate(v, attended, [*weight], [*bias], mask),
            lambda *tensors: heads_fusion_gate(*tensors, mask),
            [v, attended, scaled(H, D, 2 * D, seed=5), draws(H, D, seed=6)],
        )


def results(function, inputs, dtype):
    leaves = [x.to(dtype).detach().clone().requires_grad_() for x in inputs]
    out = function(*leaves)
    grad = random(*out.shape, seed=8).to(dtype)
    return [x.detach().double() for x in (out, *torch.autograd.grad(out, leaves, grad))]


@pytest.mark.parametrize("shape", SHAPES)
def test_as_exact_as_torch(shape):
    """The error against float64: at most twice that of torch's operators in float32, or a rounding of the largest.

    Few numbers may be exact by chance: of those there are several draws.
    """
    draws = max(1, 200 // math.prod(shape))
    squares = {}
    for draw in range(draws):
        for case, (step, equation, inputs) in enumerate(cases(*shape, draw=draw)):
            truth = results(equation, inputs, torch.float64)
            forms = (results(f, inputs, torch.float32) for f in (step, equation))
            for i, (found, eager, exact) in enumerate(zip(*forms, truth, strict=True)):
                rounding = torch.finfo(torch.float32).eps * exact.abs().max()
                three = torch.stack([(found - exact).square().mean(), (eager - exact).square().mean(), rounding**2])
                squares[case, i] = squares.get((case, i), 0) + three
            for found, exact in zip(results(step, inputs, torch.float64), truth, strict=True):
                torch.testing.assert_close(found, exact, rtol=1e-11, atol=1e-12 * max(1.0, exact.abs().max().item()))
    for error, allowed, rounding in squares.values():
        assert error <= max(4 * allowed, rounding)


def test_without_gradients():
    """The operators that save nothing give the same numbers."""
    for step, _, inputs in cases(2, 63, 37):
        leaves = [x.clone().requires_grad_() for x in inputs]
        kept = step(*leaves)
        with torch.no_grad():
            assert torch.equal(step(*leaves), kept)
        assert torch.equal(step(*inputs), kept)


def test_some_inputs_without_gradients():
    for step, _, inputs in cases(2, 3, 5):
        every = results(step, inputs, torch.float32)[1:]
        for i, expected in enumerate(every):
            leaves = [x.clone().requires_grad_(j == i) for j, x in enumerate(inputs)]
            out = step(*leaves)
            (found,) = torch.autograd.grad(out, leaves[i], random(*out.shape, seed=8))
            torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_gradcheck():
    for step, _, inputs in cases(2, 4, 3):
        leaves = [x.double().requires_grad_() for x in inputs]
        assert torch.autograd.gradcheck(step, leaves)
        assert torch.autograd.gradgradcheck(step, leaves)


def test_many_gradients_at_once():
    for step, _, inputs in cases(2, 4, 5):
        leaves = [x.clone().requires_grad_() for x in inputs]
        out = step(*leaves)
        grads = torch.stack([random(*out.shape, seed=seed) for seed in (1, 2)])
        together = torch.autograd.grad(out, leaves, grads, is_grads_batched=True, retain_graph=True)
        for i in range(2):
            alone = torch.autograd.grad(out, leaves, grads[i], retain_graph=True)
            for one, other in zip(alone, together, strict=True):
                torch.testing.assert_close(other[i], one)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gate_whose_scores_are_known(shape, dtype):
    D, mask = shape[-1], random(*shape[:-1], seed=9) > -0.5
    first, second = random(*shape).to(dtype), random(*shape, seed=1).to(dtype)
    one, other = weights(D, D, seed=5).to(dtype), weights(D, D, seed=6).to(dtype)
    biases = [random(D, seed=seed).to(dtype) for seed in (2, 3, 4)]
    scores = [F.linear(first, one, biases[1]), F.linear(second, other, biases[2])]
    close = {"rtol": 1e-12, "atol": 1e-12} if dtype == torch.float64 else {}
    for given in (mask, None):
        expected = pointwise.fusion_gate(first, second, one, other, *biases, mask=given)
        for strided in (scores, [torch.stack([x, x], dim=-2)[..., 0, :] for x in scores]):
            found = pointwise.fusion_gate_of_scores(first, second, *strided, biases[0], mask=given)
            torch.testing.assert_close(found, expected, **close)


def test_frozen_tensors_cost_no_products():
    x, weight, bias = random(4, 5), weights(3, 5, seed=1), random(3, seed=2)
    for elu in (False, True):
        for frozen in range(3):
            leaves = [tensor.clone().requires_grad_(i != frozen) for i, tensor in enumerate((x, weight, bias))]
            wanted = [tensor for tensor in leaves if tensor.requires_grad]
            found, expected = (step(*leaves, elu).square().sum() for step in (pointwise.linear, linear))
            found, expected = (torch.autograd.grad(loss, wanted) for loss in (found, expected))
            torch.testing.assert_close(found, expected)
        _, to_weight, _ = OPERATORS.linear_backward.default(x @ weight.T, x, weight, None, True, False, False)
        assert to_weight.numel() == 0


@pytest.mark.parametrize("elu", [False, True])
def test_transforms_take_torchs_operators(elu):
    """Layers under vmap, with gradients and without, and under grad."""
    x, mask = random(6, 2, 3, 4), random(2, 3, seed=1) > -0.5
    dense_map, heads, gate = nn.Linear(4, 4), HeadLinear(3, 4, 4), FusionGate(4)
    nn.init.zeros_(gate.bias)
    activation = "elu" if elu else "linear"
    parameters = {name: parameter.detach() for name, parameter in gate.named_parameters()}
    for step in (
        lambda x: dense(dense_map, x, activation),
        lambda x: dense(heads, x, activation),
        lambda x: dense(heads, torch.stack([x] * 3, dim=1), activation),
        lambda x: gate(x, 2 * x, mask),
        lambda x: gate(x, 2 * x),
        lambda x: torch.func.functional_call(gate, parameters, (x, 2 * x, mask)),
    ):

        def loss(x, step=step):
            return step(x).square().sum()

        leaf = x[0].clone().requires_grad_()
        (expected,) = torch.autograd.grad(loss(leaf), leaf)
        torch.testing.assert_close(torch.func.grad(loss)(x[0]), expected)
        torch.testing.assert_close(torch.vmap(torch.func.grad(loss))(x)[0], expected)
        with torch.no_grad():
            torch.testing.assert_close(torch.vmap(step)(x), torch.stack([step(one) for one in x]))


def test_vmap_over_gradients():
    """Going back within vmap over what was computed outside."""
    for step, _, inputs in cases(2, 4, 5):
        leaves = [x.clone().requires_grad_() for x in inputs]
        out = step(*leaves)
        grads = torch.stack([random(*out.shape, seed=seed) for seed in (1, 2)])
        together = torch.vmap(partial(torch.autograd.grad, out, leaves, retain_graph=True))(grads)
        for i in range(2):
            alone = torch.autograd.grad(out, leaves, grads[i], retain_graph=True)
            for one, other in zip(alone, together, strict=True):
                torch.testing.assert_close(other[i], one)


def test_other_memory():
    """Steps between numbers, rows and batches, overlapping gradients, and what lies between is left alone."""
    for step, _, inputs in cases(3, 4, 6):
        expected = results(step, inputs, torch.float32)
        for spread in (
            lambda x: x.new_full((*x.shape, 2), torch.nan).select(-1, 0).copy_(x),
            lambda x: torch.cat([x, torch.full_like(x, torch.nan)], dim=-1)[..., : x.shape[-1]],
            lambda x: x.mT.contiguous().mT if x.dim() > 1 else x,
        ):
            leaves = [spread(x).detach().requires_grad_() for x in inputs]
            out = step(*leaves)
            found = out, *torch.autograd.grad(out, leaves, spread(random(*out.shape, seed=8)))
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)
        leaves = [x.clone().requires_grad_() for x in inputs]
        of_sum = torch.autograd.grad(step(*leaves).sum(), leaves)
        of_ones = torch.autograd.grad((step(*leaves) * torch.ones(())).sum(), leaves)
        for one, other in zip(of_sum, of_ones, strict=True):
            torch.testing.assert_close(one, other)


def test_extremes():
    x = torch.tensor([[float("nan"), float("inf"), -float("inf"), 200.0, -200.0, 0.0, -1e-8]])
    for dtype in (torch.float32, torch.float64):
        numbers, one, zeros = x.T.to(dtype), torch.ones(1, 1, dtype=dtype), torch.zeros(1, dtype=dtype)
        found = pointwise.linear(numbers, one, zeros, elu=True)
        torch.testing.assert_close(found, F.elu(numbers), equal_nan=True)
        for activation, equation in (("elu", F.elu), ("gelu", F.gelu)):
            expected = equation(numbers.double()).to(dtype)  # in float32 torch's gelu of infinity is NaN
            torch.testing.assert_close(pointwise.activated(numbers, activation), expected, equal_nan=True)
        scores = torch.tensor([[-1e4], [-200.0], [200.0], [1e4]], dtype=dtype)
        gates = pointwise.fusion_gate(torch.ones_like(scores), 0 * scores, one * 0, one * 0, zeros)
        torch.testing.assert_close(gates, torch.full_like(scores, 0.5))
        shares = pointwise.fusion_gate(scores, 0 * scores, one, one, zeros) / scores
        torch.testing.assert_close(shares, torch.sigmoid(scores), atol=1e-37, rtol=1e-6)


def test_what_the_mask_hides_is_not_read():
    poisoned, mask = torch.full((1, 2, 20), torch.nan), torch.tensor([[False, True]])
    poisoned[0, 1] = 1.0
    leaves = [poisoned.clone().requires_grad_() for _ in range(2)]
    square = weights(20, 20)
    out = pointwise.fusion_gate(*leaves, square, square, torch.zeros(20), mask=mask)
    assert (out[0, 0] == 0).all() and (out[0, 1] == 1).all()
    assert all(x.isfinite().all() for x in torch.autograd.grad(out.sum(), leaves))


def test_no_uninitialised_memory_is_read():
    expected = [results(step, inputs, torch.float32) for step, _, inputs in cases(3, 7, 21)]
    torch.use_deterministic_algorithms(True)  # with it torch.empty holds NaN
    try:
        assert torch.empty(3).isnan().all()
        for (step, _, inputs), others in zip(cases(3, 7, 21), expected, strict=True):
            for one, other in zip(results(step, inputs, torch.float32), others, strict=True):
                assert torch.equal(one, other)
    finally:
        torch.use_deterministic_algorithms(False)


def test_no_rows():
    for shape in ((0, 3, 4), (2, 0, 4)):
        for step, equation, inputs in cases(*shape):
            pairs = (results(function, inputs, torch.float32) for function in (step, equation))
            for found, expected in zip(*pairs, strict=True):
                assert torch.equal(found, expected)


def test_several_threads_give_the_same():
    found = []
    for threads in (1, 3):  # one again after the test
        torch.set_num_threads(threads)
        found.append([results(step, inputs, torch.float64) for step, _, inputs in cases(4, 100, 301)])
    for one, other in zip(*found, strict=True):
        for x, y in zip(one, other, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-11)


def test_wrong_tensors_are_refused():
    x, square, bias, mask = random(2, 3, 4), random(4, 4), random(4), torch.ones(2, 3, dtype=torch.bool)
    stack = random(2, 2, 3, 4)
    refused = (
        (pointwise.linear, (x, random(4, 5), bias)),
        (pointwise.linear, (x, square, random(5))),
        (pointwise.linear, (x, square.double(), bias)),
        (pointwise.linear, (x.int(), square, bias)),
        (pointwise.activated, (x.int(), "elu")),
        (pointwise.activated, (x[0, 0, 0], "elu")),
        (pointwise.activated, (x, "linear")),
        (pointwise.activated, (x, "relu")),
        (pointwise.fusion_gate, (x, x[:1], square, square, bias)),
        (pointwise.fusion_gate, (x, x, square[:3], square, bias)),
        (pointwise.fusion_gate, (x, x, square, square, bias[:3])),
        (partial(pointwise.fusion_gate, mask=mask[:1]), (x, x, square, square, bias)),
        (partial(pointwise.fusion_gate, mask=mask.float()), (x, x, square, square, bias)),
        (partial(pointwise.fusion_gate_of_scores, mask=None), (x, x, x[:1], x, bias)),
        (partial(pointwise.fusion_gate_of_scores, mask=None), (x, x, x, x[:1], bias)),
        (partial(pointwise.fusion_gate_of_scores, mask=None), (x, x, x, x, bias[:3])),
        (pointwise.block_fusion, (x, None, x, random(8, 8), random(8), 2)),
        (pointwise.block_fusion, (x, None, x[:, :2], random(8, 8), random(8))),
        (pointwise.block_fusion, (x, None, x[:, :2], random(8, 8), random(8), 0)),
        (pointwise.block_fusion, (x, x, None, random(8, 4), random(8))),
        (pointwise.block_fusion, (x[0], None, None, random(8, 4), random(8))),
        (pointwise.heads_linear, (x, [])),
        (pointwise.heads_linear, (x, [random(4, 5), random(4, 5)])),
        (pointwise.heads_linear, (x, [square, random(5, 4)])),
        (pointwise.heads_linear, (x, [square, square.double()])),
        (pointwise.heads_linear, (stack, [square] * 3)),
        (pointwise.heads_linear, (x, [square] * 2, [bias])),
        (pointwise.heads_linear, (x, [square] * 2, [bias, bias[:3]])),
        (pointwise.heads_fusion_gate, (stack, stack, [square] * 2, [bias] * 2, mask)),
        (pointwise.heads_fusion_gate, (stack, stack, [random(4, 8)] * 3, [bias] * 2, mask)),
        (pointwise.heads_fusion_gate, (stack, stack, [random(4, 8)] * 2, [bias], mask)),
        (pointwise.heads_fusion_gate, (stack, stack[:1], [random(4, 8)] * 2, [bias] * 2, mask)),
        (pointwise.heads_fusion_gate, (stack, stack, [random(4, 8)] * 2, [bias] * 2, mask.int())),
    )
    for step, arguments in refused:
        with pytest.raises(RuntimeError):
            step(*arguments)


def test_where_they_serve():
    assert pointwise.available(torch.zeros(1), torch.zeros(2))
    assert not pointwise.available(torch.zeros(1), torch.zeros(2, dtype=torch.float64))
    assert not pointwise.available(torch.zeros(1, dtype=torch.bfloat16))
    assert not pointwise.available(torch.zeros(1, device="meta"))
    with torch.autocast("cpu", torch.bfloat16):
        assert not pointwise.available(torch.zeros(1))
    found = []
    torch.vmap(lambda x: found.append(pointwise.available(torch.zeros(1))) or x)(torch.zeros(2))
    torch.func.grad(lambda x: found.append(pointwise.available(x)) or x)(torch.zeros(()))
    assert found == [False, False]


def test_registration():
    x, square, bias, mask = random(2, 3, 4), random(4, 4), random(4), torch.ones(2, 3, dtype=torch.bool)
    blocks, wide, twice = random(2, 2, 4), random(8, 12), random(8)
    stack, heads, gates, biases = random(2, 2, 3, 4), [square] * 2, [random(4, 8)] * 2, [bias] * 2
    rows, of_blocks = random(6, 8), random(4, 8)
    calls = {
        "linear": [(x, square, bias, True), (x, square, None, False)],
        "activated": [(x, "elu"), (x.mT, "gelu")],
        "linear_backward": [(x, x, square, y, *[needed] * 3) for y, needed in ((x, True), (None, False))],
        "fusion_gate": [(x, x, None, x, square, square, bias, None, bias, mask, save) for save in (True, False)],
        "fusion_gate_of_scores": [(x, x, x, x, bias, given) for given in (mask, None)],
        "fusion_gate_backward": [(x, x, x, None, None, square, square, mask, x, bias)],
        "block_fusion": [(x, x, blocks, wide, twice, 2, save) for save in (True, False)],
        "block_fusion_backward": [
            (x, x, x, blocks, wide, rows, of_blocks, 2),
            (x, x, None, None, wide[:, :4], rows, twice, None),
        ],
        "heads_linear": [(x, heads, biases, True), (stack, heads, [], False)],
        "heads_linear_backward": [(stack, x, heads, stack, True, True), (stack, stack, heads, None, True, False)],
        "heads_fusion_gate": [(stack, stack, gates, biases, mask, save) for save in (True, False)],
        "heads_fusion_gate_backward": [(random(2, 3, 8), stack, stack, gates, biases, mask, random(2, 6, 4))],
    }
    for name, several in calls.items():
        for arguments in several:
            # There are no fake forms: `available` leaves other tensors than real ones to torch.
            torch.library.opcheck(getattr(OPERATORS, name).default, arguments, test_utils=("test_schema",))


def test_gelu():
    numbers = torch.cat([torch.linspace(-12, 12, 100_001), torch.tensor([-1e30, -1e-30, 0, 1e-30, 1e30])])[:, None]
    found, exact = pointwise.activated(numbers, "gelu"), F.gelu(numbers.double())
    errors, allowed = (found - exact).abs(), (F.gelu(numbers) - exact).abs().max()
    assert errors[numbers.abs() < 100].max() <= 1.5 * allowed
    assert errors.max() <= 1e-6 * exact.max()
    torch.testing.assert_close(pointwise.activated(numbers.double(), "gelu"), exact, rtol=1e-14, atol=1e-15)
