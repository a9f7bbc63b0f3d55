"""DiSAN: directional self-attention network (Shen et al. 2017, arXiv 1709.04696)."""

from torch import nn

from .attention import disa
from .configuration_disan import DiSANConfig
from .encoder import SentenceEncoderModel, SentenceEncoderPreTrainedModel, StackableLayer, fuse_directions
from .heads import SequenceClassificationMixin
from .layers import DirectionalSelfAttention


class DiSANLayer(StackableLayer):
    """[DiSA forward; DiSA backward] (DiSAN Fig. 3): a token attends to the words before it, and to those after it."""

    takes_token_mask = is_exact = True

    def __init__(self, config: DiSANConfig):
        super().__init__(config)
        self.can_be_packed = not config.windows  # which count padding between tokens, too
        size = config.hidden_size // len(config.directions)
        windows = config.windows or [None] * len(config.directions)
        self.directions = nn.ModuleList(
            DirectionalSelfAttention(
                self.in_features,
                size,
                direction=direction,
                window=window,
                activation=config.activation,
                formulation=config.formulation,
                dropout=config.fusion_dropout,
            )
            for direction, window in zip(config.directions, windows, strict=True)
        )

    def forward(self, hidden_BNE, mask_BN, output_attentions=False, token_mask=None):
        steps = output_attentions or token_mask is not None
        whole = None if steps else disa(self.directions, hidden_BNE, mask_BN, self)
        return super().forward(hidden_BNE, mask_BN, output_attentions, token_mask) if whole is None else (whole, None)

    def fuse(self, hidden_BNE, mask_BN, output_attentions=False, token_mask=None):
        return fuse_directions(self.directions, hidden_BNE, mask_BN, output_attentions, token_mask)


class DiSANPreTrainedModel(SentenceEncoderPreTrainedModel):
    config: DiSANConfig
    _no_split_modules = ["DiSANLayer"]


class DiSANModel(DiSANPreTrainedModel, SentenceEncoderModel):
    """DiSAN as an encoder: ``attentions`` holds a tensor (B, 2, N, N, D) per layer, ``gates`` (B, 2, N, D)."""

    layer_class = DiSANLayer
    takes_words = True


class DiSANForSequenceClassification(SequenceClassificationMixin, DiSANPreTrainedModel):
    encoder_class = DiSANModel
