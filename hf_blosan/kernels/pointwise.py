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

from .library import LIBRARY, OPERATORS, distinct, has_cpu_kernels, is_recorded, refuse_forward_mode

SCHEMAS = (
    "linear(Tensor x, Tensor weight, Tensor? bias, bool elu) -> Tensor",
    "linear_backward(Tensor grad, Tensor x, Tensor weight, Tensor? y, bool need_x, bool need_weight, bool need_bias) "
    "-> (Tensor, Tensor, Tensor)",
    "elu(Tensor x) -> Tensor",
    "fusion_gate(Tensor first, Tensor second, Tensor? first_input, Tensor? second_input, Tensor first_weight, "
    "Tensor second_weight, Tensor bias, Tensor? first_bias, Tensor? second_bias, Tensor? mask, bool save) "
    "-> (Tensor, Tensor, Tensor)",
    "fusion_gate_of_scores(Tensor first, Tensor second, Tensor(a!) scores, Tensor? second_weight, Tensor bias, "
    "Tensor? second_bias, Tensor? mask) -> ()",
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
    products; not under ``torch.compile``, which fuses such steps itself.
    """
    if torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu") or not has_cpu_kernels():
        return False
    dtypes = {x.dtype for x in tensors}
    known = dtypes <= {torch.float32} or dtypes <= {torch.float64}
    return known and all(x.is_cpu and type(x) in (Tensor, Parameter) and x.layout == torch.strided for x in tensors)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, elu: bool = False) -> Tensor:
    """x W' + b, or elu(x W' + b), for x (..., in), W (out, in), b (out)."""
    if is_recorded(x, weight, bias):
        return _Linear.apply(*distinct(x, weight, bias), elu)
    return OPERATORS.linear.default(x, weight, bias, elu)


def elu(x: Tensor) -> Tensor:
    """elu(x) for x (..., D). Without gradients."""
    refuse_forward_mode()
    return OPERATORS.elu.default(x)


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
        first_input, second_input: used in the products instead of first and second: these after dropout.

    Raises:
        RuntimeError: shapes or dtypes do not match.
    """
    inputs = (first, second, first_input, second_input, first_weight, second_weight)
    biases = (bias, first_bias, second_bias)
    if is_recorded(*inputs, *biases):
        return _FusionGate.apply(*distinct(*inputs, *biases), mask)[0]
    return OPERATORS.fusion_gate.default(*inputs, *biases, mask, False)[0]


def fusion_gate_of_scores(
    first: Tensor,
    second: Tensor,
    scores: Tensor,
    second_weight: Tensor | None,
    bias: Tensor,
    second_bias: Tensor | None = None,
    *,
    mask: Tensor | None = None,
) -> Tensor:
    """:func:`fusion_gate` where first W1' + its bias is known: ``scores``, (..., D), overwritten by the result.

    Without ``second_weight`` they are the scores of both. Without gradients.
    """
    refuse_forward_mode()
    if _is_batched(first, second, scores):  # vmap has no way to overwrite
        scores = scores if second_weight is None else scores + F.linear(second, second_weight)
        return _mixed(first, second, scores + bias + (0 if second_bias is None else second_bias), mask)
    OPERATORS.fusion_gate_of_scores.default(first, second, scores, second_weight, bias, second_bias, mask)
    return scores


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
    inputs = (mapped, local, blocks, weight, bias)
    if is_recorded(*inputs):
        return _BlockFusion.apply(*distinct(*inputs), block_length)[0]
    return OPERATORS.block_fusion.default(*inputs, block_length, False)[0]


def heads_linear(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor] = (), elu: bool = False) -> Tensor:
    """x W' + b, or elu(x W' + b), with a separate W and b for every head, -> (B, H, N, out).

    x (B, N, in) or (B, H, N, in); of each head a weight (out, in) and, unless there are none, a bias (out). The result
    is stored head by head, so that the products of a head run over all rows.
    """
    parameters = (*weights, *biases)
    if is_recorded(x, *parameters):
        return _HeadsLinear.apply(elu, len(weights), *distinct(x, *parameters))
    return OPERATORS.heads_linear.default(x, weights, biases, elu)


