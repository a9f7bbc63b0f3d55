"""MTSA's attention in O(N D) memory: matrix products over tiles; on the CPU the loops between them are C++."""

from .operator import short_for_tensorized_attention, tensorized_attention

__all__ = ["short_for_tensorized_attention", "tensorized_attention"]
