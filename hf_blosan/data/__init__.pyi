# __init__.py imports these on first use.
from .batching import LengthBucketBatchSampler as LengthBucketBatchSampler
from .batching import PaddingCollator as PaddingCollator
from .batching import encode_dataset as encode_dataset
from .batching import length_statistics as length_statistics
from .batching import sentence_lengths as sentence_lengths
from .demo_corpus import make_demo_corpus as make_demo_corpus
