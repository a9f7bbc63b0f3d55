"""Configuration of Bi-BloSAN."""

import math
from typing import Literal

from huggingface_hub.dataclasses import strict

from .configuration_base import SentenceEncoderConfig


@strict
class BiBloSANConfig(SentenceEncoderConfig):
    """Bi-directional block self-attention network (Shen et al. 2018, arXiv 1804.00857).

    Fields in addition to the common ones:

    Args:
        block_length: tokens per block; ``optimal_block_length`` computes it from the lengths of the data. With
            ``"auto"`` the training command does so, adds 1 in the released formulation as the authors' scripts do, and
            stores the number; no model can be built from ``"auto"``.
        mask_padding_blocks: hide blocks that contain only padding from the attention between blocks, so that a
            sentence's vector does not depend on the rest of its batch. ``False`` is the authors' code.
        fuse_local: include the attention inside blocks in a token's fusion (h of Eq. 16-18). ``False`` is the ablation
            "without local": attention inside blocks is used only to compute block vectors.
        fuse_global: include the attention between blocks in a token's fusion (E of Eq. 16-18). ``False`` is the
            ablation "without global": no block vectors and no attention between blocks.
        passage_block_length: sentences per block of a passage, in sentence selection.
    """

    model_type = "biblosan"
    stackable = True

    block_length: int | Literal["auto"] = 5
    mask_padding_blocks: bool = True
    fuse_local: bool = True
    fuse_global: bool = True
    passage_block_length: int = 4

    def for_passages(self):
        config = super().for_passages()
        config.block_length = self.passage_block_length
        return config

    def validate_block_length(self):
        for name in ("block_length", "passage_block_length"):
            if getattr(self, name) != "auto" and getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: a block holds at least 1 token or sentence")

    def validate_fusion(self):
        if not (self.fuse_local or self.fuse_global):
            raise ValueError(
                "fuse_local=False and fuse_global=False leave no context to fuse; set one of them, or use model type "
                "wordbag, the papers' baseline without attention between tokens"
            )
        if not (self.fuse_global or self.mask_padding_blocks):
            raise ValueError(
                "mask_padding_blocks=False with fuse_global=False, which has no attention between blocks; leave it "
                "True"
            )

    def validate_windows(self):
        if self.windows is not None:
            raise ValueError(
                f"windows={self.windows}: Bi-BloSAN attends inside blocks and between them; set block_length instead"
            )


def optimal_block_length(length: float, *, length_std: float = 0.0, batch_size: int = 1) -> int:
    """The block length that needs the least memory (Bi-BloSAN Appendix A): r = (2 n)^(1/3), rounded up.

    For sentences of varying length, n is the expected length of the longest sentence in a batch:
    n = length + length_std sqrt(2 ln batch_size).

    Args:
        length: number of tokens, or their mean over a data set.
        length_std: standard deviation of the number of tokens; 0 for a fixed length.
        batch_size: sentences per batch; matters only if lengths vary.

    Raises:
        ValueError: the length or its deviation is negative, or the batch size is below 1.
    """
    if length < 0 or length_std < 0 or batch_size < 1:
        raise ValueError(
            f"length={length}, length_std={length_std}, batch_size={batch_size}: "
            "lengths must not be negative and a batch holds at least one sentence"
        )
    longest = length + length_std * math.sqrt(2 * math.log(batch_size))
    # The small offset keeps exact cubes from being rounded up: (2 * 32) ** (1/3) is 3.9999999999999996 or 4.
    return max(1, math.ceil((2 * longest) ** (1 / 3) - 1e-9))
