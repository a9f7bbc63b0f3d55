"""What the commands of this folder share: options, the exit code for bad input, the record of machine and versions."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import hf_blosan
from hf_blosan.errors import InputError
from hf_blosan.files import write_json, write_text
from hf_blosan.kernels import instruction_set
from hf_blosan.training.reporting import command_line, git_commit

from .shapes import SELECTIONS

PACKAGES = ("torch", "torchao", "triton", "transformers", "numpy", "onnx", "onnxscript", "onnxruntime")


def exit_code(run: Callable, argv: list[str] | None) -> int:
    """Run a command; bad input is one sentence on standard error and exit code 2."""
    try:
        run(argv)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


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


def make_parser(program: str, description: str, *, repeats: int | None, seed: int | None = None) -> ArgumentParser:
    """A parser with the options that all programs on the CPU have: output, threads, repeats, seed and commit.

    Args:
        program, description: for ``--help``.
        repeats: default of ``--repeats``; None: there is no such option.
        seed: the seed of a program whose users cannot choose it; otherwise there is an option, 42 by default.
    """
    parser = ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument("--output", type=Path, required=True, help="JSON file of the report")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch; default: 2")
    if repeats is not None:
        parser.add_argument("--repeats", type=int, default=repeats, help=f"samples of each figure; default: {repeats}")
    parser.add_argument("--commit", help="to record where git cannot tell it")
    if seed is None:
        parser.add_argument("--seed", type=int, default=42, help="of all random numbers; default: 42")
    else:
        parser.set_defaults(seed=seed)
    return parser


def check_positive(arguments: Namespace, *names: str) -> None:
    """Raises InputError if one of these options is below 1."""
    for name in names:
        if getattr(arguments, name) < 1:
            raise InputError(f"--{name} {getattr(arguments, name)}: give at least 1")


def resumed(option: str, path: Path, head: dict[str, Any], ignored: Collection[str] = ()) -> dict[str, Any]:
    """The report that a run continues, or an empty one. Its header stays: it describes how it was measured.

    Args:
        option: the option that asked for it, for messages.
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
        raise InputError(f"{option}: {path} is not a report of this program; give another --output") from error
    for name in head.keys() - {"date", "command", *ignored}:
        if before.get(name) != head[name]:
            raise InputError(
                f"{option}: {path} was made with {name} {before.get(name)}, now it is {head[name]}; "
                "give another --output"
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
            "cpu": cpu_model(),
            "cores": os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "gpu": torch.cuda.get_device_name() if gpu else None,
        },
        "instruction_set": instruction_set(),
        "versions": versions,
        "commit": commit or git_commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def cpu_header(
    program: str, arguments: Namespace, argv: list[str], options: Iterable[str] = (), packages: Iterable[str] = ()
) -> dict[str, Any]:
    """What the figures of a program on the CPU depend on: threads, seed, these options, the machine; its command."""
    return {
        **surroundings(commit=arguments.commit, packages=packages),
        **{"threads": arguments.threads, "device": "cpu", "dtype": "float32", "seed": arguments.seed},
        **{name: getattr(arguments, name) for name in options},
        "command": command_line(["-m", program, *argv]),
    }


def write_report(path: Path, report: dict[str, Any], markdown: str) -> None:
    """Write a report as JSON, and beside it what it looks like, which is printed too."""
    write_json(path, report)
    write_text(path.with_suffix(".md"), markdown)
    print(markdown)


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def surroundings_lines(head: dict[str, Any]) -> list[str]:
    """The header of a report as a Markdown list."""
    hardware = head["hardware"]
    gpu = f"{hardware['gpu']}; " if hardware["gpu"] else ""
    precision = head["dtype"] if head["dtype"] == "float32" else f"autocast to {head['dtype']}"
    return [
        f"- Hardware: {gpu}{hardware['cpu']}, {hardware['cores']} cores, {hardware['memory_gib']} GiB",
        f"- CPU kernels: {head['instruction_set'] or 'none, plain torch'}",
        f"- Device {head['device']}, {precision}; threads: {head['threads']}; seed: {head['seed']}",
        f"- Versions: {', '.join(f'{name} {number}' for name, number in head['versions'].items() if number)}",
        f"- Commit: {head['commit'] or 'unknown'}",
        *(f"- Command: `{line}`" for line in head["command"].splitlines()),
        f"- Date: {head['date']}",
    ]
