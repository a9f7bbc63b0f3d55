"""MTSA's layer as a module. Shape suffixes: see equations.py; conventions: see layers.py."""

import torch
from torch import Tensor, nn

from .attention import ACTIVATIONS, in_rows
from .attention_mtsa import heads_gate, tensorized_attention
from .equations import weighted_sum
from .equations_mtsa import add_decay, tensorized_attention_weights
from .layers import AttentionMaps, Layer, mix
from .layers_heads import HeadLinear


class TensorizedSelfAttention(Layer):
    """MTSA (Eq. 7-13, Alg. 1), (B, N, in) -> (B, N, out): tensorized attention in heads, each with an order mask.

    Options are described in ``MTSAConfig``; ``directions`` and ``windows`` have one entry per head. ``input_size``
    and ``output_size`` put a dense layer before and after the heads. ``token_mask`` as in the operator. Padded
    positions are 0 in the output. Maps, if requested: weights (B, H, N, N, size / H), gates (B, H, N, size / H).

    ``token2token=False`` and ``source2token=False`` remove the parameters of that part and set its scores to 0 in the
    same operator: f(0) is the same weight for all visible keys, which cancels, and exp(0) is 1.

    Raises:
        ValueError: ``distance_decay`` with a direction other than forward and backward.
    """

    def __init__(
        self,
        in_features,
        size,
        *,
        directions,
        activation,
        windows=None,
        score_function="sigmoid",
        attend_to_self=False,
        distance_decay=False,
        scores_from="values",
        token2token=True,
        source2token=True,
        source2token_layers=2,
        value_bias=True,
        value_activation=True,
        fusion_gate=True,
        input_size=None,
        output_size=None,
        output_activation="linear",
        dropout=0.0,
        attention_dropout=0.0,
    ):
        super().__init__(activation=activation, dropout=dropout)
        num_heads, D = len(directions), size // len(directions)
        self.scores_from, self.value_activation = scores_from, value_activation
        self.options = {"directions": directions, "windows": windows}
        self.options |= {"score_function": score_function, "include_self": attend_to_self}
        # Both factors of a weight are dropped, so that the weight survives with the authors' attention keep.
        self.attention_dropout = 1 - (1 - attention_dropout) ** 0.5
        self.input_layer = None if input_size is None else nn.Linear(in_features, input_size)
        in_features = in_features if input_size is None else input_size
        query_size = D if scores_from == "values" else in_features
        score_size = in_features if scores_from == "input" else D
        self.value_map = HeadLinear(num_heads, in_features, D, bias=value_bias)
        self.query_map, self.key_map, self.source_scores = None, None, None
        if token2token:
            self.query_map = HeadLinear(num_heads, query_size, D, bias=False)
        if token2token or (source2token and scores_from == "keys"):
            self.key_map = HeadLinear(num_heads, query_size, D, bias=False)
        if source2token:
            sizes = (score_size, D) if source2token_layers == 1 else (score_size, D, D)
            self.source_scores = nn.ModuleList(
                HeadLinear(num_heads, *pair) for pair in zip(sizes, sizes[1:], strict=False)
            )
        if distance_decay and not {"forward", "backward"}.issuperset(directions):
            raise ValueError(f"distance_decay: heads look {', '.join(directions)}; let each look forward or backward")
        self.decay = nn.Parameter(self.initial_decay(num_heads, D)) if distance_decay else None
        self.gate = HeadLinear(num_heads, 2 * D, D) if fusion_gate else None
        self.output_layer = None if output_size is None else nn.Linear(size, output_size)
        self.output_activation = output_activation

    @staticmethod
    def initial_decay(num_heads: int, size: int) -> Tensor:
        """From 2 to 1/64 per token: some features of a head see the nearest token, some a whole sentence."""
        return torch.logspace(1, -6, size, base=2.0).repeat(num_heads, 1)

    def forward(self, tokens_BNE: Tensor, mask_BN: Tensor, output_attentions=False, token_mask=None):
        if self.input_layer is not None:
            tokens_BNE = self.dense(self.input_layer, tokens_BNE)
        q, k, v_BHND, scores = self.map_tokens(tokens_BNE)
        if self.decay is not None:
            scores = add_decay(scores, self.decay, self.options["directions"], mask_BN)
        attended_BHND, weights = self.attend(q, k, v_BHND, scores, mask_BN, output_attentions, token_mask)
        fused_BND, gate_BHND = self.fuse(v_BHND, attended_BHND, mask_BN, output_attentions)
        if self.output_layer is not None:
            fused_BND = ACTIVATIONS[self.output_activation](self.linear(self.output_layer, fused_BND))
            fused_BND = fused_BND * mask_BN[..., None]
        if not output_attentions:
            return fused_BND, None
        return fused_BND, AttentionMaps((weights,), () if gate_BHND is None else (gate_BHND,))

    def map_tokens(self, tokens_BNE: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries, keys, values and source2token scores, (B, H, N, D) each."""
        map_values = self.dense if self.value_activation else self.linear
        v = map_values(self.value_map, tokens_BNE)
        x = v if self.scores_from == "values" else tokens_BNE
        q, k = (None if map_ is None else self.linear(map_, x) for map_ in (self.query_map, self.key_map))
        scores = None
        if self.source_scores is not None:
            scores = k if self.scores_from == "keys" else x
            *hidden_maps, score_map = self.source_scores
            for hidden_map in hidden_maps:
                scores = self.dense(hidden_map, scores)
            scores = self.linear(score_map, scores)
        v_BHND = in_rows(v)
        q, k, scores = (torch.zeros_like(v_BHND) if x is None else in_rows(x) for x in (q, k, scores))
        return q, k, v_BHND, scores

    def attend(self, q_BHND, k_BHND, v_BHND, scores_BHND, mask_BN: Tensor, output_attentions: bool, token_mask):
        """The weighted mean of the values of other tokens (Alg. 1), and the weights if requested."""
        options = {"key_mask": mask_BN, "token_mask": token_mask, **self.options}
        options["dropout"] = self.attention_dropout if self.training else 0.0
        if not output_attentions:
            options["implementation"] = self.implementation
            return tensorized_attention(q_BHND, k_BHND, v_BHND, scores_BHND, **options), None
        weights_BHNND = tensorized_attention_weights(q_BHND, k_BHND, scores_BHND, **options)
        return weighted_sum(weights_BHNND, v_BHND[:, :, None]), weights_BHNND

    def fuse(self, v_BHND: Tensor, attended_BHND: Tensor, mask_BN: Tensor, output_gate: bool):
        """F v + (1 - F) attended with F = sigmoid(W [v; attended] + b), heads concatenated; and F if requested."""
        fused_BND = None if self.gate is None or output_gate else heads_gate(self, v_BHND, attended_BHND, mask_BN)
        if fused_BND is not None:
            return fused_BND, None
        gate_BHND = None
        if self.gate is not None:
            gate_BHND = torch.sigmoid(self.linear(self.gate, torch.cat([v_BHND, attended_BHND], dim=-1)))
            attended_BHND = mix(v_BHND, attended_BHND, gate_BHND)
        return attended_BHND.transpose(1, 2).flatten(2) * mask_BN[..., None], gate_BHND
