"""Source2token attention (DiSAN Eq. 12-14): see the README in the parent folder."""

from .operator import source2token_attention as source2token_attention
