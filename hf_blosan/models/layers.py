"""The papers' layers as modules, each named after what the papers call it. Shape suffixes: see equations.

``mask_BN`` is true at real tokens. Attention layers return ``(tokens, maps)``; ``maps`` is ``None`` unless asked for.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .equations import directional_attention_weights, source2token_weights
from .fused_blosan import directional_attention
from .fused_pointwise_blosan import elu_of_sum, gated_candidate, gated_sum, kernel_takes
from .fused_source2token_blosan import source2token_attention
from .masks import in_blocks, of_tokens

ACTIVATIONS = {
    "elu": F.elu,
    "relu": F.relu,
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "silu": F.silu,
    "selu": F.selu,
    "linear": lambda x: x,
}


class AttentionMaps(NamedTuple):
    """What a context-fusion layer looked at: attention weights and gates, from the first level to the last."""

    attentions: tuple[Tensor, ...]
    gates: tuple[Tensor, ...]


# Those whose derivative needs the result alone, so that it may take the place of their input.
IN_PLACE = {"elu": lambda x: F.elu(x, inplace=True), "relu": torch.relu_, "tanh": torch.tanh_, "selu": torch.selu_}


def activate(x: Tensor, activation: str) -> Tensor:
    """act(x), in the memory of x where that can be: a fresh tensor costs more than the function."""
    return (IN_PLACE.get(activation) or ACTIVATIONS[activation])(x)


def mix(first: Tensor, second: Tensor, gate: Tensor) -> Tensor:
    """gate * first + (1 - gate) * second."""
    if first.dtype == second.dtype == gate.dtype:
        return torch.lerp(second, first, gate)
    return second + gate * (first - second)  # the mixed dtypes of autocast


def sum_of_products(inputs: Iterable[Tensor], weights: Iterable[Tensor], bias: Tensor | None = None) -> Tensor:
    """W1 x1 + W2 x2 + ... + b, without a tensor for each: (..., in) -> (..., out)."""
    sum_ = None
    for x, weight in zip(inputs, weights, strict=True):
        rows = x.flatten(0, -2)
        if sum_ is None:
            sum_ = F.linear(rows, weight, bias)
        elif sum_.dtype == rows.dtype == weight.dtype:
            sum_ = sum_.addmm_(rows, weight.t())  # not of a view: autograd would copy the whole of it
        else:
            sum_ = sum_.add_(F.linear(rows, weight))  # the mixed dtypes of autocast
    return sum_.view(*x.shape[:-1], sum_.shape[-1])


def dropped(x: Tensor, module: nn.Module) -> Tensor:
    """x with the dropout of a module."""
    return F.dropout(x, module.dropout) if module.training and module.dropout else x


def masked(x: Tensor, mask: Tensor) -> Tensor:
    """x (..., D), 0 where the mask (...) is; in the memory of x where no gradient needs it."""
    return x * mask[..., None] if torch.is_grad_enabled() else x.mul_(mask[..., None])


class Dense(nn.Linear):
    """act(W dropout(x) + b): the authors' dense layers drop their input."""

    implementation = "auto"

    def __init__(self, in_features, out_features, *, bias=True, activation="linear", dropout=0.0):
        super().__init__(in_features, out_features, bias=bias)
        self.activation, self.dropout = activation, dropout

    def forward(self, x: Tensor) -> Tensor:
        x = dropped(x, self)
        fast = self.activation == "elu" and self.bias is not None
        if fast and kernel_takes(self.implementation, x, self.bias):
            return elu_of_sum(F.linear(x, self.weight), self.bias)
        return activate(super().forward(x), self.activation)


def is_plain(module: nn.Module) -> bool:
    """Whether a dense layer is nothing but weight, bias and, at the moment, no dropout.

    Only then may its product be taken apart: adapters (LoRA) replace the module, hooks want to see its input.
    """
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
    hooks = hooks or module._backward_pre_hooks or hasattr(module, "_hf_hook")  # accelerate's, which moves weights
    known = type(module) in (Dense, HeadDense)
    return known and not hooks and not (module.training and getattr(module, "dropout", 0.0))


