"""The operators: against their equations written out, against float64, at the edges."""

import doctest
import functools
import math
import re
from inspect import signature

import pytest
import torch

from hf_blosan import functional as F

DIRECTIONS = F.DIRECTIONS


def visible(query, key, direction):
    return {"forward": key < query, "backward": key > query, "diagonal": key != query, "full": True}[direction]


def textbook_directional(keys, queries, values, direction, mask, scale=5.0):
    """DiSAN Eq. 15-18, one number at a time."""
    out = torch.zeros_like(values)
    B, N, D = values.shape
    for b in range(B):
        for j in range(N):
            seen = [i for i in range(N) if mask[b, i] and visible(j, i, direction)]
            for d in range(D):
                weights = [math.exp(scale * math.tanh((keys[b, i, d] + queries[b, j, d]) / scale)) for i in seen]
                if seen:
                    out[b, j, d] = sum(w * values[b, i, d] for w, i in zip(weights, seen, strict=True)) / sum(weights)
    return out


def random_inputs(B, N, D, spread=1.0, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    keys, queries, values = (torch.randn(B, N, D, generator=generator, dtype=dtype) for _ in range(3))
    mask = torch.rand(B, N, generator=generator) > 0.3
    mask[0] = False  # a row of padding only
    return *(mask[..., None] * x for x in (keys * spread, queries * spread, values)), mask


def test_additive_masks_are_refused():
    """They would hide the tokens that they mean to show."""
    scores, values, mask = torch.zeros(1, 3, 1), torch.randn(1, 3, 1), torch.tensor([[0.0, 0.0, -1e9]])
    for empty_rows in ("zero", "mean"):
        with pytest.raises(ValueError, match="the mask has values below 0; give 1 or true for tokens"):
            F.source2token_attention(scores, values, mask=mask, empty_rows=empty_rows)


@pytest.mark.parametrize("implementation", F.IMPLEMENTATIONS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_directional_attention_is_the_equation(direction, implementation):
    keys, queries, values, mask = random_inputs(3, 5, 2)
    out = F.directional_attention(
        keys, queries, values, direction=direction, key_mask=mask, implementation=implementation
    )
    torch.testing.assert_close(out, textbook_directional(keys, queries, values, direction, mask), rtol=0, atol=1e-12)
    assert (out[0] == 0).all()


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("window", [0, 1, 3, 9])
def test_order_mask_with_a_window(window, include_self, direction):
    mask = F.order_mask(6, direction, include_self=include_self, window=window)
    for i in range(6):
        for j in range(6):
            seen = visible(i, j, direction) or (include_self and i == j)
            assert bool(mask[i, j]) == (seen and abs(i - j) <= window)
    with pytest.raises(ValueError, match="window is -1; give the number of tokens"):
        F.order_mask(6, direction, window=-1)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_token_mask_is_one_more_condition(direction):
    """A mask of order and padding, given as a token mask, is the same as order and padding."""
    keys, queries, values, mask = random_inputs(3, 6, 4)
    both = F.order_mask(6, direction, window=2) & mask[:, None]
    options = {"direction": direction, "window": 2, "key_mask": mask}
    expected = F.directional_attention_weights(keys, queries, **options)
    weights = F.directional_attention_weights(keys, queries, direction="full", token_mask=both)
    assert torch.equal(weights, expected)
    again = F.directional_attention_weights(keys, queries, **options, token_mask=torch.ones(6, 6, dtype=torch.bool))
    assert torch.equal(again, expected)


class TestMaskFromHeads:
    # [the, cat, sat, down, quietly]: sat is the root, and quietly depends on down.
    HEADS = torch.tensor([1, 2, -1, 2, 3])

    def test_example_of_the_documentation(self):
        (example,) = doctest.DocTestFinder().find(
            F.mask_from_heads, globs={"torch": torch, "mask_from_heads": F.mask_from_heads}
        )
        outcome = doctest.DocTestRunner().run(example)
        assert outcome.attempted == 2 and not outcome.failed

    def test_distance_is_that_of_the_tree(self):
        edges = [[0, 1, 2, 3, 4], [1, 0, 1, 2, 3], [2, 1, 0, 1, 2], [3, 2, 1, 0, 1], [4, 3, 2, 1, 0]]
        edges = torch.tensor(edges)
        for distance in (1, 2, 3, 4, 100):
            mask = F.mask_from_heads(self.HEADS, distance=distance)
            assert torch.equal(mask, (edges <= distance) & (edges > 0))
            with_self = F.mask_from_heads(self.HEADS, distance=distance, include_self=True)
            assert torch.equal(with_self, edges <= distance)

    def test_roots_and_rows(self):
        """A root may point to itself; there may be several; rows do not touch one another."""
        itself = self.HEADS.clone()
        itself[2] = 2
        assert torch.equal(F.mask_from_heads(itself), F.mask_from_heads(self.HEADS))
        forest = torch.tensor([-1, 0, -1, 2, 2])
        both = F.mask_from_heads(torch.stack([self.HEADS, forest]), distance=4)
        assert both[0].sum() == 5 * 4 and both[1].sum() == 2 * 1 + 3 * 2
        assert F.mask_from_heads(torch.empty(2, 0, dtype=torch.long)).shape == (2, 0, 0)

    def test_padding_is_not_read_and_not_seen(self):
        heads = torch.stack([torch.cat([self.HEADS, torch.tensor([0, -100, 99])]), torch.arange(8)])
        real = torch.ones(2, 8, dtype=torch.long)
        real[0, 5:] = 0
        mask = F.mask_from_heads(heads, mask=real, include_self=True, distance=2)
        expected = F.mask_from_heads(self.HEADS, include_self=True, distance=2)
        assert torch.equal(mask[0, :5, :5], expected)
        assert not mask[0, 5:].any() and not mask[0, :, 5:].any()
        assert torch.equal(mask[1], torch.eye(8, dtype=torch.bool))

    def test_bad_heads_are_refused(self):
        with pytest.raises(ValueError, match=r"heads\[1, 2\] is 3; a head is the position of .* 0 to 2, and -1"):
            F.mask_from_heads(torch.tensor([[0, 0, 0], [0, 0, 3]]))
        with pytest.raises(ValueError, match=r"heads\[0\] is -2"):
            F.mask_from_heads(torch.tensor([-2, 0]))
        with pytest.raises(ValueError, match=r"heads\[0\] is 1; a head is the position of a real token"):
            F.mask_from_heads(torch.tensor([1, 0]), mask=torch.tensor([1, 0]))
        with pytest.raises(ValueError, match="heads hold torch.float32; give the position"):
            F.mask_from_heads(torch.zeros(2, 2))
        with pytest.raises(ValueError, match="distance is 0"):
            F.mask_from_heads(self.HEADS, distance=0)
        with pytest.raises(ValueError, match=r"the mask has shape \(3,\), the heads \(5,\)"):
            F.mask_from_heads(self.HEADS, mask=torch.ones(3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("with_kernels", [True, False])
def test_operators_are_shielded_from_autocast(with_kernels, dtype, remove_kernels):
    """Scores are 60 apart: exp(30) overflows in float16."""
    if not with_kernels:
        remove_kernels()
    generator = torch.Generator().manual_seed(5)
    q, k, v, scores = (torch.randn(2, 2, 6, 4, generator=generator) for _ in range(4))
    with torch.autocast("cpu", dtype):
        tensorized = F.tensorized_attention(q, k, v, 15 * scores, directions="forward")
        directional = F.directional_attention(q[0], 9 * k[0], v[0], direction="full")
    expected = F.tensorized_attention(q, k, v, 15 * scores, directions="forward")
    torch.testing.assert_close(tensorized, expected)
    torch.testing.assert_close(directional, F.directional_attention(q[0], 9 * k[0], v[0], direction="full"))


@pytest.mark.parametrize("implementation", F.IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_directional_attention_keeps_the_dtype(dtype, implementation):
    *inputs, mask = random_inputs(2, 6, 4)
    expected = F.directional_attention(*inputs, direction="forward", key_mask=mask, implementation="eager")
    inputs = [x.to(dtype).requires_grad_() for x in inputs]
    out = F.directional_attention(*inputs, direction="forward", key_mask=mask, implementation=implementation)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=20 * torch.finfo(dtype).eps)
    out.sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in inputs)


def test_unknown_names_are_refused():
    x = torch.zeros(1, 2, 3)
    for implementation in F.IMPLEMENTATIONS:
        with pytest.raises(ValueError, match="'sideways'; choose one of forward, backward, diagonal, full"):
            F.directional_attention(x, x, x, direction="sideways", implementation=implementation)
    with pytest.raises(ValueError, match="'warp'; choose one of auto, eager, fused, linear"):
        F.directional_attention(x, x, x, direction="full", implementation="warp")
    with pytest.raises(ValueError, match="'softmax'; choose one of sigmoid, exp"):
        F.tensorized_attention(*[x[None]] * 4, directions="full", score_function="softmax")
    for pool in (F.source2token_attention, F.additive_attention):
        scores = x if pool is F.source2token_attention else x[..., 0]
        with pytest.raises(ValueError, match="empty_rows is 'Zero'; choose one of zero, mean"):
            pool(scores, x, mask=torch.ones(1, 2), empty_rows="Zero")
    with pytest.raises(ValueError, match="2 directions for 1 heads"):
        F.tensorized_attention(*[x[None]] * 4, directions=["full", "full"])


def textbook_tensorized(q, k, v, scores, directions, mask, f, include_self):
    """MTSA Eq. 8-12 with the (B, H, N, N, D) tensor of weights."""
    B, H, N, D = q.shape
    token = (q @ k.transpose(-1, -2) / math.sqrt(D))[..., None]
    token = token if f == "exp" else token.sigmoid().log()
    allowed = torch.zeros(B, H, N, N, dtype=torch.bool)
    for h, direction in enumerate(directions):
        for i in range(N):
            for j in range(N):
                allowed[:, h, i, j] = mask[:, j] & (visible(i, j, direction) or (include_self and i == j))
    logits = (token + scores[:, :, None]).masked_fill(~allowed[..., None], -math.inf)
    weights = torch.softmax(logits, dim=3).nan_to_num(0.0)
    return (weights * v[:, :, None]).sum(3), weights


@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("score_function", ["sigmoid", "exp"])
def test_tensorized_attention_is_the_equation(score_function, include_self):
    generator = torch.Generator().manual_seed(1)
    q, k, v, scores = (torch.randn(3, 4, 6, 5, generator=generator, dtype=torch.float64) for _ in range(4))
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]]).bool()
    options = {"directions": list(DIRECTIONS), "key_mask": mask, "score_function": score_function}
    options["include_self"] = include_self
    q, k, v, scores = (mask[:, None, :, None] * x for x in (q, k, v, scores))
    expected, weights = textbook_tensorized(q, k, v, scores, DIRECTIONS, mask, score_function, include_self)
    torch.testing.assert_close(F.tensorized_attention(q, k, v, scores, **options), expected)
    torch.testing.assert_close(F.tensorized_attention_weights(q, k, scores, **options), weights)
    assert (F.tensorized_attention(q, k, v, scores, **options)[2] == 0).all()


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_tensorized_attention_with_large_source_scores(direction):
    """Scores of +-80: a query that sees only the low ones must not come out as 0."""
    generator = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(2, 1, 40, 8, generator=generator) for _ in range(3))
    scores = torch.empty(2, 1, 40, 8).uniform_(-80, 80, generator=generator)
    scores[:, :, ::7], scores[:, :, 3::7] = -80.0, 80.0
    leaves = [x.requires_grad_() for x in (q, k, v, scores)]
    out = F.tensorized_attention(*leaves, directions=direction)
    exact = F.tensorized_attention(*(x.detach().double() for x in leaves), directions=direction)
    torch.testing.assert_close(out.double(), exact, rtol=1e-4, atol=1e-4)
    out.sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in leaves)


