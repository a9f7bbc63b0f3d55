"""What the package and the compilation of its C++ must agree on: setup.py reads it too, so it imports no torch."""

from __future__ import annotations

import hashlib
from pathlib import Path

# The largest scale c of directional attention: sums of N values x reach exp(c) N |x|, which must stay within float32,
# below 3.4e38. With 60 they do for N |x| up to 3e12.
MAX_SCALE = 60
# Tokens of a chunk of directional attention, the unit in which keys are near or distant.
CHUNK = 16

DEFINITIONS = {"HF_BLOSAN_MAX_SCALE": MAX_SCALE, "HF_BLOSAN_CHUNK": CHUNK}


def mark(sources: Path) -> bytes:
    """What a library compiled from these sources contains: a SHA-256 of their names, contents and definitions."""
    digest = hashlib.sha256(repr(DEFINITIONS).encode())
    for path in sorted(sources.iterdir()):
        if path.suffix in (".cpp", ".h", ".inc"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return f"hf_blosan sources {digest.hexdigest()}".encode()
