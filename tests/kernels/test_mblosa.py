"""Layers of masked block self-attention in one call: what their steps compute, where nothing else is asked."""

from functools import partial

import pytest
import torch
from torch import nn

from hf_blosan import BiBloSANConfig, kernels
from hf_blosan.kernels.library import has_cpu_kernels
from hf_blosan.models.attention import Tokens
from hf_blosan.models.layers import FeatureAttention, FusionLayer
from hf_blosan.models.layers_blocks import AttentionInBlocks, MaskedBlockSelfAttention
from hf_blosan.models.layers_int8 import convert_layers
from hf_blosan.models.modeling_biblosan import BiBloSANLayer

pytestmark = pytest.mark.skipif(not has_cpu_kernels(), reason="needs the compiled kernels")

CLOSE = {"rtol": 1e-5, "atol": 2e-6}
HAS_INT8 = kernels.instruction_set() in ("avx2", "avx512")
INT8 = [(), ("dense_map", "fusion", "second"), ("alignment_map", "block_pooling", "first")]


def make_layer(dtype=torch.float32, int8=(), seed=0, **options):
    """A layer of Bi-BloSAN, (B, N, 21) -> (B, N, 38), with blocks of 4 tokens."""
    torch.manual_seed(seed)
    config = BiBloSANConfig(embedding_size=21, hidden_size=38, block_length=4, activation="elu", **options)
    layer = BiBloSANLayer(config)
    for weight in layer.parameters():
        if weight.dim() == 1:
            nn.init.normal_(weight)
    convert_layers(layer, lambda name: name.rpartition(".")[2] in int8)
    return layer.to(dtype).eval()


def batch(dtype=torch.float32, rows=5, length=13):
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, length + 1, (rows,), generator=generator)
    mask = torch.arange(length) < lengths[:, None]
    return torch.randn(rows, length, 21, generator=generator, dtype=dtype), mask


@torch.no_grad()
def by_steps(layer, x, mask):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "mblosa", lambda *arguments, **options: None)
        return layer(x, mask)[0]


def in_one_call(layer, x, mask, monkeypatch):
    """The result, which must come from the operator."""
    monkeypatch.setattr(FusionLayer, "forward", None)
    with torch.inference_mode():
        result, maps = layer(x, mask)
    monkeypatch.undo()
    assert maps is None
    return result


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", [{}, {"mask_padding_blocks": False}, {"fuse_local": False}])
def test_is_its_steps(dtype, options, monkeypatch):
    layer, (x, mask) = make_layer(dtype, **options), batch(dtype)
    close = CLOSE if dtype == torch.float32 else {"rtol": 1e-11, "atol": 1e-12}
    expected = by_steps(layer, x, mask)
    torch.testing.assert_close(in_one_call(layer, x, mask, monkeypatch), expected, **close)
    left = mask.flip(1)  # padding on the left
    torch.testing.assert_close(in_one_call(layer, x, left, monkeypatch), by_steps(layer, x, left), **close)
    one, found = layer.directions[1], in_one_call(layer.directions[1], x, mask, monkeypatch)
    assert type(one) is MaskedBlockSelfAttention
    torch.testing.assert_close(found, expected[..., 19:], **close)


