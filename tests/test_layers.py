"""Layers by themselves: a kernel takes the place of a step only where it computes the same."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn

from hf_blosan import MTSAConfig, MTSAModel
from hf_blosan import functional as F
from hf_blosan.models.equations import weighted_sum
from hf_blosan.models.equations_mtsa import tensorized_attention_weights
from hf_blosan.models.layers import DirectionalSelfAttention, Layer
from hf_blosan.models.layers_heads import HeadLinear
from hf_blosan.models.layers_mtsa import TensorizedSelfAttention


class Doubled(HeadLinear):
    def forward(self, x):
        return 2 * super().forward(x)


def doubled_linear():
    map_ = nn.Linear(6, 4)
    map_.forward = lambda x: 2 * nn.functional.linear(x, map_.weight, map_.bias)
    return map_


def doubled_heads():
    return Doubled(2, 6, 4)


def heads_of_which_one_is_doubled():
    map_ = HeadLinear(2, 6, 4)
    map_[1] = doubled_linear()
    return map_


def sparse_heads():
    map_ = HeadLinear(2, 6, 4)
    map_[0] = sparse_linear()
    return map_


def sparse_linear():
    map_ = nn.Linear(6, 4)
    map_.weight = nn.Parameter(map_.weight.detach().to_sparse_csr(), requires_grad=False)
    return map_


MAPS = [doubled_linear, doubled_heads, heads_of_which_one_is_doubled, sparse_linear, sparse_heads]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("make_map", MAPS)
def test_a_map_that_is_more_than_its_weight_is_called(make_map):
    torch.manual_seed(0)
    map_, layer, x = make_map(), Layer(activation="elu"), torch.randn(2, 3, 6)
    with torch.no_grad():
        expected = torch.stack([head(x) for head in map_], dim=1) if type(map_) is HeadLinear else map_(x)
        torch.testing.assert_close(layer.dense(map_, x), nn.functional.elu(expected))


def layers():
    torch.manual_seed(0)
    disa = DirectionalSelfAttention(6, 8, direction="forward", activation="elu")
    mtsa = TensorizedSelfAttention(6, 8, directions=["forward", "backward"], activation="elu")
    for layer in (disa, mtsa):
        for parameter in layer.parameters():
            nn.init.normal_(parameter, std=0.3)
    return disa.eval(), mtsa.eval()


def test_masks_of_integers():
    """As tokenizers return them."""
    x, mask = torch.randn(2, 7, 6), torch.tensor([[1] * 7, [1, 1, 1, 0, 0, 0, 0]])
    for layer in layers():
        torch.testing.assert_close(layer(x, mask)[0], layer(x, mask.bool())[0])


def test_autocast_keeps_the_lower_precision():
    x, mask = torch.randn(2, 7, 6), torch.ones(2, 7, dtype=torch.bool)
    for layer in layers():
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(x, mask)[0].dtype == torch.bfloat16


def test_rows_without_tokens():
    empty, mask = torch.randn(2, 0, 4), torch.ones(2, 0, dtype=torch.bool)
    assert torch.equal(F.source2token_attention(empty, empty, mask=mask), torch.zeros(2, 4))


# --- Distance ---------------------------------------------------------------------------------------------------


def decaying(**options):
    torch.manual_seed(0)
    directions = ["forward", "forward", "backward", "backward"]
    options = {"windows": [1, None, 3, None], "activation": "gelu", "distance_decay": True} | options
    return TensorizedSelfAttention(6, 8, directions=directions, **options).eval()


@pytest.mark.parametrize("length", [9, 150])  # one tile of the kernel, and two
@pytest.mark.parametrize("implementation", ["auto", "eager", "fused"])
def test_weights_decay_with_distance(length, implementation):
    """The attention of Alg. 1 with each weight times exp(-a |i - j|), written out; a is at most 120 / n."""
    layer, x = decaying(fusion_gate=False), torch.randn(2, length, 6)
    layer.implementation = implementation
    mask = torch.ones(2, length, dtype=torch.bool)
    mask[1, length // 2 :] = False
    with torch.no_grad():
        q, k, v_BHND, scores = layer.map_tokens(x)
        weights_BHNND = tensorized_attention_weights(q, k, scores, key_mask=mask, **layer.options)
        distance_NN = (torch.arange(length)[:, None] - torch.arange(length)).abs()
        decay_BHD = torch.minimum(layer.decay, 120 / mask.sum(1)[:, None, None])
        weights_BHNND = weights_BHNND * torch.exp(-decay_BHD[:, :, None, None] * distance_NN[..., None])
        total_BHN1D = weights_BHNND.sum(3, keepdim=True)
        weights_BHNND = weights_BHNND / torch.where(total_BHN1D > 0, total_BHN1D, 1.0)
        expected_BND = weighted_sum(weights_BHNND, v_BHND[:, :, None]).transpose(1, 2).flatten(2) * mask[..., None]
        torch.testing.assert_close(layer(x, mask)[0], expected_BND, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(layer(x, mask, True)[0], expected_BND, rtol=1e-4, atol=1e-5)


def test_decay_of_0_changes_nothing():
    layer, plain, x = decaying(), decaying(distance_decay=False), torch.randn(2, 7, 6)
    plain.load_state_dict({name: value for name, value in layer.state_dict().items() if name != "decay"})
    assert not torch.allclose(layer(x, torch.ones(2, 7))[0], plain(x, torch.ones(2, 7))[0], atol=1e-3)
    nn.init.zeros_(layer.decay)
    torch.testing.assert_close(layer(x, torch.ones(2, 7))[0], plain(x, torch.ones(2, 7))[0])


def test_padding_adds_no_distance():
    layer, x = decaying(), torch.randn(1, 5, 6)
    expected = layer(x, torch.ones(1, 5))[0]
    left = layer(nn.functional.pad(x, (0, 0, 4, 0)), torch.tensor([[0] * 4 + [1] * 5]))[0][:, 4:]
    right = layer(nn.functional.pad(x, (0, 0, 0, 4)), torch.tensor([[1] * 5 + [0] * 4]))[0][:, :5]
    torch.testing.assert_close(left, expected)
    torch.testing.assert_close(right, expected)


def test_decay_in_long_texts():
    """It is limited there, so that the weights of the first tokens do not underflow."""
    layer, x = decaying(fusion_gate=False), torch.randn(1, 2000, 6)
    tokens_BND = layer(x, torch.ones(1, 2000))[0]
    tokens_BND.square().sum().backward()
    assert layer.decay.grad.isfinite().all()
    assert layer.decay.grad[1].any()
    with torch.no_grad():
        exact = layer.double()(x.double(), torch.ones(1, 2000))[0]
    torch.testing.assert_close(tokens_BND.double(), exact, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("direction", ["full", "diagonal"])
def test_decay_needs_heads_that_look_to_one_side(direction):
    with pytest.raises(ValueError, match="distance_decay"):
        TensorizedSelfAttention(6, 8, directions=["forward", direction], activation="gelu", distance_decay=True)
    with pytest.raises(StrictDataclassError, match="distance_decay=True needs directions forward and backward"):
        MTSAConfig(directions=["forward", direction], distance_decay=True)


def test_decay_is_saved_and_starts_between_two_and_a_sixty_fourth(tmp_path):
    model = MTSAModel(MTSAConfig(vocab_size=20, embedding_size=6, hidden_size=8, distance_decay=True))
    decay_HD = model.context.layers[0].attention.decay
    torch.testing.assert_close(decay_HD.aminmax(), (torch.tensor(1 / 64), torch.tensor(2.0)), check_dtype=False)
    nn.init.constant_(decay_HD, 0.3)
    model.save_pretrained(tmp_path)
    assert (MTSAModel.from_pretrained(tmp_path).context.layers[0].attention.decay == 0.3).all()
