"""Configuration of Bi-BloSAN."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .configuration_base import SentenceEncoderConfig


@strict
class BiBloSANConfig(SentenceEncoderConfig):
    """Bi-directional block self-attention network (Shen et al. 2018, arXiv 1804.00857).

    Fields beside the common ones:

    Args:
        block_length: tokens in a block; :func:`optimal_block_length` finds it from the lengths of the data.
            ``"auto"`` leaves that to the training command, which stores the number; no model is built from it.
        mask_padding_blocks: hide blocks that hold padding only from the attention between blocks, so that a sentence's
            vector does not depend on what it is batched with. ``False`` is the authors' code.
        fuse_local: give a token what it saw inside its block (h of Eq. 16-18). ``False`` is the ablation "without
            local": block vectors are made of the results inside blocks still, tokens get theirs back alone.
        fuse_global: give a token what its block saw of other blocks (E of Eq. 16-18). ``False`` is the ablation
            "without global": no block vectors and no attention between blocks.
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
