"""Atomic writes and writability checks."""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from .errors import InputError


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


def sha256(path: str | Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file atomically, creating its folder if needed."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, content: str) -> None:
    """Write a text file atomically."""
    write_bytes(path, content.encode("utf-8"))


def write_json(path: str | Path, content: Any) -> None:
    """Write `content` as indented JSON atomically."""
    write_text(path, json.dumps(plain(content), indent=2, ensure_ascii=False) + "\n")


def check_not_read(name: str, path: str | Path, read: Iterable[str | Path | None]) -> None:
    """Raise InputError if an output is one of the files that are read; `name` is as in :func:`check_writable`."""
    if any(os.path.realpath(path) == os.path.realpath(file) for file in read if file):
        raise InputError(f"{name} {path} is read, too, and would be lost; give another path")


def check_writable(name: str, path: str | Path, *, folder: bool) -> None:
    """Check, without creating it, that a file (or a ``folder``) can be created or replaced; raises InputError if not.

    ``name`` is its name in the message, such as ``"--output_dir"``.
    """
    path = Path(os.path.abspath(path))
    asked = "folder" if folder else "file"
    found = "folder" if path.is_dir() else "file" if path.is_file() else "device"
    if os.path.exists(path) and found != asked:
        raise InputError(f"{name} {path} is a {found}; give a {asked}.")
    place = existing(path if folder else path.parent)
    if not place.is_dir():
        raise InputError(f"{name} {path}: {place} is a file; give another path.")
    if not os.access(place, os.W_OK | os.X_OK):
        raise InputError(f"{name} {path}: no permission to write in {place}; give another path.")
    try:  # root always passes the check above, as does every user on file systems such as /proc
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise InputError(
            f"{name} {path}: no file can be created in {place} ({error.strerror}); give another path."
        ) from error


def existing(path: Path) -> Path:
    """The path, or the closest of its parents that exists."""
    while not os.path.exists(path):
        path = path.parent
    return path