class HeadDense(nn.Module):
    """A dense layer of its own for every head, (B, N, in) or (B, H, N, in) -> (B, H, N, out)."""

    implementation = "auto"

    def __init__(self, num_heads, in_features, out_features, *, bias=True, activation="linear", dropout=0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_heads, in_features, out_features))
        self.bias = nn.Parameter(torch.empty(num_heads, out_features)) if bias else None
        self.activation, self.dropout = activation, dropout

    def forward(self, x: Tensor) -> Tensor:
        num_heads, _, out_features = self.weight.shape
        if x.dim() == 3 and self.training and self.dropout:
            x = x[:, None].expand(-1, num_heads, -1, -1)  # every head drops its own elements
        x = dropped(x, self)
        B, N = x.shape[0], x.shape[-2]
        if x.dim() == 3 and num_heads > 2:  # one product for all heads is then worth the copy
            y = F.linear(x, self.weight.transpose(1, 2).flatten(0, 1))
            y = y.view(B * N, num_heads, out_features).transpose(0, 1).contiguous()
        else:
            rows = by_head(x) if x.dim() == 4 else x.flatten(0, 1).expand(num_heads, -1, -1)
            y = torch.bmm(rows, self.weight)
        if self.activation == "elu" and self.bias is not None and kernel_takes(self.implementation, y, self.bias):
            y = elu_of_sum(y, self.bias)
        else:
            y = activate(y if self.bias is None else y.add_(self.bias[:, None]), self.activation)
        # In memory heads come first, so that each product of a head is one over all rows.
        return y.view(num_heads, B, N, out_features).transpose(0, 1)


def by_head(x: Tensor) -> Tensor:
    """(B, H, N, D) -> (H, B N, D)."""
    return x.transpose(0, 1).flatten(1, 2)


class Highway(nn.Module):
    """g act(W z + b) + (1 - g) z with g = sigmoid(Wg z + bg)."""

    def __init__(self, size, *, activation, dropout=0.0):
        super().__init__()
        self.map = Dense(size, size, activation=activation, dropout=dropout)
        self.gate = Dense(size, size, dropout=dropout)

    def forward(self, z: Tensor) -> Tensor:
        return mix(self.map(z), z, torch.sigmoid(self.gate(z)))


class Pooler(nn.Module):
    """Scores of the tokens, whose softmax weighs them in the sentence vector, (B, N, D) -> (B, D)."""

    def __init__(self, hidden: nn.Module, scores: nn.Module, *, empty_rows="zero"):
        super().__init__()
        self.hidden, self.scores = hidden, scores
        self.empty_rows = empty_rows
        self.implementation = "auto"

    def forward(self, tokens_BND: Tensor, mask_BN: Tensor, output_attentions=False) -> tuple[Tensor, Tensor | None]:
        scores = self.scores(self.hidden(tokens_BND))
        options = {"mask": mask_BN, "empty_rows": self.empty_rows}
        pooled_BD = source2token_attention(scores, tokens_BND, implementation=self.implementation, **options)
        return pooled_BD, source2token_weights(scores, **options) if output_attentions else None


class Source2Token(Pooler):
    """Source2token pooling (DiSAN Eq. 12-14): a score W2 act(W1 x + b1) + b2 for every feature."""

    def __init__(self, size, *, activation, dropout=0.0, empty_rows="zero"):
        hidden = Dense(size, size, activation=activation, dropout=dropout)
        super().__init__(hidden, Dense(size, size, dropout=dropout), empty_rows=empty_rows)


class AdditivePooling(Pooler):
    """Vanilla additive attention over the tokens (DiSAN Eq. 3-5): one score w act(W x + b)."""

    def __init__(self, size, *, activation, dropout=0.0, empty_rows="zero"):
        hidden = Dense(size, size, activation=activation, dropout=dropout)
        super().__init__(hidden, Dense(size, 1, bias=False, dropout=dropout), empty_rows=empty_rows)


