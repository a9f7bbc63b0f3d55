"""MTSA in the place of nn.MultiheadAttention, and the example that puts it there."""

import copy
import runpy
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from hf_blosan.modules import MultiheadTensorizedAttention

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "transformer_with_mtsa.py"


def make(**options):
    torch.manual_seed(0)
    return MultiheadTensorizedAttention(16, 4, **options).eval(), torch.randn(2, 7, 16)


def test_shapes_and_weights_are_those_of_multihead_attention():
    module, x = make()
    theirs = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    for options in ({}, {"need_weights": False}, {"average_attn_weights": False}):
        for ours, expected in zip(module(x, x, x, **options), theirs(x, x, x, **options), strict=True):
            assert (ours is None and expected is None) or ours.shape == expected.shape
    tokens, weights = module(x)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 7))
    torch.testing.assert_close(module(x, need_weights=False)[0], tokens)


def test_heads_see_what_is_before_or_after():
    module, x = make()
    _, weights = module(x, average_attn_weights=False)
    assert (weights[:, :2].triu(1) == 0).all() and (weights[:, 2:].tril(-1) == 0).all()


def test_masks():
    """Those of torch, as booleans or numbers; a causal mask is the same as heads that look back."""
    module, x = make()
    padding = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    expected = module(x[1:, :4])[0][0]
    as_numbers = torch.zeros(2, 7).masked_fill(padding, -torch.inf)
    for mask in (padding, as_numbers):
        torch.testing.assert_close(module(x, key_padding_mask=mask)[0][1, :4], expected)
    forward, _ = make(directions=("forward",))
    full, _ = make(directions=("full",))
    causal = nn.Transformer.generate_square_subsequent_mask(7)
    torch.testing.assert_close(full(x, attn_mask=causal, is_causal=True)[0], forward(x)[0])


def test_inside_a_transformer_encoder():
    """In training and evaluation, with padding, and saved: no other code path of torch's layer is taken."""
    layer = nn.TransformerEncoderLayer(16, 4, dim_feedforward=32, batch_first=True)
    layer.self_attn = MultiheadTensorizedAttention(16, 4, dropout=0.1)
    encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
    x, padding = torch.randn(2, 7, 16), torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    encoder(x, src_key_padding_mask=padding).sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())
    with torch.no_grad():
        found = encoder.eval()(x, src_key_padding_mask=padding)
        alone = encoder(x[1:, :4])
        torch.testing.assert_close(found[1, :4], alone[0])
        by_hand = copy.deepcopy(encoder.layers[0])
        attended = by_hand.norm1(x + by_hand.self_attn(x)[0])
        expected = by_hand.norm2(attended + by_hand.linear2(by_hand.linear1(attended).relu()))
        torch.testing.assert_close(encoder.layers[0](x), expected)


def test_graphs_with_masks():
    """torch turns a padding mask of booleans into numbers, whose values no graph can depend on."""
    layer = nn.TransformerEncoderLayer(16, 4, dim_feedforward=32, batch_first=True)
    layer.self_attn = MultiheadTensorizedAttention(16, 4)
    x, padding = torch.randn(2, 7, 16), torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    expected = layer.eval()(x, src_key_padding_mask=padding)
    exported = torch.export.export(layer, (x,), {"src_key_padding_mask": padding}).module()
    torch.testing.assert_close(exported(x, src_key_padding_mask=padding), expected)


def test_bad_input():
    module, x = make()
    with pytest.raises(ValueError, match="MTSA is self-attention; give the same tensor"):
        module(x, x.clone(), x)
    with pytest.raises(ValueError, match=r"query has shape \(7, 16\); give tokens of shape \(B, N, embed_dim\)"):
        module(x[0])
    with pytest.raises(ValueError, match=r"key_padding_mask has shape \(2, 6\); give one of shape \(2, 7\)"):
        module(x, key_padding_mask=torch.zeros(2, 6, dtype=torch.bool))
    with pytest.raises(ValueError, match="attn_mask has numbers other than 0 and -inf"):
        module(x, attn_mask=torch.randn(7, 7))
    with pytest.raises(ValueError, match="is_causal only describes attn_mask; give the mask"):
        module(x, is_causal=True)
    with pytest.raises(ValueError, match="3 heads for embed_dim 12 and 2 directions; choose a divisor"):
        MultiheadTensorizedAttention(12, 3)
    for wrong in ({"num_heads": 0}, {"num_heads": 3, "directions": ()}):
        with pytest.raises(ValueError, match="heads for embed_dim 12 and . directions; choose a divisor"):
            MultiheadTensorizedAttention(12, **wrong)


def test_one_direction_and_rows_without_tokens():
    module, x = make(directions="forward")
    assert not module(x)[1].triu(1).any()
    tokens, weights = module(x[:, :0])
    assert tokens.shape == (2, 0, 16) and weights.shape == (2, 0, 0)


def test_example(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["transformer_with_mtsa.py", "--steps", "80"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    accuracies = {line[:22].strip(): float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()}
    assert accuracies["MTSA"] > 0.85 and accuracies["multi-head attention"] < 0.6
