"""The output folder of a run: writable, used by one run at a time, without leftovers; a full disk is reported."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from filelock import FileLock, Timeout

from ..errors import InputError
from ..files import check_not_read, check_writable, existing
from .arguments import RunArguments
from .checkpoints import WEIGHTS, complete_checkpoints, is_card
from .reporting import files_read

LOCK = ".lock"
LEFTOVERS = (".saving-*", ".*.tmp")
# Names in lower case of files that end in .json, which a run writes in its output folder.
SAVED = (
    *("*config*", "*token*", "*vocab*", "*template*"),
    *("modules.json", "*.index.json", "all_results.json", "checkpoint.json"),
)
FULL = (errno.ENOSPC, errno.EDQUOT)
FULL_MESSAGE = "No space left on device"
# torch's message for any failed write. The disk counts as full below this many free bytes.
WRITE_MESSAGES = ("PytorchStreamWriter failed writing", "iostream error", "unexpected pos")
LITTLE_ROOM = 16 * 2**20


@contextmanager
def output_folder(arguments: RunArguments) -> Iterator[None]:
    """Lock the output folder for one run, on the main process. Raises InputError if a path of the options cannot be
    written, another run uses the folder, its disk is full, or it has a README.md or a model of another origin.
    """
    folder = Path(arguments.output_dir)
    written = {"output_dir": folder}
    check_writable("--output_dir", folder, folder=True)
    check_replaceable(folder)
    for name in ("log.jsonl", "all_results.json"):
        check_not_read("--output_dir:", folder / name, files_read(arguments))
    if arguments.results_file:
        check_writable("--results_file", arguments.results_file, folder=False)
        check_not_read("--results_file", arguments.results_file, files_read(arguments))
        check_separate(Path(arguments.results_file), folder)
        written["results_file"] = Path(arguments.results_file)
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / LOCK, timeout=0):
            complete_checkpoints(folder)
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
            f"another run is writing to --output_dir {folder}; wait until it finishes, or give another folder."
        ) from None
    except Exception as error:
        free, option = min((shutil.disk_usage(existing(path)).free, option) for option, path in written.items())
        if not is_full(error, free):
            raise
        raise InputError(
            f"the disk of --{option} {written[option]} is full ({free / 2**20:.1f} MiB free); free space and repeat "
            "the command."
        ) from error


def check_replaceable(folder: Path) -> None:
    """Raise InputError unless a run would replace only what an earlier run wrote: if the folder has a README.md that
    is not the card of a model of this package, or a model but neither a card nor the log of a run.
    """
    readme = folder / "README.md"
    model = [name for name in ("config.json", WEIGHTS) if (folder / name).exists()]
    if is_card(readme):
        return
    if readme.exists():
        what = "a README.md that is not the card of a model of this package"
    elif model and not (folder / "log.jsonl").exists():  # which every run writes first
        what = f"a model that was not trained here ({' and '.join(model)})"
    else:
        return
    raise InputError(
        f"--output_dir {folder} has {what}, which training would replace; give another folder, or move the file."
    )


def check_shared(arguments: RunArguments) -> None:
    """Raise InputError unless this process sees the output folder that the main process has locked, rather than a
    folder of its own on another machine.
    """
    if not (Path(arguments.output_dir) / LOCK).exists():
        raise InputError(
            f"--output_dir {arguments.output_dir} is not the same folder on all machines; give one that they share."
        )


def check_separate(results_file: Path, folder: Path) -> None:
    """Raise InputError for a record that would overwrite a file of the run or of a checkpoint in the output folder."""
    path, folder = results_file.resolve(), folder.resolve()
    name = path.name.lower()
    taken = path.suffix.lower() != ".json" or any(fnmatch(name, pattern) for pattern in SAVED)
    if path.is_relative_to(folder) and (taken or path.parent != folder and (path.parent / "checkpoint.json").exists()):
        raise InputError(
            f"--results_file {results_file} could replace a file of the model in --output_dir {folder}; name it "
            f"{folder}.json."
        )


def is_full(error: BaseException | None, free: int) -> bool:
    """Whether an error or one of its causes means that a disk with that many free bytes is full."""
    messages = (FULL_MESSAGE, *WRITE_MESSAGES) if free < LITTLE_ROOM else (FULL_MESSAGE,)
    while error:
        if isinstance(error, OSError) and error.errno in FULL or any(text in str(error) for text in messages):
            return True
        error = error.__cause__ or error.__context__
    return False
