"""Configuration of the baseline of plain word vectors."""

from dataclasses import field

from huggingface_hub.dataclasses import strict

from .configuration_base import Direction, SentenceEncoderConfig


@strict
class WordBagConfig(SentenceEncoderConfig):
    """Word vectors without context, straight to the pooler.

    It is what is left of the papers' encoders in their ablations: with ``pooling="source2token"`` Bi-BloSAN without
    mBloSA, with ``"additive"`` without source2token either, and with ``dense_map=True, hidden_size=600`` MTSA without
    its proposed modules.

    Fields beside the common ones, or other than there:

    Args:
        dense_map: map word vectors to ``hidden_size`` features by act(W x + b); without it they stay as they are.
        hidden_size: ``embedding_size``, unless ``dense_map``.
        directions: none; words are seen without order.
    """

    model_type = "wordbag"

    dense_map: bool = False
    hidden_size: int = 300
    directions: list[Direction] = field(default_factory=list)

    def validate_directions(self):
        if self.directions:
            raise ValueError(
                f"directions={self.directions}: words without context have no order masks; leave the list empty"
            )

    def validate_dense_map(self):
        if not self.dense_map and self.hidden_size != self.embedding_size:
            raise ValueError(
                f"hidden_size={self.hidden_size} with word vectors of embedding_size={self.embedding_size} and "
                "dense_map=False, which keeps their width; set both to the same or dense_map=True"
            )


__all__ = ["WordBagConfig"]
