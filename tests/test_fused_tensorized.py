"""MTSA's attention in its fast forms: against float64, at the edges, and what torch asks of an operator."""

import pytest
import torch
from torch.nn.attention import flex_attention

from hf_blosan.functional import DIRECTIONS
from hf_blosan.models import equations as F
from hf_blosan.models import fused_tensorized_blosan as fused_module
from hf_blosan.models.fused_tensorized_blosan import tensorized_attention

MIXED = list(DIRECTIONS)


def random_inputs(B, H, N, D, *, spread=1.0, seed=0, dtype=torch.float64, device="cpu"):
    """q, k, v, source scores and a ragged mask whose first row is all padding."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v, scores = (torch.randn(B, H, N, D, generator=generator, dtype=dtype) for _ in range(4))
    mask = torch.rand(B, N, generator=generator) > 0.3
    mask[0] = False
    if B > 1:
        mask[1] = True
    return [x.to(device) for x in (q, k, v, scores * spread, mask)]


def results(operator, dtype, inputs, **options):
    """Output and the gradients of a random projection of it, in float64."""
    leaves = [x.to(dtype).clone().requires_grad_() for x in inputs]
    out = operator(*leaves, **options)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    (out * weights.to(out)).sum().backward()
    return [out.detach().double(), *(leaf.grad.double() for leaf in leaves)]


def rms(x):
    return x.square().mean().sqrt().item()


def fused(*inputs, **options):
    return tensorized_attention(*inputs, implementation="fused", **options)


def flex(q, k, v, scores, *, key_mask=None, score_function="sigmoid", include_self=False, directions, windows=None):
    options = {"key_mask": key_mask, "score_function": score_function, "include_self": include_self}
    heads = F.for_each_head(directions, windows, q.shape[1])
    return fused_module._flex(q, k, v, scores, heads=heads, **options)


def assert_as_exact_as_eager(operator, inputs, **options):
    """Output and gradients: at most twice the error of the eager form in float32, as root mean squares.

    Where that is exact by chance, a rounding counts: of the terms, as large as the values, where a gradient cancels.
    """
    size = rms(inputs[2])
    truth = results(F.tensorized_attention, torch.float64, inputs, **options)
    eager = results(F.tensorized_attention, torch.float32, inputs, **options)
    for got, rough, exact in zip(results(operator, torch.float32, inputs, **options), eager, truth, strict=True):
        assert got.isfinite().all()
        rounding = torch.finfo(torch.float32).eps / 4 * (rms(exact) if rms(exact) > 1e-6 * size else size)
        assert rms(got - exact) <= 2 * max(rms(rough - exact), rounding)
    for got, exact in zip(results(operator, torch.float64, inputs, **options), truth, strict=True):
        torch.testing.assert_close(got, exact, rtol=1e-9, atol=1e-9 * float(exact.abs().max().clamp(min=1.0)))


@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("score_function", F.SCORE_FUNCTIONS)
@pytest.mark.parametrize("length", [1, 2, 63, 100])
def test_fused_is_as_exact_as_eager(length, score_function, include_self, monkeypatch):
    """One tile, and several: the last one smaller."""
    *inputs, mask = random_inputs(3, 4, length, 20)
    options = {"directions": MIXED, "key_mask": mask, "score_function": score_function, "include_self": include_self}
    assert_as_exact_as_eager(fused, inputs, **options)
    monkeypatch.setattr(fused_module, "TILE_QUERIES", 24)
    monkeypatch.setattr(fused_module, "GROUP_ELEMENTS", 2 * 2 * length * 20)
    assert_as_exact_as_eager(fused, inputs, **options)


@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("score_function", F.SCORE_FUNCTIONS)
@pytest.mark.parametrize("window", [0, 1, 5, 1000])
def test_windows(window, score_function, include_self, monkeypatch):
    """Every direction at every window, in a tile and over several; each head with a window of its own."""
    options = {"directions": MIXED, "score_function": score_function, "include_self": include_self}
    for length, tile, windows in ((3, 128, window), (63, 128, window), (63, 24, [None, window, 17, window])):
        monkeypatch.setattr(fused_module, "TILE_QUERIES", tile)
        *inputs, mask = random_inputs(3, 4, length, 20)
        assert_as_exact_as_eager(fused, inputs, **options, key_mask=mask, windows=windows)


def test_windows_over_several_tiles_of_the_real_size():
    *inputs, mask = random_inputs(2, 4, 2 * fused_module.TILE_QUERIES + 40, 6)
    for windows in ([0, 1, 5, 1000], [5, 0, 1, 150], [150, 5, 0, 1]):
        assert_as_exact_as_eager(fused, inputs, directions=MIXED, key_mask=mask, windows=windows)


def test_a_window_of_nothing_gives_zero():
    *inputs, _ = random_inputs(2, 4, 9, 3, dtype=torch.float32)
    for implementation in fused_module.IMPLEMENTATIONS:
        out = tensorized_attention(*inputs, directions=MIXED, windows=0, implementation=implementation)
        assert (out[:, :3] == 0).all()
        torch.testing.assert_close(out[:, 3], inputs[2][:, 3])  # "full" sees the token itself


def test_tiles_leave_out_keys_beyond_the_window():
    before = fused_module._Seen(before=5, after=0, itself=False)
    queries, keys = list(fused_module._tiles(1000, before))[3]
    assert (queries.start, keys.start, keys.stop) == (384, 379, 512)


@pytest.mark.parametrize("score_function", F.SCORE_FUNCTIONS)
@pytest.mark.parametrize("masked", [False, True])
def test_fused_with_large_source_scores(score_function, masked, monkeypatch):
    """Scores of +-80: a query that sees only the low ones must not come out as 0, and no gradient as NaN."""
    monkeypatch.setattr(fused_module, "TILE_QUERIES", 16)
    q, k, v, scores, mask = random_inputs(3, 4, 40, 8)
    scores = torch.empty_like(scores).uniform_(-80, 80, generator=torch.Generator().manual_seed(2))
    scores[:, :, ::7], scores[:, :, 3::7] = -80.0, 80.0
    options = {"directions": MIXED, "key_mask": mask if masked else None, "score_function": score_function}
    assert_as_exact_as_eager(fused, [q, k, v, scores], **options)


@pytest.mark.parametrize("score_function", F.SCORE_FUNCTIONS)
def test_queries_without_keys(score_function):
    """Exactly 0, with finite gradients; scores of token pairs are large too."""
    q, k, v, scores, mask = random_inputs(3, 2, 9, 4, dtype=torch.float32)
    leaves = [x.requires_grad_() for x in (40 * q.detach(), k, v, scores)]
    out = fused(*leaves, directions=["forward", "backward"], key_mask=mask, score_function=score_function)
    assert (out[0] == 0).all() and (out[:, 0, 0] == 0).all() and (out[:, 1, -1] == 0).all()
    gradients = torch.autograd.grad(out.sum(), leaves)
    assert all(x.isfinite().all() and (x[0] == 0).all() for x in gradients)


@pytest.mark.parametrize("score_function", F.SCORE_FUNCTIONS)
def test_padding_changes_nothing(score_function):
    q, k, v, scores, _ = random_inputs(2, 2, 12, 4, dtype=torch.float32)
    mask = (torch.arange(12) < 7).expand(2, 12)
    options = {"directions": ["forward", "backward"], "score_function": score_function}
    expected = fused(*(x[:, :, :7] for x in (q, k, v, scores)), **options)
    for x in (q, k, v, scores):
        x[:, :, 7:] = 1e4
    torch.testing.assert_close(fused(q, k, v, scores, key_mask=mask, **options)[:, :, :7], expected)


@pytest.mark.parametrize("score_function", F.SCORE_FUNCTIONS)
@pytest.mark.parametrize("length, width", [(1, 3), (5, 2), (21, 30)])
def test_no_uninitialised_memory_is_read(length, width, score_function, monkeypatch):
    monkeypatch.setattr(fused_module, "TILE_QUERIES", 8)
    *inputs, mask = random_inputs(3, 4, length, width)
    options = {"directions": MIXED, "key_mask": mask, "score_function": score_function}
    torch.use_deterministic_algorithms(True)  # with it torch.empty holds NaN
    try:
        assert torch.empty(3).isnan().all()
        assert_as_exact_as_eager(fused, inputs, **options)
    finally:
        torch.use_deterministic_algorithms(False)


def test_nothing_hidden_is_read(monkeypatch):
    """A NaN among the keys reaches only the queries that see it."""
    monkeypatch.setattr(fused_module, "TILE_QUERIES", 4)
    q, k, v, scores, _ = random_inputs(1, 2, 9, 4, dtype=torch.float32)
    k[0, :, 5] = torch.nan
    out = fused(q, k, v, scores, directions=["forward", "backward"])
    assert out[0, :, :, 0].isnan().tolist() == [[i > 5 for i in range(9)], [i < 5 for i in range(9)]]


@pytest.mark.parametrize("score_function", F.SCORE_FUNCTIONS)
def test_gradients_and_registration(score_function, monkeypatch):
    monkeypatch.setattr(fused_module, "TILE_QUERIES", 2)
    *inputs, mask = random_inputs(2, 4, 5, 2)
    leaves = [x.requires_grad_() for x in inputs]
    options = {"directions": MIXED, "key_mask": mask, "score_function": score_function}
    assert torch.autograd.gradcheck(lambda *x: fused(*x, **options), leaves)
    assert torch.autograd.gradcheck(lambda *x: fused(*x, **options, windows=[1, None, 2, 0]), leaves)
    arguments = [x.detach().float().requires_grad_() for x in inputs]
    heads = (",".join(MIXED), [1, fused_module.NO_WINDOW, 2, 0])
    torch.library.opcheck(fused_module._fused.op, (*arguments, mask, *heads, score_function, False, True))
    detached = [x.detach() for x in arguments]
    torch.library.opcheck(fused_module._fused.op, (*detached, None, *heads, score_function, True, False))


@pytest.mark.parametrize("implementation", ["eager", "fused", "auto"])
def test_compiles_whole(implementation):
    q, k, v, scores, mask = random_inputs(2, 4, 6, 3, dtype=torch.float32)
    leaves = [x.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in (q, k, v, scores)]
    options = {"directions": MIXED, "key_mask": mask, "implementation": implementation}
    compiled = torch.compile(tensorized_attention, backend="aot_eager", fullgraph=True)
    out, expected = compiled(*leaves, **options), tensorized_attention(*leaves, **options)
    torch.testing.assert_close(out, expected)
    for got, exact in zip(*(torch.autograd.grad(x.square().sum(), leaves) for x in (out, expected)), strict=True):
        torch.testing.assert_close(got, exact)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_keeps_the_dtype(dtype):
    *inputs, mask = random_inputs(3, 2, 6, 4)
    inputs = [x.to(dtype).requires_grad_() for x in inputs]
    options = {"directions": "forward", "key_mask": mask}
    out = fused(*inputs, **options)
    expected = F.tensorized_attention(*(x.double() for x in inputs), **options)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=20 * torch.finfo(dtype).eps)
    out.sum().backward()
    assert all(x.grad.dtype == dtype and x.grad.isfinite().all() for x in inputs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_shielded_from_autocast(dtype):
    q, k, v, scores, _ = random_inputs(2, 2, 6, 4, spread=15.0, dtype=torch.float32)
    expected = fused(q, k, v, scores, directions="forward")
    with torch.autocast("cpu", dtype):
        torch.testing.assert_close(fused(q, k, v, scores, directions="forward"), expected, rtol=0, atol=0)


def test_token_mask():
    """Every implementation, with a mask for all rows and one for each, beside all other masks."""
    *inputs, mask = random_inputs(3, 4, 30, 5)
    options = {"directions": MIXED, "key_mask": mask, "windows": [None, 3, 9, 0]}
    shared, own = torch.rand(30, 30) > 0.5, torch.rand(3, 30, 30) > 0.5
    own[1, 4] = False
    for token_mask in (shared, own):
        weights = F.tensorized_attention_weights(*inputs[:2], inputs[3], **options, token_mask=token_mask)
        assert (weights[~token_mask.expand(3, 30, 30)[:, None].expand(weights.shape[:-1])] == 0).all()
        expected = torch.einsum("bhijd,bhjd->bhid", weights, inputs[2])
        for implementation in fused_module.IMPLEMENTATIONS:
            given = {"token_mask": token_mask, "implementation": implementation}
            torch.testing.assert_close(tensorized_attention(*inputs, **options, **given), expected)
    assert (expected[1, :, 4] == 0).all()


def test_implementations_and_dropout():
    """Every name gives one function; dropped weights are those of the eager form."""
    q, k, v, scores, mask = random_inputs(2, 4, 7, 3)
    options = {"directions": MIXED, "key_mask": mask}
    expected = F.tensorized_attention(q, k, v, scores, **options)
    for implementation in fused_module.IMPLEMENTATIONS:
        out = tensorized_attention(q, k, v, scores, implementation=implementation, **options)
        torch.testing.assert_close(out, expected)
        torch.manual_seed(3)
        out = tensorized_attention(q, k, v, scores, implementation=implementation, dropout=0.4, **options)
        torch.manual_seed(3)
        torch.testing.assert_close(out, F.tensorized_attention(q, k, v, scores, dropout=0.4, **options))
    assert tensorized_attention(*(x[:0] for x in (q, k, v, scores)), directions=MIXED).shape == (0, 4, 7, 3)


def test_unknown_names_are_refused():
    x = torch.zeros(1, 1, 2, 3)
    for implementation in ("eager", "fused"):
        with pytest.raises(ValueError, match="'sideways'; choose one of forward, backward, diagonal, full"):
            tensorized_attention(x, x, x, x, directions="sideways", implementation=implementation)
        with pytest.raises(ValueError, match="'softmax'; choose one of sigmoid, exp"):
            options = {"directions": "full", "implementation": implementation}
            tensorized_attention(x, x, x, x, score_function="softmax", **options)
        with pytest.raises(ValueError, match="2 directions for 1 heads"):
            tensorized_attention(x, x, x, x, directions=["full", "full"], implementation=implementation)
        with pytest.raises(ValueError, match="2 windows for 1 heads; give one window or one for each head"):
            tensorized_attention(x, x, x, x, directions="full", windows=[1, 2], implementation=implementation)
        with pytest.raises(ValueError, match="window is -1; give the number of tokens"):
            tensorized_attention(x, x, x, x, directions="full", windows=-1, implementation=implementation)
        with pytest.raises(ValueError, match=r"token_mask has shape \(3, 3\); give \(2, 2\) or \(1, 2, 2\)"):
            mask = torch.ones(3, 3, dtype=torch.bool)
            tensorized_attention(x, x, x, x, directions="full", token_mask=mask, implementation=implementation)
    with pytest.raises(ValueError, match="'warp'; choose one of auto, eager, fused, linear"):
        tensorized_attention(x, x, x, x, directions="full", implementation="warp")


def test_memory_of_long_sentences(monkeypatch):
    """No tensor of N x N elements, forward and backward."""
    from torch.utils._python_dispatch import TorchDispatchMode

    largest = 0

    class Largest(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            sizes = [x.numel() for x in (out if isinstance(out, tuple) else (out,)) if isinstance(x, torch.Tensor)]
            largest = max(largest, *sizes, 0)
            return out

    N, D = 1200, 4
    *inputs, mask = random_inputs(2, 2, N, D, dtype=torch.float32)
    leaves = [x.requires_grad_() for x in inputs]
    with Largest():
        out = fused(*leaves, directions=["forward", "full"], key_mask=mask)
        torch.autograd.grad(out.sum(), leaves)
    assert largest < N * N / 2


@pytest.mark.parametrize("windows", [None, [0, 5, 1, None]])
@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("score_function", F.SCORE_FUNCTIONS)
@pytest.mark.parametrize("length", [1, 2, 63, 150])
def test_mathematics_of_the_gpu_form(length, score_function, include_self, windows, monkeypatch):
    """The same call on the CPU, where FlexAttention refuses gradients but can compute them.

    Their rounding in float32 is that of its debugging form, which no one uses, and says nothing of the kernel's.
    """
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None)
    *inputs, mask = random_inputs(3, 4, length, 6)
    options = {"directions": MIXED, "key_mask": mask, "score_function": score_function, "include_self": include_self}
    options["windows"] = windows
    truth = results(F.tensorized_attention, torch.float64, inputs, **options)
    for got, exact in zip(results(flex, torch.float64, inputs, **options), truth, strict=True):
        torch.testing.assert_close(got, exact, rtol=1e-9, atol=1e-11)
    out, eager = (f(*(x.float() for x in inputs), **options).double() for f in (flex, F.tensorized_attention))
    rounding = torch.finfo(torch.float32).eps * truth[0].abs().max().clamp(min=1.0)
    assert (out - truth[0]).abs().max() <= 2 * torch.maximum((eager - truth[0]).abs().max(), rounding)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("width", [20, 75, 128, 300])
@pytest.mark.parametrize("score_function", F.SCORE_FUNCTIONS)
@pytest.mark.parametrize("length", [1, 2, 63, 300])
def test_on_a_gpu(length, score_function, width):
    *inputs, mask = random_inputs(3, 4, length, width, device="cuda")
    options = {"directions": MIXED, "key_mask": mask, "score_function": score_function}
    for windows in (None, [0, 5, 1, 150]):
        assert_as_exact_as_eager(fused, inputs, **options, windows=windows)
