"""Directional attention as an operator of torch: what it refuses, what it takes, and what torch's tools make of it."""

import functools
import math

import pytest
import torch
from test_directional import FAST, random_inputs

from hf_blosan import kernels
from hf_blosan.kernels.library import OPERATORS, has_cpu_kernels
from hf_blosan.models import attention as F  # which computes padding as well
from hf_blosan.models import equations


@pytest.mark.parametrize("implementation", F.IMPLEMENTATIONS)
def test_token_masks_of_another_form_are_refused(implementation):
    keys, queries, values, _ = random_inputs(3, 4, 2)
    options = {"direction": "full", "implementation": implementation}
    with pytest.raises(ValueError, match=r"token_mask has shape \(2, 4, 4\); give \(4, 4\) or \(3, 4, 4\), true"):
        F.directional_attention(keys, queries, values, token_mask=torch.ones(2, 4, 4, dtype=torch.bool), **options)
    with pytest.raises(ValueError, match="token_mask holds torch.float32; give booleans, true where the query"):
        F.directional_attention(keys, queries, values, token_mask=torch.zeros(4, 4), **options)


@pytest.mark.parametrize("form", ["kernel", "torch"], indirect=True)
@pytest.mark.parametrize("scale", [0.0, -5.0, math.nan, math.inf, -math.inf, 60.1])
def test_a_scale_that_bounds_no_scores_is_refused(scale, form):
    """By every implementation, and by the operators when they are called directly."""
    keys, queries, values, _ = random_inputs(1, 4, 2)
    for implementation in F.IMPLEMENTATIONS:
        with pytest.raises(ValueError, match="scale is .*; give a bound of the scores above 0 and up to 60"):
            F.directional_attention(
                keys, queries, values, direction="full", scale=scale, implementation=implementation
            )
    with pytest.raises(ValueError, match="scale is .*; give"):
        equations.directional_attention_weights(keys, queries, direction="full", scale=scale)
    with pytest.raises(RuntimeError, match="scale is .*; give a bound of the scores above 0 and up to 60"):
        OPERATORS.directional_attention(
            *(keys, queries, values, *[None] * 4), "full", scale, None, "auto", None, False
        )


@pytest.mark.parametrize("form", ["kernel", "torch"], indirect=True)
def test_sums_of_the_largest_scale_stay_within_float32(form):
    """They are computed before the division, and exp(60) is 1e26."""
    high, values = torch.full((1, 40, 4), 1e4), torch.full((1, 40, 4), 1e6)
    for implementation in F.IMPLEMENTATIONS:
        inputs = [x.clone().requires_grad_() for x in (high, high, values)]
        out = F.directional_attention(*inputs, direction="full", scale=60.0, implementation=implementation)
        torch.testing.assert_close(out, values)
        out.sum().backward()
        assert all(x.grad.isfinite().all() for x in inputs)


