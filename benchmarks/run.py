"""Time and peak memory of context layers: `python -m benchmarks.run --output benchmarks/reports/NAME.json`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import hf_blosan
from hf_blosan.errors import InputError
from hf_blosan.training.reporting import command_line, git_commit, write_json

from .correctness import RULE, refusal
from .measure import Case, Setting, peak_mib, times
from .operators import OPERATORS, PASSES
from .shapes import SELECTIONS

ABSENT = ("skipped", "refused")
"""What stands in a row without times: the reason."""

PACKAGES = ("torch", "numba", "triton", "transformers", "numpy")


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument(
        "--output", type=Path, required=True, help="JSON file, for instance benchmarks/reports/NAME.json"
    )
    parser.add_argument("--operators", default="all", help=f"names from {', '.join(OPERATORS)}; default: all")
    parser.add_argument("--shapes", default="targets", help="targets, cuda, sweep, or batch x length: 64x16,8x384")
    parser.add_argument("--passes", default=",".join(PASSES), help=f"default: {','.join(PASSES)}")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="default: cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"), help="bfloat16: autocast")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch; default: 2")
    parser.add_argument("--repeats", type=int, default=9, help="samples of each time; default: 9")
    parser.add_argument("--seed", type=int, default=42, help="of weights and inputs; default: 42")
    parser.add_argument(
        "--times",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="measure times (default); without them a busy machine will do, and --resume adds the memory",
    )
    parser.add_argument(
        "--memory", action=argparse.BooleanOptionalAction, default=True, help="measure peak memory (default)"
    )
    parser.add_argument("--resume", action="store_true", help="keep what --output holds and measure what it lacks")
    parser.add_argument("--commit", help="to record where git cannot tell it, as in a copy of the tree without .git")
    arguments = parser.parse_args(argv)
    for name in ("threads", "repeats"):
        if getattr(arguments, name) < 1:
            raise InputError(f"--{name} {getattr(arguments, name)}: give at least 1")
    if not (arguments.times or arguments.memory):
        raise InputError("--no-times --no-memory: nothing is left to measure; leave one of them out")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: torch finds no GPU here; give --device cpu")
    if arguments.memory and arguments.device == "cpu" and not Path("/proc/self/clear_refs").exists():
        raise InputError("--memory: peak memory is read from /proc, which is Linux' own; give --no-memory")
    return arguments


def choose(option: str, text: str, known: Any) -> list[str]:
    """The names in a list with commas.

    Raises:
        InputError: one of them is unknown.
    """
    names = list(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in known:
            raise InputError(f"{option} {name}: there is no such choice; take from {', '.join(known)}")
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


def surroundings(gpu: bool = False, commit: str | None = None) -> dict[str, Any]:
    """The machine, the versions, the commit and the day of a run."""
    versions = {"python": platform.python_version(), "hf_blosan": hf_blosan.__version__}
    for package in PACKAGES:
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
        "versions": versions,
        "commit": commit or git_commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def header(arguments: argparse.Namespace, setting: Setting, argv: list[str]) -> dict[str, Any]:
    """Everything a figure hangs on besides its operator and shape."""
    return {
        **surroundings(arguments.device == "cuda", arguments.commit),
        **asdict(setting),
        "tf32": {"matmul": torch.backends.cuda.matmul.allow_tf32, "cudnn": torch.backends.cudnn.allow_tf32},
        "rule": RULE,
        "repeats": arguments.repeats,
        "command": command_line(["-m", "benchmarks.run", *argv]),
    }


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def resumed(arguments: argparse.Namespace, head: dict[str, Any]) -> dict[str, Any]:
    """The report of an earlier run that is to go on; its header stays where it tells how times were measured.

    Raises:
        InputError: it is no report, or was made elsewhere, of other code, or with other samples of times.
    """
    path = arguments.output
    if not path.exists():
        return {"header": head, "rows": []}
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        before, rows = report["header"], report["rows"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"--resume: {path} is no report of this program; give another --output") from error
    names = ("hardware", "device", "dtype", "threads", "seed", "tf32", "versions", "commit", "rule")
    for name in (*names, "repeats") if arguments.times else names:
        if before.get(name) != head[name]:
            raise InputError(
                f"--resume: {path} was made with {name} {before.get(name)}, here it is {head[name]}; "
                "give another --output"
            )
    commands = [line for line in before["command"].splitlines() if line != head["command"]]
    return {"header": before | {"command": "\n".join([*commands, head["command"]])}, "rows": rows}


Rows = dict[str, dict[str, Any]]
"""The rows of a shape and pass, by operator."""


def add_times(rows: Rows, shape: tuple[int, int], pass_: str, setting: Setting, repeats: int) -> None:
    """Time all operators in turn, or note why one has no figures."""
    batch, length = shape
    calls = {}
    for name, row in rows.items():
        if note_absence(row, shape, pass_, setting):
            continue
        calls[name] = Case(OPERATORS[name], batch, length, setting).call(pass_)
    for name, figures in times(calls, repeats, setting.device).items():
        rows[name] |= figures


def note_absence(row: dict[str, Any], shape: tuple[int, int], pass_: str, setting: Setting) -> bool:
    """Whether an operator is not to be measured: its results are wrong, or it is too large."""
    operator = OPERATORS[row["operator"]]
    skipped = operator.too_large(*shape, pass_)
    refused = refusal(operator, shape[1], setting) if operator.checked and not skipped else None
    row |= {"skipped": skipped} if skipped else {"refused": refused} if refused else {}
    return bool(skipped or refused)


def lacks(row: dict[str, Any], figure: str) -> bool:
    return figure not in row and not any(word in row for word in ABSENT)


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure, writing the report after every shape.

    Raises:
        InputError: an option that cannot be used.
    """
    argv = sys.argv[1:] if argv is None else argv
    arguments = parse(argv)
    shapes = parse_shapes(arguments.shapes)
    names = list(OPERATORS) if arguments.operators == "all" else choose("--operators", arguments.operators, OPERATORS)
    names = [name for name in names if OPERATORS[name].device in (None, arguments.device)]
    passes = choose("--passes", arguments.passes, PASSES)
    setting = Setting(arguments.device, arguments.dtype, arguments.threads, arguments.seed)
    torch.set_num_threads(setting.threads)
    report = {"header": header(arguments, setting, argv), "rows": []}
    if arguments.resume:
        report = resumed(arguments, report["header"])
    for shape in shapes:
        for pass_ in passes:
            place = {"batch": shape[0], "length": shape[1], "pass": pass_}
            here = [row for row in report["rows"] if place.items() <= row.items()]
            rows: Rows = {row["operator"]: row for row in here}
            rows = {name: rows.get(name, {"operator": name, **place}) for name in OPERATORS if name in {*rows, *names}}
            begin, before = time.monotonic(), json.dumps(rows)
            # Ratios hold within one round of turns only: a shape that lacks an operator is timed anew with all.
            if arguments.times and any(lacks(rows[name], "median_ms") for name in names):
                add_times(rows, shape, pass_, setting, arguments.repeats)
            for row in rows.values():
                if not arguments.memory or not lacks(row, "peak_mib"):
                    continue
                if "median_ms" in row or not note_absence(row, shape, pass_, setting):
                    row["peak_mib"] = peak_mib(row["operator"], *shape, pass_, setting)
            if json.dumps(rows) == before:
                continue
            report["rows"] = [row for row in report["rows"] if row not in here] + list(rows.values())
            write_json(arguments.output, report)
            missing = "".join(f"; {name} {word}" for name, row in rows.items() for word in ABSENT if word in row)
            print(f"{shape[0]}x{shape[1]} {pass_}: {time.monotonic() - begin:.0f} s{missing}", file=sys.stderr)
    return report


def main(argv: list[str] | None = None) -> int:
    """The command; bad input is one sentence on standard error and exit code 2."""
    try:
        run(argv)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
