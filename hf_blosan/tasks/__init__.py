"""Tasks: their table, their rows, and what is particular to each kind of them.

Everything is imported on first use; what loads and encodes rows needs the extra `train`.
"""

from ..lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
