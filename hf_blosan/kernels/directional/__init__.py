"""Directional attention (DiSAN Eq. 15-18): see the README in the parent folder."""
