"""What word vectors know without an encoder: `python -m benchmarks.word_vectors --data_dir DIR --word_vectors FILE
--output benchmarks/reports/word_vectors.json`.

Logistic regression on the mean of the word vectors of a sentence, in cross-validation where the task has folds. There
are published figures of this kind for GloVe (SentEval), so that word vectors can be compared before encoders are.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any

from hf_blosan.files import plain, write_json
from hf_blosan.tasks import TASKS

from .command import (
    check_positive,
    choose,
    cpu_header,
    exit_code,
    make_parser,
    resumed,
    surroundings_lines,
    write_report,
)
from .peers_data import Problem, read_problem
from .peers_systems import SYSTEMS, check

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
    head = report["header"]
    lines = ["# Word vectors without an encoder", "", *surroundings_lines(head)]
    lines += [
        f"- Word vectors: {head['word_vectors']}",
        "",
        "| task | folds | figure | |",
        "| --- | ---: | --- | ---: |",
    ]
    for task, signed in dict.fromkeys((row["task"], is_signed(row)) for row in report["rows"]):
        rows = [row for row in report["rows"] if (row["task"], is_signed(row)) == (task, signed)]
        name, features = TASKS[task].best_metric, ""
        if TASKS[task].num_sentences == 2:
            features = ", u - v" if signed else ", abs(u - v)"
        values = [row["figures"][name] for row in rows]
        spread = f" ± {stdev(values):.4f}" if len(values) > 1 else ""
        lines.append(f"| {task}{features} | {len(rows)} | {name} | {mean(values):.4f}{spread} |")
    return "\n".join(lines) + "\n"


def parse(argv: list[str]) -> argparse.Namespace:
    parser = make_parser("benchmarks.word_vectors", "What word vectors know without an encoder.", repeats=None)
    parser.add_argument("--data_dir", help="folder with DIR/<task>/<split>.jsonl.gz; default: the data set on the Hub")
    parser.add_argument("--word_vectors", required=True, help="word vectors in GloVe text format, plain or .gz")
    parser.add_argument("--tasks", default="cr,mpqa,subj,trec", help="default: cr,mpqa,subj,trec")
    parser.add_argument("--signed_difference", action="store_true", help="of pairs: u - v in place of |u - v|")
    arguments = parser.parse_args(argv)
    check_positive(arguments, "threads")
    return arguments


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure all folds and write the report after each.

    Raises:
        InputError: an option that cannot be used, or a package is missing.
    """
    argv = sys.argv[1:] if argv is None else argv
    arguments = parse(argv)
    tasks = choose("--tasks", arguments.tasks, TASKS)
    options = {name: getattr(arguments, name) for name in ("data_dir", "word_vectors", "seed")} | {"minilm": None}
    check([SYSTEM], options)
    head = cpu_header("benchmarks.word_vectors", arguments, argv, (), ("scikit-learn", "sentence-transformers"))
    signed = arguments.signed_difference
    report = resumed("--output", arguments.output, head | {"word_vectors": Path(arguments.word_vectors).name})
    present = {(row["task"], row["fold"], is_signed(row)) for row in report["rows"]}

    from threadpoolctl import threadpool_limits

    with threadpool_limits(arguments.threads):
        for task, fold in [(name, fold) for name in tasks for fold in range(TASKS[name].num_folds or 1)]:
            if (task, fold, signed) not in present:
                report["rows"].append(plain(measured(read_problem(task, fold=fold, **options), fold, signed)))
                write_json(arguments.output, report)
    write_report(arguments.output, report, markdown(report))
    return report


def main(argv: list[str] | None = None) -> int:
    """The command; bad input is one sentence on standard error and exit code 2."""
    return exit_code(run, argv)


if __name__ == "__main__":
    sys.exit(main())
