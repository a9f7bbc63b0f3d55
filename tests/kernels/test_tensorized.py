"""MTSA's attention in its fast forms: against float64, at the edges, and what torch asks of an operator."""

from types import SimpleNamespace

import pytest
import torch

from hf_blosan.kernels.library import OPERATORS, has_cpu_kernels
from hf_blosan.kernels.tensorized import operator, tiles
from hf_blosan.kernels.tensorized.graph import tensorized_attention_graph
from hf_blosan.kernels.tensorized.operator import tensorized_attention
from hf_blosan.models import attention, attention_mtsa
from hf_blosan.models import equations_mtsa as F
from hf_blosan.models.masks import order_mask

MIXED = ["forward", "backward", "diagonal", "full"]
ANY = [None] * 4
FORMS = [
    pytest.param("C++", marks=pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ kernels are not compiled")),
    "torch",
]


@pytest.fixture(params=FORMS)
def form(request, without_cpp):
    """Both forms on the CPU."""
    if request.param == "torch":
        without_cpp()
    return request.param


def random_inputs(B, H, N, D, *, spread=1.0, seed=0, dtype=torch.float64):
    """q, k, v, source scores and a ragged mask whose first row is all padding."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v, scores = (torch.randn(B, H, N, D, generator=generator, dtype=dtype) for _ in range(4))
    mask = torch.rand(B, N, generator=generator) > 0.3
    mask[0] = False
    if B > 1:
        mask[1] = True
    return [q, k, v, scores * spread, mask]


def results(function, dtype, inputs, **options):
    """Output and the gradients of a random projection of it, in float64."""
    leaves = [x.to(dtype).clone().requires_grad_() for x in inputs]
    out = function(*leaves, **options)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    (out * weights.to(out)).sum().backward()
    return [out.detach().double(), *(leaf.grad.double() for leaf in leaves)]


def rms(x):
    return x.square().mean().sqrt().item()


def assert_as_exact_as_equation(inputs, function=tensorized_attention, **options):
    """Output and gradients: at most twice the error of the equation in float32, as root mean squares.

    Where that is exact by chance, a rounding counts: of the terms, as large as the values, where a gradient cancels.
    """
    size = rms(inputs[2])
    truth = results(F.tensorized_attention, torch.float64, inputs, **options)
    plain = results(F.tensorized_attention, torch.float32, inputs, **options)
    for got, rough, exact in zip(results(function, torch.float32, inputs, **options), plain, truth, strict=True):
        assert got.isfinite().all()
        rounding = torch.finfo(torch.float32).eps / 4 * (rms(exact) if rms(exact) > 1e-6 * size else size)
        assert rms(got - exact) <= 2 * max(rms(rough - exact), rounding)
    for got, exact in zip(results(function, torch.float64, inputs, **options), truth, strict=True):
        torch.testing.assert_close(got, exact, rtol=1e-9, atol=1e-9 * float(exact.abs().max().clamp(min=1.0)))


@pytest.mark.parametrize("include_self", (False, True))
@pytest.mark.parametrize("score_function", F.SCORE_FUNCTIONS)
@torch.no_grad()
def test_the_form_of_graphs_computes_the_equation(score_function, include_self):
    """With scores at which a sigmoid is 0, source scores that span all that is exact, and queries that see no key."""
    options = {"directions": MIXED, "windows": [None, 3, 0, 5], "score_function": score_function}
    options |= {"include_self": include_self}
    for shift, spread in ((0, 1), (-200, 1), (200, 1), (0, 25)):
        q, k, v, scores, mask = random_inputs(3, 4, 40, 20, spread=spread)
        q, k = q - 0.0, k
        q[..., 0], k[..., 0] = 20**0.5, shift
        for key_mask in (mask, None):
            options["key_mask"], tensors = key_mask, (q, k, v, scores)
            exact = F.tensorized_attention(*tensors, **options)
            functions = (F.tensorized_attention, tensorized_attention_graph)
            plain, found = (function(*(x.float() for x in tensors), **options).double() for function in functions)
            assert rms(found - exact) <= 2 * max(rms(plain - exact), 1e-7), (shift, spread)


def small_tiles(form, monkeypatch, size):
    """Tiles of so many queries where that can be chosen; in C++ only lengths decide."""
    if form == "torch":
        monkeypatch.setattr(tiles, "TILE_QUERIES", size)


@pytest.mark.parametrize("score_function", F.SCORE_FUNCTIONS)
def test_as_exact_as_equation(score_function, form, monkeypatch):
    for length in (1, 2, 17, 63, 100):
        *inputs, mask = random_inputs(3, 4, length, 20)
        for include_self in (False, True):
            options = {"score_function": score_function, "include_self": include_self, "directions": MIXED}
            for key_mask in (None, mask):
                assert_as_exact_as_equation(inputs, windows=ANY, key_mask=key_mask, **options)
    small_tiles(form, monkeypatch, 24)
    assert_as_exact_as_equation(inputs, windows=ANY, key_mask=mask, **options)


@pytest.mark.parametrize("score_function", F.SCORE_FUNCTIONS)
def test_windows(score_function, form):
    """Every direction at every window, in a tile and over several; each head with a window of its own."""
    for B, length in ((3, 3), (3, 63), (2, 300)):
        *inputs, mask = random_inputs(B, 4, length, 6)
        for windows in ([0] * 4, [1] * 4, [5, 0, 1, 150], [150, None, 0, 1], [1000] * 4):
            for include_self in (False, True):
                options = {"score_function": score_function, "include_self": include_self, "directions": MIXED}
                assert_as_exact_as_equation(inputs, windows=windows, key_mask=mask, **options)


def test_many_rows(form):
    """More than are worked on together, of several heads and of one, and an odd number of them."""
    for shape in ((70, 4, 100, 30), (9, 4, 130, 300), (130, 2, 3, 5)):
        *inputs, mask = random_inputs(*shape)
        directions = MIXED[: shape[1]]
        assert_as_exact_as_equation(inputs, directions=directions, windows=ANY[: shape[1]], key_mask=mask)


def test_a_window_of_nothing_gives_zero(form):
    *inputs, _ = random_inputs(2, 4, 9, 3, dtype=torch.float32)
    out = tensorized_attention(*inputs, directions=MIXED, windows=[0] * 4)
    assert (out[:, :3] == 0).all()
    torch.testing.assert_close(out[:, 3], inputs[2][:, 3])  # "full" sees the token itself


@pytest.mark.parametrize("score_function", F.SCORE_FUNCTIONS)
@pytest.mark.parametrize("function", [tensorized_attention, F.tensorized_attention], ids=["kernels", "equation"])
def test_scores_far_below_zero(score_function, function, form):
    """There the sigmoid is exp, and underflows: the weights are the softmax of both scores together."""
    q, k, v, scores, mask = random_inputs(2, 4, 9, 5, dtype=torch.float32)
    leaves = [x.requires_grad_() for x in (q.abs() + 6, -k.abs() - 6, v, scores)]
    options = {"directions": MIXED, "windows": ANY, "key_mask": mask, "score_function": score_function}
    out = function(*leaves, **options)
    q, k, v, scores = (x.double() for x in leaves)
    exponents = (q @ k.mT / 5**0.5)[..., None] + scores[:, :, None]
    assert (q @ k.mT / 5**0.5).max() < -80
    visible = torch.stack([order_mask(9, direction) for direction in MIXED])[None] & mask[:, None, None]
    exponents = exponents.masked_fill(~visible[..., None], -1e9)
    weights = torch.where(visible[..., None], exponents.softmax(3), 0.0)
    expected = (weights * v[:, :, None]).sum(3)
    torch.testing.assert_close(out.double(), expected, atol=1e-4, rtol=1e-4)
    projection = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    gradients, exact = (torch.autograd.grad((x * projection).sum(), leaves) for x in (out, expected))
    for got, wanted in zip(gradients, exact, strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("top", [-16.5, -10.0, -1.0])
def test_a_key_far_below_low_scores(top, form):
    """A sigmoid counts relative to the largest of its query: here it is what the source score makes up for."""
    scale = 2**0.5  # of two features
    q, k = torch.tensor([[0.0, 0], [0, 0], [scale, 0]]), torch.tensor([[top, 0], [top - 80, 0], [0, 0]])
    inputs = [
        x.view(1, 1, 3, 2).double() for x in (q, k, torch.arange(6.0), torch.tensor([[-38.0] * 2, [42.5] * 2, [0, 0]]))
    ]
    options = {"directions": ["forward"], "windows": [None], "score_function": "sigmoid"}
    truth = results(F.tensorized_attention, torch.float64, inputs, **options)
    for got, exact in zip(results(tensorized_attention, torch.float32, inputs, **options), truth, strict=True):
        torch.testing.assert_close(got, exact, atol=2e-5, rtol=2e-5)
    assert truth[0][0, 0, 2, 0] > 1  # the second key has more than half of the weight


@pytest.mark.parametrize("score_function", F.SCORE_FUNCTIONS)
def test_large_source_scores(score_function, form):
    """Scores of +-80: a query that sees only the low ones must not come out as 0, and no gradient as NaN."""
    q, k, v, scores, mask = random_inputs(3, 4, 40, 8)
    scores = torch.empty_like(scores).uniform_(-80, 80, generator=torch.Generator().manual_seed(2))
    scores[:, :, ::7], scores[:, :, 3::7] = -80.0, 80.0
    for key_mask in (None, mask):
        options = {"directions": MIXED, "windows": ANY, "key_mask": key_mask, "score_function": score_function}
        assert_as_exact_as_equation([q, k, v, scores], **options)


@pytest.mark.parametrize("score_function", F.SCORE_FUNCTIONS)
def test_gradients_where_a_weight_underflows(score_function, form):
    """Token and source scores that differ by more than the range of exponents: infinity times 0 is no gradient."""
    q, k, v, scores, _ = random_inputs(2, 2, 12, 8)
    q, k, scores = 20 * q, 20 * k, 60 * scores.sign()
    options = {"directions": ("full",) * 2, "windows": (None,) * 2, "score_function": score_function}
    for function in (F.tensorized_attention, tensorized_attention):
        found = results(function, torch.float32, [q, k, v, scores], **options)
        assert all(part.isfinite().all() for part in found)


@pytest.mark.parametrize("score_function", F.SCORE_FUNCTIONS)
def test_clamped_source_scores_have_no_gradient(score_function, form):
    """Scores further below the largest than the range of exponents: weights are constants there."""
    q, k, v, scores, mask = random_inputs(3, 4, 40, 8)
    scores = (60 * scores).round()  # whole numbers, so that no rounding decides about the largest
    scores[:, :, ::7], scores[:, :, 3::7] = -200.0, 150.0
    mask[1:, :7] = True
    for key_mask in (None, mask):
        options = {"directions": MIXED, "windows": ANY, "key_mask": key_mask, "score_function": score_function}
        truth = results(F.tensorized_attention, torch.float64, [q, k, v, scores], **options)
        found = results(tensorized_attention, torch.float64, [q, k, v, scores], **options)
        shift = 150.0 - 75.0
        assert (found[4][1:][scores[1:] - shift < -85] == 0).all()
        assert (found[4][1:][scores[1:] - shift >= -85] != 0).any()
        for got, exact in zip(found, truth, strict=True):
            torch.testing.assert_close(got, exact, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("score_function", F.SCORE_FUNCTIONS)
def test_queries_without_keys(score_function, form):
    """Exactly 0, with finite gradients; scores of token pairs are large too."""
    q, k, v, scores, mask = random_inputs(3, 2, 9, 4, dtype=torch.float32)
    leaves = [x.requires_grad_() for x in (40 * q.detach(), k, v, scores)]
    options = {"directions": ["forward", "backward"], "windows": [None] * 2, "score_function": score_function}
    out = tensorized_attention(*leaves, key_mask=mask, **options)
    assert (out[0] == 0).all() and (out[:, 0, 0] == 0).all() and (out[:, 1, -1] == 0).all()
    gradients = torch.autograd.grad(out.sum(), leaves)
    assert all(x.isfinite().all() and (x[0] == 0).all() for x in gradients)


@pytest.mark.parametrize("score_function", F.SCORE_FUNCTIONS)
def test_padding_changes_nothing(score_function, form):
    q, k, v, scores, _ = random_inputs(2, 2, 12, 4, dtype=torch.float32)
    mask = (torch.arange(12) < 7).expand(2, 12)
    options = {"directions": ["forward", "backward"], "windows": [None] * 2, "score_function": score_function}
    expected = tensorized_attention(*(x[:, :, :7] for x in (q, k, v, scores)), **options)
    for x in (q, k, v, scores):
        x[:, :, 7:] = 1e4
    found = tensorized_attention(q, k, v, scores, key_mask=mask, **options)[:, :, :7]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("score_function", F.SCORE_FUNCTIONS)
def test_no_uninitialised_memory_is_read(score_function, form):
    torch.use_deterministic_algorithms(True)  # with it torch.empty holds NaN
    try:
        assert torch.empty(3).isnan().all()
        for length, width in ((1, 3), (5, 2), (21, 30), (140, 5)):
            *inputs, mask = random_inputs(3, 4, length, width)
            options = {"directions": MIXED, "windows": [None, 3, 150, 2], "key_mask": mask}
            assert_as_exact_as_equation(inputs, score_function=score_function, **options)
    finally:
        torch.use_deterministic_algorithms(False)


def test_nothing_hidden_is_read(form):
    """A NaN among the keys reaches only the queries that see it."""
    q, k, v, scores, _ = random_inputs(1, 2, 9, 4, dtype=torch.float32)
    k[0, :, 5] = torch.nan
    out = tensorized_attention(q, k, v, scores, directions=["forward", "backward"], windows=[None] * 2)
    assert out[0, :, :, 0].isnan().tolist() == [[i > 5 for i in range(9)], [i < 5 for i in range(9)]]


def test_other_memory(form):
    """Heads, tokens and features in any order, and gradients that overlap."""
    *inputs, mask = random_inputs(3, 4, 9, 6, dtype=torch.float32)
    options = {"directions": MIXED, "windows": ANY, "key_mask": mask}
    expected = results(tensorized_attention, torch.float32, inputs, **options)
    for order in ((1, 0, 2, 3), (0, 2, 1, 3), (3, 2, 1, 0)):
        back = [order.index(i) for i in range(4)]

        def apart(x, order=order, back=back):
            return x.permute(order).contiguous().permute(back)

        found = results(
            lambda *x, apart=apart, **o: tensorized_attention(*map(apart, x), **o), torch.float32, inputs, **options
        )
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    leaves = [x.clone().requires_grad_() for x in inputs]
    of_sum = torch.autograd.grad(tensorized_attention(*leaves, **options).sum(), leaves)
    of_ones = torch.autograd.grad((tensorized_attention(*leaves, **options) * torch.ones(())).sum(), leaves)
    for one, other in zip(of_sum, of_ones, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("score_function", ["sigmoid", pytest.param("exp", marks=pytest.mark.slow)])
def test_gradients_and_registration(score_function, form, monkeypatch):
    small_tiles(form, monkeypatch, 2)
    *inputs, mask = random_inputs(2, 4, 5, 2)
    leaves = [x.requires_grad_() for x in inputs]
    options = {"directions": MIXED, "key_mask": mask, "score_function": score_function}
    for windows in (ANY, [1, None, 2, 0]):
        assert torch.autograd.gradcheck(lambda *x, w=windows: tensorized_attention(*x, windows=w, **options), leaves)
    arguments = [x.detach().float() for x in inputs]
    heads = (",".join(MIXED), [1, operator.NO_WINDOW, 2, 0], score_function)
    forward, backward = OPERATORS.tensorized_attention.default, OPERATORS.tensorized_attention_backward.default
    for given, include_self, save in ((mask, False, True), (None, True, False)):
        torch.library.opcheck(forward, (*arguments, given, *heads, include_self, save))
    saved = forward(*arguments, mask, *heads, False, True)
    torch.library.opcheck(backward, (arguments[0], *arguments[:3], mask, *saved, *heads, False))


def test_many_gradients_at_once(form):
    *inputs, mask = random_inputs(2, 4, 5, 3)
    leaves = [x.requires_grad_() for x in inputs]
    out = tensorized_attention(*leaves, directions=MIXED, windows=ANY, key_mask=mask)
    grads = torch.randn(2, *out.shape, dtype=out.dtype)
    together = torch.autograd.grad(out, leaves, grads, is_grads_batched=True, retain_graph=True)
    for i in range(2):
        alone = torch.autograd.grad(out, leaves, grads[i], retain_graph=True)
        for one, other in zip(alone, together, strict=True):
            torch.testing.assert_close(other[i], one)


def test_compiles_whole(form):
    q, k, v, scores, mask = random_inputs(2, 4, 6, 3, dtype=torch.float32)
    leaves = [x.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in (q, k, v, scores)]

    def attention(*tensors):
        return tensorized_attention(*tensors, directions=MIXED, windows=ANY, key_mask=mask)

    out, expected = torch.compile(attention, backend="aot_eager", fullgraph=True)(*leaves), attention(*leaves)
    torch.testing.assert_close(out, expected)
    for got, exact in zip(*(torch.autograd.grad(x.square().sum(), leaves) for x in (out, expected)), strict=True):
        torch.testing.assert_close(got, exact)


def test_no_sentences(form):
    for shape in ((0, 4, 7, 3), (2, 4, 0, 3)):
        leaves = [torch.zeros(shape, requires_grad=True) for _ in range(4)]
        out = tensorized_attention(*leaves, directions=MIXED, windows=ANY)
        assert out.shape == shape
        assert [x.shape for x in torch.autograd.grad(out.sum(), leaves)] == [torch.Size(shape)] * 4


@pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ kernels are not compiled")
def test_wrong_tensors_are_refused():
    x, mask = torch.zeros(2, 1, 3, 4), torch.ones(2, 3, dtype=torch.bool)
    heads = {"directions": ["full"], "windows": [None]}
    for arguments, options in (
        ((x[:1], x, x, x), heads),
        ((x, x.double(), x, x), heads),
        ((x, x, x, x[..., :2]), heads),
        ((x[0], x[0], x[0], x[0]), heads),
        ((x.int(), x.int(), x.int(), x.int()), heads),
        ((x, x, x, x), heads | {"key_mask": mask[:1]}),
        ((x, x, x, x), heads | {"key_mask": mask.float()}),
        ((x, x, x, x), heads | {"score_function": "softmax"}),
        ((x, x, x, x), {"directions": ["sideways"], "windows": [None]}),
        ((x, x, x, x), {"directions": ["full", "full"], "windows": [None, None]}),
        ((x, x, x, x), {"directions": ["full"], "windows": [1, 2]}),
        ((x, x, x, x), {"directions": ["full", "full"], "windows": [1]}),
        ((x, x, x, x), {"directions": ["full"], "windows": [-1]}),
    ):
        with pytest.raises(RuntimeError):
            tensorized_attention(*arguments, **options)


@pytest.mark.parametrize(("rows", "length", "queries"), [(64, 384, 682), (2, 4096, 2048), (1, 1 << 20, 128)])
def test_a_tile_on_a_gpu_is_large_and_limited(rows, length, queries):
    """64 MiB of weights, and beyond 131,072 tokens as many queries as on the CPU."""
    assert tiles._tile_queries(SimpleNamespace(is_cuda=True, shape=(rows, length, 75))) == queries
    assert tiles._tile_queries(SimpleNamespace(is_cuda=False, shape=(rows, length, 75))) == tiles.TILE_QUERIES


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("score_function", F.SCORE_FUNCTIONS)
@pytest.mark.parametrize("length", [1, 17, 100, 300])
@pytest.mark.parametrize("tile_elements", [1, tiles.CUDA_TILE_ELEMENTS], ids=["small tiles", "large tiles"])
def test_on_a_gpu(score_function, length, tile_elements, monkeypatch):
    """Tiles in plain torch, in several groups of rows."""
    monkeypatch.setattr(tiles, "CUDA_GROUP_ELEMENTS", 20_000)
    monkeypatch.setattr(tiles, "CUDA_TILE_ELEMENTS", tile_elements)
    *inputs, mask = (x.cuda() for x in random_inputs(3, 4, length, 20))
    for windows in (ANY, [5, 0, 1, 150]):
        for include_self in (False, True):
            options = {"score_function": score_function, "include_self": include_self, "directions": MIXED}
            for key_mask in (None, mask):
                assert_as_exact_as_equation(inputs, windows=windows, key_mask=key_mask, **options)


def test_slices_of_the_equation_are_as_large_as_allowed(monkeypatch, remove_kernels):
    """Without the kernels: all queries of short sentences at once, of long ones as many as their scores allow."""
    remove_kernels()
    monkeypatch.setattr(attention, "CHUNK_ELEMENTS", 1 << 14)
    slices = []

    def equation(*tensors, rows=None, **options):
        slices.append(rows)
        return F.tensorized_attention(*tensors, **options, **({} if rows is None else {"rows": rows}))

    monkeypatch.setattr(attention_mtsa, "tensorized_equation", equation)
    for (B, H, N), expected in (((4, 2, 16), [None]), ((2, 2, 200), [slice(i, i + 20) for i in range(0, 200, 20)])):
        *tensors, mask = random_inputs(B, H, N, 64, dtype=torch.float32)
        found = attention_mtsa.tensorized_attention(*tensors, directions=["forward"] * H, key_mask=mask)
        torch.testing.assert_close(found, F.tensorized_attention(*tensors, directions=["forward"] * H, key_mask=mask))
        assert slices == expected and 20 * B * H * N <= 1 << 14
        slices.clear()
