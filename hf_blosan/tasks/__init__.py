"""Tasks: their table, their rows, and everything specific to each kind of task.

Everything is imported on first use; what loads and encodes whole data sets needs the extra `train`.
"""

from ..registry import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
