"""How threads should wait for work: `python -m benchmarks.waiting --output benchmarks/reports/waiting.json`.

OpenMP's threads spin while they wait, by default for longer than most products take. That is free on a quiet machine.
Beside other programs a thread that spins takes the core from the one that it waits for. A sample is `train_step` in a
process of its own, under one setting of the environment, alone or beside programs that compute without a pause.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_blosan.cli.options import option

from .command import DATA_DIR, Options, command
from .measure import summary
from .report import page, table

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


def step_ms(setting: str, options: WaitingOptions) -> float:
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


def measure(options: WaitingOptions, report: dict[str, Any]) -> None:
    """A row for each setting and number of other programs; all settings take turns."""
    for count in dict.fromkeys((0, options.programs)):
        samples: dict[str, list[float]] = {setting: [] for setting in (ONE_THREAD, *SETTINGS)}
        with programs(count):
            for _ in range(options.repeats):
                for setting, times in samples.items():
                    times.append(step_ms(setting, options))
        summaries = {setting: summary(times) for setting, times in samples.items()}
        for setting, found in summaries.items():
            row = {"programs": count, "setting": setting, **found}
            for name, other in (("of_default", "nothing set"), ("of_one_thread", ONE_THREAD)):
                row[name] = round(found["median_ms"] / summaries[other]["median_ms"], 3)
            report["rows"].append(row)


def markdown(report: dict[str, Any]) -> str:
    """Times and ratios as a table."""
    header, lines = report["header"], []
    for row in report["rows"]:
        quartiles = f"{row['lower_quartile_ms']:.0f} to {row['upper_quartile_ms']:.0f}"
        ratios = (f"{row[name]:.2f}" for name in ("of_default", "of_one_thread"))
        lines.append([row["setting"], row["programs"], f"{row['median_ms']:.1f}", quartiles, *ratios])
    return page(
        "How threads wait",
        header,
        [],
        f"Milliseconds of a training step of {header['model']} on {header['task']}, the median over processes of "
        f"their own, with {header['threads']} threads where nothing else is said, alone and beside programs that "
        "never pause.",
        table(["setting", "other programs", "ms", "quartiles", "of nothing set", "of one thread"], lines),
    )


@dataclass(kw_only=True)
class WaitingOptions(Options):
    """Options of ``python -m benchmarks.waiting``."""

    model: str = option("Encoder.", "disan")
    task: str = option("Task that is trained on.", "trec")
    data_dir: str | None = option(DATA_DIR)
    programs: int = option("Other programs. Default: one a core.", os.cpu_count())
    repeats: int = option("Samples of each figure.", 5)


RECORDED = ("model", "task", "programs", "repeats")
main = command("benchmarks.waiting", WaitingOptions, measure, recorded=RECORDED)

if __name__ == "__main__":
    sys.exit(main())
