"""The papers' layers as modules, each named after what the papers call it. Shape suffixes: see equations.py.

``mask_BN`` is true at real tokens. How a map, an attention or a gate is computed is decided in attention.py.
"""

from collections.abc import Generator, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .attention import ACTIVATIONS as ACTIVATIONS
from .attention import dense, directional_attention, disa, dropout, fusion_gate, in_rows, source2token_attention
from .equations import directional_attention_weights, source2token_weights, weighted_sum, zero_padding


class AttentionMaps(NamedTuple):
    """Attention weights and gates of a context-fusion layer, from the first level to the last."""

    attentions: tuple[Tensor, ...]
    gates: tuple[Tensor, ...]


def mix(first: Tensor, second: Tensor, gate: Tensor) -> Tensor:
    """gate * first + (1 - gate) * second."""
    if first.dtype == second.dtype == gate.dtype:
        return torch.lerp(second, first, gate)
    return second + gate * (first - second)  # the mixed dtypes of autocast


class Layer(nn.Module):
    """Common parts of the papers' layers: activation, dropout of the input of every linear map, implementation.

    ``implementation`` (see attention.py) is set for all layers of a model by ``set_attn_implementation``. A class that
    has ``is_exact`` in its own body computes its equation and nothing else, so that a kernel may stand for it.
    """

    implementation = "auto"

    def __init__(self, *, activation: str = "linear", dropout: float = 0.0):
        super().__init__()
        self.activation, self.dropout = activation, dropout

    def drop(self, x: Tensor, map_: nn.Module | None = None) -> Tensor:
        """dropout(x) for the input of a linear map, with different elements for each head of a ``HeadLinear``."""
        if not (self.training and self.dropout):
            return x
        if hasattr(map_, "weights") and x.dim() == 3:  # one input for all heads
            return dropout(x, self.dropout, copies=len(map_)).transpose(0, 1)
        return dropout(x, self.dropout)

    def linear(self, map_: nn.Module, x: Tensor) -> Tensor:
        """W dropout(x) + b."""
        return dense(map_, self.drop(x, map_), implementation=self.implementation)

    def dense(self, map_: nn.Module, x: Tensor) -> Tensor:
        """act(W dropout(x) + b): the authors' dense layers apply dropout to their input."""
        return dense(map_, self.drop(x, map_), self.activation, self.implementation)


class FusionLayer(Layer):
    """A layer with maps, its equations written as :meth:`steps`, in which ``y = yield module, x`` is y = module(x).

    ``yield`` lets layers side by side, one for each direction, take their steps together: where maps are requested,
    each is stacked over the directions, and what follows is computed from the stack, so that gradients with respect to
    it exist. The modules called are fusion layers, or parts with one map: these have its ``kind``, ``"attentions"`` or
    ``"gates"``, and with ``explain=True`` return the map and the function from it to module(x).
    """

    def steps(self, *inputs) -> Generator[tuple, Tensor, Tensor]:
        raise NotImplementedError(f"{type(self).__name__} must implement steps(tokens, mask)")

    def forward(self, tokens: Tensor, mask: Tensor | None, output_attentions: bool = False, *others):
        """The result of ``steps(tokens, mask, *others)``, and the maps or ``None``."""
        if output_attentions:
            ((result, _),), maps = with_maps([self], tokens, mask, *others, stack=False)
            return result, maps
        steps, result = self.steps(tokens, mask, *others), None
        while True:
            try:
                module, *inputs = steps.send(result)
            except StopIteration as end:
                return end.args[0], None  # torch.compile does not know end.value
            result = module(*inputs)


