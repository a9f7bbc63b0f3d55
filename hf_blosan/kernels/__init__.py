"""Fast forms of the papers' operators; README.md in this folder has the derivations.

They depend on torch and know nothing of models or configurations. ``INTERFACE`` is raised whenever a signature here
changes in a way that callers notice: the models' ``attention.py``, a copy of which may come with a checkpoint, checks
it.
"""

from .directional import directional_attention, takes_parts
from .dropout import dropout
from .library import instruction_set
from .pointwise import available as can_use_kernel
from .pointwise import (
    block_fusion,
    elu,
    fusion_gate,
    fusion_gate_of_scores,
    heads_fusion_gate,
    heads_linear,
    linear,
)
from .recurrence import linear_recurrence
from .source2token import source2token_attention
from .tensorized import short_for_tensorized_attention, tensorized_attention

INTERFACE = 6

__all__ = [
    "INTERFACE",
    "block_fusion",
    "can_use_kernel",
    "directional_attention",
    "dropout",
    "elu",
    "fusion_gate",
    "fusion_gate_of_scores",
    "heads_fusion_gate",
    "heads_linear",
    "instruction_set",
    "linear",
    "linear_recurrence",
    "short_for_tensorized_attention",
    "source2token_attention",
    "takes_parts",
    "tensorized_attention",
]
