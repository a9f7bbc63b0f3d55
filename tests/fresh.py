"""Processes that have imported transformers, and nothing of this package: forks of one that has, which takes seconds.
The Auto classes of configurations are imported with it, those of models are not.

For what must not depend on what the tests before have imported. A process whose imports are themselves what is tested,
or that reads its environment while it imports, is started in the usual way.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory

import pytest


@cache
def server() -> tuple[ForkServerContext, TemporaryDirectory]:
    """The context, whose server has a Hugging Face cache of its own and no network."""
    context, home = get_context("forkserver"), TemporaryDirectory()
    context.set_forkserver_preload(["transformers.modeling_utils"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", home.name)
        patch.setenv("HF_HUB_OFFLINE", "1")
        run_in(context, "", home.name)  # starts the server
    return context, home


def run(code: str, *arguments: str, cwd: Path) -> CompletedProcess:
    """As `python -c code *arguments` in a folder, with what it prints."""
    return run_in(server()[0], code, cwd, *arguments)


def run_in(context: ForkServerContext, code: str, cwd: Path | str, *arguments: str) -> CompletedProcess:
    with TemporaryDirectory() as folder:
        places = [Path(folder, name) for name in ("stdout", "stderr")]
        process = context.Process(target=execute, args=(code, arguments, str(cwd), list(map(str, places))))
        process.start()
        process.join()
        return CompletedProcess(code, process.exitcode, *(place.read_text() for place in places))


def execute(code: str, arguments: tuple[str, ...], cwd: str, places: list[str]) -> None:
    for number, place in enumerate(places, 1):
        os.dup2(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.chdir(cwd)
    sys.argv, sys.stdin = ["-c", *arguments], None  # nobody answers questions
    exec(code, {"__name__": "__main__"})
