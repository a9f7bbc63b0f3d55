"""The command `python -m reproduce`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from hf_blosan.errors import InputError

from .tables import BEST, TABLES, choose, get_table

DESCRIPTION = """\
Train the systems of a paper's table and print the table with the paper's figures beside ours (to standard output;
progress goes to standard error). Each run is a separate process and leaves one JSON file; repeating the command
continues where it stopped. Options of run_glue_style.py that the table does not set are passed to every run, for
example --data_dir, --word_vectors (width 300 in the papers), --max_train_samples, --optimizer or --config_overrides.
They override the settings of the row; the defaults are those of the modern recipe, --recipe paper has the papers'
settings. The exit code is 1 if a run failed, 2 for bad input, 130 if interrupted.
"""


def main(argv: list[str] | None = None) -> int:
    """Run a table; bad input prints one sentence to standard error and returns 2."""
    parser = argparse.ArgumentParser(
        prog="python -m reproduce",
        description=DESCRIPTION,
        epilog="tables:\n" + "\n".join(f"  {name:<20} {table.title}" for name, table in TABLES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("table", metavar="TABLE", help="name of a table (see below), before all options")
    parser.add_argument("--rows", nargs="+", metavar="NAME", help="only these systems, for example bi_lstm disan")
    parser.add_argument("--columns", nargs="+", metavar="NAME", help="only these columns, for example trec sst_2")
    parser.add_argument("--seeds", nargs="+", type=int, default=[42], help="seeds, one run for each (42)")
    parser.add_argument("--folds", type=int, help="maximum number of folds of a data set without a test split")
    parser.add_argument("--jobs", type=int, default=1, help="parallel runs (1), with one thread or OMP_NUM_THREADS")
    parser.add_argument("--output_dir", type=Path, help="folder of the records (out/experiments/TABLE)")
    parser.add_argument(
        "--baseline",
        metavar="NAME",
        help="compare all rows with this one by a paired bootstrap; best: with the best row of each column, whose "
        "figure is bold if it is told apart from all others (takes minutes)",
    )
    parser.add_argument("--keep_models", action="store_true", help="keep the models, not just the records")
    options, training_argv = parser.parse_known_args(argv)
    try:
        return run_table(options, training_argv)
    except (InputError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; repeat the command to continue", file=sys.stderr)
        return 130


def run_table(options: argparse.Namespace, training_argv: list[str]) -> int:
    """Plan the runs, train those that are not finished, print the table.

    Args:
        options: the options of this command.
        training_argv: the options for every run.

    Raises:
        InputError: an option is invalid, or the output folder holds something else.
    """
    table = get_table(options.table)
    rows = choose(table.rows, options.rows, "row", options.table)
    columns = choose(table.columns, options.columns, "column", options.table)
    baseline = options.baseline
    if baseline not in (None, BEST):
        (baseline,) = choose(rows, [baseline], "row", options.table)
    table = replace(table, rows=rows, columns=columns)
    for name, value, least in (
        ("seeds", min(options.seeds), 0),
        ("folds", options.folds, 1),
        ("jobs", options.jobs, 1),
    ):
        if value is not None and value < least:
            raise InputError(f"--{name} is {value}; it must be {least} or more")
    # Imported late so that --help and wrong names are answered at once, and without the extra `train`.
    from .report import render, summary
    from .runner import plan, train_all

    output_dir = options.output_dir or Path("out/experiments") / options.table
    runs = plan(table, options.seeds, options.folds, output_dir, training_argv)
    data_dir, word_vectors = runs[0].arguments.data_dir, runs[0].arguments.word_vectors
    if data_dir and not Path(data_dir).is_dir():
        raise InputError(f"data directory {data_dir} does not exist; correct --data_dir")
    if word_vectors and not Path(word_vectors).is_file():
        raise InputError(f"word-vector file {word_vectors} does not exist; correct --word_vectors")

    for run in runs:
        run.load_record()
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
    print(f"{options.table}: {len(finished)} finished before, {len(left)} to train", file=sys.stderr)
    for count, run in enumerate(train_all(left, options.table, jobs=options.jobs, keep_models=options.keep_models), 1):
        print(f"[{count}/{len(left)}] {summary(run)}", file=sys.stderr)
    print(render(table, runs, missing, baseline))
    return 1 if any(run.failure for run in runs) else 0


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
