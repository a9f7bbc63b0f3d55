"""Time and peak memory of context layers: `python -m benchmarks.run --output benchmarks/reports/NAME.json`."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from hf_blosan.cli.options import option
from hf_blosan.errors import InputError
from hf_blosan.files import write_json

from .command import Options, choose, command, parse_shapes, surroundings
from .correctness import RULE, refusal
from .measure import Case, Setting, kernels, peak_mib, times
from .operators import OPERATORS, PASSES
from .report import page, table
from .targets import targets_table

ABSENT = ("skipped", "refused")
"""The keys of a row without times; the value is the reason."""
YARDSTICK = "multihead"
"""The operator whose time is the unit of the ratios."""


@dataclass(kw_only=True)
class RunOptions(Options):
    """Options of ``python -m benchmarks.run``."""

    operators: str = option(f"Names from {', '.join(OPERATORS)}.", "all")
    without: str | None = option("Operators to leave out; disa-compiled takes minutes to compile.")
    shapes: str = option("targets, cuda, sweep, or batch x length: 64x16,8x384.", "targets")
    passes: str = option("What is measured.", ",".join(PASSES))
    device: Literal["cpu", "cuda"] = option("Where.", "cpu")
    dtype: Literal["float32", "bfloat16"] = option("bfloat16: autocast.", "float32")
    repeats: int = option("Samples of each time.", 9)
    times: bool = option("Measure times; needs a quiet machine.", True)
    memory: bool = option("Measure peak memory.", True)
    resume: bool = option("Keep what --output holds and measure what is missing.", False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.times or self.memory):
            raise InputError("--no_times --no_memory: nothing is left to measure; leave one of them out")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise InputError("--device cuda: torch finds no GPU; give --device cpu")
        if self.memory and self.device == "cpu" and not Path("/proc/self/clear_refs").exists():
            raise InputError("--memory: peak memory is read from /proc, which only Linux has; give --no_memory")

    @property
    def setting(self) -> Setting:
        return Setting(self.device, self.dtype, self.threads, self.seed)

    def chosen_operators(self) -> list[str]:
        """The operators to measure on this device."""
        names = list(OPERATORS) if self.operators == "all" else choose("--operators", self.operators, OPERATORS)
        excluded = choose("--without", self.without, OPERATORS) if self.without else []
        return [name for name in names if OPERATORS[name].device in (None, self.device) and name not in excluded]


def header(options: RunOptions) -> dict[str, Any]:
    """Everything that figures depend on besides operator and shape."""
    return {
        **surroundings(options.device == "cuda", options.commit),
        **asdict(options.setting),
        "tf32": {"matmul": torch.backends.cuda.matmul.allow_tf32, "cudnn": torch.backends.cudnn.allow_tf32},
        "rule": RULE,
        "repeats": options.repeats,
    }


Rows = dict[str, dict[str, Any]]
"""The rows of a shape and pass, by operator."""


def add_times(rows: Rows, shape: tuple[int, int], pass_: str, setting: Setting, repeats: int) -> None:
    """Time all operators in turn, or record why one is not timed."""
    present = [name for name, row in rows.items() if not is_absent(row, shape, pass_, setting)]
    calls = {name: Case(OPERATORS[name], *shape, setting).call(pass_) for name in present}
    for name, figures in times(calls, repeats, setting.device).items():
        rows[name] |= figures | (kernels(calls[name]) if setting.device == "cuda" else {})


def is_absent(row: dict[str, Any], shape: tuple[int, int], pass_: str, setting: Setting) -> bool:
    """Whether an operator is not measured: wrong results, no gradients, or too large; the row records why."""
    operator = OPERATORS[row["operator"]]
    skipped = operator.why_skipped(*shape, pass_)
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


def measure(options: RunOptions, report: dict[str, Any]) -> None:
    """Measure, and write the report after every shape and pass."""
    shapes, names, setting = parse_shapes(options.shapes), options.chosen_operators(), options.setting
    passes = choose("--passes", options.passes, PASSES)
    for shape in shapes:
        for pass_ in passes:
            place = {"batch": shape[0], "length": shape[1], "pass": pass_}
            here = [row for row in report["rows"] if place.items() <= row.items()]
            rows: Rows = {row["operator"]: row for row in here}
            rows = {name: rows.get(name, {"operator": name, **place}) for name in OPERATORS if name in {*rows, *names}}
            begin, before = time.monotonic(), json.dumps(rows)
            # Only times of operators that took turns are comparable: a missing one is timed together with all others.
            if options.times and any(lacks(rows[name], "median_ms") for name in names):
                add_times(rows, shape, pass_, setting, options.repeats)
            if options.memory:
                add_memory(rows, shape, pass_, setting)
            if json.dumps(rows) == before:
                continue
            report["rows"] = [row for row in report["rows"] if row not in here] + list(rows.values())
            write_json(options.output, report)
            missing = "".join(f"; {name} {word}" for name, row in rows.items() for word in ABSENT if word in row)
            print(f"{shape[0]}x{shape[1]} {pass_}: {time.monotonic() - begin:.0f} s{missing}", file=sys.stderr)


def markdown(report: dict[str, Any]) -> str:
    """The whole report as text."""
    head = report["header"]
    return page(
        "Speed and memory of context layers",
        head,
        [],
        f"Times are medians of {head['repeats']} samples, with quartiles; all operators take turns. What is measured "
        "and how: benchmarks/README.md.",
        f"## Targets\n\n{targets_table(report)}",
        f"## All figures\n\nx: time in units of {OPERATORS[YARDSTICK].title}.\n\n{full_table(report['rows'])}",
        f"## Not measured\n\n{absences(report['rows'])}",
        f"## Correctness\n\n{head['rule']}",
    )


def full_table(rows: list[dict[str, Any]]) -> str:
    """One line for each shape and operator, with the passes side by side."""
    cells = {(row["batch"], row["length"], row["operator"], row["pass"]): row for row in rows}
    lines, on_a_gpu = [], any("kernels" in row for row in rows)
    for batch, length, name in dict.fromkeys((row["batch"], row["length"], row["operator"]) for row in rows):
        line = [f"{batch}x{length}", OPERATORS[name].title]
        for pass_ in PASSES:
            row = cells.get((batch, length, name, pass_), {})
            line += figure_cells(row, cells.get((batch, length, YARDSTICK, pass_), {}))
            line += [f"{row['kernels']} in {row['kernels_ms']:.4g} ms" if "kernels" in row else ""][:on_a_gpu]
        lines.append(line)
    names = [f"{pass_} {what}" for pass_ in PASSES for what in ("ms", "x", "MiB", "kernels")[: 3 + on_a_gpu]]
    return table(["shape", "operator", *names], lines, left=2)


def figure_cells(row: dict[str, Any], yardstick: dict[str, Any]) -> list[str]:
    """Time, ratio and memory of a row."""
    took, ratio, memory = next((word for word in ABSENT if word in row), ""), "", ""
    if "median_ms" in row:
        took = f"{row['median_ms']:.4g} ({row['lower_quartile_ms']:.4g} to {row['upper_quartile_ms']:.4g})"
        ratio = f"{row['median_ms'] / yardstick['median_ms']:.2f}" if "median_ms" in yardstick else ""
    if "peak_mib" in row:
        memory = "too large" if row["peak_mib"] is None else f"{row['peak_mib']:.1f}"
    return [took, ratio, memory]


def absences(rows: list[dict[str, Any]]) -> str:
    """Why figures are missing, one reason per line."""
    reasons = [
        f"- {row['batch']}x{row['length']} {row['pass']}, {OPERATORS[row['operator']].title}: {word}, {row[word]}"
        for row in rows
        for word in ABSENT
        if word in row
    ]
    return "\n".join(reasons) or "Nothing."


def may_differ(options: RunOptions) -> tuple[str, ...] | None:
    """The settings in which a run may differ from the one that it resumes: memory is not sampled."""
    return None if not options.resume else () if options.times else ("repeats",)


main = command("benchmarks.run", RunOptions, measure, header=header, resume=may_differ)

if __name__ == "__main__":
    sys.exit(main())
