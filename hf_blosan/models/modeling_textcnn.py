"""Convolutional baselines of Bi-BloSAN: windows side by side (Kim 2014), or gated layers one upon another."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer

from .configuration_textcnn import TextCNNConfig
from .encoder import ContextFusion, SentenceEncoderModel, SentenceEncoderPreTrainedModel, fuse_tokens_first
from .heads import PairRegressionMixin, SequenceClassificationMixin
from .layers import AttentionMaps, activate


class WindowConvolution(nn.Conv1d):
    """W [x_a; ...; x_b] + b over a window around each token, (B, N, in) -> (B, N, out).

    The sentence stands between zero vectors. An even window reaches one token further behind than before. With
    ``from_token`` a window starts at its token instead.
    """

    def __init__(self, in_features, out_features, window, *, from_token=False):
        super().__init__(in_features, out_features, window)
        before = 0 if from_token else (window - 1) // 2
        self.margins = (before, window - 1 - before)

    def forward(self, tokens_BNE: Tensor) -> Tensor:
        return super().forward(F.pad(tokens_BNE.transpose(1, 2), self.margins)).transpose(1, 2)


class MultiWindowLayer(GradientCheckpointingLayer):
    """act([conv_3 x; conv_4 x; conv_5 x]), windows of several lengths side by side (Kim 2014)."""

    def __init__(self, config: TextCNNConfig):
        super().__init__()
        size = config.hidden_size // len(config.filter_sizes)
        self.activation, self.dropout = config.activation, config.dropout
        self.convolutions = nn.ModuleDict(
            {
                str(window): WindowConvolution(config.embedding_size, size, window, from_token=config.pooling == "max")
                for window in config.filter_sizes
            }
        )

    def forward(self, hidden_BNE, mask_BN, output_attentions=False):
        return fuse_tokens_first(self.convolve, hidden_BNE, mask_BN)

    def convolve(self, hidden_BNE, mask_BN):
        hidden_BNE = hidden_BNE.masked_fill(~mask_BN[..., None], 0.0)
        hidden_BNE = F.dropout(hidden_BNE, self.dropout, self.training)
        tokens_BNH = torch.cat([convolution(hidden_BNE) for convolution in self.convolutions.values()], dim=-1)
        return activate(tokens_BNH, self.activation), None


class GatedConvolutionLayer(GradientCheckpointingLayer):
    """a * sigmoid(b) + x with [a; b] = conv x (Gehring et al. 2017), (B, N, in) -> (B, N, H); without x if ``first``.

    The authors' code applies the activation to a and b before, ``formulation="paper"`` does not.
    """

    def __init__(self, config: TextCNNConfig, *, first: bool):
        super().__init__()
        (window,) = config.filter_sizes
        in_features = config.embedding_size if first else config.hidden_size
        self.first, self.dropout = first, config.dropout
        self.mask_padding = first or config.mask_padding
        self.activation = config.activation if config.formulation == "released" else "linear"
        self.convolution = WindowConvolution(in_features, 2 * config.hidden_size, window)

    def forward(self, hidden_BNE, mask_BN, output_attentions=False):
        return fuse_tokens_first(self.convolve, hidden_BNE, mask_BN, output_attentions)

    def convolve(self, hidden_BNE, mask_BN, output_attentions):
        if self.mask_padding:
            hidden_BNE = hidden_BNE.masked_fill(~mask_BN[..., None], 0.0)
        both_BN2H = self.convolution(F.dropout(hidden_BNE, self.dropout, self.training))
        values_BNH, gate_BNH = activate(both_BN2H, self.activation).chunk(2, dim=-1)
        gate_BNH = gate_BNH.sigmoid()
        tokens_BNH = values_BNH * gate_BNH
        if not self.first:
            tokens_BNH = tokens_BNH + hidden_BNE
        return tokens_BNH, AttentionMaps((), (gate_BNH,)) if output_attentions else None


class MaxOverTime(nn.Module):
    """The largest value of each feature over the windows inside the sentence (Kim 2014), (B, N, D) -> (B, D).

    A token stands for the window that starts at it; the features are dealt out evenly to ``windows``. The first token
    of a sentence shorter than a window stands for the whole of it. A row of padding only gives 0.
    """

    def __init__(self, windows: list[int], *, mask_padding=True):
        super().__init__()
        self.windows, self.mask_padding = windows, mask_padding

    def forward(self, tokens_BND: Tensor, mask_BN: Tensor, output_attentions=False) -> tuple[Tensor, Tensor | None]:
        if not self.mask_padding:
            mask_BN = torch.ones_like(mask_BN)
        left_BN = mask_BN.flip(1).cumsum(1).flip(1)  # tokens from here to the sentence's end
        length_B1 = left_BN[:, :1]
        fits_BNW = torch.stack([mask_BN & (left_BN >= length_B1.clamp(max=w)) for w in self.windows], dim=-1)
        fits_BND = fits_BNW.repeat_interleave(tokens_BND.shape[-1] // len(self.windows), dim=-1)
        largest_BD = tokens_BND.masked_fill(~fits_BND, -torch.inf).amax(1)
        pooled_BD = largest_BD.masked_fill(length_B1 == 0, 0.0)
        if not output_attentions:
            return pooled_BD, None
        is_largest_BND = fits_BND & (tokens_BND == largest_BD[:, None])
        weights_BND = is_largest_BND / is_largest_BND.sum(1, keepdim=True).clamp(min=1)  # equal ones share the weight
        return pooled_BD, weights_BND.to(tokens_BND.dtype)


class TextCNNPreTrainedModel(SentenceEncoderPreTrainedModel):
    config: TextCNNConfig
    config_class = TextCNNConfig
    model_tags = ["textcnn"]
    _no_split_modules = ["MultiWindowLayer", "GatedConvolutionLayer"]

    @torch.no_grad()
    def _init_weights(self, module):
        if not isinstance(module, nn.Conv1d):
            return super()._init_weights(module)
        # Glorot uniform as TensorFlow counts for the authors, whose kernels are (window, in, 1, out): an image of
        # tokens by features with one channel, seen through window * in points. Their biases have no initialiser of
        # their own and get TensorFlow's default, Glorot uniform too, with as many inputs as outputs.
        out_features, in_features, window = module.weight.shape
        kernel_bound = (6 / (window * in_features * (1 + out_features))) ** 0.5
        bias_bound = (6 / (out_features + out_features)) ** 0.5
        init.uniform_(module.weight, -kernel_bound, kernel_bound)
        init.uniform_(module.bias, -bias_bound, bias_bound)


class TextCNNModel(TextCNNPreTrainedModel, SentenceEncoderModel):
    """The convolutional baselines as encoders.

    There are no ``attentions``; ``gates`` holds one tensor (B, N, hidden_size) a layer of the hierarchical one. With
    ``pooling="max"`` a token of ``last_hidden_state`` is the window that starts there, and ``pooler_attentions``
    tells which windows were the largest.
    """

    @staticmethod
    def make_context(config: TextCNNConfig) -> ContextFusion:
        if config.architecture == "multi":
            return ContextFusion([MultiWindowLayer(config)])
        return ContextFusion([GatedConvolutionLayer(config, first=i == 0) for i in range(config.num_hidden_layers)])

    @staticmethod
    def make_pooler(config: TextCNNConfig) -> nn.Module:
        if config.pooling == "max":
            return MaxOverTime(config.filter_sizes, mask_padding=config.mask_padding)
        return SentenceEncoderModel.make_pooler(config)


class TextCNNForSequenceClassification(SequenceClassificationMixin, TextCNNPreTrainedModel):
    encoder_class = TextCNNModel


class TextCNNForPairRegression(PairRegressionMixin, TextCNNPreTrainedModel):
    encoder_class = TextCNNModel


__all__ = ["TextCNNForPairRegression", "TextCNNForSequenceClassification", "TextCNNModel", "TextCNNPreTrainedModel"]