def test_tensorized_attention_dropout_leaves_the_denominator_whole():
    torch.manual_seed(0)
    q, k, scores = (torch.randn(1, 1, 50, 4) for _ in range(3))
    v = torch.ones(1, 1, 50, 4)
    options = {"directions": "full"}
    dropped = torch.stack([F.tensorized_attention(q, k, v, scores, dropout=0.3, **options) for _ in range(400)])
    assert (F.tensorized_attention(q, k, v, scores, **options) - 1).abs().max() < 1e-5
    assert (dropped.mean(0) - 1).abs().max() < 0.1 and dropped.std() > 0.05


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_source2token_attention(dtype):
    generator = torch.Generator().manual_seed(3)
    scores, values = (torch.randn(3, 4, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]]).bool()
    pooled = F.source2token_attention(scores.to(dtype), values.to(dtype), mask=mask)
    assert pooled.dtype == dtype
    for b, length in ((0, 4), (1, 2)):
        expected = (torch.softmax(scores[b, :length], 0) * values[b, :length]).sum(0)
        torch.testing.assert_close(pooled[b].double(), expected, rtol=0, atol=10 * torch.finfo(dtype).eps)
    assert (pooled[2] == 0).all()
    mean = F.source2token_attention(scores, values, mask=mask, empty_rows="mean")
    torch.testing.assert_close(mean[2], values[2].mean(0))


