"""Time and peak memory of context layers: `python -m benchmarks.run --output benchmarks/reports/NAME.json`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from hf_blosan.errors import InputError
from hf_blosan.files import write_json
from hf_blosan.training.reporting import command_line

from .command import check_positive, choose, exit_code, parse_shapes, resumed, surroundings
from .correctness import RULE, refusal
from .measure import Case, Setting, peak_mib, times
from .operators import OPERATORS, PASSES

ABSENT = ("skipped", "refused")
"""The keys of a row without times; the value is the reason."""


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="JSON file, e.g. benchmarks/reports/NAME.json")
    parser.add_argument("--operators", default="all", help=f"names from {', '.join(OPERATORS)}; default: all")
    parser.add_argument("--without", help="operators to leave out; disa-compiled takes minutes to compile")
    parser.add_argument("--shapes", default="targets", help="targets, cuda, sweep, or batch x length: 64x16,8x384")
    parser.add_argument("--passes", default=",".join(PASSES), help=f"default: {','.join(PASSES)}")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="default: cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"), help="bfloat16: autocast")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch; default: 2")
    parser.add_argument("--repeats", type=int, default=9, help="samples of each time; default: 9")
    parser.add_argument("--seed", type=int, default=42, help="of weights and inputs; default: 42")
    switch = argparse.BooleanOptionalAction
    parser.add_argument("--times", action=switch, default=True, help="measure times (default); needs a quiet machine")
    parser.add_argument("--memory", action=switch, default=True, help="measure peak memory (default)")
    parser.add_argument("--resume", action="store_true", help="keep what --output holds and measure what is missing")
    parser.add_argument("--commit", help="to record where git does not know it, as in a copy of the tree without .git")
    arguments = parser.parse_args(argv)
    check_positive(arguments, "threads", "repeats")
    if not (arguments.times or arguments.memory):
        raise InputError("--no-times --no-memory: nothing is left to measure; leave one of them out")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: torch finds no GPU; give --device cpu")
    if arguments.memory and arguments.device == "cpu" and not Path("/proc/self/clear_refs").exists():
        raise InputError("--memory: peak memory is read from /proc, which only Linux has; give --no-memory")
    return arguments


def chosen_operators(arguments: argparse.Namespace) -> list[str]:
    """The operators to measure on this device."""
    names = list(OPERATORS) if arguments.operators == "all" else choose("--operators", arguments.operators, OPERATORS)
    excluded = choose("--without", arguments.without, OPERATORS) if arguments.without else []
    return [name for name in names if OPERATORS[name].device in (None, arguments.device) and name not in excluded]


def header(arguments: argparse.Namespace, setting: Setting, argv: list[str]) -> dict[str, Any]:
    """Everything that figures depend on besides operator and shape."""
    return {
        **surroundings(arguments.device == "cuda", arguments.commit),
        **asdict(setting),
        "tf32": {"matmul": torch.backends.cuda.matmul.allow_tf32, "cudnn": torch.backends.cudnn.allow_tf32},
        "rule": RULE,
        "repeats": arguments.repeats,
        "command": command_line(["-m", "benchmarks.run", *argv]),
    }


Rows = dict[str, dict[str, Any]]
"""The rows of a shape and pass, by operator."""


def add_times(rows: Rows, shape: tuple[int, int], pass_: str, setting: Setting, repeats: int) -> None:
    """Time all operators in turn, or record why one is not timed."""
    present = [name for name, row in rows.items() if not is_absent(row, shape, pass_, setting)]
    calls = {name: Case(OPERATORS[name], *shape, setting).call(pass_) for name in present}
    for name, figures in times(calls, repeats, setting.device).items():
        rows[name] |= figures


def is_absent(row: dict[str, Any], shape: tuple[int, int], pass_: str, setting: Setting) -> bool:
    """Whether an operator is not measured, because its results are wrong or it is too large; the row records why."""
    operator = OPERATORS[row["operator"]]
    skipped = operator.too_large(*shape, pass_)
    refused = refusal(operator, shape[1], setting) if operator.checked and not skipped else None
    row |= {"skipped": skipped} if skipped else {"refused": refused} if refused else {}
    return bool(skipped or refused)


def add_memory(rows: Rows, shape: tuple[int, int], pass_: str, setting: Setting) -> None:
    """Measure the peak memory of each operator that lacks it."""
    for name, row in rows.items():
        if lacks(row, "peak_mib") and ("median_ms" in row or not is_absent(row, shape, pass_, setting)):
            row["peak_mib"] = peak_mib(name, *shape, pass_, setting)


def lacks(row: dict[str, Any], figure: str) -> bool:
    return figure not in row and not any(word in row for word in ABSENT)


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure, and write the report after every shape and pass.

    Raises:
        InputError: an option that cannot be used.
    """
    argv = sys.argv[1:] if argv is None else argv
    arguments = parse(argv)
    shapes = parse_shapes(arguments.shapes)
    names = chosen_operators(arguments)
    passes = choose("--passes", arguments.passes, PASSES)
    setting = Setting(arguments.device, arguments.dtype, arguments.threads, arguments.seed)
    torch.set_num_threads(setting.threads)
    report = {"header": header(arguments, setting, argv), "rows": []}
    if arguments.resume:
        ignored = () if arguments.times else ("repeats",)
        report = resumed("--resume", arguments.output, report["header"], ignored)
    for shape in shapes:
        for pass_ in passes:
            place = {"batch": shape[0], "length": shape[1], "pass": pass_}
            here = [row for row in report["rows"] if place.items() <= row.items()]
            rows: Rows = {row["operator"]: row for row in here}
            rows = {name: rows.get(name, {"operator": name, **place}) for name in OPERATORS if name in {*rows, *names}}
            begin, before = time.monotonic(), json.dumps(rows)
            # Only times of operators that took turns are comparable: a missing one is timed together with all others.
            if arguments.times and any(lacks(rows[name], "median_ms") for name in names):
                add_times(rows, shape, pass_, setting, arguments.repeats)
            if arguments.memory:
                add_memory(rows, shape, pass_, setting)
            if json.dumps(rows) == before:
                continue
            report["rows"] = [row for row in report["rows"] if row not in here] + list(rows.values())
            write_json(arguments.output, report)
            missing = "".join(f"; {name} {word}" for name, row in rows.items() for word in ABSENT if word in row)
            print(f"{shape[0]}x{shape[1]} {pass_}: {time.monotonic() - begin:.0f} s{missing}", file=sys.stderr)
    return report


def main(argv: list[str] | None = None) -> int:
    return exit_code(run, argv)


if __name__ == "__main__":
    sys.exit(main())
