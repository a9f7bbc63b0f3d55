"""The shapes that are measured, as (batch, length)."""

TARGETS = ((64, 16), (64, 32), (64, 64), (16, 128), (8, 384), (2, 4096))
"""The shapes of the speed targets."""

HALF_LENGTH = (8, 192)
"""Half the length of 8x384: from here to there, memory may about double."""

CUDA = ((64, 64), (64, 128), (64, 256), (64, 384), (2, 4096))
"""The shapes of the targets on a GPU."""

SWEEP = (*((16, length) for length in range(16, 385, 16)), (8, 512), (4, 1024), (2, 2048), (2, 4096))
"""The lengths of the papers' figures and longer ones, in smaller batches so that they fit into 24 GiB."""

SELECTIONS = {"targets": (*TARGETS, HALF_LENGTH), "cuda": CUDA, "sweep": SWEEP}
"""The names that `--shapes` accepts."""