def test_additive_attention_has_one_weight_a_token():
    generator = torch.Generator().manual_seed(4)
    scores, values = torch.randn(2, 4, generator=generator), torch.randn(2, 4, 5, generator=generator)
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0]]).bool()
    pooled = F.additive_attention(scores, values, mask=mask)
    torch.testing.assert_close(pooled[0], torch.softmax(scores[0], 0) @ values[0])
    torch.testing.assert_close(pooled[1], values[1, 0])


def test_optimal_block_length():
    assert [F.optimal_block_length(n) for n in (0, 1, 4, 14, 32, 108, 109)] == [1, 2, 2, 4, 4, 6, 7]
    spread = (2 * (20 + 6 * math.sqrt(2 * math.log(64)))) ** (1 / 3)
    assert F.optimal_block_length(20, length_std=6, batch_size=64) == math.ceil(spread) == 5
    assert F.optimal_block_length(20, length_std=6, batch_size=1) == F.optimal_block_length(20)
    with pytest.raises(ValueError, match="batch_size=0"):
        F.optimal_block_length(20, batch_size=0)


def test_spread_scores():
    spread = F.spread_scores(torch.tensor([1.0, 3.6, 5.0, 7.0]), score_min=1, score_max=5, num_classes=5)
    expected = torch.tensor([[1, 0, 0, 0, 0], [0, 0, 0.4, 0.6, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 1]])
    torch.testing.assert_close(spread, expected)
    spread = F.spread_scores(torch.tensor([2.5]), score_min=0, score_max=5, num_classes=3)
    torch.testing.assert_close(spread, torch.tensor([[0.0, 1.0, 0.0]]))


