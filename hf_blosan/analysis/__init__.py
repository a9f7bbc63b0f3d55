"""Explaining a model: ``explain(model, tokenizer, text)`` gives its attention as arrays and figures.

``hf-blosan explain`` prints and saves them, ``hf-blosan demo`` shows them in a web page. Everything is
imported on first use; figures need matplotlib (extra ``analysis``), the page needs Gradio (extra ``demo``).
"""

from ..lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
