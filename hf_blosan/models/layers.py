"""The papers' layers as modules, each named after what the papers call it. Shape suffixes: see equations.py.

``mask_BN`` is true at real tokens. Attention layers return ``(tokens, maps)``; ``maps`` is ``None`` unless requested.
"""

from collections.abc import Generator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import can_use_kernel, directional_attention, kernels, source2token_attention
from .equations import directional_attention_weights, source2token_weights, weighted_sum
from .masks import on_blocks, zero_padding

dropout = (kernels or F).dropout
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
    """Attention weights and gates of a context-fusion layer, from the first level to the last."""

    attentions: tuple[Tensor, ...]
    gates: tuple[Tensor, ...]


def mix(first: Tensor, second: Tensor, gate: Tensor) -> Tensor:
    """gate * first + (1 - gate) * second."""
    if first.dtype == second.dtype == gate.dtype:
        return torch.lerp(second, first, gate)
    return second + gate * (first - second)  # the mixed dtypes of autocast


def spread(x: Tensor, places_BN: Tensor | None) -> Tensor:
    """What V words have, (1, V, D) or by heads (1, H, V, D), for the tokens of rows: (B, N, D) or (B, H, N, D).

    ``places_BN`` says which of the words each token is; ``None``: x is that of the tokens already.
    """
    if places_BN is None:
        return x
    tokens = x[0].index_select(-2, places_BN.flatten()).unflatten(-2, places_BN.shape)
    return tokens if tokens.dim() == 3 else tokens.transpose(0, 1)


def with_maps(*steps: Generator, stack: bool = False) -> tuple[list[Tensor], AttentionMaps]:
    """Run layers step by step and keep their maps; results are computed from these, so their gradients exist.

    Args:
        steps: generators, which yield ``(name of the list in AttentionMaps, map)``, receive the map that is kept, and
            return the result. All yield the same names in the same order.
        stack: keep the maps of all layers as one tensor, stacked in dimension 1; without, there is one layer.

    Returns:
        The results of all layers, and the maps.
    """
    maps, parts = AttentionMaps([], []), [None] * len(steps)
    while True:
        results, yielded = [], []
        for layer, part in zip(steps, parts, strict=True):
            try:
                yielded.append(layer.send(part))
            except StopIteration as end:
                results.append(end.value)
        if results:
            return results, AttentionMaps(*map(tuple, maps))
        names, tensors = zip(*yielded, strict=True)
        kept = torch.stack(tensors, dim=1) if stack else tensors[0]
        getattr(maps, names[0]).append(kept)
        parts = kept.unbind(1) if stack else [kept]


class Layer(nn.Module):
    """Common parts of the papers' layers: activation, dropout of the input of every linear map, implementation.

    ``implementation`` (see attention.py) is set for all layers of a model by ``set_attn_implementation``.
    """

    implementation = "auto"

    def __init__(self, *, activation: str = "linear", dropout: float = 0.0):
        super().__init__()
        self.activation, self.dropout = activation, dropout

    def drop(self, x: Tensor, map_: nn.Module | None = None) -> Tensor:
        """dropout(x) for the input of a linear map, with separate elements for each head of a ``HeadLinear``."""
        if not (self.training and self.dropout):
            return x
        if hasattr(map_, "of_each_head"):
            if kernels and x.dim() == 3:  # one input for all heads
                return dropout(x, self.dropout, copies=len(map_)).transpose(0, 1)
            x = map_.of_each_head(x)
        return dropout(x, self.dropout)

    def linear(self, map_: nn.Module, x: Tensor) -> Tensor:
        """W dropout(x) + b."""
        return self.apply_map(map_, self.drop(x, map_))

    def apply_map(self, map_: nn.Module, x: Tensor) -> Tensor:
        """W x + b."""
        if hasattr(map_, "of_each_head") or not self.can_use_kernel(x, maps=[map_]):
            return map_(x)
        return kernels.linear(x, map_.weight, map_.bias)

    def dense(self, map_: nn.Module, x: Tensor) -> Tensor:
        """act(W dropout(x) + b): the authors' dense layers apply dropout to their input."""
        if self.activation == "elu" and self.can_use_kernel(x, maps=[map_]):
            if hasattr(map_, "of_each_head"):
                return map_.elu(self.drop(x, map_))
            return kernels.linear(self.drop(x), map_.weight, map_.bias, elu=True)
        y = self.linear(map_, x)
        if self.activation == "elu" and not torch.is_grad_enabled() and self.can_use_kernel(y):
            return kernels.elu(y)
        return ACTIVATIONS[self.activation](y)

    def can_use_kernel(self, *tensors: Tensor, maps=()) -> bool:
        """Whether a step of this layer may run as one kernel; see attention.py."""
        return can_use_kernel(self.implementation, *tensors, maps=maps)