@pytest.mark.parametrize(
    "operator",
    ["directional", "directional_weights", "tensorized", "tensorized_weights", "source2token", "source2token_weights"],
)
@pytest.mark.parametrize("mask", [(1, 4), (4,), (3, 2)])
def test_a_mask_of_another_shape_is_refused(operator, mask):
    """A kernel would read beyond it."""
    x, mask = torch.randn(3, 4, 16), torch.ones(mask, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"the mask of real tokens has shape .*; give \(B, N\), here \(3, 4\)"):
        if operator == "directional":
            F.directional_attention(x, x, x, direction="full", key_mask=mask)
        elif operator == "directional_weights":
            F.directional_attention_weights(x, x, direction="full", key_mask=mask)
        elif operator == "tensorized":
            F.tensorized_attention(*[x[:, None]] * 4, directions="full", key_mask=mask)
        elif operator == "tensorized_weights":
            F.tensorized_attention_weights(*[x[:, None]] * 3, directions="full", key_mask=mask)
        elif operator == "source2token":
            F.source2token_attention(x, x, mask=mask)
        else:
            F.source2token_weights(x, mask=mask)


def test_tensors_of_different_shapes_are_refused():
    x = torch.randn(3, 4, 16)
    with pytest.raises(ValueError, match=r"shapes differ: keys \(1, 4, 16\), queries \(3, 4, 16\)"):
        F.directional_attention(x[:1], x, x, direction="full")
    with pytest.raises(ValueError, match=r"shapes differ: keys \(3, 4, 16\), queries \(3, 1, 16\)"):
        F.directional_attention_weights(x, x[:, :1], direction="full")
    with pytest.raises(ValueError, match="shapes differ: q "):
        F.tensorized_attention_weights(x[:, None], x[:1, None], x[:, None], directions="full")


