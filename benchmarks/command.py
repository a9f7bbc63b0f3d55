"""The runner of all commands of this folder: options, threads, the record of machine and versions, the report."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import MISSING, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import hf_blosan
from hf_blosan.cli.options import CheckedOptions, Parser, exit_status, option
from hf_blosan.errors import InputError
from hf_blosan.files import sha256, write_json
from hf_blosan.kernels import instruction_set
from hf_blosan.training.reporting import command_line, git_commit, processor

from .report import write_markdown
from .shapes import SELECTIONS

PACKAGES = ("torch", "torchao", "triton", "transformers", "numpy", "onnx", "onnxscript", "onnxruntime")
DATA_DIR = "Folder with DIR/<task>/<split>.jsonl.gz. Default: the data set on the Hub."
FILES = ("word_vectors",)
"""Options that name a file with what was measured; its SHA-256 is recorded."""


@dataclass(kw_only=True)
class Options(CheckedOptions):
    """What every benchmark can be told. A number must be more than 0, unless its default is 0."""

    output: str = option("JSON file of the report; most write Markdown beside it.", MISSING)
    threads: int = option("Threads of torch.", 2)
    seed: int = option("Of all random numbers.", 42, zero=True)
    commit: str | None = option("To record where git cannot tell it.")


def command(
    program: str,
    options: type[Options],
    measure: Callable[[Any, dict[str, Any]], None],
    *,
    recorded: Iterable[str] = (),
    packages: Iterable[str] = (),
    header: Callable[[Any], dict[str, Any]] = lambda options: {},
    resume: Callable[[Any], Collection[str] | None] = lambda options: None,
) -> Callable[[list[str] | None], int]:
    """The ``main`` of a benchmark.

    Args:
        program: its module, ``"benchmarks.NAME"``, whose ``markdown(report)``, if it has one, shows the report.
        options: dataclass of its options.
        measure: ``measure(options, report)`` adds what it measures to the report, which has a header and, as
            ``"rows"``, what an interrupted run has measured.
        recorded: options that the header has.
        packages: whose versions the header has besides those of all benchmarks.
        header: further entries of the header.
        resume: None, or, if a report that exists is continued, the entries of its header that may differ.
    """

    def run(argv: list[str] | None) -> None:
        module, words = sys.modules[measure.__module__], sys.argv[1:] if argv is None else argv
        parser = Parser(prog=f"python -m {program}", description=module.__doc__)
        given = parser.read(options, words)
        torch.set_num_threads(given.threads)
        files = {name: value for name in FILES if (value := getattr(given, name, None)) and Path(value).is_file()}
        head = {
            **surroundings(commit=given.commit, packages=packages),
            "threads": given.threads,
            "device": "cpu",
            "dtype": "float32",
            "seed": given.seed,
            **{name: getattr(given, name) for name in recorded},
            **({"sha256": {name: sha256(value) for name, value in files.items()}} if files else {}),
            **header(given),
            "command": command_line(["-m", program, *words]),
        }
        ignored, report = resume(given), {"header": head, "rows": []}
        if ignored is not None:
            report = resumed(Path(given.output), head, ignored)
        measure(given, report)
        write_json(given.output, report)
        if hasattr(module, "markdown"):
            print(write_markdown(Path(given.output), module.markdown(report)))

    return lambda argv=None: exit_status(run, argv)


def choose(option: str, text: str, known: Any) -> list[str]:
    """The names in a comma-separated list.

    Raises:
        InputError: one of them is unknown.
    """
    names = list(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in known:
            raise InputError(f"{option} {name}: there is no such choice; choose from {', '.join(known)}")
    return names


def parse_shapes(text: str) -> tuple[tuple[int, int], ...]:
    """A selection by name, or shapes like 64x16,8x384.

    Raises:
        InputError: neither.
    """
    if text in SELECTIONS:
        return SELECTIONS[text]
    try:
        shapes = tuple(tuple(int(number) for number in shape.split("x")) for shape in text.split(","))
    except ValueError:
        shapes = ()
    if not shapes or any(len(shape) != 2 or min(shape) < 1 for shape in shapes):
        raise InputError(f"--shapes {text}: give {', '.join(SELECTIONS)} or batch x length as in 64x16,8x384")
    return shapes


def resumed(path: Path, head: dict[str, Any], ignored: Collection[str] = ()) -> dict[str, Any]:
    """The report that a run continues, or an empty one. Its header stays: it describes how it was measured.

    Args:
        path: the report.
        head: the header of this run.
        ignored: entries of the header that may differ, besides date and command.

    Raises:
        InputError: it is not a report, or its header differs: another machine, commit or setting.
    """
    if not path.exists():
        return {"header": head, "rows": []}
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        before, rows = report["header"], report["rows"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a report of this program; give another --output") from error
    for name in head:
        if name not in ("date", "command", *ignored) and before.get(name) != head[name]:
            raise InputError(
                f"{path} was made with {name} {before.get(name)}, now it is {head[name]}; give another --output"
            )
    commands = [line for line in before["command"].splitlines() if line != head["command"]]
    return {"header": before | {"command": "\n".join([*commands, head["command"]])}, "rows": rows}


def surroundings(gpu: bool = False, commit: str | None = None, packages: Iterable[str] = ()) -> dict[str, Any]:
    """The machine, the versions (of these packages too), the commit and the date of a run."""
    versions = {"python": platform.python_version(), "hf_blosan": hf_blosan.__version__}
    for package in (*PACKAGES, *packages):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return {
        "hardware": {
            "cpu": processor(),
            "cores": os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "gpu": torch.cuda.get_device_name() if gpu else None,
        },
        "instruction_set": instruction_set(),
        "versions": versions,
        "commit": commit or git_commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
