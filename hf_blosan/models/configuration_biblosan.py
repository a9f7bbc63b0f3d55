"""Configuration of Bi-BloSAN."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .configuration_base import SentenceEncoderConfig


@strict
class BiBloSANConfig(SentenceEncoderConfig):
    """Bi-directional block self-attention network (Shen et al. 2018, arXiv 1804.00857).

    Fields in addition to the common ones:

    Args:
        block_length: tokens per block; ``optimal_block_length`` computes it from the lengths of the data. With
            ``"auto"`` the training command does so and stores the number; no model can be built from it.
        mask_padding_blocks: hide blocks that contain only padding from the attention between blocks, so that a
            sentence's vector does not depend on the rest of its batch. ``False`` is the authors' code.
        fuse_local: include the attention inside blocks in a token's fusion (h of Eq. 16-18). ``False`` is the ablation
            "without local": attention inside blocks is used only to compute block vectors.
        fuse_global: include the attention between blocks in a token's fusion (E of Eq. 16-18). ``False`` is the
            ablation "without global": no block vectors and no attention between blocks.
    """

    model_type = "biblosan"
    stackable = True

    block_length: int | Literal["auto"] = 5
    mask_padding_blocks: bool = True
    fuse_local: bool = True
    fuse_global: bool = True

    def validate_block_length(self):
        if self.block_length != "auto" and self.block_length < 1:
            raise ValueError(f"block_length={self.block_length}: a block holds at least 1 token")

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


__all__ = ["BiBloSANConfig"]