class Highway(Layer):
    """g act(W z + b) + (1 - g) z with g = sigmoid(Wg z + bg)."""

    def __init__(self, size, *, activation, dropout=0.0):
        super().__init__(activation=activation, dropout=dropout)
        self.map = nn.Linear(size, size)
        self.gate = nn.Linear(size, size)

    def forward(self, z: Tensor) -> Tensor:
        return mix(self.dense(self.map, z), z, torch.sigmoid(self.linear(self.gate, z)))


class Pooler(Layer):
    """Tokens averaged by a softmax over scores W2 act(W1 x + b1) + b2, (B, N, D) -> (B, D); ``scores`` is W2 and b2.

    ``empty_rows`` and ``cu_seqlens`` as in the operator.
    """

    def __init__(self, size, scores: nn.Linear, *, activation, dropout=0.0, empty_rows="zero"):
        super().__init__(activation=activation, dropout=dropout)
        self.hidden = nn.Linear(size, size)
        self.scores = scores
        self.empty_rows = empty_rows

    def forward(
        self, tokens_BND: Tensor, mask_BN: Tensor, output_attentions=False, cu_seqlens: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        scores = self.linear(self.scores, self.dense(self.hidden, tokens_BND))
        options = {"mask": mask_BN, "empty_rows": self.empty_rows}
        if not output_attentions:
            options |= {"cu_seqlens": cu_seqlens, "implementation": self.implementation}
            return source2token_attention(scores, tokens_BND, **options), None
        weights = source2token_weights(scores, **options)
        return weighted_sum(weights, tokens_BND), weights


class Source2Token(Pooler):
    """Source2token pooling (DiSAN Eq. 12-14): a score per feature."""

    def __init__(self, size, **options):
        super().__init__(size, nn.Linear(size, size), **options)


class AdditivePooling(Pooler):
    """Vanilla additive attention over the tokens (DiSAN Eq. 3-5): one score w act(W x + b) for all features."""

    def __init__(self, size, **options):
        super().__init__(size, nn.Linear(size, 1, bias=False), **options)


class MeanPooling(nn.Module):
    """The mean of the tokens, or the first token, [CLS] in models such as BERT; a row without tokens gives 0."""

    def __init__(self, size, *, first=False, **options):
        super().__init__()
        self.first = first

    def forward(self, tokens_BND: Tensor, mask_BN: Tensor, output_attentions=False) -> tuple[Tensor, Tensor | None]:
        chosen_BN = mask_BN.bool() & (mask_BN.cumsum(1) == 1) if self.first else mask_BN.bool()
        weights_BN1 = (chosen_BN / chosen_BN.sum(1, keepdim=True).clamp(min=1))[..., None].to(tokens_BND.dtype)
        return weighted_sum(weights_BN1, tokens_BND), weights_BN1 if output_attentions else None


FIXED = {"mean": MeanPooling, "cls": partial(MeanPooling, first=True)}
POOLERS = {"source2token": Source2Token, "additive": AdditivePooling, **FIXED}


class FusionGate(Layer):
    """F a + (1 - F) b with F = sigmoid(Wa a + Wb b + bias) (DiSAN Eq. 19-20).

    The authors' code has a bias in each map in addition to the separate one; ``"paper"`` has only the latter.
    """

    def __init__(self, size, *, formulation="released", dropout=0.0):
        super().__init__(dropout=dropout)
        self.first = nn.Linear(size, size, bias=formulation == "released")
        self.second = nn.Linear(size, size, bias=formulation == "released")
        self.bias = nn.Parameter(torch.empty(size))

    def forward(
        self,
        first: Tensor,
        second: Tensor,
        mask: Tensor | None = None,
        output_gate: bool = False,
        first_scores: Tensor | None = None,
    ) -> Tensor:
        """The sum for vectors (B, N, D), 0 where the mask (B, N) is false; or, if requested, F.

        ``first_scores`` is Wa a where it is known, without gradients; it is overwritten.
        """
        maps, mask = (self.first, self.second), None if mask is None else mask.bool()
        if not output_gate and self.can_use_kernel(first, second, self.bias, maps=maps):
            if first_scores is not None:
                parameters = (self.second.weight, self.bias, self.second.bias)
                return kernels.fusion_gate_of_scores(first, second, first_scores, *parameters, mask=mask)
            parameters = (self.first.weight, self.second.weight, self.bias, self.first.bias, self.second.bias)
            dropped = {}
            if self.training and self.dropout:
                dropped = {"first_input": self.drop(first), "second_input": self.drop(second)}
            return kernels.fusion_gate(first, second, *parameters, mask=mask, **dropped)
        first_scores = self.linear(self.first, first) if first_scores is None else first_scores
        scores = first_scores + self.linear(self.second, second)
        if not (output_gate or torch.is_grad_enabled()) and self.can_use_kernel(first, second, scores, self.bias):
            return kernels.fusion_gate_of_scores(first, second, scores.contiguous(), None, self.bias, mask=mask)
        gate = torch.sigmoid(scores + self.bias.to(scores.dtype))
        return gate if output_gate else zero_padding(mix(first, second, gate), mask)


class FeatureAttention(Layer):
    """Masked feature-wise self-attention over mapped tokens (DiSAN Eq. 15-18): alignment maps and the operator.

    ``joint=True`` keeps both maps in one d x 2d matrix, as the authors do inside the blocks of Bi-BloSAN; this affects
    the initialisation and the matrices that the released L2 term covers.
    """

    def __init__(self, size, *, direction, window=None, joint=False, dropout=0.0):
        super().__init__(dropout=dropout)
        self.direction, self.window = direction, window
        if joint:
            self.alignment_map = nn.Linear(size, 2 * size, bias=False)
        else:
            self.key_map = nn.Linear(size, size, bias=False)
            self.query_map = nn.Linear(size, size, bias=False)
        self.bias = nn.Parameter(torch.empty(size))

    @property
    def joint(self) -> bool:
        return hasattr(self, "alignment_map")

    def forward(self, tokens_BND, mask_BN, token_mask=None, output_weights=False, words=None, **parts):
        """Results (B, N, D); or, if requested, the weights: (B, N, N, D), for M blocks of R tokens (B, M, R, R, D).

        ``words`` are the distinct ones of the tokens, (1, V, D), and their places; see ``spread``. ``parts``:
        ``block_length`` or ``cu_seqlens``, as in the operator.
        """
        words_1VD, places_BN = (tokens_BND, None) if words is None else words
        keys_BND, queries_BND = (spread(x, places_BN) for x in self.align(self.drop(words_1VD)))
        options = {"direction": self.direction, "window": self.window, "bias": self.bias, "token_mask": token_mask}
        if not output_weights:
            options |= {"key_mask": mask_BN, "implementation": self.implementation, **parts}
            return directional_attention(keys_BND, queries_BND, tokens_BND, **options)
        operator, block_length = partial(directional_attention_weights, **options), parts.get("block_length")
        if block_length is None:
            return operator(keys_BND, queries_BND, key_mask=mask_BN)
        weights = on_blocks(operator, block_length, (keys_BND, queries_BND), mask_BN)
        B, N = mask_BN.shape
        return weights.unflatten(0, (B, (N + block_length - 1) // block_length))

    def align(self, tokens_BND: Tensor) -> tuple[Tensor, Tensor]:
        """W1 h and W2 h."""
        if self.joint:
            return self.apply_map(self.alignment_map, tokens_BND).chunk(2, dim=-1)
        return self.apply_map(self.key_map, tokens_BND), self.apply_map(self.query_map, tokens_BND)


class DirectionalSelfAttention(Layer):
    """DiSA (DiSAN Eq. 15-20), (B, N, in) -> (B, N, D): dense map h, attention s over h in one direction, gate.

    Padded positions are 0 in the output. ``mask_BN=None``: every position is real. ``token_mask`` as in the operator.
    ``places_BN`` and ``cu_seqlens``: see ``ContextFusion``.
    """

    def __init__(self, in_features, size, *, direction, activation, window=None, formulation="released", dropout=0.0):
        super().__init__(activation=activation, dropout=dropout)
        self.dense_map = nn.Linear(in_features, size)
        self.attention = FeatureAttention(size, direction=direction, window=window, dropout=dropout)
        self.gate = FusionGate(size, formulation=formulation, dropout=dropout)

    def forward(self, tokens_BNE, mask_BN, output_attentions=False, token_mask=None, places_BN=None, cu_seqlens=None):
        if output_attentions:
            (fused_BND,), maps = with_maps(self.steps(tokens_BNE, mask_BN, token_mask))
            return fused_BND, maps
        words_1VD = self.dense(self.dense_map, tokens_BNE)
        mapped_BND = spread(words_1VD, places_BN)
        options = {"words": (words_1VD, places_BN), "cu_seqlens": cu_seqlens}
        attended_BND = self.attention(mapped_BND, mask_BN, token_mask, **options)
        scores_BND = None if places_BN is None else spread(self.apply_map(self.gate.first, words_1VD), places_BN)
        return self.gate(mapped_BND, attended_BND, mask_BN, first_scores=scores_BND), None

    def steps(self, tokens_BNE: Tensor, mask_BN: Tensor | None, token_mask=None):
        """The layer with its maps; see :func:`with_maps`."""
        mapped_BND = self.dense(self.dense_map, tokens_BNE)
        weights_BNND = yield "attentions", self.attention(mapped_BND, mask_BN, token_mask, output_weights=True)
        attended_BND = weighted_sum(weights_BNND, mapped_BND[:, None])
        gate_BND = yield "gates", self.gate(mapped_BND, attended_BND, output_gate=True)
        return zero_padding(mix(mapped_BND, attended_BND, gate_BND), mask_BN)
