"""Data: tables read from files, the generated demo corpus, batches of similar length. Knows no task.

Everything is imported on first use; what loads whole data sets needs the extra `train`.
"""

from importlib import import_module

_LAZY = {
    "LengthBucketBatchSampler": "batching",
    "PaddingCollator": "batching",
    "encode_dataset": "batching",
    "length_statistics": "batching",
    "make_demo_corpus": "demo_corpus",
    "sentence_lengths": "batching",
}

__all__ = [
    "LengthBucketBatchSampler",
    "PaddingCollator",
    "encode_dataset",
    "length_statistics",
    "make_demo_corpus",
    "sentence_lengths",
]


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_LAZY[name]}", __name__), name)
