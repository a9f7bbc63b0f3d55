"""Layers of context fusion one upon another, with residuals around each."""

from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_layers import GradientCheckpointingLayer

from .configuration_base import SentenceEncoderConfig
from .encoder import ContextFusion
from .layers import AttentionMaps, Dense


class StackableLayer(GradientCheckpointingLayer):
    """A layer of context fusion that stands alone or in a stack, (B, N, in_features) -> (B, N, hidden_size).

    Subclasses implement :meth:`fuse` for ``in_features``. Alone the layer is just that. With
    ``config.num_hidden_layers > 1`` it is the authors' ``stacking_mtsa``, whatever fuses:

        x = LN(x + act(W x + b));    x = LN(x + fuse(x))

    ``config.dropout`` drops elements of W's input, as of every dense layer's, and of what is added to x.
    """

    def __init__(self, config: SentenceEncoderConfig):
        super().__init__()
        size = config.hidden_size
        self.stacked, self.dropout = config.num_hidden_layers > 1, config.dropout
        self.in_features = size if self.stacked else config.embedding_size
        if self.stacked:
            self.feed_forward = Dense(size, size, activation=config.activation, dropout=config.dropout)
            self.feed_forward_norm = nn.LayerNorm(size, eps=1e-6)
            self.fusion_norm = nn.LayerNorm(size, eps=1e-6)

    def fuse(self, hidden_BNE: Tensor, *options) -> tuple[Tensor, AttentionMaps | None]:
        """Fuse context into tokens; arguments and results are those of a layer of ``ContextFusion``."""
        raise TypeError(f"{type(self).__name__} implements no fuse(hidden_BNE, mask_BN, output_attentions)")

    def forward(self, hidden_BNE: Tensor, *options) -> tuple[Tensor, AttentionMaps | None]:
        if not self.stacked:
            return self.fuse(hidden_BNE, *options)
        hidden_BNH = self.feed_forward_norm(hidden_BNE + self.drop(self.feed_forward(hidden_BNE)))
        fused_BNH, maps = self.fuse(hidden_BNH, *options)
        return self.fusion_norm(hidden_BNH + self.drop(fused_BNH)), maps

    def drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)


def stack_layers(layer_class: type[StackableLayer], config: SentenceEncoderConfig) -> ContextFusion:
    """``config.num_hidden_layers`` layers.

    Residuals add word vectors to tokens: where their widths differ, the stack starts with a linear layer that brings
    word vectors to ``hidden_size``. (The authors' stack takes word vectors of that width.)
    """
    input_layer = None
    if config.num_hidden_layers > 1 and config.embedding_size != config.hidden_size:
        input_layer = Dense(config.embedding_size, config.hidden_size, dropout=config.dropout)
    return ContextFusion([layer_class(config) for _ in range(config.num_hidden_layers)], input_layer)
