"""What word vectors know without an encoder: `python -m benchmarks.word_vectors --data_dir DIR --word_vectors FILE
--output benchmarks/reports/word_vectors.json`.

Logistic regression on the mean of the word vectors of a sentence, in cross-validation where the task has folds. There
are published figures of this kind for GloVe (SentEval), so that word vectors can be compared before encoders are.
"""

from __future__ import annotations

import sys
from dataclasses import MISSING, dataclass
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any

from hf_blosan.cli.options import option
from hf_blosan.files import plain, write_json
from hf_blosan.tasks import TASKS

from .command import DATA_DIR, Options, choose, command
from .peers_data import Problem, read_problem
from .peers_systems import SYSTEMS, check
from .report import page, table

SYSTEM = "word_vectors"


def measured(problem: Problem, fold: int, signed: bool = False) -> dict[str, Any]:
    """The figures of logistic regression on the test rows of a fold; ``signed``: see `features`."""
    system = SYSTEMS[SYSTEM]
    with TemporaryDirectory() as folder:
        settings = system.fit(problem, Path(folder), signed=signed) | {"signed_difference": signed}
        predictions = system.load(Path(folder))(problem.splits["test"].texts)
    rows = {split: len(rows.texts) for split, rows in problem.splits.items()}
    figures = problem.figures("test", predictions)
    return {"task": problem.task.name, "fold": fold, "rows": rows, "figures": figures, "settings": settings}


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
    return page("Word vectors without an encoder", head, notes, table(["task", "figure", "folds", ""], lines, left=2))


@dataclass(kw_only=True)
class VectorOptions(Options):
    """Options of ``python -m benchmarks.word_vectors``."""

    data_dir: str | None = option(DATA_DIR)
    word_vectors: str = option("Word vectors in GloVe text format, plain or .gz.", MISSING)
    tasks: str = option("Tasks.", "cr,mpqa,subj,trec")
    signed_difference: bool = option("Of pairs: u - v in place of |u - v|.", False)

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("--tasks", self.tasks, TASKS)
        check([SYSTEM], self.rows)

    @property
    def rows(self) -> dict[str, Any]:
        """What rows are read with."""
        return {name: getattr(self, name) for name in ("data_dir", "word_vectors", "seed")} | {"minilm": None}


def measure(options: VectorOptions, report: dict[str, Any]) -> None:
    """Measure all folds that the report lacks, and write it after each."""
    from threadpoolctl import threadpool_limits

    signed = options.signed_difference
    present = {(row["task"], row["fold"], is_signed(row)) for row in report["rows"]}
    with threadpool_limits(options.threads):
        for task in options.tasks.split(","):
            for fold in range(TASKS[task].num_folds or 1):
                if (task, fold, signed) not in present:
                    problem = read_problem(task, fold=fold, **options.rows)
                    report["rows"].append(plain(measured(problem, fold, signed)))
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
