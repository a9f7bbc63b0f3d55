"""Files that are never half written. Knows nothing of training, so every module here may import it."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np


def plain(content: Any) -> Any:
    """Convert `content` to JSON types; NaN and infinity, which JSON lacks, become null."""
    if isinstance(content, dict):
        return {str(key): plain(value) for key, value in content.items()}
    if isinstance(content, (list, tuple, set, frozenset)):
        return [plain(value) for value in content]
    if isinstance(content, np.generic):
        content = content.item()
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content if isinstance(content, (str, int, float, bool, type(None))) else str(content)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file, atomically; its folder is made if there is none."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def write_text(path: str | Path, content: str) -> None:
    """Write a text file, atomically."""
    write_bytes(path, content.encode("utf-8"))


def write_json(path: str | Path, content: Any) -> None:
    """Write `content` as indented JSON, atomically."""
    write_text(path, json.dumps(plain(content), indent=2, ensure_ascii=False) + "\n")
