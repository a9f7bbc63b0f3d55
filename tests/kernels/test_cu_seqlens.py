"""Sentences without padding, one after the other in a single row: each is computed as if it were alone."""

import pytest
import torch

from hf_blosan import functional as F
from hf_blosan.kernels.library import OPERATORS, has_cpu_kernels

LENGTHS = (3, 0, 17, 1, 40)
STARTS = torch.tensor([0, *LENGTHS]).cumsum(0)
N, D = sum(LENGTHS), 83  # enough work for two threads


def random_inputs(dtype):
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(1, N, D, generator=generator, dtype=dtype).requires_grad_() for _ in range(3)]
    return tensors, torch.rand(1, N, generator=generator) < 0.7


def results(operator, inputs):
    """What an operator returns, and its gradients."""
    out = operator()
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=out.dtype)
    return out, *torch.autograd.grad(out, inputs, grad)


def one_by_one(operator, inputs, mask, dim):
    """The same of an operator that gets the sentences one at a time."""
    spans = [slice(start, stop) for start, stop in zip(STARTS[:-1], STARTS[1:], strict=True)]
    return results(lambda: torch.cat([operator(*(x[:, s] for x in inputs), mask[:, s]) for s in spans], dim), inputs)


def check(found, expected):
    tolerance = 1e-12 if found[0].dtype == torch.float64 else 2e-5
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("implementation", F.IMPLEMENTATIONS)
@pytest.mark.parametrize("direction", F.DIRECTIONS)
def test_directional_attention(direction, implementation, window, dtype):
    inputs, mask = random_inputs(dtype)
    options = {"direction": direction, "window": window}

    def alone(keys, queries, values, mask):
        return F.directional_attention(keys, queries, values, key_mask=mask, implementation="eager", **options)

    options_of_row = options | {"key_mask": mask, "implementation": implementation}
    for starts in (STARTS, STARTS.int()):
        found = results(
            lambda starts=starts: F.directional_attention(*inputs, cu_seqlens=starts, **options_of_row), inputs
        )
        check(found, one_by_one(alone, inputs, mask, 1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("implementation", F.IMPLEMENTATIONS)
def test_source2token_attention(implementation, dtype):
    (scores, values, _), mask = random_inputs(dtype)
    mask[0, 3:20] = False  # a sentence without real tokens

    def alone(scores, values, mask):
        return F.source2token_attention(scores, values, mask=mask, implementation="eager")

    options = {"mask": mask, "implementation": implementation}
    inputs = [scores, values]
    found = results(lambda: F.source2token_attention(*inputs, cu_seqlens=STARTS, **options), inputs)
    check(found, one_by_one(alone, inputs, mask, 0))


def test_no_sentences():
    x, starts = torch.zeros(1, 0, 3), torch.zeros(1, dtype=torch.long)
    for implementation in F.IMPLEMENTATIONS:
        options = {"cu_seqlens": starts, "implementation": implementation}
        assert F.directional_attention(x, x, x, direction="full", **options).shape == (1, 0, 3)
        pooled = F.source2token_attention(x, x, mask=torch.ones(1, 0, dtype=torch.bool), **options)
        assert pooled.shape == (0, 3)


@pytest.mark.parametrize("implementation", F.IMPLEMENTATIONS)
def test_places_that_do_not_divide_a_row_are_refused(implementation):
    x, mask = torch.zeros(1, 5, 4), torch.ones(1, 5)
    for starts, options, message in (
        ([0, 4], {}, r"cu_seqlens is \[0, 4\]; give the starts of sentences, in order, from 0 to 5"),
        ([1, 5], {}, "in order, from 0 to 5"),
        ([0, 3, 2, 5], {}, "in order"),
        ([[0, 5]], {}, r"shape \(1, 2\) and dtype torch.int64 for 1 rows .* give S \+ 1 integers"),
        ([0.0, 5.0], {}, "dtype torch.float32"),
        ([False, True], {}, "dtype torch.bool"),
        ([0, 5], {"block_length": 2}, "cu_seqlens and block_length exclude each other"),
    ):
        options |= {"cu_seqlens": torch.tensor(starts), "implementation": implementation}
        with pytest.raises(ValueError, match=message):
            F.directional_attention(x, x, x, direction="full", **options)
        with pytest.raises(ValueError, match=message):
            F.source2token_attention(x, x, mask=mask, **options)
    with pytest.raises(ValueError, match="cu_seqlens and empty_rows='mean' exclude each other"):
        F.source2token_attention(x, x, mask=mask, cu_seqlens=torch.tensor([0, 5]), empty_rows="mean")
    options = {"cu_seqlens": torch.tensor([0, 5]), "token_mask": torch.ones(5, 5, dtype=torch.bool)}
    with pytest.raises(ValueError, match="cu_seqlens and token_mask exclude each other"):
        F.directional_attention(x, x, x, direction="full", **options)
    with pytest.raises(ValueError, match="for 2 rows of tokens; give S \\+ 1 integers"):
        F.directional_attention(*[x.expand(2, 5, 4)] * 3, direction="full", cu_seqlens=torch.tensor([0, 5]))


@pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ kernels are not compiled")
def test_operators_refuse_them_before_memory_is_touched():
    x, mask = torch.zeros(1, 5, 4), torch.ones(1, 5, dtype=torch.bool)
    options = {"bias": None, "key_mask": None, "token_mask": None, "direction": "full", "scale": 5.0, "window": None}
    options |= {"implementation": "auto", "block_length": None, "save": False}
    for starts, message in (
        ([0, 6], "cu_seqlens goes from 0 to 6; give .* from 0 to the number of tokens, 5"),
        ([-1, 5], "cu_seqlens goes from -1 to 5"),
        ([0, 9, 5], "cu_seqlens falls from 9 to 5"),
        ([], r"cu_seqlens: give \(S \+ 1\)"),
        ([[0, 5]], r"cu_seqlens: give \(S \+ 1\)"),
        ([0.0, 5.0], "cu_seqlens: its dtype differs"),
    ):
        starts = torch.tensor(starts) if starts else torch.zeros(0, dtype=torch.long)
        with pytest.raises(RuntimeError, match=message):
            OPERATORS.directional_attention(x, x, x, cu_seqlens=starts, **options)
        with pytest.raises(RuntimeError, match=message):
            OPERATORS.source2token_attention(x, x, mask, starts, None, False)
    with pytest.raises(RuntimeError, match="cu_seqlens and block_length exclude each other"):
        OPERATORS.source2token_attention(x, x, mask, torch.tensor([0, 5]), 2, False)
    token_mask = torch.ones(1, 5, 5, dtype=torch.bool)
    with pytest.raises(RuntimeError, match="token_mask and cu_seqlens exclude each other"):
        arguments = options | {"token_mask": token_mask, "cu_seqlens": torch.tensor([0, 5])}
        OPERATORS.directional_attention(x, x, x, **arguments)


@pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ kernels are not compiled")
def test_registration():
    x, starts = torch.randn(1, 7, 20), torch.tensor([0, 2, 2, 7])
    mask = torch.ones(1, 7, dtype=torch.bool)
    forward, backward = (getattr(OPERATORS, f"directional_attention{s}").default for s in ("", "_backward"))
    tensors, options = (x, x.flip(1), x + 1, None, mask, None, starts), ("forward", 5.0, None, "auto", None)
    torch.library.opcheck(forward, (*tensors, *options, True))
    torch.library.opcheck(backward, (x, *tensors, *forward(*tensors, *options, True), *options))
    forward, backward = (getattr(OPERATORS, f"source2token_attention{s}").default for s in ("", "_backward"))
    tensors = (x, x + 1, mask, starts)
    for save in (True, False):
        torch.library.opcheck(forward, (*tensors, None, save))
    torch.library.opcheck(backward, (torch.randn(1, 3, 20), *tensors, *forward(*tensors, None, True), None))


def test_where_rows_cannot_be_divided(without_cpp):
    without_cpp()
    x = torch.zeros(1, 5, 4)
    options = ("full", 5.0, None, "auto", None, False)
    with pytest.raises(RuntimeError, match="cu_seqlens: this form of directional attention does not divide rows"):
        OPERATORS.directional_attention(x, x, x, None, None, None, torch.tensor([0, 5]), *options)
