"""Directional attention (DiSAN Eq. 15-18): see the README in the parent folder."""

from .operator import directional_attention as directional_attention
from .operator import takes_parts as takes_parts
