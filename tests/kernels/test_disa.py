"""Layers of directional self-attention in one call: what their steps compute, where nothing else is asked."""

import itertools
from functools import partial

import pytest
import torch
from torch import nn

from hf_blosan import DiSANConfig, kernels
from hf_blosan.kernels.library import OPERATORS, has_cpu_kernels
from hf_blosan.models.attention import Tokens
from hf_blosan.models.encoder import StackableLayer
from hf_blosan.models.layers import DirectionalSelfAttention, FusionLayer
from hf_blosan.models.layers_int8 import Int8Linear, convert_layers
from hf_blosan.models.modeling_disan import DiSANLayer

pytestmark = pytest.mark.skipif(not has_cpu_kernels(), reason="needs the compiled kernels")

CLOSE = {"rtol": 1e-5, "atol": 2e-6}
HAS_INT8 = kernels.instruction_set() in ("avx2", "avx512")


def make_layer(dtype=torch.float32, int8=(), seed=0, **options):
    torch.manual_seed(seed)
    options = {"direction": "forward", "activation": "elu", **options}
    layer = DirectionalSelfAttention(21, 19, **options)
    for bias in (layer.attention.bias, layer.gate.bias):
        nn.init.normal_(bias)
    convert_layers(layer, lambda name: name.rpartition(".")[2] in int8)
    return layer.to(dtype).eval()


def linear(weight, bias=None):
    """A map of this weight and bias."""
    map_ = nn.Linear(*weight.shape[::-1], bias=bias is not None)
    with torch.no_grad():
        for own, given in zip(map_.parameters(), (weight, bias), strict=False):
            own.copy_(given)
    return map_


def batch(dtype=torch.float32, rows=5, length=13):
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, length + 1, (rows,), generator=generator)
    mask = torch.arange(length) < lengths[:, None]
    return torch.randn(rows, length, 21, generator=generator, dtype=dtype), mask


def make_stack(dtype=torch.float32, int8=(), seed=0, layers=2, **options):
    """A layer of DiSAN, (B, N, 21) -> (B, N, 21), with what is around the directions in a stack."""
    torch.manual_seed(seed)
    options = {"activation": "elu", "directions": ["forward", "backward", "forward"], **options}
    layer = DiSANLayer(DiSANConfig(embedding_size=21, hidden_size=21, num_hidden_layers=layers, **options))
    for weight in layer.parameters():
        if weight.dim() == 1:
            nn.init.normal_(weight)
    convert_layers(layer, lambda name: name.rpartition(".")[2] in int8)
    return layer.to(dtype).eval()


@torch.no_grad()
def by_steps(layer, x, mask):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hf_blosan.models.attention.kernels.disa", lambda *arguments, **options: None)
        return layer(x, mask)[0]


def in_one_call(layer, x, mask, monkeypatch):
    """The result, which must come from the operator."""
    monkeypatch.setattr(FusionLayer, "forward", None)
    monkeypatch.setattr(StackableLayer, "forward", None)
    with torch.inference_mode():
        result, maps = layer(x, mask)
    monkeypatch.undo()
    assert maps is None
    return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", ["linear", "elu", "gelu"])
@pytest.mark.parametrize("options", [{}, {"direction": "backward", "window": 2}, {"formulation": "paper"}])
def test_is_its_steps(dtype, activation, options, monkeypatch):
    layer, (x, mask) = make_layer(dtype, activation=activation, **options), batch(dtype)
    for given in (mask, None):
        found, expected = in_one_call(layer, x, given, monkeypatch), by_steps(layer, x, given)
        if activation == "gelu":  # computed by another polynomial than torch's
            torch.testing.assert_close(found, expected, **CLOSE if dtype == torch.float32 else {})
        else:
            assert torch.equal(found, expected)
        assert given is None or not found[~mask].any()