@pytest.mark.parametrize(
    "function, options, form",
    [
        (F.directional_attention, {"direction": "forward"}, "(B, N, D)"),
        (F.directional_attention_weights, {"direction": "forward"}, "(B, N, D)"),
        (F.linear_recurrence, {}, "(B, N, D)"),
        (F.source2token_attention, {"mask": torch.ones(2, 3)}, "(B, N, D)"),
        (F.source2token_weights, {"mask": torch.ones(2, 3)}, "(B, N, D)"),
        (F.tensorized_attention, {"directions": "forward"}, "(B, H, N, D)"),
        (F.tensorized_attention_weights, {"directions": "forward"}, "(B, H, N, D)"),
    ],
)
def test_other_numbers_of_dimensions_are_refused(function, options, form):
    for shape in ((3, 4), (2, 2, 2, 3, 4)):
        tensors = [name for name, p in signature(function).parameters.items() if p.default is p.empty and p.kind == 1]
        with pytest.raises(ValueError, match=re.escape(f"has shape {shape}; give a tensor {form}")):
            function(*[torch.ones(shape)] * len(tensors), **options)
    with pytest.raises(ValueError, match=r"scores has shape \(2, 3, 4\); give a tensor \(B, N\)"):
        F.additive_attention(torch.ones(2, 3, 4), torch.ones(2, 3, 4), mask=torch.ones(2, 3))


@pytest.mark.parametrize("implementation", F.IMPLEMENTATIONS)
def test_scores_of_other_shapes_are_not_pooled(implementation):
    values, mask = torch.randn(3, 4, 16), torch.ones(3, 4)
    pool = functools.partial(F.source2token_attention, values=values, mask=mask, implementation=implementation)
    for scores in (values, values[..., :1]):
        assert pool(scores).shape == (3, 16)
    for scores in (values[:, :1], values[:1], values[..., :2]):
        with pytest.raises(ValueError, match=r"values \(3, 4, 16\); give that or \(B, N, 1\)"):
            pool(scores)
    with pytest.raises(ValueError, match=r"scores are \(1, 4, 1\)"):
        F.additive_attention(values[:1, :, 0], values, mask=mask)


def test_arguments_by_name_and_without_tokens():
    keys, queries, values, _ = random_inputs(2, 5, 3)
    by_name = F.directional_attention(values=values, keys=keys, queries=queries, direction="forward")
    assert torch.equal(by_name, F.directional_attention(keys, queries, values, direction="forward"))
    q, k, v, scores = (torch.randn(2, 3, 4, 5) for _ in range(4))
    by_name = F.tensorized_attention(q=q, k=k, v=v, source_scores=scores, directions="full")
    assert torch.equal(by_name, F.tensorized_attention(q, k, v, scores, directions="full"))
    for implementation in F.IMPLEMENTATIONS:
        empty = [x[:, :, :0] for x in (q, k, v, scores)]
        out = F.tensorized_attention(*empty, directions="full", implementation=implementation)
        assert out.shape == (2, 3, 0, 5)
