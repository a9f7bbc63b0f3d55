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
# torch and safetensors report a failed write as errors of their own.
FULL_MESSAGES = ("No space left on device", "PytorchStreamWriter failed writing", "iostream error", "unexpected pos")


@contextmanager
def output_folder(arguments: RunArguments) -> Iterator[None]:
    """Hold the output folder for one run, on the main process.

    Raises:
        InputError: a path of the options cannot be written, another run holds the folder, or its disk is full.
    """
    check_writable("output_dir", arguments.output_dir, folder=True)
    if arguments.results_file:
        check_writable("results_file", arguments.results_file, folder=False)
    folder = Path(arguments.output_dir)
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
        if not is_full(error):
            raise
        free = shutil.disk_usage(folder).free / 2**20
        raise InputError(
            f"the disk of --output_dir {folder} is full ({free:.1f} MiB free); make room and repeat the command."
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
    place = path if folder else path.parent
    while not os.path.exists(place):
        place = place.parent
    if not place.is_dir():
        raise InputError(f"--{option} {path}: {place} is a file; give another path.")
    if not os.access(place, os.W_OK | os.X_OK):
        raise InputError(f"--{option} {path}: no permission to write in {place}; give another path.")


def is_full(error: BaseException | None) -> bool:
    """Whether an error says that there is no room on a disk."""
    while error:
        if isinstance(error, OSError) and error.errno in FULL or any(text in str(error) for text in FULL_MESSAGES):
            return True
        error = error.__cause__ or error.__context__
    return False
