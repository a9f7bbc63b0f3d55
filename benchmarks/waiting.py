"""How threads should wait for work: `python -m benchmarks.waiting --output benchmarks/reports/waiting.json`.

OpenMP's threads spin while they wait, by default for longer than most products take. That is free on a quiet machine.
Beside other programs a thread that spins takes the core from the one that it waits for. A sample is `train_step` in a
process of its own, under one setting of the environment, alone or beside programs that compute without a pause.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .command import check_positive, cpu_header, exit_code, make_parser, surroundings_lines, write_report
from .measure import summary

SETTINGS = {
    "nothing set": {},
    "OMP_WAIT_POLICY=PASSIVE": {"OMP_WAIT_POLICY": "PASSIVE"},
    **{f"GOMP_SPINCOUNT={count}": {"GOMP_SPINCOUNT": str(count)} for count in (1_000, 3_000, 10_000)},
}
ONE_THREAD = "one thread"


def compute() -> None:
    """Never ends."""
    while True:
        sum(range(10_000))


@contextmanager
def programs(count: int) -> Iterator[None]:
    """Other programs, each of which takes all of a core that it can get."""
    running = [multiprocessing.get_context("spawn").Process(target=compute, daemon=True) for _ in range(count)]
    for process in running:
        process.start()
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.join()


def step_ms(setting: str, options: argparse.Namespace) -> float:
    """Milliseconds of a training step in a fresh process.

    Raises:
        RuntimeError: it fails.
    """
    threads = 1 if setting == ONE_THREAD else options.threads
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "steps.json")
        command = [sys.executable, "-m", "benchmarks.train_step", "--models", options.model, "--task", options.task]
        command += ["--threads", str(threads), "--repeats", "3", "--steps", "5", "--seed", str(options.seed)]
        command += ["--output", str(output), *(["--data_dir", options.data_dir] if options.data_dir else [])]
        environment = kept | SETTINGS.get(setting, {})
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise RuntimeError(f"a process that was to be timed fails:\n{done.stderr}")
        (row,) = [row for row in json.loads(output.read_text())["rows"] if row["encoder"] == options.model]
    return row["median_ms"]


def measured(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each setting and number of other programs; all settings take turns."""
    rows = []
    for count in dict.fromkeys((0, options.programs)):
        samples: dict[str, list[float]] = {setting: [] for setting in (ONE_THREAD, *SETTINGS)}
        with programs(count):
            for _ in range(options.repeats):
                for setting, times in samples.items():
                    times.append(step_ms(setting, options))
        medians = {setting: summary(times)["median_ms"] for setting, times in samples.items()}
        for setting, times in samples.items():
            row = {"programs": count, "setting": setting, **summary(times)}
            row["of_default"] = round(medians[setting] / medians["nothing set"], 3)
            rows.append(row | {"of_one_thread": round(medians[setting] / medians[ONE_THREAD], 3)})
    return rows


def markdown(report: dict[str, Any]) -> str:
    """Times and ratios as a table."""
    header = report["header"]
    lines = ["# How threads wait", "", *surroundings_lines(header), ""]
    lines += [f"Milliseconds of a training step of {header['model']} on {header['task']}, the median over processes"]
    lines += [
        "of their own, with two threads where nothing else is said, alone and beside programs that never pause.",
        "",
    ]
    lines += ["| other programs | setting | ms | lower to upper quartile | of nothing set | of one thread |"]
    lines += ["| ---: | --- | ---: | ---: | ---: | ---: |"]
    for row in report["rows"]:
        spread = f"{row['lower_quartile_ms']:.0f} to {row['upper_quartile_ms']:.0f}"
        cells = (row["programs"], row["setting"], f"{row['median_ms']:.1f}", spread)
        cells += (f"{row['of_default']:.2f}", f"{row['of_one_thread']:.2f}")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure and write the report.

    Raises:
        InputError: an option that cannot be used.
    """
    argv = sys.argv[1:] if argv is None else argv
    parser = make_parser("benchmarks.waiting", __doc__, repeats=5)
    parser.add_argument("--model", default="disan", help="default: disan")
    parser.add_argument("--task", default="trec", help="default: trec")
    parser.add_argument("--data_dir", help="folder with DIR/<task>/<split>.jsonl.gz; default: the data set on the Hub")
    parser.add_argument("--programs", type=int, default=os.cpu_count(), help="other programs; default: one a core")
    arguments = parser.parse_args(argv)
    check_positive(arguments, "threads", "repeats", "programs")
    head = cpu_header("benchmarks.waiting", arguments, argv, ("model", "task", "programs", "repeats"))
    report = {"header": head, "rows": measured(arguments)}
    write_report(arguments.output, report, markdown(report))
    return report


def main(argv: list[str] | None = None) -> int:
    """The command; bad input is one sentence on standard error and exit code 2."""
    return exit_code(run, argv)


if __name__ == "__main__":
    sys.exit(main())
