"""Configuration of the convolutional baselines."""

from dataclasses import field
from typing import Literal

from huggingface_hub.dataclasses import strict

from .configuration_base import SentenceEncoderConfig

# Default windows and number of layers of each architecture.
ARCHITECTURES = {"multi": ((3, 4, 5), 1), "hierarchical": ((5,), 3)}


@strict
class TextCNNConfig(SentenceEncoderConfig):
    """Convolutional baselines of Bi-BloSAN (Shen et al. 2018, arXiv 1804.00857, Table 1): Multi-CNN and Hrchy-CNN.

    Fields in addition to the common ones, or with more choices:

    Args:
        architecture: ``"multi"``: windows of several lengths in parallel (Kim 2014, arXiv 1408.5882);
            ``"hierarchical"``: a stack of convolutions with gated linear units and residuals (Gehring et al. 2017,
            arXiv 1705.03122), with ``hidden_size=300`` in the paper.
        filter_sizes: tokens per window; for ``"multi"`` ``[3, 4, 5]`` by default, each with an equal share of the
            features, for ``"hierarchical"`` the one window of all layers, ``[5]``.
        num_hidden_layers: 1 for ``"multi"``, any number for ``"hierarchical"``; 3 by default, as in the paper.
        pooling: also ``"max"`` for ``"multi"``: the largest value over the windows inside the sentence (Kim 2014),
            the paper's Multi-CNN. A sentence shorter than a window is padded with zero vectors.
        mask_padding: keep padding out of the sentence vector: the maximum is taken only over windows inside the
            sentence, and padding is set to 0 between layers. ``False`` is the authors' code, where a sentence's vector
            depends on how far its batch is padded.
        formulation: matters only for ``"hierarchical"`` (the activation before the gate).
        directions: none; convolutions have no order masks.
    """

    model_type = "textcnn"
    stackable = True
    undirected = "convolutions have no order masks"

    architecture: Literal["multi", "hierarchical"] = "multi"
    filter_sizes: list[int] | None = None
    num_hidden_layers: int | None = None
    pooling: Literal["source2token", "additive", "max", "none"] = "source2token"
    mask_padding: bool = True
    directions: list[str] = field(default_factory=list)

    def __post_init__(self, **kwargs):
        filter_sizes, num_layers = ARCHITECTURES[self.architecture]
        if self.filter_sizes is None:
            self.filter_sizes = list(filter_sizes)
        if self.num_hidden_layers is None:
            self.num_hidden_layers = num_layers
        super().__post_init__(**kwargs)

    def validate_layers(self):
        super().validate_layers()
        if self.feed_forward_size is not None:
            raise ValueError(
                f"feed_forward_size={self.feed_forward_size}: a textcnn has no feed-forward part; leave it out"
            )
        if self.architecture == "multi" and self.num_hidden_layers != 1:
            raise ValueError(
                f'num_hidden_layers={self.num_hidden_layers} with architecture="multi", whose windows are parallel '
                'in one layer; set it to 1 or choose architecture="hierarchical"'
            )

    def validate_filter_sizes(self):
        sizes = self.filter_sizes
        if not sizes or min(sizes) < 1 or len(set(sizes)) < len(sizes):
            raise ValueError(f"filter_sizes={sizes}: name one window or more, each once and of at least 1 token")
        if self.architecture == "hierarchical" and len(sizes) > 1:
            raise ValueError(
                f'filter_sizes={sizes} with architecture="hierarchical", whose layers share one window; name one'
            )
        if self.hidden_size % len(sizes):
            raise ValueError(
                f"hidden_size={self.hidden_size} does not divide among the {len(sizes)} windows of "
                f"filter_sizes={sizes}; choose a multiple of their number"
            )

    def validate_padding(self):
        if not self.mask_padding and self.architecture == "multi" and self.pooling != "max":
            raise ValueError(
                f'mask_padding=False with pooling="{self.pooling}": padding has no effect on it either way; leave '
                'mask_padding=True, or choose pooling="max"'
            )

    def validate_pooling(self):
        if self.pooling == "max" and self.architecture == "hierarchical":
            raise ValueError(
                'pooling="max" with architecture="hierarchical": the maximum is taken over the windows of '
                'architecture="multi"; choose "source2token" or "additive"'
            )
