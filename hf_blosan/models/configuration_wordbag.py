"""Configuration of the baseline without context."""

from dataclasses import field

from huggingface_hub.dataclasses import strict

from .configuration_base import SentenceEncoderConfig


@strict
class WordBagConfig(SentenceEncoderConfig):
    """Word vectors without context, straight to the pooler.

    This is what the papers' ablations leave of the encoders: with ``pooling="source2token"`` Bi-BloSAN without
    mBloSA, with ``"additive"`` also without source2token, and with ``dense_map=True, hidden_size=600`` MTSA without
    its proposed modules.

    Fields in addition to the common ones, or different from them:

    Args:
        dense_map: map word vectors to ``hidden_size`` features by act(W x + b); otherwise they are used unchanged.
        hidden_size: the width of the word vectors, the default, unless ``dense_map``.
        directions: none; word order has no effect.
    """

    model_type = "wordbag"
    undirected = "words without context have no order masks"

    dense_map: bool = False
    hidden_size: int | None = None
    directions: list[str] = field(default_factory=list)

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        if self.hidden_size is None:
            self.hidden_size = self.input_size

    def for_passages(self):
        config = super().for_passages()
        config.dense_map = True
        return config

    def validate_dense_map(self):
        if not self.dense_map and self.hidden_size != self.input_size:
            raise ValueError(
                f"hidden_size={self.hidden_size} with dense_map=False, which keeps the width of the word vectors; set "
                f"hidden_size={self.input_size} or dense_map=True"
            )
