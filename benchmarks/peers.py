"""The encoders beside what people use today: `python -m benchmarks.peers --data_dir DIR --word_vectors FILE
--minilm FOLDER --output benchmarks/reports/peers.json`.

Every system is trained and measured on the same rows. A result is written as soon as it is there; the same command
continues what was interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from transformers.utils import logging

from hf_blosan.files import plain, write_json
from hf_blosan.tasks import TASKS

from .command import check_positive, choose, cpu_header, exit_code, make_parser, resumed, write_report
from .measure import times
from .peers_data import Predict, Problem, Row, read_problem
from .peers_report import markdown
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


def parse(argv: list[str]) -> argparse.Namespace:
    description = "The encoders beside what people use today."
    parser = make_parser("benchmarks.peers", description, repeats=5)
    parser.add_argument("--data_dir", help="folder with DIR/<task>/<split>.jsonl.gz; default: the data set on the Hub")
    parser.add_argument("--word_vectors", help="word vectors in GloVe text format, plain or .gz")
    parser.add_argument("--minilm", help="folder of a sentence-transformers model: all-MiniLM-L6-v2")
    parser.add_argument("--tasks", default=",".join(SHOWN), help=f"default: {','.join(SHOWN)}")
    default = ",".join(name for name, system in SYSTEMS.items() if not system.optional)
    parser.add_argument("--systems", default=default, help=f"from {','.join(SYSTEMS)}, or all; default: {default}")
    arguments = parser.parse_args(argv)
    check_positive(arguments, "threads", "repeats")
    return arguments


def place(row: dict[str, Any]) -> tuple[int, int]:
    """Where a row stands in the report, in whatever order the rows were made."""
    return list(TASKS).index(row["task"]), list(SYSTEMS).index(row["system"])


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Train, measure, and write the report after each task and system.

    Raises:
        InputError: an option that cannot be used, or a package is missing.
    """
    argv = sys.argv[1:] if argv is None else argv
    arguments = parse(argv)
    tasks = choose("--tasks", arguments.tasks, TASKS)
    systems = list(SYSTEMS) if arguments.systems == "all" else choose("--systems", arguments.systems, SYSTEMS)
    options = {name: getattr(arguments, name) for name in ("data_dir", "word_vectors", "minilm", "seed")}
    check(systems, options)
    head = cpu_header("benchmarks.peers", arguments, argv, ("repeats",), PACKAGES)
    head |= {name: options[name] and Path(options[name]).name for name in ("word_vectors", "minilm")}
    report = resumed("--output", arguments.output, head)
    present = {(row["task"], row["system"]) for row in report["rows"]}

    from threadpoolctl import threadpool_limits

    torch.set_num_threads(arguments.threads)
    os.environ.setdefault("RAYON_NUM_THREADS", str(arguments.threads))  # the tokenizers'
    logging.set_verbosity_error()
    with threadpool_limits(arguments.threads):
        for task in tasks:
            missing = [name for name in systems if (task, name) not in present]
            problem = read_problem(task, **options) if missing else None
            for name in missing:
                print(f"{task}: {SYSTEMS[name].title}", file=sys.stderr, flush=True)
                report["rows"].append(plain(measured(problem, name, arguments.repeats)))
                report["rows"].sort(key=place)
                write_json(arguments.output, report)
    write_report(arguments.output, report, markdown(report))
    return report


def main(argv: list[str] | None = None) -> int:
    """The command; bad input is one sentence on standard error and exit code 2."""
    return exit_code(run, argv)


if __name__ == "__main__":
    sys.exit(main())
