"""Layers of context fusion stacked, with residual connections around each."""

from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from .configuration_base import SentenceEncoderConfig
from .encoder import ContextFusion
from .layers import AttentionMaps, Layer


class StackableLayer(GradientCheckpointingLayer, Layer):
    """A layer of context fusion, single or in a stack, (B, N, in_features) -> (B, N, hidden_size).

    Subclasses implement :meth:`fuse` for ``in_features``; a single layer is only that. With
    ``config.num_hidden_layers > 1`` a layer follows the authors' ``stacking_mtsa``, for every kind of fusion:

        x = LN(x + act(W x + b));    x = LN(x + fuse(x))

    Dropout applies to W's input, as in every dense layer, and to what is added to x.
    """

    def __init__(self, config: SentenceEncoderConfig):
        super().__init__(activation=config.activation, dropout=config.dropout)
        size = config.hidden_size
        self.stacked = config.num_hidden_layers > 1
        self.in_features = size if self.stacked else config.embedding_size
        if self.stacked:
            self.feed_forward = nn.Linear(size, size)
            self.feed_forward_norm = nn.LayerNorm(size, eps=1e-6)
            self.fusion_norm = nn.LayerNorm(size, eps=1e-6)

    def fuse(self, hidden_BNE: Tensor, *options) -> tuple[Tensor, AttentionMaps | None]:
        """Fuse context into tokens; arguments and results as in a layer of ``ContextFusion``."""
        raise NotImplementedError(f"{type(self).__name__} must implement fuse(hidden_BNE, mask_BN, output_attentions)")

    def forward(self, hidden_BNE: Tensor, *options) -> tuple[Tensor, AttentionMaps | None]:
        if not self.stacked:
            return self.fuse(hidden_BNE, *options)
        hidden_BNH = self.feed_forward_norm(hidden_BNE + self.drop(self.dense(self.feed_forward, hidden_BNE)))
        fused_BNH, maps = self.fuse(hidden_BNH, *options)
        return self.fusion_norm(hidden_BNH + self.drop(fused_BNH)), maps


def stack_layers(layer_class: type[StackableLayer], config: SentenceEncoderConfig) -> ContextFusion:
    """A stack of ``config.num_hidden_layers`` layers.

    Residual connections add word vectors to tokens: if their widths differ, the stack starts with a linear layer
    from word vectors to ``hidden_size``. (The authors' stack expects word vectors of that width.)
    """
    input_layer = None
    if config.num_hidden_layers > 1 and config.embedding_size != config.hidden_size:
        input_layer = nn.Linear(config.embedding_size, config.hidden_size)
    layers = [layer_class(config) for _ in range(config.num_hidden_layers)]
    return ContextFusion(layers, input_layer, dropout=config.dropout)