def with_maps(layers: Iterable[FusionLayer], *inputs, stack: bool = True) -> tuple[list[tuple], AttentionMaps]:
    """What several fusion layers return for the same inputs, and their maps, stacked in dimension 1.

    Without ``stack`` there is one layer, and its maps are as they are.
    """
    kept = AttentionMaps([], [])

    def call(modules: Sequence[nn.Module], inputs: Sequence[tuple]) -> list:
        """The modules' results, each for its own inputs."""
        if hasattr(modules[0], "explained"):
            explained = [module(*given, explain=True) for module, given in zip(modules, inputs, strict=True)]
            maps, finish = zip(*explained, strict=True)
            together = torch.stack(maps, dim=1) if stack else maps[0]
            getattr(kept, modules[0].kind).append(together)
            parts = together.unbind(1) if stack else [together]
            return [function(part) for function, part in zip(finish, parts, strict=True)]
        steps = [module.steps(*given) for module, given in zip(modules, inputs, strict=True)]
        found = [None] * len(steps)
        while True:
            calls, results = [], []
            for layer, result in zip(steps, found, strict=True):
                try:
                    calls.append(layer.send(result))
                except StopIteration as end:
                    results.append((end.args[0], None))
            if results:
                return results
            found = call([module for module, *_ in calls], [given for _, *given in calls])

    layers = list(layers)
    return call(layers, [inputs] * len(layers)), AttentionMaps(*map(tuple, kept))


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

    ``empty_rows`` as in the operator.
    """

    def __init__(self, size, scores: nn.Linear, *, activation, dropout=0.0, empty_rows="zero"):
        super().__init__(activation=activation, dropout=dropout)
        self.hidden = nn.Linear(size, size)
        self.scores = scores
        self.empty_rows = empty_rows

    def forward(self, tokens_BND: Tensor, mask_BN: Tensor, output_attentions=False) -> tuple[Tensor, Tensor | None]:
        scores = self.linear(self.scores, self.dense(self.hidden, tokens_BND))
        options = {"mask": mask_BN, "empty_rows": self.empty_rows}
        if not output_attentions:
            return source2token_attention(scores, tokens_BND, implementation=self.implementation, **options), None
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
        chosen_BN1 = chosen_BN[..., None].to(torch.promote_types(tokens_BND.dtype, torch.float32))
        weights_BN1 = chosen_BN1 / chosen_BN1.sum(1, keepdim=True).clamp(min=1)
        return weighted_sum(weights_BN1, tokens_BND), weights_BN1.to(tokens_BND.dtype) if output_attentions else None


POOLERS = {"source2token": Source2Token, "additive": AdditivePooling}
POOLERS |= {"mean": MeanPooling, "cls": partial(MeanPooling, first=True)}


class Part(Layer):
    """A part of a fusion layer, with one map; computed by ``fast`` unless that is ``None`` or ``explain`` is set."""

    kind = "attentions"

    def forward(self, *inputs, explain: bool = False):
        result = None if explain else self.fast(*inputs)
        if result is None:
            map_, finish = self.explained(*inputs)
            result = (map_, finish) if explain else finish(map_)
        return result


class FusionGate(Part):
    """F a + (1 - F) b with F = sigmoid(Wa a + Wb b + bias) (DiSAN Eq. 19-20), and 0 where the mask (B, N) is false.

    The authors' code has a bias in each map in addition to the separate one; ``"paper"`` has only the latter.
    """

    kind, is_exact = "gates", True

    def __init__(self, size, *, formulation="released", dropout=0.0):
        super().__init__(dropout=dropout)
        self.first = nn.Linear(size, size, bias=formulation == "released")
        self.second = nn.Linear(size, size, bias=formulation == "released")
        self.bias = nn.Parameter(torch.empty(size))

    fast = fusion_gate

    def explained(self, first, second, mask=None):
        scores = in_rows(self.linear(self.first, first)) + self.linear(self.second, second)
        gate = torch.sigmoid(scores + self.bias.to(scores.dtype))
        return gate, lambda gate: zero_padding(mix(in_rows(first), second, gate), mask)


class FeatureAttention(Part):
    """Masked feature-wise self-attention over mapped tokens (DiSAN Eq. 15-18), (B, N, D) -> (B, N, D).

    Its map is the weights, (B, N, N, D). ``token_mask`` as in the operator. ``joint=True`` keeps both alignment maps
    in one d x 2d matrix, as the authors do inside the blocks of Bi-BloSAN; this affects the initialisation and the
    matrices that the released L2 term covers.
    """

    block_length, is_exact = None, True

    def __init__(self, size, *, direction, window=None, joint=False, dropout=0.0):
        super().__init__(dropout=dropout)
        self.direction, self.window, self.joint = direction, window, joint
        if joint:
            self.alignment_map = nn.Linear(size, 2 * size, bias=False)
        else:
            self.key_map = nn.Linear(size, size, bias=False)
            self.query_map = nn.Linear(size, size, bias=False)
        self.bias = nn.Parameter(torch.empty(size))

    @property
    def order(self) -> dict:
        """What both forms of the operator need besides keys and queries."""
        return {"direction": self.direction, "window": self.window, "bias": self.bias}

    def align(self, tokens_BND: Tensor) -> tuple[Tensor, Tensor]:
        """W1 h and W2 h, for the same elements of h."""
        tokens_BND = self.drop(tokens_BND)
        maps = (self.alignment_map,) if self.joint else (self.key_map, self.query_map)
        aligned = [dense(map_, tokens_BND, implementation=self.implementation) for map_ in maps]
        return aligned[0].chunk(2, -1) if self.joint else aligned

    def fast(self, tokens_BND: Tensor, mask_BN: Tensor | None, token_mask: Tensor | None = None) -> Tensor:
        options = {"key_mask": mask_BN, "token_mask": token_mask, "block_length": self.block_length}
        options["implementation"] = self.implementation
        return directional_attention(*self.align(tokens_BND), tokens_BND, **self.order, **options)

    def explained(self, tokens_BND, mask_BN, token_mask=None):
        options = {"key_mask": mask_BN, "token_mask": token_mask}
        weights_BNND = directional_attention_weights(*self.align(tokens_BND), **self.order, **options)
        return weights_BNND, lambda weights_BNND: weighted_sum(weights_BNND, tokens_BND[:, None])


class DirectionalSelfAttention(FusionLayer):
    """DiSA (DiSAN Eq. 15-20), (B, N, in) -> (B, N, D): dense map h, attention s over h in one direction, gate.

    Padded positions are 0 in the output. ``mask_BN=None``: every position is real. ``token_mask`` as in the operator.
    """

    is_exact = True

    def __init__(self, in_features, size, *, direction, activation, window=None, formulation="released", dropout=0.0):
        super().__init__(activation=activation, dropout=dropout)
        self.dense_map = nn.Linear(in_features, size)
        self.attention = FeatureAttention(size, direction=direction, window=window, dropout=dropout)
        self.gate = FusionGate(size, formulation=formulation, dropout=dropout)

    def forward(self, tokens, mask, output_attentions: bool = False, token_mask: Tensor | None = None):
        whole = None if output_attentions or token_mask is not None else disa([self], tokens, mask)
        return super().forward(tokens, mask, output_attentions, token_mask) if whole is None else (whole, None)

    def steps(self, tokens_BNE: Tensor, mask_BN: Tensor | None, token_mask: Tensor | None = None):
        mapped_BND = self.dense(self.dense_map, tokens_BNE)
        attended_BND = yield self.attention, mapped_BND, mask_BN, token_mask
        return (yield self.gate, mapped_BND, attended_BND, mask_BN)