def check_parts(rows, length, fuse_local, int8, threads, monkeypatch):
    """A layer in one call, on one thread and on three, computes what its steps do."""
    layer, (x, mask) = make_layer(int8=int8, fuse_local=fuse_local), batch(rows=rows, length=length)
    mask[rows // 2] = rows == 1  # a sentence without tokens between others
    words = Tokens(x.flatten(0, 1)[None], torch.arange(mask.numel()).view(mask.shape))
    threads(1)
    expected = by_steps(layer, x, mask)
    for count in (1, 3):
        threads(count)
        for tokens in (x, words):
            torch.testing.assert_close(in_one_call(layer, tokens, mask, monkeypatch), expected, **CLOSE)


@pytest.mark.parametrize("int8", INT8 if HAS_INT8 else INT8[:1], ids=lambda int8: "-".join(int8) or "float32")
@pytest.mark.parametrize("fuse_local", [True, False])
@pytest.mark.parametrize("rows, length", [(40, 13), (3, 70), (49, 1), (1, 40), (7, 4)])
def test_threads_take_parts_of_a_batch(rows, length, fuse_local, int8, threads, monkeypatch):
    check_parts(rows, length, fuse_local, int8, threads, monkeypatch)


def test_a_thread_takes_many_tokens_in_parts(threads, monkeypatch):
    # Not in int8: on processors whose products depend on the number of rows, a number may be rounded the other way.
    check_parts(320, 13, True, (), threads, monkeypatch)


def doubled(module, inputs, result):
    return (2 * result[0], result[1]) if isinstance(result, tuple) else 2 * result


class Negated(MaskedBlockSelfAttention):
    def steps(self, *inputs):
        return -(yield from super().steps(*inputs))


def own_steps(layer):
    layer.directions[0].__class__ = Negated


def hook(name, layer):
    layer.get_submodule(name).register_forward_hook(doubled)


PARTS = ("directions.0", "directions.1.block_attention", "directions.0.pool", "directions.1.fuse")
PARTS += ("directions.0.global_attention", "directions.1.global_attention.gate", "directions.0.block_pooling")
PARTS += ("directions.0.fusion", "directions.1.dense_map")


@pytest.mark.parametrize("change", [*(partial(hook, name) for name in PARTS), own_steps])
def test_parts_that_do_more_are_called(change):
    layer, (x, mask) = make_layer(), batch()
    before = by_steps(layer, x, mask)
    change(layer)
    with torch.inference_mode():
        found = layer(x, mask)[0]
    torch.testing.assert_close(found, by_steps(layer, x, mask), **CLOSE)
    assert not torch.allclose(found, before)


def test_where_it_is_not_used(monkeypatch):
    """With gradients or dropout, eager, with other activations, as printed, without attention between blocks,
    with a window there."""
    calls, (x, mask) = [], batch()
    operator = kernels.library.OPERATORS.mblosa
    monkeypatch.setattr(operator, "default", lambda *arguments: calls.append(arguments))
    layer = make_layer(dropout=0.5)
    layer(x, mask)[0].sum().backward()
    assert layer.directions[0].fusion.weight.grad.abs().sum() > 0
    others = [make_layer(formulation="paper"), make_layer(fuse_global=False), make_layer(), make_layer(), make_layer()]
    for part in others[2].modules():
        part.implementation = "eager"
    for one, other in zip(others[3].directions, others[4].directions, strict=True):
        one.fuse.activation = "tanh"
        other.global_attention.attention.window = 1
    with torch.no_grad():
        assert not torch.equal(layer.train()(x, mask)[0], layer(x, mask)[0])
        assert all(torch.isfinite(other(x, mask)[0]).all() for other in others)
        assert layer.eval()(x, mask, True)[1].gates
    assert not calls


def narrow_window(layer):
    layer.directions[0].block_attention.window = 1


def full_blocks(layer):
    layer.directions[1].block_attention.direction = "full"


def other_length(layer):
    for part in (layer.directions[1], *layer.directions[1].children()):
        part.block_length = 3


def padding_counts(layer):
    layer.directions[1].pool.mask_padding = False


def other_direction(layer):
    layer.directions[0].global_attention.attention.direction = "backward"


def separate_maps(layer):
    options = {"direction": "forward", "block_length": 4, "joint": False}
    layer.directions[0].block_attention = AttentionInBlocks(19, **options).requires_grad_(False)


def without_blocks(layer):
    options = {"direction": "forward", "joint": True}
    layer.directions[0].block_attention = FeatureAttention(19, **options).requires_grad_(False)


@pytest.mark.parametrize(
    "change",
    [narrow_window, full_blocks, other_length, padding_counts, other_direction, separate_maps, without_blocks],
)
def test_parts_that_differ_are_called_one_by_one(change):
    layer, (x, mask) = make_layer(), batch(rows=3)
    mask[:, 0] = True
    before = by_steps(layer, x, mask)
    change(layer)
    for part in layer.modules():
        part.eval()
    if change in (separate_maps, without_blocks):
        nn.init.normal_(layer.directions[0].block_attention.bias)
    with torch.inference_mode():
        found = layer(x, mask)[0]
    torch.testing.assert_close(found, by_steps(layer, x, mask), **CLOSE)
    assert not torch.allclose(found, before)


def test_inputs_of_other_shapes():
    layer, (x, mask) = make_layer(), batch()
    with torch.inference_mode():
        assert layer.directions[0](x[:, :0], mask[:, :0])[0].shape == (5, 0, 19)
        assert layer.directions[0](x[:0], mask[:0])[0].shape == (0, 13, 19)
        with pytest.raises(ValueError, match="mask of real tokens has shape"):
            layer.directions[0](x, mask[:, 1:])
        packed = Tokens(x[mask][None], cu_seqlens=nn.functional.pad(mask.sum(1).cumsum(0), (1, 0)))
        with pytest.raises(ValueError, match="cu_seqlens and block_length exclude each other"):
            layer.directions[0](packed, mask.new_ones(1, int(mask.sum())))
        layer.directions[0].block_length = 0
        with pytest.raises(ValueError, match="block_length is 0"):
            layer.directions[0](x, mask)


@pytest.mark.skipif(not HAS_INT8, reason="int8 needs a processor with AVX2")
def test_blocks_of_another_width_are_refused_in_int8():
    layer, (x, mask), calls = make_layer(int8=("fusion",)), batch(), []
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(kernels, "mblosa", lambda *arguments, **options: calls.append((arguments, options)))
        layer(x, mask)
    (x, (one, other)), options = calls[0]
    maps = {name: nn.Linear(1, 1) for name in ("key", "query", "first", "second")}
    between = other.between._replace(dense=nn.Linear(19, 1), **maps, bias=x[0, 0, :1], gate_bias=x[0, 0, :1])
    with torch.no_grad(), pytest.raises(RuntimeError, match="blocks: its shape is"):
        kernels.mblosa(x, [one, other._replace(between=between)], **options)


def test_wrong_arguments_are_refused():
    layer, (x, mask), calls = make_layer(), batch(), []
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(kernels, "mblosa", lambda *arguments, **options: calls.append((arguments, options)))
        layer(x, mask)
    (x, directions), options = calls[0]  # of both directions
    narrow, places = nn.Linear(19, 19), torch.zeros(5, 13, dtype=torch.long)
    changes = [
        {"block_length": 0},
        {"mask": mask[:, 1:]},
        {"mask": mask.float()},
        {"places": places},
        {"scale": -1.0},
        {"implementation": "fast"},
    ]
    wrong = [partial(kernels.mblosa, x, directions, **{**options, **change}) for change in changes]
    for change in (
        {"alignment": narrow},
        {"fusion": narrow},
        {"pooling": nn.Linear(19, 20)},
        {"bias": x[0, 0]},
        {"bias": x[0, 0, :0]},
    ):
        wrong.append(partial(kernels.mblosa, x, [directions[0], directions[1]._replace(**change)], **options))
    wrong += [partial(kernels.mblosa, x[:1], directions, **{**options, "places": places + 13})]
    wrong += [partial(kernels.mblosa, x[:, :0], directions, **{**options, "mask": mask[:, :0]})]
    wrong += [partial(kernels.mblosa, x, [], **options), partial(kernels.mblosa, x[0], directions, **options)]
    with torch.no_grad():
        assert kernels.mblosa(x, directions, **options).shape == (5, 13, 38)
        for call in wrong:
            with pytest.raises(RuntimeError):
                call()
