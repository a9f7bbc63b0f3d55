"""Multi-head self-attention (Vaswani et al. 2017, arXiv 1706.03762), a baseline of Bi-BloSAN."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from .attention import dense
from .configuration_multihead import MultiHeadConfig
from .encoder import ContextFusion, SentenceEncoderModel, SentenceEncoderPreTrainedModel, StackableLayer
from .heads import SequenceClassificationMixin
from .layers import AttentionMaps
from .layers_heads import HeadLinear


def sinusoidal_positions(length: int, size: int, *, formulation="released", device=None) -> Tensor:
    """sin(n / 10000^(c f / E)) for even features f, cos of the same angle for the next feature, (N, E).

    c is 1 in Vaswani et al. (section 3.5), 2 in the authors' code (``"released"``).
    """
    features_E = torch.arange(size, device=device)
    exponents_E = (features_E - features_E % 2) * ((2.0 if formulation == "released" else 1.0) / size)
    angles_NE = torch.arange(length, device=device)[:, None] / 10000.0**exponents_E
    return torch.where(features_E % 2 == 0, angles_NE.sin(), angles_NE.cos())


class MultiHeadLayer(StackableLayer):
    """softmax(Q K' / sqrt(D)) V for each head, concatenated (Vaswani et al. Eq. 1), (B, N, E) -> (B, N, hidden_size).

    Padded positions are 0 in the output. Attention weights, if requested: (B, H, N, N). In a stack, only the first
    layer adds positions.
    """

    def __init__(self, config: MultiHeadConfig):
        super().__init__(config)
        self.variant, self.formulation = config.variant, config.formulation
        self.attention_dropout = config.dropout
        self.adds_positions = config.variant == "sinusoidal"
        relu = config.variant == "relu"
        sizes = (config.num_heads, self.in_features, config.hidden_size // config.num_heads)
        self.query_map = HeadLinear(*sizes, bias=relu)
        self.key_map = HeadLinear(*sizes, bias=relu)
        self.value_map = HeadLinear(*sizes, bias=relu)
        self.output_layer = nn.Linear(config.hidden_size, config.hidden_size) if config.output_layer else None

    def forward(self, hidden_BNE, mask_BN, output_attentions=False):
        if self.adds_positions:
            options = {"formulation": self.formulation, "device": hidden_BNE.device}
            table_NE = sinusoidal_positions(*hidden_BNE.shape[1:], **options).to(hidden_BNE.dtype)
            # Counted from the first real token, wherever padding is.
            positions_BN = (mask_BN.cumsum(1) - 1).clamp(min=0)
            hidden_BNE = (hidden_BNE + table_NE[positions_BN]) * mask_BN[..., None]
        return super().forward(hidden_BNE, mask_BN, output_attentions)

    def fuse(self, hidden_BNE, mask_BN, output_attentions=False):
        maps = (self.query_map, self.key_map, self.value_map)
        if self.variant == "relu":
            q_BHND, k_BHND, v_BHND = (dense(map_, hidden_BNE, "relu", self.implementation) for map_ in maps)
        else:
            q_BHND, k_BHND, v_BHND = (self.linear(map_, hidden_BNE) for map_ in maps)
        attended_BHND, weights_BHNN = self.attend(q_BHND, k_BHND, v_BHND, mask_BN, output_attentions)
        tokens_BNH = attended_BHND.transpose(1, 2).flatten(2)
        if self.output_layer is not None:
            tokens_BNH = self.linear(self.output_layer, tokens_BNH)
        tokens_BNH = tokens_BNH * mask_BN[..., None]
        return tokens_BNH, AttentionMaps((weights_BHNN,), ()) if output_attentions else None

    def attend(self, q_BHND, k_BHND, v_BHND, mask_BN, output_attentions):
        dropout = self.attention_dropout if self.training else 0.0
        # In rows of padding all positions are visible, so that the softmax is defined; the result is set to 0.
        visible_B11N = (mask_BN | ~mask_BN.any(1, keepdim=True))[:, None, None]
        if not output_attentions and self.implementation != "eager":
            return F.scaled_dot_product_attention(
                q_BHND, k_BHND, v_BHND, attn_mask=visible_B11N, dropout_p=dropout
            ), None
        scores_BHNN = q_BHND @ k_BHND.transpose(-1, -2) / math.sqrt(q_BHND.shape[-1])
        weights_BHNN = F.dropout(scores_BHNN.masked_fill(~visible_B11N, -math.inf).softmax(-1), dropout)
        return weights_BHNN @ v_BHND, weights_BHNN


class MultiHeadPreTrainedModel(SentenceEncoderPreTrainedModel):
    config: MultiHeadConfig
    _no_split_modules = ["MultiHeadLayer"]

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        heads = (head for maps in self.modules() if isinstance(maps, HeadLinear) for head in maps)
        if self.config.formulation == "released" and any(module is head for head in heads):
            # Glorot uniform with the fans that TensorFlow computes for the authors' variables: one of shape
            # (3, heads, E, D) for all maps of "sinusoidal", one of shape (E, heads D) per map of "relu".
            num_heads, (size, in_features) = self.config.num_heads, module.weight.shape
            fans = in_features + num_heads * size
            if self.config.variant == "sinusoidal":
                fans = 3 * num_heads * (in_features + size)
            init.uniform_(module.weight, -((6 / fans) ** 0.5), (6 / fans) ** 0.5)


class MultiHeadModel(MultiHeadPreTrainedModel, SentenceEncoderModel):
    """Multi-head attention as an encoder: ``attentions`` holds (B, H, N, N) for each layer; there are no ``gates``."""

    layer_class = MultiHeadLayer

    @classmethod
    def make_context(cls, config: MultiHeadConfig) -> ContextFusion:
        context = super().make_context(config)
        for layer in context.layers[1:]:
            layer.adds_positions = False
        return context


class MultiHeadForSequenceClassification(SequenceClassificationMixin, MultiHeadPreTrainedModel):
    encoder_class = MultiHeadModel