def heads_fusion_gate(
    v: Tensor, attended: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], mask: Tensor
) -> Tensor:
    """MTSA's gate, F v + (1 - F) attended with F = sigmoid([v; attended] W' + b) in each head, and 0 at padding.

    Args:
        v, attended: (B, H, N, D).
        weights: of each head, (D, 2 D).
        biases: of each head, (D).
        mask: (B, N), booleans.

    Returns:
        (B, N, H D): the heads concatenated.
    """
    if is_recorded(v, attended, *weights, *biases):
        return _HeadsFusionGate.apply(mask, *distinct(v, attended, *weights, *biases))[0]
    return OPERATORS.heads_fusion_gate.default(v, attended, weights, biases, mask, False)[0]


def _by_torch(equation, ctx, grad: Tensor, *inputs):
    """Gradients by torch's operators, which can be differentiated again and work under vmap."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        own = [x.view_as(x) if isinstance(x, Tensor) else x for x in inputs]  # so that gradients take only this path
        wanted = [i for i, needed in enumerate(ctx.needs_input_grad) if needed]
        found = torch.autograd.grad(equation(*own), [own[i] for i in wanted], grad, create_graph=again)
    gradients = dict(zip(wanted, found, strict=True))
    return tuple(gradients.get(i) for i in range(len(inputs)))


def _is_batched(*tensors: Tensor | None) -> bool:
    """Whether vmap is at work on these; it has no rule of its own for operators that take lists of tensors."""
    functorch = torch._C._functorch
    return any(functorch.is_batchedtensor(x) or functorch.is_legacy_batchedtensor(x) for x in tensors if x is not None)


def _linear(x, weight, bias, elu):
    y = F.linear(x, weight, bias)
    return F.elu(y) if elu else y


class _Linear(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, bias, elu):
        return OPERATORS.linear.default(x, weight, bias, elu)

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.elu = inputs
        ctx.save_for_backward(*tensors, output if ctx.elu else None)

    @staticmethod
    def backward(ctx, grad):
        x, weight, bias, y = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _by_torch(_linear, ctx, grad, x, weight, bias, ctx.elu)
        *needed, _ = ctx.needs_input_grad
        gradients = OPERATORS.linear_backward.default(grad, x, weight, y, *needed)
        return *(found if need else None for found, need in zip(gradients, needed, strict=True)), None


def _gated(first, second, first_input, second_input, first_weight, second_weight, *biases_and_mask):
    *biases, mask = biases_and_mask
    first_input = first if first_input is None else first_input
    second_input = second if second_input is None else second_input
    bias = sum(x for x in biases if x is not None)
    scores = F.linear(first_input, first_weight) + F.linear(second_input, second_weight) + bias
    return _mixed(first, second, scores, mask)


def _mixed(first, second, scores, mask):
    gate = torch.sigmoid(scores)
    mixed = gate * first + (1 - gate) * second
    return mixed if mask is None else mixed * mask[..., None]


class _FusionGate(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs):
        return OPERATORS.fusion_gate.default(*inputs, True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, *output[1:])

    @staticmethod
    def backward(ctx, grad, *_):
        *inputs, scores, bias = ctx.saved_tensors
        if grad is None:
            return (None,) * len(inputs)
        if torch.is_grad_enabled():
            return _by_torch(_gated, ctx, grad, *inputs)
        *gradients, to_bias = OPERATORS.fusion_gate_backward.default(grad, *inputs[:6], inputs[9], scores, bias)
        gradients = [*gradients, to_bias, to_bias, to_bias, None]
        return tuple(None if x is None else gradient for x, gradient in zip(inputs, gradients, strict=True))


def _fused(mapped, local, blocks, weight, bias, block_length):
    parts = [x for x in (mapped, local) if x is not None]
    if blocks is not None:
        parts.append(blocks.repeat_interleave(block_length, dim=1)[:, : mapped.shape[1]])
    candidate, gate = F.linear(torch.cat(parts, dim=-1), weight, bias).chunk(2, dim=-1)
    gate = gate.sigmoid()
    return gate * F.elu(candidate) + (1 - gate) * mapped


class _BlockFusion(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(mapped, local, blocks, weight, bias, block_length):
        return OPERATORS.block_fusion.default(mapped, local, blocks, weight, bias, block_length, True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        *tensors, ctx.block_length = inputs
        ctx.save_for_backward(*tensors, *output[1:])

    @staticmethod
    def backward(ctx, grad, *_):
        mapped, local, blocks, weight, bias, scores, added = ctx.saved_tensors
        if grad is None:
            return (None,) * 6
        if torch.is_grad_enabled():
            return _by_torch(_fused, ctx, grad, mapped, local, blocks, weight, bias, ctx.block_length)
        added = bias if blocks is None else added
        to_mapped, to_local, to_blocks, *to_parameters = OPERATORS.block_fusion_backward.default(
            grad, mapped, local, blocks, weight, scores, added, ctx.block_length
        )
        to_local, to_blocks = None if local is None else to_local, None if blocks is None else to_blocks
        return to_mapped, to_local, to_blocks, *to_parameters, None


def _of_heads(elu, num_heads, x, *parameters):
    weights, biases = parameters[:num_heads], parameters[num_heads:]
    y = (x[:, None] if x.dim() == 3 else x) @ torch.stack(weights).mT
    y = y + torch.stack(biases)[:, None] if biases else y
    return F.elu(y) if elu else y


class _HeadsLinear(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(elu, num_heads, x, *parameters):
        return OPERATORS.heads_linear.default(x, parameters[:num_heads], parameters[num_heads:], elu)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.elu, ctx.num_heads, *tensors = inputs
        ctx.save_for_backward(*tensors, output if ctx.elu else None)

    @staticmethod
    def backward(ctx, grad):
        x, *parameters, y = saved = ctx.saved_tensors
        if torch.is_grad_enabled() or _is_batched(grad, *saved):
            return _by_torch(_of_heads, ctx, grad, ctx.elu, ctx.num_heads, x, *parameters)
        weights, biases = parameters[: ctx.num_heads], parameters[ctx.num_heads :]
        need_x, need_bias = ctx.needs_input_grad[2], any(ctx.needs_input_grad[3 + ctx.num_heads :])
        to_x, to_weight, to_bias = OPERATORS.heads_linear_backward.default(grad, x, weights, y, need_x, need_bias)
        to_biases = to_bias.unbind() if need_bias else (None,) * len(biases)
        return None, None, to_x if need_x else None, *to_weight.unbind(), *to_biases


def _scores_of_heads(v, attended, weights):
    return torch.cat([v, attended], dim=-1) @ torch.stack(weights).mT


def _gated_heads(mask, v, attended, *parameters):
    weights, biases = _halves(parameters)
    gate = torch.sigmoid(_scores_of_heads(v, attended, weights) + torch.stack(biases)[:, None])
    mixed = (gate * v + (1 - gate) * attended) * mask[:, None, :, None]
    return mixed.transpose(1, 2).flatten(2)


def _halves(parameters):
    return parameters[: len(parameters) // 2], parameters[len(parameters) // 2 :]


class _HeadsFusionGate(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(mask, v, attended, *parameters):
        return OPERATORS.heads_fusion_gate.default(v, attended, *_halves(parameters), mask, True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx, grad, *_):
        mask, v, attended, *parameters, scores = saved = ctx.saved_tensors
        if grad is None:
            return (None,) * (3 + len(parameters))
        if torch.is_grad_enabled() or _is_batched(grad, *saved):
            return _by_torch(_gated_heads, ctx, grad, mask, v, attended, *parameters)
        to_v, to_attended, to_weight, to_bias = OPERATORS.heads_fusion_gate_backward.default(
            grad, v, attended, *_halves(parameters), mask, scores
        )
        return None, to_v, to_attended, *to_weight.unbind(), *to_bias.unbind()


def _heads_linear_under_vmap(x, weights, biases, elu):
    return _of_heads(elu, len(weights), x, *weights, *biases)


def _heads_fusion_gate_under_vmap(v, attended, weights, biases, mask, save):
    scores = _scores_of_heads(v, attended, weights).transpose(0, 1).flatten(1, 2) if save else v.new_empty(0)
    return _gated_heads(mask, v, attended, *weights, *biases), scores


LIBRARY.impl("linear", _linear, "FuncTorchBatched")
LIBRARY.impl("elu", F.elu, "FuncTorchBatched")
LIBRARY.impl("heads_linear", _heads_linear_under_vmap, "FuncTorchBatched")
LIBRARY.impl("heads_fusion_gate", _heads_fusion_gate_under_vmap, "FuncTorchBatched")
