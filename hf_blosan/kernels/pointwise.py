"""Dense layers, gates and fusions on the CPU, each with its matrix products in one operator.

They are C++ (``csrc/pointwise.cpp``, ``csrc/heads.cpp``). torch's ELU takes several times as long as the loop there,
and in torch bias, sigmoid, interpolation and mask are four passes over memory instead of one. Call :func:`available`
first.

Shape suffixes: B batch, N tokens, H heads, D features, M blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn import functional as F

from .library import LIBRARY, OPERATORS, Differentiable, has_cpu_kernels, refuse_forward_mode

SCHEMAS = (
    "linear(Tensor x, Tensor weight, Tensor? bias, bool elu) -> Tensor",
    "linear_backward(Tensor grad, Tensor x, Tensor weight, Tensor? y, bool need_x, bool need_weight, bool need_bias) "
    "-> (Tensor, Tensor, Tensor)",
    "activated(Tensor x, str activation) -> Tensor",
    "fusion_gate(Tensor first, Tensor second, Tensor? first_input, Tensor? second_input, Tensor first_weight, "
    "Tensor second_weight, Tensor bias, Tensor? first_bias, Tensor? second_bias, Tensor? mask, bool save) "
    "-> (Tensor, Tensor, Tensor)",
    "fusion_gate_of_scores(Tensor first, Tensor second, Tensor first_scores, Tensor second_scores, Tensor bias, "
    "Tensor? mask) -> Tensor",
    "fusion_gate_backward(Tensor grad, Tensor first, Tensor second, Tensor? first_input, Tensor? second_input, "
    "Tensor first_weight, Tensor second_weight, Tensor? mask, Tensor scores, Tensor bias) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    "block_fusion(Tensor mapped, Tensor? local, Tensor? blocks, Tensor weight, Tensor bias, int? block_length, "
    "bool save) -> (Tensor, Tensor, Tensor)",
    "block_fusion_backward(Tensor grad, Tensor mapped, Tensor? local, Tensor? blocks, Tensor weight, Tensor scores, "
    "Tensor added, int? block_length) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    "heads_linear(Tensor x, Tensor[] weights, Tensor[] biases, bool elu) -> Tensor",
    "heads_linear_backward(Tensor grad, Tensor x, Tensor[] weights, Tensor? y, bool need_x, bool need_bias) "
    "-> (Tensor, Tensor, Tensor)",
    "heads_fusion_gate(Tensor v, Tensor attended, Tensor[] weights, Tensor[] biases, Tensor mask, bool save) "
    "-> (Tensor, Tensor)",
    "heads_fusion_gate_backward(Tensor grad, Tensor v, Tensor attended, Tensor[] weights, Tensor[] biases, "
    "Tensor mask, Tensor scores) -> (Tensor, Tensor, Tensor, Tensor)",
)
for schema in SCHEMAS:
    LIBRARY.define(schema)


def available(*tensors: Tensor) -> bool:
    """Whether the operators support these tensors.

    Not tensors of other types (quantised, sharded, fake ones); not under autocast, which changes the dtype of
    products; not under ``torch.compile``, which fuses such steps itself; not within a transform of ``torch.func``,
    which has rules for torch's operators.
    """
    if torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu") or not has_cpu_kernels():
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    dtype = tensors[0].dtype if tensors else torch.float32
    if dtype not in (torch.float32, torch.float64):
        return False
    for x in tensors:
        if x.dtype != dtype or not x.is_cpu or type(x) not in (Tensor, Parameter) or x.layout != torch.strided:
            return False
    return True


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, elu: bool = False) -> Tensor:
    """x W' + b, or elu(x W' + b), for x (..., in), W (out, in), b (out)."""
    return _LINEAR(elu, x, weight, bias)


def activated(x: Tensor, activation: str) -> Tensor:
    """elu(x) or gelu(x) for x (..., D), by the name of the activation. Without gradients."""
    refuse_forward_mode()
    return OPERATORS.activated.default(x, activation)


def fusion_gate(
    first: Tensor,
    second: Tensor,
    first_weight: Tensor,
    second_weight: Tensor,
    bias: Tensor,
    first_bias: Tensor | None = None,
    second_bias: Tensor | None = None,
    *,
    mask: Tensor | None = None,
    first_input: Tensor | None = None,
    second_input: Tensor | None = None,
) -> Tensor:
    """F first + (1 - F) second with F = sigmoid(first W1' + second W2' + biases) (DiSAN Eq. 19-20).

    Args:
        first, second: (..., D).
        first_weight, second_weight: (D, D).
        bias, first_bias, second_bias: (D), added up.
        mask: (...), booleans; the result is 0 where it is false.
        first_input, second_input: used in the products instead of first and second: the same after dropout.

    Raises:
        RuntimeError: shapes or dtypes do not match.
    """
    inputs = (first, second, first_input, second_input, first_weight, second_weight)
    return _FUSION_GATE(*inputs, bias, first_bias, second_bias, mask)


def fusion_gate_of_scores(
    first: Tensor, second: Tensor, first_scores: Tensor, second_scores: Tensor, bias: Tensor, *, mask: Tensor | None
) -> Tensor:
    """:func:`fusion_gate` where both products, (..., D), are known, each with its bias. Without gradients."""
    refuse_forward_mode()
    return OPERATORS.fusion_gate_of_scores.default(first, second, first_scores, second_scores, bias, mask)


def block_fusion(
    mapped: Tensor,
    local: Tensor | None,
    blocks: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    block_length: int | None = None,
) -> Tensor:
    """F elu(a) + (1 - F) mapped, where [a; b] = W [mapped; local; block] + bias and F = sigmoid(b).

    Bi-BloSAN Eq. 17-18. A block's part of the product is computed once for all its tokens.

    Args:
        mapped, local: (B, N, D); local may be None.
        blocks: (B, M, D), M blocks of ``block_length`` tokens, the last of which may be shorter; or None.
        weight: (2 D, k D) for the k parts that are given.
        bias: (2 D).

    Raises:
        RuntimeError: shapes or dtypes do not match, or only one of blocks and block_length is given.
    """
    return _BLOCK_FUSION(block_length, mapped, local, blocks, weight, bias)


def heads_linear(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor] = (), elu: bool = False) -> Tensor:
    """x W' + b, or elu(x W' + b), with a separate W and b for every head, -> (B, H, N, out).

    x (B, N, in) or (B, H, N, in); each head has a weight (out, in) and, unless there are none, a bias (out). The
    result is stored head by head, so that the products of a head run over all rows.
    """
    return _HEADS_LINEAR(elu, len(weights), x, *weights, *biases)


def heads_fusion_gate(
    v: Tensor, attended: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], mask: Tensor
) -> Tensor:
    """MTSA's gate, F v + (1 - F) attended with F = sigmoid([v; attended] W' + b) in each head, and 0 at padding.

    Args:
        v, attended: (B, H, N, D).
        weights: one per head, (D, 2 D).
        biases: one per head, (D).
        mask: (B, N), booleans.

    Returns:
        (B, N, H D): the heads concatenated.
    """
    return _HEADS_FUSION_GATE(len(weights), v, attended, mask, *weights, *biases)


def _linear(elu, x, weight, bias):
    y = F.linear(x, weight, bias)
    return F.elu(y) if elu else y


def _gated(first, second, first_input, second_input, first_weight, second_weight, *biases_and_mask):
    *biases, mask = biases_and_mask
    first_input = first if first_input is None else first_input
    second_input = second if second_input is None else second_input
    bias = sum(x for x in biases if x is not None)
    gate = torch.sigmoid(F.linear(first_input, first_weight) + F.linear(second_input, second_weight) + bias)
    mixed = gate * first + (1 - gate) * second
    return mixed if mask is None else mixed * mask[..., None]


def _gated_backward(needed, grad, *saved):
    *inputs, _, _, _, mask, _, scores, bias = saved
    *gradients, to_bias = OPERATORS.fusion_gate_backward.default(grad, *inputs, mask, scores, bias)
    return *gradients, to_bias, to_bias, to_bias


def _fused(block_length, mapped, local, blocks, weight, bias):
    parts = [x for x in (mapped, local) if x is not None]
    if blocks is not None:
        parts.append(blocks.repeat_interleave(block_length, dim=1)[:, : mapped.shape[1]])
    candidate, gate = F.linear(torch.cat(parts, dim=-1), weight, bias).chunk(2, dim=-1)
    gate = gate.sigmoid()
    return gate * F.elu(candidate) + (1 - gate) * mapped


def _fused_backward(block_length, needed, grad, mapped, local, blocks, weight, bias, _, scores, added):
    added = bias if blocks is None else added
    return OPERATORS.block_fusion_backward.default(grad, mapped, local, blocks, weight, scores, added, block_length)


def _of_heads(elu, num_heads, x, *parameters):
    weights, biases = parameters[:num_heads], parameters[num_heads:]
    y = (x[:, None] if x.dim() == 3 else x) @ torch.stack(weights).mT
    y = y + torch.stack(biases)[:, None] if biases else y
    return F.elu(y) if elu else y


def _of_heads_backward(elu, num_heads, needed, grad, x, *saved):
    weights, y = saved[:num_heads], saved[-1] if elu else None
    need_bias = any(needed[1 + num_heads :])
    to_x, to_weight, to_bias = OPERATORS.heads_linear_backward.default(grad, x, weights, y, needed[0], need_bias)
    return to_x, *to_weight.unbind(), *(to_bias.unbind() if need_bias else ())


def _gated_heads(num_heads, v, attended, mask, *parameters):
    weights, biases = parameters[:num_heads], parameters[num_heads:]
    scores = torch.cat([v, attended], dim=-1) @ torch.stack(weights).mT
    gate = torch.sigmoid(scores + torch.stack(biases)[:, None])
    mixed = (gate * v + (1 - gate) * attended) * mask[:, None, :, None]
    return mixed.transpose(1, 2).flatten(2)


def _gated_heads_backward(num_heads, needed, grad, v, attended, mask, *saved):
    *parameters, _, scores = saved
    to_v, to_attended, to_weight, to_bias = OPERATORS.heads_fusion_gate_backward.default(
        grad, v, attended, parameters[:num_heads], parameters[num_heads:], mask, scores
    )
    return to_v, to_attended, None, *to_weight.unbind(), *to_bias.unbind()


_LINEAR = Differentiable(
    lambda elu, x, weight, bias, save: OPERATORS.linear.default(x, weight, bias, elu),
    lambda elu, needed, grad, x, weight, bias, y=None: OPERATORS.linear_backward.default(grad, x, weight, y, *needed),
    num_options=1,
    equation=_linear,
    kept=lambda elu: elu,
)
_FUSION_GATE = Differentiable(OPERATORS.fusion_gate.default, _gated_backward, num_options=0, equation=_gated)
_BLOCK_FUSION = Differentiable(
    lambda block_length, *tensors_and_save: OPERATORS.block_fusion.default(
        *tensors_and_save[:-1], block_length, tensors_and_save[-1]
    ),
    _fused_backward,
    num_options=1,
    equation=_fused,
)
_HEADS_LINEAR = Differentiable(
    lambda elu, num_heads, x, *parameters_and_save: OPERATORS.heads_linear.default(
        x, parameters_and_save[:num_heads], parameters_and_save[num_heads:-1], elu
    ),
    _of_heads_backward,
    num_options=2,
    equation=_of_heads,
    kept=lambda elu, num_heads: elu,
)
_HEADS_FUSION_GATE = Differentiable(
    lambda num_heads, v, attended, mask, *parameters_and_save: OPERATORS.heads_fusion_gate.default(
        v, attended, parameters_and_save[:num_heads], parameters_and_save[num_heads:-1], mask, parameters_and_save[-1]
    ),
    _gated_heads_backward,
    num_options=1,
    equation=_gated_heads,
)