POOLERS = {"source2token": Source2Token, "additive": AdditivePooling}


class FusionGate(nn.Module):
    """F a + (1 - F) b with F = sigmoid(Wa a + Wb b + bias) (DiSAN Eq. 19-20).

    The authors' code has a bias in each map beside the free one, ``"paper"`` the free one alone.
    """

    implementation = "auto"

    def __init__(self, size, *, formulation="released", dropout=0.0):
        super().__init__()
        bias = formulation == "released"
        self.first = Dense(size, size, bias=bias, dropout=dropout)
        self.second = Dense(size, size, bias=bias, dropout=dropout)
        self.bias = nn.Parameter(torch.empty(size))

    def forward(
        self, first: Tensor, second: Tensor, mask: Tensor | None = None, out: Tensor | None = None, output_gate=False
    ) -> tuple[Tensor, Tensor | None]:
        """The sum for vectors (B, N, D), 0 where the mask (B, N) is, written to ``out`` if given; and F if asked."""
        bias, scores = self.bias, None
        fast = not output_gate and kernel_takes(self.implementation, first, second, bias)
        if is_plain(self.first) and is_plain(self.second):
            bias = bias if self.first.bias is None else bias + self.first.bias + self.second.bias
            weights = (self.first.weight, self.second.weight)
            scores = sum_of_products((first, second), weights, None if fast else bias)
        else:
            scores = self.first(first) + self.second(second)
            fast = fast and kernel_takes(self.implementation, scores)
            scores = scores if fast else scores.add_(bias)
        if fast:
            return gated_sum(scores, bias, first, second, mask=mask, out=out), None
        gate = scores.sigmoid_()
        fused = mix(first, second, gate)
        if mask is not None:
            fused = fused.mul_(mask[..., None])
        return fused if out is None else out.copy_(fused), gate if output_gate else None


class FeatureAttention(nn.Module):
    """Masked feature-wise self-attention over mapped tokens (DiSAN Eq. 15-18): alignment maps and the operator.

    ``joint=True`` keeps both maps in one d x 2d matrix (inside the blocks of Bi-BloSAN); the difference is in the
    initialisation and in what the released L2 term counts.
    """

    def __init__(self, size, *, direction, window=None, joint=False, dropout=0.0):
        super().__init__()
        self.direction, self.window, self.dropout = direction, window, dropout
        self.implementation = "auto"
        if joint:
            self.alignment_map = nn.Linear(size, 2 * size, bias=False)
        else:
            self.key_map = nn.Linear(size, size, bias=False)
            self.query_map = nn.Linear(size, size, bias=False)
        self.bias = nn.Parameter(torch.empty(size))

    @property
    def joint(self) -> bool:
        return hasattr(self, "alignment_map")

    def forward(
        self, tokens_BND: Tensor, mask_BN: Tensor | None, output_attentions=False, token_mask=None, block_length=None
    ):
        """Results and, if asked for, weights: (B, N, N, D), or of M blocks (B M, R, R, D)."""
        keys_BND, queries_BND = self.align(dropped(tokens_BND, self))
        options = {"direction": self.direction, "window": self.window, "bias": self.bias}
        options |= {"key_mask": mask_BN, "token_mask": token_mask}
        attended_BND = directional_attention(
            keys_BND,
            queries_BND,
            tokens_BND,
            block_length=block_length,
            implementation=self.implementation,
            **options,
        )
        if not output_attentions:
            return attended_BND, None
        if block_length is not None:
            mask_BN = tokens_BND.new_ones(tokens_BND.shape[:2], dtype=torch.bool) if mask_BN is None else mask_BN
            tensors = (keys_BND, queries_BND, mask_BN)
            keys_BND, queries_BND, options["key_mask"] = (in_blocks(x, block_length) for x in tensors)
        return attended_BND, directional_attention_weights(keys_BND, queries_BND, **options)

    def align(self, tokens_BND: Tensor) -> tuple[Tensor, Tensor]:
        """W1 h and W2 h."""
        if self.joint:
            return self.alignment_map(tokens_BND).chunk(2, dim=-1)
        return self.key_map(tokens_BND), self.query_map(tokens_BND)


