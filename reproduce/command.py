"""The command `python -m reproduce`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hf_blosan.cli.options import CheckedOptions, Parser, add_options, option, positional, read_options
from hf_blosan.errors import InputError

from .tables import BEST, TABLES, Row, choose, get_table

if TYPE_CHECKING:
    from .runner import Run

DESCRIPTION = """\
Train the systems of a paper's table and print the table with the paper's figures next to ours (to standard output;
progress goes to standard error). Each run is a separate process and leaves one JSON file; repeating the command
continues where it stopped. Options of run_glue_style.py that the table does not set are passed to every run, for
example --data_dir, --word_vectors (width 300 in the papers), --max_train_samples, --optimizer or --config_overrides.
They override the settings of the row; the defaults are the modern recipe; --recipe paper has the papers'
settings. The exit code is 1 if a run failed, 2 for bad input, 130 if interrupted.
"""


@dataclass
class TableArguments(CheckedOptions):
    """Options of ``python -m reproduce``."""

    table: str = positional("Name of a table; see below.")
    rows: list[str] | None = option("Only these systems, for example bi_lstm disan.")
    columns: list[str] | None = option("Only these columns, for example trec sst_2.")
    seeds: list[int] = option("Seeds, one run for each. Default: 42.", [42], zero=True)
    folds: int | None = option("Maximum number of folds of a data set without a test split.")
    jobs: int = option("Parallel runs, with one thread or OMP_NUM_THREADS.", 1)
    output_dir: str | None = option("Folder of the records. Default: out/experiments/TABLE.")
    baseline: str | None = option(
        "Compare all rows with this one by a paired bootstrap; best: with the best row of each column, which "
        "is bold if significantly different from all others (takes minutes)."
    )
    keep_models: bool = option("Keep the models, not just the records.", False)


def main(argv: list[str] | None = None) -> int:
    """Run a table; bad input prints one sentence to standard error and returns 2."""
    names = "\n".join(f"  {name:<20} {table.title}" for name, table in TABLES.items())
    parser = Parser(prog="python -m reproduce", description=DESCRIPTION, epilog=f"tables:\n{names}")
    add_options(parser, TableArguments)
    try:
        namespace, training_words = parser.parse_known_args(sys.argv[1:] if argv is None else argv)
        return run_table(read_options(namespace, TableArguments), training_words)
    except (InputError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; repeat the command to continue", file=sys.stderr)
        return 130


def run_table(options: TableArguments, training_words: list[str]) -> int:
    """Plan the runs, train the unfinished ones, print the table.

    ``training_words`` are options of the training command, for every run. Raises InputError if an option is invalid,
    or the output folder has other files.
    """
    table, name = get_table(options.table), options.table
    rows = with_teachers(table.rows, choose(table.rows, options.rows, "row", name))
    table = replace(table, rows=rows, columns=choose(table.columns, options.columns, "column", name))
    baseline = options.baseline
    if baseline not in (None, BEST):
        (baseline,) = choose(rows, [baseline], "row", name)
    # Imported late so that --help and name errors appear at once, and without the extra `train`.
    from .report import render, summary
    from .runner import plan, train_all
    from .texts import write_texts

    output_dir = Path(options.output_dir or Path("out/experiments", name))
    runs = plan(table, options.seeds, options.folds, output_dir, training_words)
    data_dir, word_vectors = runs[0].arguments.data_dir, runs[0].arguments.word_vectors
    if data_dir and not Path(data_dir).is_dir():
        raise InputError(f"data directory {data_dir} does not exist; correct --data_dir")
    if word_vectors and not Path(word_vectors).is_file():
        raise InputError(f"word-vector file {word_vectors} does not exist; correct --word_vectors")

    for run in runs:
        run.load_record()
    forget_teachers(runs)
    finished = [run for run in runs if run.record]
    # A run writes all_results.json last: a folder without it may be that of an interrupted run.
    bare = sum(not Path(run.arguments.output_dir, "all_results.json").exists() for run in finished)
    if options.keep_models and bare:
        print(
            f"--keep_models: {bare} of the finished runs have no model; remove their records in {output_dir} to train "
            "them again, or give another --output_dir",
            file=sys.stderr,
        )
    missing = missing_data({run.task for run in runs if not run.record}, data_dir)
    left = [run for run in runs if not run.record and run.task not in missing]
    for run in left:
        if run.row.teacher:
            write_texts(table.texts[run.task], data_dir, run.arguments.unlabeled_file)
    print(f"{name}: {len(finished)} finished before, {len(left)} to train", file=sys.stderr)
    for count, run in enumerate(train_all(left, name, jobs=options.jobs, keep_models=options.keep_models), 1):
        print(f"[{count}/{len(left)}] {summary(run)}", file=sys.stderr)
    print(render(table, runs, missing, baseline))
    return 1 if any(run.failure for run in runs) else 0


def with_teachers(rows: tuple[Row, ...], chosen: tuple[Row, ...]) -> tuple[Row, ...]:
    """The chosen rows, and those that teach them."""
    names = {name for row in chosen for name in (row.name, row.teacher)}
    return tuple(row for row in rows if row.name in names)


def forget_teachers(runs: Iterable[Run]) -> None:
    """Forget the record of a teacher without a model if a run that needs it is left: it is trained again."""
    runs = list(runs)
    wanted = {run.arguments.distill_from for run in runs if not run.record}
    for run in runs:
        if run.arguments.output_dir in wanted and not Path(run.arguments.output_dir, "all_results.json").exists():
            run.record = None


def missing_data(tasks: Iterable[str], data_dir: str | None) -> dict[str, str]:
    """Tasks whose rows cannot be loaded -> the reason."""
    from datasets import disable_progress_bars

    from hf_blosan.tasks import load_task

    disable_progress_bars()
    missing = {}
    for task in tasks:
        try:
            load_task(task, data_dir=data_dir, seed=0)
        except InputError as error:
            missing[task] = str(error)
    return missing
