"""Data: tables read from files, the generated demo corpus, batches of similar length. Independent of tasks.

Everything is imported on first use; what loads whole data sets needs the extra `train`.
"""

from ..registry import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
