"""Directional attention in its fast forms: against the eager form in float64, at the edges, under torch's tools.

An implementation's error is the root mean square of its distance from float64; it may be at most twice that of the
eager form in float32. (The largest distance of single elements is no measure for a ratio: the eager form exceeds twice
itself when its sums are taken in another order.) Where the eager form is exact by chance, a rounding counts.

``form`` selects what computes: the kernel of this machine, the torch form beside it, or the equations in slices, which
is what a checkpoint with its own code uses where the package is not installed.
"""

import functools

import pytest
import torch

from hf_blosan.kernels.directional import chunks
from hf_blosan.models import attention as F  # which computes padding as well

DIRECTIONS = ("forward", "backward", "diagonal", "full")
FAST = ("fused", "linear")


def random_inputs(B, N, D, spread=1.0, seed=0):
    """Keys, queries, values and a mask whose first row is padding only; |k| + |q| reaches about 7 times the spread."""
    generator = torch.Generator().manual_seed(seed)
    keys, queries, values = (torch.randn(B, N, D, generator=generator, dtype=torch.float64) for _ in range(3))
    mask = torch.rand(B, N, generator=generator) > 0.3
    mask[0] = False
    return keys * spread + spread, queries * spread, values, mask


def results(implementation, dtype, inputs, **options):
    """Output and gradients of a random projection of it."""
    *inputs, mask = inputs
    leaves = [x.to(dtype).clone().requires_grad_() for x in inputs]
    out = F.directional_attention(*leaves, key_mask=mask, implementation=implementation, **options)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64).to(dtype)
    (out * weights).sum().backward()
    return [out.detach(), *(leaf.grad for leaf in leaves)]


def rms(x):
    return x.double().pow(2).mean().sqrt().item()


def assert_as_exact_as_eager(inputs, **options):
    """Both fast implementations."""
    truth, eager = (results("eager", dtype, inputs, **options) for dtype in (torch.float64, torch.float32))
    names = ("out", "keys", "queries", "values")
    # A query with a single key has gradients of 0, of which only roundings are left.
    zero = torch.finfo(torch.float32).eps * 1e-2
    for implementation in FAST:
        got = results(implementation, torch.float32, inputs, **options)
        for name, actual, reference, expected in zip(names, got, eager, truth, strict=True):
            limit = 2 * max(rms(reference - expected), torch.finfo(torch.float32).eps / 4 * rms(expected)) + zero
            error = rms(actual - expected)
            assert error <= limit, f"{implementation}, {name}: {error / limit:.2f} times the limit"
            assert (actual[0] == 0).all()


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("spread", [0.015, 0.4, 1.0, 3.0, 30.0])
def test_error_is_at_most_twice_that_of_the_eager_form(spread, direction):
    """Every tier of the expansion, and what lies beyond the last one."""
    for N, D in ((1, 300), (2, 300), (17, 70), (63, 40), (100, 40)):
        assert_as_exact_as_eager(random_inputs(4, N, D, spread), direction=direction)


@pytest.mark.parametrize("window", [0, 1, 15, 16, 40, 1000])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_window(direction, window):
    assert_as_exact_as_eager(random_inputs(3, 100, 40), direction=direction, window=window)


def test_long_sums_stay_exact():
    assert_as_exact_as_eager(random_inputs(2, 600, 8), direction="forward")


def test_both_passes_of_auto_are_computed_alike():
    """Where the linear form pays in one pass only: scores are near -c and c, so that terms of gradients cancel."""
    keys, queries, values, mask = random_inputs(2, 128, 40)
    inputs = [*(11 * x.sign() + 0.1 * x for x in (keys - 1, queries)), values, mask]
    options = {"direction": "forward", "scale": 10.0}
    truth = results("eager", torch.float64, inputs, **options)
    fused, auto = (results(name, torch.float32, inputs, **options) for name in ("fused", "auto"))
    for one, other, expected in zip(fused, auto, truth, strict=True):
        assert rms(other - expected) <= 1.5 * rms(one - expected)


