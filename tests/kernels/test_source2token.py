"""Source2token attention by its kernel against the equation in float64, output and gradients."""

import pytest
import torch

from hf_blosan import functional as F
from hf_blosan.kernels.library import OPERATORS, has_cpu_kernels
from hf_blosan.models.equations import source2token_attention as equation

pytestmark = pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ kernels are not compiled")

SHAPES = ((3, 1, 5), (2, 100, 37), (4, 63, 300), (2, 2000, 64), (64, 32, 80))


def results(operator, scores, values, mask, grad):
    leaves = [x.detach().clone().requires_grad_() for x in (scores, values)]
    out = operator(*leaves, mask=mask)
    out.backward(grad)
    return [x.detach().double() for x in (out, *(leaf.grad for leaf in leaves))]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("spread", [0.1, 1, 30, 200])
def test_as_exact_as_the_equation(shape, spread):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64) * spread
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    mask = torch.rand(shape[:2], generator=generator) < 0.7
    mask[0] = False
    # Single precision inputs that all three share.
    inputs = [scores.float(), values.float(), mask, torch.randn(shape[0], shape[2], generator=generator)]
    exact = results(equation, *(x.double() if x.is_floating_point() else x for x in inputs))
    for fast, eager, truth in zip(
        results(F.source2token_attention, *inputs), results(equation, *inputs), exact, strict=True
    ):
        error, allowed = ((x - truth).square().mean().sqrt() for x in (fast, eager))
        assert error <= 2 * allowed
        assert (fast[0] == 0).all()


@pytest.mark.parametrize("implementation", ["auto", "eager"])
@pytest.mark.parametrize("length", [1, 2, 3, 7, 9])
def test_blocks_are_sentences_of_their_own(length, implementation):
    scores, values, mask = torch.randn(4, length, 20), torch.randn(4, length, 20), torch.rand(4, length) < 0.7
    leaves, others = ([x.clone().requires_grad_() for x in (scores, values)] for _ in range(2))
    found = F.source2token_attention(*leaves, mask=mask, block_length=3, implementation=implementation)
    rows = [equation(*(x[:, m : m + 3] for x in others), mask=mask[:, m : m + 3]) for m in range(0, length, 3)]
    expected = torch.stack(rows, dim=1)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    for x in (found, expected):
        x.sin().sum().backward()
    for one, other in zip(leaves, others, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-6)


def test_padding_is_never_read():
    values = torch.randn(2, 5, 20)
    mask = torch.tensor([[True] * 3 + [False] * 2] * 2)
    poisoned = values.masked_fill(~mask[..., None], float("nan"))
    expected = results(F.source2token_attention, values, values, mask, torch.ones(2, 20))
    found = results(F.source2token_attention, poisoned, poisoned, mask, torch.ones(2, 20))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_nan_of_a_real_token_is_not_hidden():
    scores, values = torch.randn(1, 4, 16), torch.randn(1, 4, 16)
    scores[0, 2, 3] = float("nan")
    out = F.source2token_attention(scores, values, mask=torch.ones(1, 4, dtype=torch.bool))
    assert out[0].isnan().nonzero().flatten().tolist() == [3]


def test_registration():
    inputs = [torch.randn(2, 4, 20), torch.randn(2, 4, 20), torch.ones(2, 4, dtype=torch.bool)]
    for block_length, blocks in ((None, 1), (3, 2)):
        forward = OPERATORS.source2token_attention.default
        for save in (True, False):
            torch.library.opcheck(forward, (*inputs, None, block_length, save))
        results = forward(*inputs, None, block_length, True)
        arguments = (torch.randn(2, blocks, 20), *inputs, None, *results, block_length)
        torch.library.opcheck(OPERATORS.source2token_attention_backward.default, arguments)
    with pytest.raises(RuntimeError, match=r"mask: its shape is \(1, 4\); give \(2, 4\)"):
        OPERATORS.source2token_attention(*inputs[:2], inputs[2][:1], None, None, False)


def test_gradients_in_float64():
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.randn(2, 5, 3, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2)]
    mask = torch.tensor([[True, True, False, True, True], [False] * 5])
    for block_length in (None, 2):
        assert torch.autograd.gradcheck(
            lambda s, v, R=block_length: F.source2token_attention(s, v, mask=mask, block_length=R), leaves
        )


def test_unknown_implementation():
    x = torch.zeros(1, 2, 3)
    with pytest.raises(ValueError, match="implementation is 'fast'"):
        F.source2token_attention(x, x, mask=torch.ones(1, 2), implementation="fast")