class DirectionalSelfAttention(nn.Module):
    """DiSA (DiSAN Eq. 15-20), (B, N, in) -> (B, N, D): dense map h, attention s over h in one direction, gate.

    Padded positions come out as 0. ``mask_BN=None``: every position is real. ``token_mask`` as in the operator; the
    result is written to ``out`` if that is given.
    """

    implementation = "auto"

    def __init__(self, in_features, size, *, direction, activation, window=None, formulation="released", dropout=0.0):
        super().__init__()
        self.dense_map = Dense(in_features, size, activation=activation, dropout=dropout)
        self.attention = FeatureAttention(size, direction=direction, window=window, dropout=dropout)
        self.gate = FusionGate(size, formulation=formulation, dropout=dropout)

    def forward(self, tokens_BNE: Tensor, mask_BN: Tensor | None, output_attentions=False, token_mask=None, out=None):
        mapped_BND = self.dense_map(tokens_BNE)
        attended_BND, weights = self.attention(mapped_BND, mask_BN, output_attentions, token_mask)
        fused_BND, gate_BND = self.gate(mapped_BND, attended_BND, mask_BN, out, output_attentions)
        return fused_BND, AttentionMaps((weights,), (gate_BND,)) if output_attentions else None


class BlockSelfAttention(nn.Module):
    """Attention between blocks as printed (Bi-BloSAN Eq. 13-15), (B, M, D) -> (B, M, D), for ``formulation="paper"``.

    o = attention over the block vectors v themselves; e = G o + (1 - G) v. The authors' code has a whole
    :class:`DirectionalSelfAttention` in this place.
    """

    def __init__(self, size, *, direction, dropout=0.0):
        super().__init__()
        self.attention = FeatureAttention(size, direction=direction, dropout=dropout)
        self.gate = FusionGate(size, formulation="paper", dropout=dropout)

    def forward(self, blocks_BMD: Tensor, mask_BM: Tensor | None, output_attentions=False):
        attended_BMD, weights = self.attention(blocks_BMD, mask_BM, output_attentions)
        fused_BMD, gate_BMD = self.gate(attended_BMD, blocks_BMD, output_gate=output_attentions)
        return fused_BMD, AttentionMaps((weights,), (gate_BMD,)) if output_attentions else None


