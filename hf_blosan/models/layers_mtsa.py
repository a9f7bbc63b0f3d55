"""MTSA's layer as a module. Shape suffixes: see equations; conventions of layers: see layers."""

import torch
from torch import Tensor, nn

from .equations import tensorized_attention_weights
from .fused_pointwise_blosan import gated_sum, kernel_takes
from .fused_tensorized_blosan import tensorized_attention
from .layers import AttentionMaps, Dense, HeadDense, by_head, is_plain, masked, mix
from .masks import full_token_mask

# Tokens that go through a layer of tensorized attention together where no gradient is wanted: a dozen tensors of them
# stay in memory that is used again, and in part in the cache. Best of 256..4096 on 2 cores of AMD Zen 4.
GROUP_TOKENS = 1024


class TensorizedSelfAttention(nn.Module):
    """MTSA (Eq. 7-13, Alg. 1), (B, N, in) -> (B, N, out): tensorized attention in heads with an order mask each.

    Options are described at ``MTSAConfig``; ``directions`` and ``windows`` have an entry for each head. ``input_size``
    and ``output_size`` put a dense layer before and after the heads. ``token_mask`` as in the operator. Padded
    positions come out as 0. Maps asked for: weights (B, H, N, N, size / H), gates (B, H, N, size / H).

    What is left out by ``token2token=False`` or ``source2token=False`` has no parameters, and its scores are all 0 in
    the same operator: f(0) is one weight for all visible keys, which cancels, and exp(0) is 1.
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
        super().__init__()
        num_heads, D = len(directions), size // len(directions)
        self.implementation = "auto"
        self.scores_from = scores_from
        self.options = {"directions": directions, "windows": windows}
        self.options |= {"score_function": score_function, "include_self": attend_to_self}
        # Dropped in two factors of one weight, so that a weight survives with the authors' attention keep.
        self.attention_dropout = 1 - (1 - attention_dropout) ** 0.5
        if input_size is not None:
            self.input_layer = Dense(in_features, input_size, activation=activation, dropout=dropout)
            in_features = input_size
        self.value_map = HeadDense(
            num_heads,
            in_features,
            D,
            bias=value_bias,
            activation=activation if value_activation else "linear",
            dropout=dropout,
        )
        query_size = D if scores_from == "values" else in_features
        score_size = in_features if scores_from == "input" else D
        self.query_map, self.key_map, self.source_scores = None, None, None
        if token2token:
            self.query_map = HeadDense(num_heads, query_size, D, bias=False, dropout=dropout)
        if token2token or (source2token and scores_from == "keys"):
            self.key_map = HeadDense(num_heads, query_size, D, bias=False, dropout=dropout)
        if source2token:
            layers = [HeadDense(num_heads, score_size, D, activation=activation, dropout=dropout)]
            if source2token_layers == 1:
                layers, last_size = [], score_size
            else:
                last_size = D
            self.source_scores = nn.Sequential(*layers, HeadDense(num_heads, last_size, D, dropout=dropout))
        self.gate = HeadDense(num_heads, 2 * D, D, dropout=dropout) if fusion_gate else None
        self.output_layer = None
        self.out_features = size if output_size is None else output_size
        if output_size is not None:
            self.output_layer = Dense(size, output_size, activation=output_activation, dropout=dropout)

    def forward(self, tokens_BNE: Tensor, mask_BN: Tensor, output_attentions=False, token_mask=None):
        B, N = mask_BN.shape
        rows = max(1, GROUP_TOKENS // max(1, N))
        # Not in training: a checkpoint's first forward has no gradients either, and must drop what its second drops.
        wanted = torch.is_grad_enabled() or self.training or output_attentions
        if wanted or tokens_BNE.device.type != "cpu" or torch.compiler.is_compiling() or B <= rows:
            return self.attend(tokens_BNE, mask_BN, output_attentions, token_mask)
        tokens, masks = tokens_BNE.split(rows), mask_BN.split(rows)
        if token_mask is None:
            token_masks = [None] * len(masks)
        else:
            token_masks = full_token_mask(token_mask, B, N).split(rows)
        groups = zip(tokens, masks, token_masks, strict=True)
        if not kernel_takes(self.implementation, tokens_BNE):
            return torch.cat([self.attend(x, mask, token_mask=pairs)[0] for x, mask, pairs in groups]), None
        out_BNF = tokens_BNE.new_empty(B, N, self.out_features)
        for (x, mask, pairs), out in zip(groups, out_BNF.split(rows), strict=True):
            self.attend(x, mask, token_mask=pairs, out=out)
        return out_BNF, None

    def attend(self, tokens_BNE: Tensor, mask_BN: Tensor, output_attentions=False, token_mask=None, out=None):
        if hasattr(self, "input_layer"):
            tokens_BNE = self.input_layer(tokens_BNE)
        v_BHND = self.value_map(tokens_BNE)
        attended_BHND, weights = self.look_around(tokens_BNE, v_BHND, mask_BN, output_attentions, token_mask)
        gate_BHND, in_place = None, None if self.output_layer is not None else out
        if self.gate is not None:
            attended_BHND, gate_BHND = self.gate_values(v_BHND, attended_BHND, mask_BN, in_place, output_attentions)
        fused_BND = attended_BHND.transpose(1, 2).flatten(2)
        if self.output_layer is not None:
            fused_BND = self.output_layer(fused_BND)
        at_once = self.gate is not None and gate_BHND is None  # then padding is 0 and the result in its place
        if self.output_layer is not None or not at_once:
            fused_BND = masked(fused_BND, mask_BN)
            fused_BND = fused_BND if out is None else out.copy_(fused_BND)
        if not output_attentions:
            return fused_BND, None
        return fused_BND, AttentionMaps((weights,), () if gate_BHND is None else (gate_BHND,))

    def look_around(self, tokens_BNE: Tensor, v_BHND: Tensor, mask_BN: Tensor, output_attentions: bool, token_mask):
        """The values of other tokens, averaged (Alg. 1), and the weights if asked for."""
        query_input = v_BHND if self.scores_from == "values" else tokens_BNE
        maps = (self.query_map, self.key_map)
        q_BHND, k_BHND = (torch.zeros_like(v_BHND) if map_ is None else map_(query_input) for map_ in maps)
        if self.source_scores is None:
            scores_BHND = torch.zeros_like(v_BHND)
        else:
            score_input = {"values": v_BHND, "input": tokens_BNE, "keys": k_BHND}[self.scores_from]
            scores_BHND = self.source_scores(score_input)
        options = {"key_mask": mask_BN, "token_mask": token_mask, **self.options}
        attended_BHND = tensorized_attention(
            q_BHND,
            k_BHND,
            v_BHND,
            scores_BHND,
            dropout=self.attention_dropout if self.training else 0.0,
            implementation=self.implementation,
            **options,
        )
        if not output_attentions:
            return attended_BHND, None
        return attended_BHND, tensorized_attention_weights(q_BHND, k_BHND, scores_BHND, **options)

    def gate_values(
        self, v_BHND: Tensor, attended_BHND: Tensor, mask_BN: Tensor, out: Tensor | None, output_gate: bool
    ):
        """F v + (1 - F) attended with F = sigmoid(W [v; attended] + b), and F.

        Without F where nobody asks for it; then padded positions are 0, and ``out`` (B, N, H D) is the memory.
        """
        if not is_plain(self.gate):
            gate_BHND = self.gate(torch.cat([v_BHND, attended_BHND], dim=-1)).sigmoid()
            return mix(v_BHND, attended_BHND, gate_BHND), gate_BHND
        B, H, N, D = v_BHND.shape
        for_v, for_attended = self.gate.weight.chunk(2, dim=1)
        v_HXD, attended_HXD = by_head(v_BHND), by_head(attended_BHND)  # X = B N
        if not output_gate and kernel_takes(self.implementation, v_HXD, attended_HXD, *self.gate.parameters()):
            scores_HXD = torch.bmm(v_HXD, for_v).baddbmm_(attended_HXD, for_attended)
            if not torch.is_grad_enabled():
                out = (v_BHND.new_empty(B, N, H * D) if out is None else out).view(B * N, H, D).transpose(0, 1)
            mixed_HXD = gated_sum(scores_HXD, self.gate.bias, v_HXD, attended_HXD, mask=mask_BN.flatten(), out=out)
            return mixed_HXD.unflatten(1, (B, N)).transpose(0, 1), None
        scores_HXD = torch.baddbmm(self.gate.bias[:, None], v_HXD, for_v)
        scores_HXD = torch.baddbmm(scores_HXD, attended_HXD, for_attended)
        gate_BHND = scores_HXD.sigmoid_().view(H, B, N, D).transpose(0, 1)
        return mix(v_BHND, attended_BHND, gate_BHND), gate_BHND
