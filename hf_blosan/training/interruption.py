"""Ctrl-C and SIGTERM end a run after the current update, with a checkpoint; the loss of a process ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.distributed
from accelerate import Accelerator

from ..errors import InputError
from .arguments import RunArguments
from .checkpoints import LATEST, find_checkpoint

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A run was stopped by signal ``number``, perhaps received by another process; it can resume at ``checkpoint``."""

    def __init__(self, checkpoint: Path, number: int = signal.SIGTERM) -> None:
        super().__init__(f"interrupted; {checkpoint} is the state of the run")
        self.checkpoint, self.number = checkpoint, number


@contextmanager
def deferred_signals(accelerator: Accelerator) -> Iterator[list[int]]:
    """The first signal is listed and sets the trigger that all processes see; a second one has its usual effect.

    Does nothing outside the main thread, which is the only one to receive signals.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def receive(number, _):
        received.append(number)
        accelerator.set_trigger()
        restore()

    def restore():
        for number, handler in handlers.items():
            signal.signal(number, handler)

    handlers = {number: signal.signal(number, receive) for number in SIGNALS}
    try:
        yield received
    finally:
        restore()


@contextmanager
def other_processes(arguments: RunArguments) -> Iterator[None]:
    """Raise InputError, which says how to continue, if another process of the run has ended or cannot be reached."""
    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, torch.distributed.DistError) or "/gloo/" in str(error)):
            raise
        try:
            checkpoint = find_checkpoint(LATEST, arguments.output_dir).name
            remedy = f"start all of them again with --resume_from_checkpoint {LATEST}, which is {checkpoint}"
        except InputError:
            remedy = "start all of them again; with --checkpointing_steps they would have something to continue from"
        raise InputError(
            f"another process of this run has ended or cannot be reached, see its own message; {remedy}."
        ) from error
