"""The output folder of a run: writable, used by one run at a time, without leftovers; a full disk is named."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ..errors import InputError
from .arguments import RunArguments

LOCK = ".lock"
LEFTOVERS = (".saving-*", ".*.tmp")
FULL = (errno.ENOSPC, errno.EDQUOT)
FULL_MESSAGE = "No space left on device"
# What torch says of any failed write. It is for want of room if there is less than this.
WRITE_MESSAGES = ("PytorchStreamWriter failed writing", "iostream error", "unexpected pos")
LITTLE_ROOM = 16 * 2**20


@contextmanager
def output_folder(arguments: RunArguments) -> Iterator[None]:
    """Hold the output folder for one run, on the main process.

    Raises:
        InputError: a path of the options cannot be written, another run holds the folder, or its disk is full.
    """
    folder = Path(arguments.output_dir)
    written = {"output_dir": folder}
    check_writable("output_dir", folder, folder=True)
    if arguments.results_file:
        check_writable("results_file", arguments.results_file, folder=False)
        written["results_file"] = Path(arguments.results_file)
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / LOCK, timeout=0):
            for pattern in LEFTOVERS:
                for path in folder.glob(pattern):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            try:
                yield
            finally:
                (folder / LOCK).unlink(missing_ok=True)
                if made and not any(folder.iterdir()):
                    folder.rmdir()
    except Timeout:
        raise InputError(
            f"another run is writing to --output_dir {folder}; wait for its end, or give another folder."
        ) from None
    except Exception as error:
        free, option = min((shutil.disk_usage(_existing(path)).free, option) for option, path in written.items())
        if not is_full(error, free):
            raise
        raise InputError(
            f"the disk of --{option} {written[option]} is full ({free / 2**20:.1f} MiB free); make room and repeat "
            "the command."
        ) from error


def check_writable(option: str, path: str | Path, *, folder: bool) -> None:
    """Check that a file or folder can be made or replaced, without making it.

    Raises:
        InputError: it cannot.
    """
    path = Path(os.path.abspath(path))
    if os.path.exists(path) and path.is_dir() != folder:
        is_, asked = ("file", "folder") if folder else ("folder", "file")
        raise InputError(f"--{option} {path} is a {is_}; give a {asked}.")
    place = _existing(path if folder else path.parent)
    if not place.is_dir():
        raise InputError(f"--{option} {path}: {place} is a file; give another path.")
    if not os.access(place, os.W_OK | os.X_OK):
        raise InputError(f"--{option} {path}: no permission to write in {place}; give another path.")


def _existing(path: Path) -> Path:
    """The path, or the closest of its parents that exists."""
    while not os.path.exists(path):
        path = path.parent
    return path


def is_full(error: BaseException | None, free: int) -> bool:
    """Whether an error, or one that caused it, says that a disk with so many free bytes has no room."""
    messages = (FULL_MESSAGE, *WRITE_MESSAGES) if free < LITTLE_ROOM else (FULL_MESSAGE,)
    while error:
        if isinstance(error, OSError) and error.errno in FULL or any(text in str(error) for text in messages):
            return True
        error = error.__cause__ or error.__context__
    return False
