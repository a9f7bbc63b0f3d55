"""Configuration of Bi-BloSAN."""

from huggingface_hub.dataclasses import strict

from .configuration_blosan import SentenceEncoderConfig


@strict
class BiBloSANConfig(SentenceEncoderConfig):
    """Bi-directional block self-attention network (Shen et al. 2018, arXiv 1804.00857).

    Fields beside the common ones:

    Args:
        block_length: tokens in a block; :func:`optimal_block_length` finds it from the lengths of the data.
        mask_padding_blocks: hide blocks that hold padding only from the attention between blocks, so that a sentence's
            vector does not depend on what it is batched with. ``False`` is the authors' code.
    """

    model_type = "biblosan"

    block_length: int = 5
    mask_padding_blocks: bool = True

    def validate_block_length(self):
        if self.block_length < 1:
            raise ValueError(f"block_length={self.block_length}: a block holds at least 1 token")


__all__ = ["BiBloSANConfig"]
