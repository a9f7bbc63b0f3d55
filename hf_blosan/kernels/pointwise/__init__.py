"""Dense layers, gates and fusions, each with its matrix products in one operator."""

from .operator import (
    available,
    block_fusion,
    elu,
    fusion_gate,
    fusion_gate_of_scores,
    heads_fusion_gate,
    heads_linear,
    linear,
)

__all__ = [
    "available",
    "block_fusion",
    "elu",
    "fusion_gate",
    "fusion_gate_of_scores",
    "heads_fusion_gate",
    "heads_linear",
    "linear",
]