@pytest.mark.skipif(not HAS_INT8, reason="int8 needs a processor with AVX2")
@pytest.mark.parametrize(
    "int8",
    [("dense_map", "key_map", "query_map", "first", "second"), ("dense_map", "first"), ("key_map", "second")],
    ids="-".join,
)
def test_maps_in_int8(int8, monkeypatch):
    layer, (x, mask) = make_layer(int8=int8), batch()
    torch.testing.assert_close(in_one_call(layer, x, mask, monkeypatch), by_steps(layer, x, mask), **CLOSE)
    words = Tokens(x[:1], torch.randint(13, (4, 7)))
    found = in_one_call(layer, words, mask[:4, :7], monkeypatch)
    torch.testing.assert_close(found, by_steps(layer, words.rows, mask[:4, :7]), **CLOSE)


STACKS = [
    {},
    {"directions": ["full"]},
    {"feed_forward_size": 30},
    {"windows": [None, 2, 0], "activation": "gelu"},
    {"layers": 1, "activation": "linear", "windows": [1, 1, None]},
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", STACKS)
def test_a_stacked_layer_is_its_steps(dtype, options, monkeypatch):
    layer, (x, mask) = make_stack(dtype, **options), batch(dtype)
    close = CLOSE if dtype == torch.float32 else {"rtol": 1e-11, "atol": 1e-12}
    expected = by_steps(layer, x, mask)
    torch.testing.assert_close(in_one_call(layer, x, mask, monkeypatch), expected, **close)
    words = Tokens(x.flatten(0, 1)[None], torch.arange(x[..., 0].numel()).view(mask.shape))
    torch.testing.assert_close(in_one_call(layer, words, mask, monkeypatch), expected, **close)
    if "windows" not in options:  # else words beyond the end of a sentence are not
        packed = Tokens(x[mask][None], cu_seqlens=nn.functional.pad(mask.sum(1).cumsum(0), (1, 0)))
        found = in_one_call(layer, packed, mask.new_ones(1, int(mask.sum())), monkeypatch)
        torch.testing.assert_close(found[0], expected[mask], **close)


@pytest.mark.parametrize("size", [1, 7, 16, 33, 320])
def test_norms_are_as_exact_as_torch(size):
    """Of rows with an offset a thousand times as large as their differences, and of constant rows."""
    torch.manual_seed(0)
    x = torch.randn(3, 50, size) + torch.tensor([0.0, 1000.0, 3.0])[:, None, None]
    x[2] = 3
    norms = [nn.LayerNorm(size, eps=1e-6) for _ in range(2)]
    zero, gate = nn.Linear(size, size), nn.Linear(size, size, bias=False)
    for weight in (zero.weight, zero.bias, gate.weight):
        nn.init.zeros_(weight)
    nn.init.normal_(norms[1].weight)
    nn.init.normal_(norms[1].bias)
    # Feed and direction add 0: what is left is both norms.
    direction = kernels.Direction(zero, gate, gate, gate, gate, torch.zeros(size), torch.zeros(size), "forward")
    residual, (first, second) = kernels.Residual(zero, None, *norms), norms
    with torch.no_grad():
        found = kernels.disa(x, [direction], residual, activation="linear")
        expected = second(first(x))
        first.double(), second.double()
        exact = second(first(x.double()))
    assert (found - exact).abs().max() <= 2 * (expected - exact).abs().max() + 1e-6


@pytest.mark.skipif(not HAS_INT8, reason="int8 needs a processor with AVX2")
@pytest.mark.parametrize("int8", [("feed_forward", "dense_map", "first"), ("feed_forward_output", "key_map")])
def test_a_stacked_layer_in_int8(int8, monkeypatch):
    layer, (x, mask) = make_stack(int8=int8, feed_forward_size=30), batch()
    torch.testing.assert_close(in_one_call(layer, x, mask, monkeypatch), by_steps(layer, x, mask), **CLOSE)


@pytest.mark.parametrize("activation", ["elu", "gelu"])
def test_words_and_sentences_without_padding(activation, monkeypatch):
    layer, (x, mask) = make_layer(activation=activation), batch()
    expected = by_steps(layer, x, mask)
    numbers = torch.arange(x[..., 0].numel()).view(mask.shape)
    words = Tokens(x.flatten(0, 1)[None], numbers)
    torch.testing.assert_close(in_one_call(layer, words, mask, monkeypatch), expected, **CLOSE)
    cu_seqlens = nn.functional.pad(mask.sum(1).cumsum(0), (1, 0))
    for starts in (cu_seqlens, cu_seqlens.int()):
        packed = (Tokens(x[mask][None], cu_seqlens=starts), Tokens(words.vectors, numbers[mask][None], starts))
        for tokens in packed:
            found = in_one_call(layer, tokens, mask.new_ones(1, int(mask.sum())), monkeypatch)
            torch.testing.assert_close(found[0], expected[mask], **CLOSE)


@pytest.fixture
def three_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(threads)


def layouts(x, mask):
    """Tokens in rows, as words, without padding, and both; each with its mask and the places of real tokens."""
    numbers, every = torch.arange(mask.numel()).view(mask.shape), mask.new_ones(1, int(mask.sum()))
    cu_seqlens = nn.functional.pad(mask.sum(1).cumsum(0), (1, 0))
    words = x.flatten(0, 1)[None]
    yield x, mask, mask
    yield Tokens(words, numbers), mask, mask
    yield Tokens(x[mask][None], cu_seqlens=cu_seqlens), every, every
    yield Tokens(words, numbers[mask][None], cu_seqlens), every, every


def check_parts(rows, length, int8, monkeypatch):
    """A layer and a stack in one call, on one thread and on three, compute what their steps do."""
    for layer in (make_layer(int8=int8), make_stack(int8=int8)):
        x, mask = batch(rows=rows, length=length)
        mask[rows // 2] = rows == 1  # a sentence without tokens between others
        torch.set_num_threads(1)
        expected = by_steps(layer, x, mask)
        for (tokens, given, real), count in itertools.product(layouts(x, mask), (1, 3)):
            torch.set_num_threads(count)
            found = in_one_call(layer, tokens, given, monkeypatch)
            torch.testing.assert_close(found[real], expected[mask], **CLOSE)


@pytest.mark.parametrize("int8", [(), ("dense_map", "first", "second")] if HAS_INT8 else [()])
@pytest.mark.parametrize("rows, length", [(40, 13), (3, 70), (49, 1), (1, 40)])
def test_threads_take_parts_of_a_batch(rows, length, int8, three_threads, monkeypatch):
    check_parts(rows, length, int8, monkeypatch)


def test_a_thread_takes_many_tokens_in_parts(three_threads, monkeypatch):
    # Not in int8: on processors whose products depend on the number of rows, a number may be rounded the other way.
    check_parts(320, 13, (), monkeypatch)


def test_an_error_in_a_part_of_a_batch_is_raised(three_threads):
    layer, (x, mask) = make_layer(), batch(rows=40)
    places = torch.zeros(mask.shape, dtype=torch.long)
    places[-1, -1] = 13
    with torch.inference_mode(), pytest.raises(RuntimeError, match="13 is not one of the 13 words"):
        layer(Tokens(x[:1], places), mask)


class Doubled(DirectionalSelfAttention):
    def steps(self, *inputs):
        return 2 * (yield from super().steps(*inputs))


def hooked(name):
    def double(module, inputs, result):
        return (2 * result[0], result[1]) if isinstance(result, tuple) else 2 * result

    def change(layer):
        layer.get_submodule(name).register_forward_hook(double)

    return change


def without_parameters(layer):
    """A map as a replica of DataParallel has it: the weight is an attribute, a tensor, and no parameter."""
    map_ = layer.attention.key_map
    weight = 2 * map_._parameters.pop("weight")
    map_.weight = weight.detach()


def own_forward(layer):
    forward = layer.gate.forward
    layer.gate.forward = lambda *inputs: 2 * forward(*inputs)


CHANGES = [hooked(name) for name in ("attention", "gate", "dense_map", "attention.key_map", "gate.second")]


@pytest.mark.parametrize("change", [*CHANGES, own_forward, without_parameters])
def test_parts_that_do_more_are_called(change):
    layer, (x, mask) = make_layer(), batch()
    before = by_steps(layer, x, mask)
    change(layer)
    with torch.inference_mode():
        found = layer(x, mask)[0]
    assert torch.equal(found, by_steps(layer, x, mask)) and not torch.allclose(found, before)


def test_hooks_of_all_modules_see_every_part():
    layer, (x, mask), seen = make_layer(), batch(), []
    hook = torch.nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(module))
    try:
        with torch.inference_mode():
            layer(x, mask)
    finally:
        hook.remove()
    assert set(seen) == set(layer.modules())


def test_a_mask_of_another_shape_is_refused_in_the_same_words_with_and_without_gradients():
    layer, (x, mask) = make_layer(), batch()
    for grad in (False, True):
        with torch.set_grad_enabled(grad), pytest.raises(ValueError, match="mask of real tokens has shape"):
            layer(x, mask[:, 1:])


def test_where_it_is_not_used(monkeypatch):
    """With gradients or dropout, eager, with other activations, with a token mask, in a subclass, under vmap."""
    x, mask = batch()
    calls = []
    monkeypatch.setattr(OPERATORS.disa, "default", lambda *arguments: calls.append(arguments))
    layer = make_layer(dropout=0.5)
    layer(x, mask)[0].sum().backward()
    assert layer.dense_map.weight.grad.abs().sum() > 0
    with torch.no_grad():
        layer.train()(x, mask)
        assert not torch.equal(layer(x, mask)[0], layer(x, mask)[0])
        layer.eval().implementation = "eager"
        layer(x, mask)
        layer.implementation, layer.attention.implementation = "auto", "eager"
        layer(x, mask)
        layer.attention.implementation = "auto"
        layer.gate.train()
        assert not torch.equal(layer(x, mask)[0], layer(x, mask)[0])
        layer.gate.eval()
        make_layer(activation="tanh")(x, mask)
        hidden = layer(x, mask, False, torch.zeros(13, 13, dtype=torch.bool))[0]
        assert not torch.equal(hidden, by_steps(layer, x, mask))
        layer.half()(x.half(), mask)
        layer.float()(x, mask, output_attentions=True)
        together = torch.vmap(lambda x: layer(x[None], None)[0])(x)
        torch.testing.assert_close(together[:, 0], by_steps(layer, x, None))
        weights = {name: torch.stack([x, 2 * x]) for name, x in layer.named_parameters()}
        both = torch.vmap(lambda own: torch.func.functional_call(layer, own, (x, None))[0])(weights)
        torch.testing.assert_close(both[0], by_steps(layer, x, None))
        once = by_steps(layer, x, mask)
        layer.__class__ = Doubled
        torch.testing.assert_close(layer(x, mask)[0], 2 * once)
    assert not calls


def test_parts_of_a_stack_that_do_more_are_called():
    names = ["feed_forward", "feed_forward_norm", "fusion_norm", "directions.1", "directions.2.gate"]
    for change in [hooked(name) for name in names]:
        layer, (x, mask) = make_stack(), batch()
        before = by_steps(layer, x, mask)
        change(layer)
        with torch.inference_mode():
            found = layer(x, mask)[0]
        torch.testing.assert_close(found, by_steps(layer, x, mask), **CLOSE)
        assert not torch.allclose(found, before)
    layer, (x, mask) = make_stack(), batch()
    layer.fusion_norm = nn.RMSNorm(21)
    with torch.inference_mode():
        torch.testing.assert_close(layer(x, mask)[0], by_steps(layer, x, mask), **CLOSE)
    layer.fusion_norm = nn.LayerNorm(21, elementwise_affine=False)
    layer.feed_forward_norm.eps = 0.5
    with torch.inference_mode():
        torch.testing.assert_close(layer(x, mask)[0], by_steps(layer, x, mask), **CLOSE)
    layer.fusion_norm, layer.directions[1].activation = nn.LayerNorm(21, bias=False), "gelu"
    with torch.inference_mode():
        torch.testing.assert_close(layer(x, mask)[0], by_steps(layer, x, mask), **CLOSE)


class Wrapped(nn.Module):
    """As torch.compile and FSDP wrap a module: its parts are another's."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def __getattr__(self, name):
        return super().__getattr__(name) if name == "module" else getattr(super().__getattr__("module"), name)

    def forward(self, *inputs):
        return self.module(*inputs)


def test_wrapped_directions_are_called():
    layer, (x, mask) = make_stack(), batch()
    expected = by_steps(layer, x, mask)
    layer.directions[1] = Wrapped(layer.directions[1])
    with torch.inference_mode():
        torch.testing.assert_close(layer(x, mask)[0], expected, **CLOSE)


class Negated(DiSANLayer):
    def fuse(self, *inputs):
        tokens, maps = super().fuse(*inputs)
        return -tokens, maps


def test_a_subclass_of_a_stacked_layer_is_called():
    layer, (x, mask) = make_stack(), batch()
    with torch.inference_mode():
        before = layer(x, mask)[0]
        layer.__class__ = Negated
        found = layer(x, mask)[0]
    torch.testing.assert_close(found, by_steps(layer, x, mask), **CLOSE)
    assert not torch.allclose(found, before)


def test_wrong_arguments_are_refused():
    x, weight, square, bias = torch.randn(2, 3, 4), torch.randn(5, 4), torch.randn(5, 5), torch.randn(5)
    maps = {"dense": linear(weight, bias), **{name: linear(square) for name in ("key", "query", "first", "second")}}
    direction = kernels.Direction(**maps, gate_bias=bias, bias=bias, direction="forward")
    int8 = Int8Linear(nn.Linear(7, 5))

    def call(x, residual=None, change=None, **options):
        return kernels.disa(x, [direction._replace(**(change or {}))], residual, **{"activation": "elu", **options})

    places, norm, narrow = torch.zeros(2, 3, dtype=torch.long), nn.LayerNorm(4), nn.LayerNorm(5)
    with torch.no_grad():
        assert call(x).shape == (2, 3, 5)
        wrong = [
            partial(call, x[0]),
            partial(call, x[..., :3]),
            partial(call, x, mask=torch.ones(2, 3)),
            partial(call, x, mask=torch.ones(2, 2, dtype=torch.bool)),
            partial(call, x, places=places),
            partial(call, x[:1], places=places + 3),
            partial(call, x[:1], places=places - 1),
            partial(call, x[:1], places=places.int()),
            partial(call, x, change={"direction": "up"}),
            partial(call, x, change={"window": -1}),
            partial(call, x, change={"bias": bias[:4]}),
            partial(call, x, change={"gate_bias": bias[:4]}),
            partial(call, x, change={"second": linear(weight)}),
            partial(call, x, change={"dense": int8}),
            partial(call, x, change={"second": int8}),
            partial(call, x, kernels.Residual(nn.Linear(4, 4), None, norm, norm)),  # 5 features are added to 4
            partial(call, x, kernels.Residual(nn.Linear(4, 5), None, norm, narrow)),
            partial(call, x, kernels.Residual(nn.Linear(4, 4), None, narrow, narrow)),
            partial(call, x, kernels.Residual(nn.Linear(4, 6), nn.Linear(5, 4), norm, norm)),
            partial(kernels.disa, x, [], activation="elu"),
        ]
        for one in wrong:
            with pytest.raises(RuntimeError):
                one()


def test_registration():
    x, weight, square, bias = torch.randn(2, 3, 4), torch.randn(5, 4), torch.randn(5, 5), torch.randn(5)
    places = torch.zeros(2, 3, dtype=torch.long)
    maps, counts = [weight, bias, square, square, square, square, bias], [2, 1, 1, 1, 2]
    for words, numbers in ((x, None), (x[:1], places)):
        arguments = (
            words,
            numbers,
            None,
            None,
            maps,
            counts,
            [bias, bias],
            [],
            "gelu",
            "forward",
            [2],
            5.0,
            [],
            "auto",
        )
        torch.library.opcheck(OPERATORS.disa.default, arguments, test_utils=("test_schema",))
        for wrong in ([2, 1, 1, 1], [2, 1, 1, 1, 3], [2, 1, 1, 3, -1]):
            with pytest.raises(RuntimeError):
                OPERATORS.disa(*arguments[:5], wrong, *arguments[6:])
