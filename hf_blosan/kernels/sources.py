"""A mark of the C++ sources that a library is compiled from; setup.py writes it, library.py looks for it."""

from __future__ import annotations

import hashlib
from pathlib import Path


def mark(sources: Path) -> bytes:
    """What a library compiled from these sources contains: a SHA-256 of their names and contents."""
    digest = hashlib.sha256()
    for path in sorted(sources.iterdir()):
        if path.suffix in (".cpp", ".h", ".inc"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return f"hf_blosan sources {digest.hexdigest()}".encode()
