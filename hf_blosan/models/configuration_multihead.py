"""Configuration of the multi-head attention baseline."""

from dataclasses import field
from typing import Literal

from huggingface_hub.dataclasses import strict

from .configuration_base import SentenceEncoderConfig


@strict
class MultiHeadConfig(SentenceEncoderConfig):
    """Multi-head self-attention (Vaswani et al. 2017, arXiv 1706.03762), a baseline of Bi-BloSAN (arXiv 1804.00857).

    Fields in addition to the common ones, or different from them:

    Args:
        num_heads: heads over ``hidden_size`` features; the paper's 8 have 75 each.
        output_layer: a linear map of the concatenated heads (W^O of Vaswani et al.), which the paper's baseline lacks.
        variant: ``"sinusoidal"`` is the paper's baseline: sinusoidal positions are added to the word vectors, queries,
            keys and values are linear maps without bias. ``"relu"`` is the other variant in the authors' code: no
            positions, relu(W x + b) for queries, keys and values.
        formulation: ``"released"`` or ``"paper"`` sinusoids: feature f of d (even f) is sin(n / 10000^(2f/d)) or, as
            usual, sin(n / 10000^(f/d)).
        dropout: also applies to attention weights; in the attention of ``"relu"`` only to them (as released).
        directions: none; only the positions carry word order.
    """

    model_type = "multihead"
    stackable = True
    undirected = "multi-head attention has no order masks here"
    attribute_map = {**SentenceEncoderConfig.attribute_map, "num_attention_heads": "num_heads"}

    num_heads: int = 8
    output_layer: bool = False
    variant: Literal["sinusoidal", "relu"] = "sinusoidal"
    directions: list[str] = field(default_factory=list)