def test_window_hides_distant_keys():
    keys, queries, values, mask = random_inputs(3, 9, 4)
    options = {"direction": "full", "key_mask": mask}
    inside = F.directional_attention(
        keys[:, 3:8], queries[:, 3:8], values[:, 3:8], direction="full", key_mask=mask[:, 3:8]
    )
    windowed = F.directional_attention(keys, queries, values, window=2, **options)
    torch.testing.assert_close(windowed[:, 5], inside[:, 2])
    with pytest.raises(ValueError, match="window is -1; give the number of tokens"):
        F.directional_attention(keys, queries, values, window=-1, **options)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_forms(direction, form):
    for length, window in ((70, None), (70, 20), (1, 3), (16, 2)):
        assert_as_exact_as_eager(random_inputs(3, length, 12, 0.5), direction=direction, window=window)
    no_rows = [torch.zeros(0, 20, 4) for _ in range(3)]
    for implementation in FAST:
        assert F.directional_attention(*no_rows, direction=direction, implementation=implementation).shape[0] == 0


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_token_mask(direction, form):
    """One mask for all rows and one for each."""
    generator = torch.Generator().manual_seed(1)
    own = torch.rand(3, 70, 70, generator=generator) > 0.6
    own[1, 5] = False
    inputs = random_inputs(3, 70, 12)
    for window in (None, 20):
        for token_mask in (own[0], own, own.long()):
            options = {"direction": direction, "window": window, "token_mask": token_mask}
            assert_as_exact_as_eager(inputs, **options)
    assert (results("auto", torch.float32, inputs, **options)[0][1, 5] == 0).all()


