"""Convolutional baselines of Bi-BloSAN: parallel windows (Kim 2014), or a stack of gated convolutions."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer

from .alignment import check_graph, with_left_aligned_tokens
from .attention import ACTIVATIONS, dropout
from .configuration_textcnn import TextCNNConfig
from .encoder import ContextFusion, SentenceEncoderModel, SentenceEncoderPreTrainedModel
from .heads import SequenceClassificationMixin
from .layers import AttentionMaps


class WindowConvolution(nn.Conv1d):
    """W [x_a; ...; x_b] + b over a window around each token, (B, N, in) -> (B, N, out).

    The sentence is padded with zero vectors. An even window extends one token further to the right than to the left.
    With ``from_token`` a window starts at its token.
    """

    def __init__(self, in_features, out_features, window, *, from_token=False):
        super().__init__(in_features, out_features, window)
        before = 0 if from_token else (window - 1) // 2
        self.margins = (before, window - 1 - before)

    def forward(self, tokens_BNE: Tensor) -> Tensor:
        return super().forward(F.pad(tokens_BNE.transpose(1, 2), self.margins)).transpose(1, 2)


class MultiWindowLayer(GradientCheckpointingLayer):
    """act([conv_3 x; conv_4 x; conv_5 x]), parallel windows of several lengths (Kim 2014)."""

    def __init__(self, config: TextCNNConfig):
        super().__init__()
        size = config.hidden_size // len(config.filter_sizes)
        self.config = config
        self.activation, self.dropout = config.activation, config.fusion_dropout
        self.convolutions = nn.ModuleDict(
            {
                str(window): WindowConvolution(config.input_size, size, window, from_token=config.pooling == "max")
                for window in config.filter_sizes
            }
        )

    def forward(self, hidden_BNE, mask_BN, output_attentions=False):
        check_graph(self.config, "mask_padding")
        return with_left_aligned_tokens(self.convolve, hidden_BNE, mask_BN)

    def convolve(self, hidden_BNE, mask_BN):
        hidden_BNE = hidden_BNE.masked_fill(~mask_BN[..., None], 0.0)
        hidden_BNE = dropout(hidden_BNE, self.dropout, self.training)
        tokens_BNH = torch.cat([convolution(hidden_BNE) for convolution in self.convolutions.values()], dim=-1)
        return ACTIVATIONS[self.activation](tokens_BNH), None


class GatedConvolutionLayer(GradientCheckpointingLayer):
    """a * sigmoid(b) + x with [a; b] = conv x (Gehring et al. 2017), (B, N, in) -> (B, N, H); without x if ``first``.

    The authors' code first applies the activation to a and b, ``formulation="paper"`` does not.
    """

    def __init__(self, config: TextCNNConfig, *, first: bool):
        super().__init__()
        (window,) = config.filter_sizes
        in_features = config.input_size if first else config.hidden_size
        self.config, self.first, self.dropout = config, first, config.fusion_dropout
        self.mask_padding = first or config.mask_padding
        self.activation = config.activation if config.formulation == "released" else "linear"
        self.convolution = WindowConvolution(in_features, 2 * config.hidden_size, window)

    def forward(self, hidden_BNE, mask_BN, output_attentions=False):
        if not self.mask_padding:
            check_graph(self.config, "mask_padding")
        return with_left_aligned_tokens(self.convolve, hidden_BNE, mask_BN, output_attentions)

    def convolve(self, hidden_BNE, mask_BN, output_attentions):
        if self.mask_padding:
            hidden_BNE = hidden_BNE.masked_fill(~mask_BN[..., None], 0.0)
        both_BN2H = self.convolution(dropout(hidden_BNE, self.dropout, self.training))
        values_BNH, gate_BNH = ACTIVATIONS[self.activation](both_BN2H).chunk(2, dim=-1)
        gate_BNH = gate_BNH.sigmoid()
        tokens_BNH = values_BNH * gate_BNH
        if not self.first:
            tokens_BNH = tokens_BNH + hidden_BNE
        return tokens_BNH, AttentionMaps((), (gate_BNH,)) if output_attentions else None


class MaxOverTime(nn.Module):
    """The largest value of each feature over the windows inside the sentence (Kim 2014), (B, N, D) -> (B, D).

    A token represents the window that starts at it; the features are divided evenly among ``windows``. In a sentence
    shorter than a window the first token represents the whole sentence. A row of padding yields 0.
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
        weights_BND = is_largest_BND / is_largest_BND.sum(1, keepdim=True).clamp(min=1)  # ties share the weight
        return pooled_BD, weights_BND.to(tokens_BND.dtype)


class TextCNNPreTrainedModel(SentenceEncoderPreTrainedModel):
    config: TextCNNConfig
    _no_split_modules = ["MultiWindowLayer", "GatedConvolutionLayer"]

    @torch.no_grad()
    def _init_weights(self, module):
        if not isinstance(module, nn.Conv1d):
            return super()._init_weights(module)
        # Glorot uniform with the fans that TensorFlow computes for the authors' kernels (window, in, 1, out): an image
        # of tokens by features with one channel and a receptive field of window * in. The authors give no initialiser
        # for biases, so these get TensorFlow's default, also Glorot uniform, with as many inputs as outputs.
        out_features, in_features, window = module.weight.shape
        kernel_bound = (6 / (window * in_features * (1 + out_features))) ** 0.5
        bias_bound = (6 / (out_features + out_features)) ** 0.5
        init.uniform_(module.weight, -kernel_bound, kernel_bound)
        init.uniform_(module.bias, -bias_bound, bias_bound)


class TextCNNModel(TextCNNPreTrainedModel, SentenceEncoderModel):
    """The convolutional baselines as encoders.

    There are no ``attentions``; ``gates`` holds a tensor (B, N, hidden_size) per layer of the hierarchical baseline.
    With ``pooling="max"`` a token of ``last_hidden_state`` is the window that starts there, and ``pooler_attentions``
    shows which windows had the largest values.
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
