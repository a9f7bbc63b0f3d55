"""The encoders beside what people use today: `python -m benchmarks.peers --data_dir DIR --word_vectors FILE
--minilm FOLDER --output benchmarks/reports/peers.json`.

Every system is trained and measured on the same rows. A result is written as soon as it is there; the same command
continues what was interrupted.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from transformers.utils import logging

from hf_blosan.cli.options import option
from hf_blosan.files import plain, write_json
from hf_blosan.tasks import TASKS

from .command import DATA_DIR, Options, choose, command
from .measure import times
from .peers_data import Predict, Problem, Row, read_problem
from .peers_report import draw as draw
from .peers_report import markdown as markdown
from .peers_systems import SYSTEMS, check

SHOWN = ("sst2", "trec", "cr", "subj", "sick_entailment", "sick_relatedness")
"""The tasks that are measured by default."""

PACKAGES = ("scikit-learn", "sentence-transformers", "model2vec", "accelerate", "datasets")

TIMED_ROWS = {1: 128, 64: 512}
"""Batch size -> test rows that are timed."""


def measured(problem: Problem, name: str, repeats: int) -> dict[str, Any]:
    """Train a system on a task and measure it."""
    system = SYSTEMS[name]
    if system.prepare:
        system.prepare(problem)
    with TemporaryDirectory() as folder:
        begin = time.perf_counter()
        settings = system.fit(problem, Path(folder))
        seconds = time.perf_counter() - begin
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        predict = system.load(Path(folder))
        figures = {
            f"{split}_{metric}": round(value, 4)
            for split in ("validation", "test")
            for metric, value in problem.figures(split, predict(problem.splits[split].texts)).items()
        }
        return {
            "task": problem.task.name,
            "system": name,
            "rows": {split: len(rows.texts) for split, rows in problem.splits.items()},
            "figures": figures,
            "train_seconds": round(seconds, 2),
            "megabytes": round(size / 1e6, 2),
            "speed": speed(predict, problem.splits["test"].texts, repeats, problem.seed),
            "settings": settings,
        }


def speed(predict: Predict, texts: Sequence[Row], repeats: int, seed: int) -> dict[str, dict[str, float]]:
    """For each batch size the rows a second from text to prediction, and the times of all timed rows together.

    The rows are drawn from the test split and sorted by length, so that a batch has little padding.
    """
    drawn = np.random.default_rng(seed).permutation(len(texts))
    passes, counts = {}, {}
    for size, number in TIMED_ROWS.items():
        rows = sorted((texts[i] for i in drawn[:number]), key=lambda row: sum(map(len, row)))
        batches = [rows[start : start + size] for start in range(0, len(rows), size)]
        counts[str(size)] = len(rows)

        def one_pass(batches=batches) -> None:
            for batch in batches:
                predict(batch)

        passes[str(size)] = one_pass
    found = times(passes, repeats, "cpu")
    return {
        size: {"rows_per_second": round(1e3 * counts[size] / summary["median_ms"], 1), "rows": counts[size], **summary}
        for size, summary in found.items()
    }


@dataclass(kw_only=True)
class PeersOptions(Options):
    """Options of ``python -m benchmarks.peers``."""

    data_dir: str | None = option(DATA_DIR)
    word_vectors: str | None = option("Word vectors in GloVe text format, plain or .gz.")
    minilm: str | None = option("Folder of a sentence-transformers model: all-MiniLM-L6-v2.")
    tasks: str = option("Tasks.", ",".join(SHOWN))
    systems: str = option(
        f"From {','.join(SYSTEMS)}, or all.", ",".join(name for name, system in SYSTEMS.items() if not system.optional)
    )
    repeats: int = option("Samples of each figure.", 5)

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("--tasks", self.tasks, TASKS)
        check(self.chosen(), self.rows)

    def chosen(self) -> list[str]:
        """The systems to measure."""
        return list(SYSTEMS) if self.systems == "all" else choose("--systems", self.systems, SYSTEMS)

    @property
    def rows(self) -> dict[str, Any]:
        """What rows are read with, and systems start from."""
        return {name: getattr(self, name) for name in ("data_dir", "word_vectors", "minilm", "seed")}


def place(row: dict[str, Any]) -> tuple[int, int]:
    """Where a row stands in the report, in whatever order the rows were made."""
    return list(TASKS).index(row["task"]), list(SYSTEMS).index(row["system"])


def measure(options: PeersOptions, report: dict[str, Any]) -> None:
    """Train and measure what the report lacks, and write it after each task and system."""
    from threadpoolctl import threadpool_limits

    present = {(row["task"], row["system"]) for row in report["rows"]}
    os.environ.setdefault("RAYON_NUM_THREADS", str(options.threads))  # the tokenizers'
    logging.set_verbosity_error()
    with threadpool_limits(options.threads):
        for task in options.tasks.split(","):
            missing = [name for name in options.chosen() if (task, name) not in present]
            problem = read_problem(task, **options.rows) if missing else None
            for name in missing:
                print(f"{task}: {SYSTEMS[name].title}", file=sys.stderr, flush=True)
                report["rows"].append(plain(measured(problem, name, options.repeats)))
                report["rows"].sort(key=place)
                write_json(options.output, report)


def header(options: PeersOptions) -> dict[str, Any]:
    names = {name: getattr(options, name) for name in ("word_vectors", "minilm")}
    return {name: value and Path(value).name for name, value in names.items()}


main = command(
    "benchmarks.peers",
    PeersOptions,
    measure,
    recorded=("repeats",),
    packages=PACKAGES,
    header=header,
    resume=lambda options: (),
)

if __name__ == "__main__":
    sys.exit(main())
