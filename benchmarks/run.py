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
        "--memory", action=argparse.BooleanOptionalAction, default=True, help="measure peak memory too (default)"
    )
    parser.add_argument("--resume", action="store_true", help="keep what --output holds and measure what it lacks")
    parser.add_argument("--commit", help="to record where git cannot tell it, as in a copy of the tree without .git")
    arguments = parser.parse_args(argv)
    for name in ("threads", "repeats"):
        if getattr(arguments, name) < 1:
            raise InputError(f"--{name} {getattr(arguments, name)}: give at least 1")
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


def earlier_rows(path: Path, head: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of an interrupted run.

    Raises:
        InputError: it is no report, or was made elsewhere or of other code.
    """
    if not path.exists():
        return []
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        before, rows = report["header"], report["rows"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"--resume: {path} is no report of this program; give another --output") from error
    for name in ("hardware", "device", "dtype", "threads", "seed", "tf32", "versions", "commit", "rule"):
        if before.get(name) != head[name]:
            raise InputError(
                f"--resume: {path} was made with {name} {before.get(name)}, here it is {head[name]}; "
                "give another --output"
            )
    return rows


def measure(
    names: list[str], shape: tuple[int, int], pass_: str, setting: Setting, *, repeats: int, memory: bool
) -> list[dict[str, Any]]:
    """One row for every operator at a shape: times, or why there are none."""
    batch, length = shape
    rows = {name: {"operator": name, "batch": batch, "length": length, "pass": pass_} for name in names}
    calls = {}
    for name, row in rows.items():
        operator = OPERATORS[name]
        skipped = operator.too_large(batch, length, pass_)
        refused = refusal(operator, length, setting) if operator.checked and not skipped else None
        if skipped or refused:
            row |= {"skipped": skipped} if skipped else {"refused": refused}
        else:
            calls[name] = Case(operator, batch, length, setting).call(pass_)
    for name, figures in times(calls, repeats, setting.device).items():
        rows[name] |= figures
    calls.clear()
    for name, row in rows.items():
        if memory and "median_ms" in row:
            row["peak_mib"] = peak_mib(name, batch, length, pass_, setting)
    return list(rows.values())


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
        report["rows"] = earlier_rows(arguments.output, report["header"])
    for shape in shapes:
        for pass_ in passes:
            # Ratios hold within one round of turns only: a shape that lacks an operator is measured anew with all.
            here = [row for row in report["rows"] if (row["batch"], row["length"], row["pass"]) == (*shape, pass_)]
            measured = {row["operator"] for row in here}
            if measured.issuperset(names):
                continue
            begin = time.monotonic()
            turn = [name for name in OPERATORS if name in measured or name in names]
            rows = measure(turn, shape, pass_, setting, repeats=arguments.repeats, memory=arguments.memory)
            report["rows"] = [row for row in report["rows"] if row not in here] + rows
            write_json(arguments.output, report)
            missing = "".join(f"; {row['operator']} {word}" for row in rows for word in ABSENT if word in row)
            seconds = time.monotonic() - begin
            print(f"{shape[0]}x{shape[1]} {pass_}: {seconds:.0f} s{missing}", file=sys.stderr)
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