def test_float64_is_computed_in_float64(form):
    """To the last digits, for narrow and wide scores, with every mask, window and block."""
    token_mask = torch.rand(3, 40, 40, generator=torch.Generator().manual_seed(1)) > 0.4
    for spread in (0.5, 30.0):
        inputs = random_inputs(3, 40, 21, spread)
        for direction in DIRECTIONS:
            for options in ({}, {"window": 7}, {"token_mask": token_mask}, {"block_length": 6}):
                options = {"direction": direction, **options}
                expected = results("eager", torch.float64, inputs, **options)
                for got, want in zip(results("auto", torch.float64, inputs, **options), expected, strict=True):
                    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_memory_does_not_grow_with_the_square_of_the_length(form, monkeypatch):
    """No tensor of N x N x D elements, forward and backward, with a token mask and without."""
    from torch.utils._python_dispatch import TorchDispatchMode

    largest = 0

    class Largest(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            largest = max(largest, *(x.numel() for x in torch.utils._pytree.tree_leaves(out) if torch.is_tensor(x)), 0)
            return out

    N, D = 600, 16
    monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", 1 << 19)
    monkeypatch.setattr(F, "CHUNK_ELEMENTS", 1 << 19)
    inputs = random_inputs(1, N, D)
    for options in ({}, {"token_mask": torch.ones(N, N, dtype=torch.bool)}):
        with Largest():
            results("auto", torch.float32, inputs, direction="full", **options)
    assert largest <= 1 << 19 < N * N * D / 2


@pytest.mark.parametrize("scale", [1.0, 5.0, 10.0, 25.0, 60.0])
def test_other_scales(scale):
    for spread in (1.0, 6.0):
        assert_as_exact_as_eager(random_inputs(3, 50, 40, spread), direction="backward", scale=scale)


@pytest.mark.parametrize("form", ["kernel", "torch"], indirect=True)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_window_of_padding_alone_gives_zero(direction, form):
    """Exactly, though running sums over distant chunks have included real tokens before."""
    keys, queries, values, mask = random_inputs(2, 200, 20)
    mask[1] = torch.arange(200) // 80 != 1  # tokens 80 ... 159 are padding
    options = {"direction": direction, "window": 36}
    assert_as_exact_as_eager((keys, queries, values, mask), **options)
    for implementation in FAST:
        out = results(implementation, torch.float32, (keys, queries, values, mask), **options)[0]
        assert (out[1, 118:121] == 0).all()


def test_gradients():
    keys, queries, values, mask = random_inputs(2, 4, 2)
    leaves = [x.requires_grad_() for x in (keys, queries, values)]
    token_mask = torch.rand(2, 4, 4, generator=torch.Generator().manual_seed(3)) > 0.4
    for direction in DIRECTIONS:
        for implementation in FAST:
            options = {"direction": direction, "key_mask": mask, "window": 2, "implementation": implementation}
            assert torch.autograd.gradcheck(functools.partial(F.directional_attention, **options), leaves)
            options["token_mask"] = token_mask
            assert torch.autograd.gradcheck(functools.partial(F.directional_attention, **options), leaves)


@pytest.mark.parametrize("implementation", F.IMPLEMENTATIONS)
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("length", [1, 2, 3, 7, 9])
def test_blocks_are_sentences_of_their_own(length, direction, implementation):
    *inputs, mask = random_inputs(4, length, 20)
    inputs, options = [x.float() for x in inputs], {"direction": direction, "implementation": implementation}
    leaves, others = ([x.clone().requires_grad_() for x in inputs] for _ in range(2))
    found = F.directional_attention(*leaves, key_mask=mask, block_length=3, **options)
    rows = [
        F.directional_attention(*(x[:, m : m + 3] for x in others), key_mask=mask[:, m : m + 3], **options)
        for m in range(0, length, 3)
    ]
    expected = torch.cat(rows, dim=1)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    for x in (found, expected):
        (x * inputs[0]).sum().backward()
    for one, other in zip(leaves, others, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("block_length", [None, 4])
@pytest.mark.parametrize("implementation", FAST)
def test_bias_and_keys_that_lie_beside_queries(implementation, block_length, form):
    """As the joint map of Bi-BloSAN's blocks leaves them: every other D features of one product."""
    *inputs, mask = random_inputs(4, 70, 20)
    bias = 2 * torch.randn(20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    arguments = [torch.cat(inputs[:2], dim=-1), inputs[2], bias]
    weights = torch.randn(4, 70, 20, generator=torch.Generator().manual_seed(7), dtype=torch.float64)

    def results(implementation, dtype):
        joint, values, bias = leaves = [x.to(dtype).requires_grad_() for x in arguments]
        options = {"bias": bias, "key_mask": mask, "block_length": block_length, "implementation": implementation}
        out = F.directional_attention(*joint.chunk(2, dim=-1), values, direction="forward", **options)
        return [out.detach(), *torch.autograd.grad(out, leaves, weights.to(dtype))]

    all_of_them = (
        results("eager", torch.float64),
        results("eager", torch.float32),
        results(implementation, torch.float32),
    )
    for expected, reference, actual in zip(*all_of_them, strict=True):
        limit = 2 * max(rms(reference - expected), torch.finfo(torch.float32).eps / 4 * rms(expected))
        assert rms(actual - expected) <= limit
    shifted = F.directional_attention(inputs[0], inputs[1] + bias, inputs[2], direction="forward", key_mask=mask)
    whole = F.directional_attention(*inputs, direction="forward", bias=bias, key_mask=mask, implementation="eager")
    torch.testing.assert_close(shifted, whole)


@pytest.mark.parametrize("implementation", F.IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bias_with_a_token_mask_and_in_low_precision(dtype, implementation):
    """As the equation has it in float64 for the same rounded numbers."""
    *inputs, mask = random_inputs(3, 9, 8)
    inputs = [x.to(dtype) for x in (*inputs, torch.linspace(-2, 2, 8))]
    token_mask = torch.rand(9, 9, generator=torch.Generator().manual_seed(1)) > 0.3
    options = {"direction": "full", "key_mask": mask, "token_mask": token_mask}
    for without in ((), ("token_mask",)):
        options = {name: value for name, value in options.items() if name not in without}
        keys, queries, values, bias = (x.double() for x in inputs)
        expected = F.directional_attention(keys, queries + bias, values, implementation="eager", **options)
        keys, queries, values, bias = inputs
        found = F.directional_attention(keys, queries, values, bias=bias, implementation=implementation, **options)
        assert found.dtype == dtype
        tolerance = max(1e-6, torch.finfo(dtype).eps)  # one rounding of the result
        torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


def test_kernel_on_several_threads_gives_the_same():
    inputs = random_inputs(5, 80, 70)
    alone = results("linear", torch.float32, inputs, direction="backward")
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        several = results("linear", torch.float32, inputs, direction="backward")
    finally:
        torch.set_num_threads(threads)
    for got, expected in zip(several, alone, strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize("implementation", F.IMPLEMENTATIONS)
def test_nan_is_not_hidden(implementation):
    keys, queries, values, _ = (x.float() for x in random_inputs(1, 40, 3))
    queries[0, 2, 1] = torch.nan
    out = F.directional_attention(keys, queries, values, direction="full", implementation=implementation)
    assert out.isnan().nonzero().tolist() == [[0, 2, 1]]
    keys, queries, values = (0.3 * torch.randn(1, 300, 4) for _ in range(3))
    keys[0, 40, 1] = torch.nan
    out = F.directional_attention(keys, queries, values, direction="backward", implementation=implementation)
    assert out[0, :40, 1].isnan().all() and not out[0, 40:].isnan().any()


@pytest.mark.parametrize("implementation", FAST)
def test_uninitialised_memory_is_never_read(implementation, form):
    """New memory is full of NaN, and so is what earlier calls leave in the memory of a thread."""
    inputs = random_inputs(3, 50, 20)
    expected = results(implementation, torch.float32, inputs, direction="diagonal")
    for x in random_inputs(1, 200, 20, torch.nan), random_inputs(1, 50, 20, torch.inf):
        results(implementation, torch.float32, x, direction="diagonal")
    torch.use_deterministic_algorithms(True)  # fills what torch.empty and the like return
    try:
        got = results(implementation, torch.float32, inputs, direction="diagonal")
    finally:
        torch.use_deterministic_algorithms(False)
    for one, other in zip(got, expected, strict=True):
        assert torch.equal(one, other)
