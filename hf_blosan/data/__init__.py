"""Data: loading tasks from files or the Hub, the generated demo corpus, batches of similar length."""

from .batching import LengthBucketBatchSampler, PaddingCollator, encode_dataset, length_statistics, sentence_lengths
from .custom import custom_task
from .demo_corpus import make_demo_corpus
from .loading import load_task

__all__ = [
    "LengthBucketBatchSampler",
    "PaddingCollator",
    "custom_task",
    "encode_dataset",
    "length_statistics",
    "load_task",
    "make_demo_corpus",
    "sentence_lengths",
]
