"""What word vectors know without an encoder: `python -m benchmarks.word_vectors --data_dir DIR --word_vectors FILE
--output benchmarks/reports/word_vectors.json`.

Logistic regression on the mean of the word vectors of a sentence, in cross-validation where the task has folds. There
are published figures of this kind for GloVe (SentEval), so that word vectors can be compared before encoders are.
``--records`` compares trained systems with it, row by row.
"""

from __future__ import annotations

import sys
from dataclasses import MISSING, dataclass
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.stats import bootstrap

from hf_blosan.cli.options import option
from hf_blosan.errors import InputError
from hf_blosan.files import plain, write_json
from hf_blosan.tasks import TASKS
from hf_blosan.training.reporting import read_record

from .command import DATA_DIR, Options, choose, command
from .peers_data import Problem, read_problem
from .peers_systems import SYSTEMS, check
from .report import page, table

SYSTEM = "word_vectors"


def measured(problem: Problem, fold: int, signed: bool = False, records: Path | None = None) -> dict[str, Any]:
    """The figures of logistic regression on the test rows of a fold; ``signed``: see `features`; ``records``: compare
    those of this task with it."""
    system = SYSTEMS[SYSTEM]
    with TemporaryDirectory() as folder:
        settings = system.fit(problem, Path(folder), signed=signed) | {"signed_difference": signed}
        predictions = system.load(Path(folder))(problem.splits["test"].texts)
    rows = {split: len(rows.texts) for split, rows in problem.splits.items()}
    figures = problem.figures("test", predictions)
    row = {"task": problem.task.name, "fold": fold, "rows": rows, "figures": figures, "settings": settings}
    if records is not None:
        row["compared"] = compared(predictions, np.array(problem.splits["test"].labels), records)
    return row


def compared(predictions: np.ndarray, labels: np.ndarray, records: Path) -> dict[str, list[float]]:
    """By how much the accuracy of recorded systems is higher, the mean of their seeds: [difference, low, high] by
    system, with a 95 % interval of a paired bootstrap over the test rows.

    Raises:
        InputError: a record has other test rows.
    """
    right: dict[str, list[np.ndarray]] = {}
    for path in sorted(records.glob("*.json")):
        record = read_record(path)
        found = np.array(record["test_predictions"])
        if found.shape != labels.shape or not np.isclose(np.mean(found == labels), record["figures"]["test_accuracy"]):
            raise InputError(f"{path} has predictions of other test rows; give records of this task and data")
        right.setdefault(record["experiment"]["row"], []).append(found == labels)
    result = {}
    for name, seeds in right.items():
        differences = np.mean(seeds, axis=0) - (predictions == labels)
        interval = bootstrap((differences,), np.mean, n_resamples=2000, method="percentile", rng=0).confidence_interval
        result[name] = [float(differences.mean()), float(interval.low), float(interval.high)]
    return result


def is_signed(row: dict[str, Any]) -> bool:
    return row["settings"].get("signed_difference", False)


def markdown(report: dict[str, Any]) -> str:
    """The report as a table: mean and standard deviation over folds."""
    head, lines = report["header"], []
    for task, signed in dict.fromkeys((row["task"], is_signed(row)) for row in report["rows"]):
        rows = [row for row in report["rows"] if (row["task"], is_signed(row)) == (task, signed)]
        name, features = TASKS[task].best_metric, ""
        if TASKS[task].num_sentences == 2:
            features = ", u - v" if signed else ", abs(u - v)"
        values = [row["figures"][name] for row in rows]
        deviation = f" ± {stdev(values):.4f}" if len(values) > 1 else ""
        lines.append([f"{task}{features}", name, len(rows), f"{mean(values):.4f}{deviation}"])
    notes = [f"Word vectors: {head['word_vectors']}"]
    parts = [table(["task", "figure", "folds", ""], lines, left=2)]
    for row in report["rows"]:
        if others := row.get("compared"):
            parts.append(
                f"Accuracy of trained systems on {row['task']}, less that of the line with "
                f"{'u - v' if is_signed(row) else 'abs(u - v)'}: means of their seeds, with 95 % intervals of a "
                "paired bootstrap over the test rows."
            )
            shown = [
                [name, f"{mean:+.4f}", f"{low:+.4f} to {high:+.4f}"] for name, (mean, low, high) in others.items()
            ]
            parts.append(table(["system", "difference", "interval"], shown))
    return page("Word vectors without an encoder", head, notes, *parts)


@dataclass(kw_only=True)
class VectorOptions(Options):
    """Options of ``python -m benchmarks.word_vectors``."""

    data_dir: str | None = option(DATA_DIR)
    word_vectors: str = option("Word vectors in GloVe text format, plain or .gz.", MISSING)
    tasks: str = option("Tasks.", "cr,mpqa,subj,trec")
    signed_difference: bool = option("Of pairs: u - v in place of |u - v|.", False)
    records: str | None = option("Folder of records of systems that are compared with it, of one task.")

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("--tasks", self.tasks, TASKS)
        check([SYSTEM], self.rows)

    @property
    def rows(self) -> dict[str, Any]:
        """What rows are read with."""
        return {name: getattr(self, name) for name in ("data_dir", "word_vectors", "seed")} | {"minilm": None}


def place(row: dict[str, Any]) -> tuple[str, int, bool]:
    """What a row is of."""
    return row["task"], row["fold"], is_signed(row)


def measure(options: VectorOptions, report: dict[str, Any]) -> None:
    """Measure all folds that the report lacks, and write it after each."""
    from threadpoolctl import threadpool_limits

    signed = options.signed_difference
    # A row that was made without records is made again where they are given.
    present = {place(row) for row in report["rows"] if "compared" in row or not options.records}
    with threadpool_limits(options.threads):
        for task in options.tasks.split(","):
            for fold in range(TASKS[task].num_folds or 1):
                if (task, fold, signed) not in present:
                    problem = read_problem(task, fold=fold, **options.rows)
                    row = plain(measured(problem, fold, signed, options.records and Path(options.records)))
                    report["rows"] = [*(other for other in report["rows"] if place(other) != place(row)), row]
                    write_json(options.output, report)


main = command(
    "benchmarks.word_vectors",
    VectorOptions,
    measure,
    packages=("scikit-learn", "sentence-transformers"),
    header=lambda options: {"word_vectors": Path(options.word_vectors).name},
    resume=lambda options: (),
)

if __name__ == "__main__":
    sys.exit(main())
