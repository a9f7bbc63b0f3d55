"""MTSA's attention in O(N D) memory: see the README in the parent folder."""
