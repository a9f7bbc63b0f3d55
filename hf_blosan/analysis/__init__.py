"""What a model looks at: ``explain(model, tokenizer, text)`` gives its attention as arrays and figures.

``hf-blosan explain`` prints and saves them, ``hf-blosan demo`` shows them in a web page. Everything is
imported on first use; figures need matplotlib (extra ``analysis``), the page needs Gradio (extra ``demo``).
"""

from importlib import import_module

_LAZY = {
    "Explanation": "explanation",
    "Map": "maps",
    "Sentence": "explanation",
    "compare_word": "figures",
    "explain": "explanation",
    "make_page": "page",
}

__all__ = ["Explanation", "Map", "Sentence", "compare_word", "explain", "make_page"]


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_LAZY[name]}", __name__), name)