class MaskedBlockSelfAttention(nn.Module):
    """mBloSA (Bi-BloSAN Eq. 9-18), (B, N, in) -> (B, N, D): attention inside blocks of R tokens, then between blocks.

    ``fuse_local=False`` leaves the results inside blocks out of the fusion (block vectors are made of them still),
    ``fuse_global=False`` leaves out all that is between blocks.

    Maps asked for: weights inside the blocks (B, M, R, R, D), of the block vectors (B, M, R, D), between blocks
    (B, M, M, D); gates between blocks (B, M, D) and of the result (B, N, D). Without ``fuse_global`` the first of the
    weights and the last of the gates.
    """

    def __init__(
        self,
        in_features,
        size,
        *,
        direction,
        block_length,
        activation,
        formulation="released",
        mask_padding_blocks=True,
        fuse_local=True,
        fuse_global=True,
        dropout=0.0,
    ):
        super().__init__()
        self.block_length, self.mask_padding_blocks = block_length, mask_padding_blocks
        self.fuse_local, self.fuse_global = fuse_local, fuse_global
        self.activation = activation
        self.implementation = "auto"
        self.dense_map = Dense(in_features, size, activation=activation, dropout=dropout)
        options = {"direction": direction, "dropout": dropout}
        self.block_attention = FeatureAttention(size, joint=formulation == "released", **options)
        if fuse_global and formulation == "released":
            self.block_pooling = Dense(size, size, dropout=dropout)
            self.global_attention = DirectionalSelfAttention(size, size, activation=activation, **options)
        elif fuse_global:
            self.block_pooling = nn.Sequential(
                Dense(size, size, activation=activation, dropout=dropout), Dense(size, size, dropout=dropout)
            )
            self.global_attention = BlockSelfAttention(size, **options)
        self.fusion = Dense((1 + fuse_local + fuse_global) * size, 2 * size, dropout=dropout)

    def forward(self, tokens_BNE: Tensor, mask_BN: Tensor, output_attentions=False, out=None):
        R, mapped_BND = self.block_length, self.dense_map(tokens_BNE)
        local_BND, local_weights = self.block_attention(mapped_BND, mask_BN, output_attentions, block_length=R)
        # To look costs nothing on the CPU alone.
        all_real = kernel_takes(self.implementation, mapped_BND) and bool(mask_BN.all())
        if not all_real:
            local_BND = local_BND * mask_BN[..., None]  # not in place: a hook may hold what the attention returned

        blocks_BMD, global_maps = None, None
        if self.fuse_global:
            scores_BND = self.block_pooling(local_BND)
            options = {"block_length": R, "implementation": self.implementation}
            blocks_BMD = source2token_attention(scores_BND, local_BND, mask=mask_BN, **options)
            block_mask = None
            if self.mask_padding_blocks and not all_real:
                block_mask = in_blocks(mask_BN, R).any(-1).view(blocks_BMD.shape[:2])
            blocks_BMD, global_maps = self.global_attention(blocks_BMD, block_mask, output_attentions)

        parts_BND = [mapped_BND, local_BND] if self.fuse_local else [mapped_BND]
        scores_BNF, bias = self.fusion_scores(parts_BND, blocks_BMD)
        fast = bias is not None and self.activation == "elu" and not output_attentions
        if fast and kernel_takes(self.implementation, scores_BNF, bias, mapped_BND):
            options = {"block_length": R if self.fuse_global else None, "out": out}
            return gated_candidate(scores_BNF, bias, mapped_BND, **options), None
        if bias is not None:
            scores_BNF = scores_BNF + (of_tokens(bias, R, mask_BN.shape[1]) if self.fuse_global else bias)
        candidate_BND, gate_BND = scores_BNF.chunk(2, dim=-1)
        gate_BND = gate_BND.sigmoid()
        fused_BND = mix(ACTIVATIONS[self.activation](candidate_BND), mapped_BND, gate_BND)
        fused_BND = fused_BND if out is None else out.copy_(fused_BND)
        if not output_attentions:
            return fused_BND, None
        blocks_of = (len(mask_BN), -(-mask_BN.shape[1] // R))
        attentions, gates = (local_weights.unflatten(0, blocks_of),), (gate_BND,)
        if self.fuse_global:
            pooling_weights = source2token_weights(in_blocks(scores_BND, R), mask=in_blocks(mask_BN, R))
            attentions = (*attentions, pooling_weights.unflatten(0, blocks_of), *global_maps.attentions)
            gates = (*global_maps.gates, *gates)
        return fused_BND, AttentionMaps(attentions, gates)

    def fusion_scores(self, parts_BND: list[Tensor], blocks_BMD: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Scores of candidate and gate (B, N, 2 D) from [mapped; local; global], without those not given, and a bias.

        The global part is the same for all tokens of a block, so that the bias is (B, M, 2 D), or without it (2 D).
        """
        if not is_plain(self.fusion):
            if blocks_BMD is not None:
                parts_BND = [*parts_BND, of_tokens(blocks_BMD, self.block_length, parts_BND[0].shape[1])]
            return self.fusion(torch.cat(parts_BND, dim=-1)), None
        weights, bias = self.fusion.weight.split(parts_BND[0].shape[-1], dim=1), self.fusion.bias
        if blocks_BMD is not None:
            bias = F.linear(blocks_BMD, weights[-1], bias)
        return sum_of_products(parts_BND, weights[: len(parts_BND)]), bias
