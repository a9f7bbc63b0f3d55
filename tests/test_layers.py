"""Layers by themselves: a kernel takes the place of a step only where it computes the same."""

import pytest
import torch
from torch import nn

from hf_blosan import functional as F
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