@pytest.mark.parametrize("form", ["kernel", "torch"], indirect=True)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"implementation": "x"}, "implementation is 'x'; choose one of auto, fused, linear"),
        ({"direction": "sideways"}, "direction is 'sideways'; choose one of forward, backward, diagonal, full"),
        ({"window": -1}, "window is -1; give a number of tokens, 0 or more"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_the_operators_know_their_options_too(form, wrong, message):
    keys, queries, values, _ = random_inputs(1, 4, 2)
    with pytest.raises(RuntimeError, match=message):
        kernels.directional_attention(keys, queries, values, **{"direction": "full"} | wrong)


@pytest.mark.parametrize("form", ["kernel", "torch"], indirect=True)
def test_registration(form):
    *inputs, mask = (x.float() if x.is_floating_point() else x for x in random_inputs(2, 4, 2))
    token_mask = torch.rand(2, 4, 4, generator=torch.Generator().manual_seed(3)) > 0.4
    forward, backward = OPERATORS.directional_attention.default, OPERATORS.directional_attention_backward.default
    for pairs, implementation in ((None, "linear"), (token_mask, "fused")):
        options = ("diagonal", 5.0, 2, implementation, None)
        tensors = (*inputs, inputs[0][0, 0].clone(), mask, pairs, None)
        for save in (True, False):
            torch.library.opcheck(forward, (*tensors, *options, save))
        torch.library.opcheck(backward, (inputs[0], *tensors, *forward(*tensors, *options, True), *options))


@pytest.mark.parametrize("implementation", F.IMPLEMENTATIONS)
def test_wrong_arguments_are_refused(implementation):
    x = torch.zeros(2, 3, 4)
    for options, message in (
        ({"bias": torch.zeros(1)}, r"bias has shape \(1,\) for vectors of 4 features; give it \(4,\)"),
        ({"bias": torch.zeros(2, 3, 4)}, "bias has shape"),
        ({"window": 1.5}, "window is 1.5; give the number of tokens"),
        ({"block_length": 2.0}, "block_length is 2.0; give a number of tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            F.directional_attention(x, x, x, direction="full", implementation=implementation, **options)


def test_inputs_in_any_layout():
    """Strides of dimensions of size 1 say nothing, and others may say anything."""
    x = torch.randn(1, 64, 16, generator=torch.Generator().manual_seed(0))
    layouts = {
        "one token": x.transpose(0, 1),
        "one token among others": x.expand(3, 64, 16).transpose(0, 1)[:, 1:2],
        "one feature": x.transpose(1, 2)[..., :1],
        "expanded": x.expand(3, 64, 16),
        "sentences apart": x.view(4, 16, 16)[::2],
        "tokens apart": x.view(4, 16, 16)[:, ::2],
        "features apart": x.view(4, 16, 16)[..., ::2],
    }
    for name, y in layouts.items():
        options = {"direction": "full", "implementation": "fused"}
        found = F.directional_attention(y, y.flip(1), y, **options)
        copies = y.clone(memory_format=torch.contiguous_format), y.flip(1).contiguous(), y.contiguous()
        expected = F.directional_attention(*copies, direction="full", implementation="eager")
        torch.testing.assert_close(found, expected, msg=lambda text, name=name: f"{name}: {text}")


def test_blocks_exclude_a_token_mask():
    x, token_mask = torch.randn(1, 4, 3), torch.ones(4, 4, dtype=torch.bool)
    with pytest.raises(ValueError, match="token_mask and block_length"):
        F.directional_attention(x, x, x, direction="full", token_mask=token_mask, block_length=2)
    with pytest.raises(ValueError, match="block_length is 0; give a number"):
        F.directional_attention(x, x, x, direction="full", block_length=0)


def test_another_default_dtype_changes_nothing():
    *inputs, mask = random_inputs(3, 9, 20)
    inputs = [x.float() for x in inputs]
    expected = F.directional_attention(*inputs, direction="forward", key_mask=mask)
    torch.set_default_dtype(torch.float64)
    try:
        found = F.directional_attention(*inputs, direction="forward", key_mask=mask)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found, expected)


def test_registration_covers_inputs_that_are_not_contiguous():
    keys, queries, values, mask = (x.float() if x.is_floating_point() else x for x in random_inputs(2, 4, 4))
    values = values.transpose(1, 2)
    compiled = torch.compile(F.directional_attention, backend="aot_eager", fullgraph=True)
    for implementation in F.IMPLEMENTATIONS:
        options = {"direction": "forward", "key_mask": mask, "implementation": implementation}
        torch.testing.assert_close(
            compiled(keys, queries, values, **options), F.directional_attention(keys, queries, values, **options)
        )


def test_wrong_tensors_are_refused_before_memory_is_touched():
    """By the operators when they are called directly."""
    if not has_cpu_kernels():
        pytest.skip("the C++ kernels are not compiled")
    x, mask = torch.zeros(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)
    good = {
        "keys": x,
        "queries": x,
        "values": x,
        "bias": None,
        "key_mask": mask,
        "token_mask": None,
        "cu_seqlens": None,
    }
    good |= {"direction": "full", "scale": 5.0, "window": None, "implementation": "auto", "block_length": None}
    for wrong, message in (
        ({"keys": x[:, :2]}, r"keys: its shape is \(2, 2, 4\); give \(2, 3, 4\)"),
        ({"queries": x.double()}, "queries: its dtype differs"),
        ({"values": x[0]}, r"values: the shape is \(3, 4\); give \(B, N, D\)"),
        ({"values": x.int()}, "values: give float32 or float64 numbers"),
        ({"bias": x[0, 0, :2]}, r"bias: its shape is \(2\); give \(4\)"),
        ({"key_mask": mask[:1]}, "key_mask: its shape"),
        ({"key_mask": mask.int()}, "key_mask: its dtype"),
        ({"token_mask": mask}, "token_mask: its shape"),
        ({"direction": "sideways"}, "direction is 'sideways'; choose one of"),
        ({"scale": 81.0}, "scale is 81; give"),
        ({"implementation": "x"}, "implementation is 'x'; choose one of auto, fused, linear"),
        ({"window": -1}, "window is -1; give"),
        ({"block_length": 0}, "block_length is 0; give"),
        ({"cu_seqlens": torch.tensor([0, 3])}, r"cu_seqlens: give \(S \+ 1\) where S sentences"),
    ):
        with pytest.raises(RuntimeError, match=message):
            OPERATORS.directional_attention(**good | wrong, save=False)


def test_forward_mode_is_refused():
    """Rather than answered with tangents of 0."""
    x = torch.randn(1, 5, 3)
    for implementation in FAST:
        with pytest.raises(NotImplementedError, match="jvp"):
            torch.func.jvp(
                functools.partial(
                    F.directional_attention, queries=x, values=x, direction="full", implementation=implementation
                ),
                (x,),
                (x,),
            )


def test_vmap_and_gradients_of_it():
    generator = torch.Generator().manual_seed(0)
    keys, queries, values = (torch.randn(3, 2, 5, 4, generator=generator) for _ in range(3))

    def loss(k, q, v):
        return F.directional_attention(k, q, v, direction="forward").square().sum()

    expected = [loss(*x) for x in zip(keys, queries, values, strict=True)]
    torch.testing.assert_close(torch.vmap(loss)(keys, queries, values), torch.stack(expected))
    expected = [torch.func.grad(loss)(*x) for x in zip(keys, queries, values, strict=True)]
    torch.testing.assert_close(torch.vmap(torch.func.grad(loss))(keys, queries, values), torch.stack(expected))


def test_one_tensor_for_everything_compiles():
    x = torch.randn(1, 5, 4, requires_grad=True)
    compiled = torch.compile(F.directional_attention, backend="aot_eager", fullgraph=True)
    found, expected = (f(x, x, x, direction="forward") for f in (compiled, F.directional_attention))
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (found, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ kernels are not compiled")
@pytest.mark.parametrize("scale", [0.1, 5.0, 10.0])
def test_the_expansion_is_the_weight(scale):
    """Each tier on its whole range, weights and slopes, relative to the weight."""
    sizes, tables = OPERATORS.expansion(torch.empty(0, dtype=torch.float64), scale)
    assert (sizes[:, 0] / scale).tolist() == pytest.approx([0.3, 0.4, 0.6, 0.8, 1.2, 1.6, 2.4])
    for (half_range, tilt, terms), coefficients in zip(sizes.tolist(), tables, strict=True):
        a = torch.linspace(-half_range, half_range, 41, dtype=torch.float64)
        basis = torch.cos(torch.arange(tables.shape[-1])[:, None] * torch.acos(a / half_range))
        u = a[:, None] + a
        weight = (scale * torch.tanh(u / scale)).exp()
        slope = weight * (1 - torch.tanh(u / scale) ** 2)
        for table, expected in zip(coefficients, (weight, slope), strict=True):
            assert table.count_nonzero() and not table[int(terms) :].any() and not table[:, int(terms) :].any()
            assert ((basis.T @ table @ basis * (tilt * u).exp() - expected).abs() / weight).max() <= 6e-8


@pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ kernels are not compiled")
def test_the_expansion_needs_no_python():
    """A runtime without Python has it: it is C++, and scales beyond its own have none."""
    assert torch._C._dispatch_has_kernel_for_dispatch_key("hf_blosan_kernels::expansion", "CPU")
    sizes, tables = OPERATORS.expansion(torch.empty(0, dtype=torch.float64), 10.1)
    assert sizes.shape == (0, 3) and tables.numel() == 0
