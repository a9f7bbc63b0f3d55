"""Fast forms of the papers' operators; README.md in this folder has the derivations.

They depend on torch and know nothing of models or configurations. ``INTERFACE`` is raised whenever a signature here
changes in a way that callers notice: the models' ``attention.py``, a copy of which may come with a checkpoint, checks
it.
"""

from .directional.disa import Direction as Direction
from .directional.disa import Residual as Residual
from .directional.disa import disa as disa
from .directional.graph import directional_attention_graph as directional_attention_graph
from .directional.graph import operators_of_graphs as operators_of_graphs
from .directional.mblosa import Blocks as Blocks
from .directional.mblosa import mblosa as mblosa
from .directional.operator import directional_attention as directional_attention
from .directional.operator import takes_parts as takes_parts
from .dropout import dropout as dropout
from .int8 import int8_linear as int8_linear
from .library import instruction_set as instruction_set
from .pointwise import activated as activated
from .pointwise import available as can_use_kernel  # noqa: F401
from .pointwise import block_fusion as block_fusion
from .pointwise import fusion_gate as fusion_gate
from .pointwise import fusion_gate_of_scores as fusion_gate_of_scores
from .pointwise import heads_fusion_gate as heads_fusion_gate
from .pointwise import heads_linear as heads_linear
from .pointwise import linear as linear
from .recurrence import linear_recurrence as linear_recurrence
from .source2token import source2token_attention as source2token_attention
from .tensorized.graph import tensorized_attention_graph as tensorized_attention_graph
from .tensorized.operator import short_for_tensorized_attention as short_for_tensorized_attention
from .tensorized.operator import tensorized_attention as tensorized_attention

INTERFACE = 10
