"""The command `python -m hf_blosan.experiments`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..errors import InputError
from .tables import TABLES, choose, get_table

DESCRIPTION = """\
Train the systems of a paper's table and print it, the paper's figures beside ours (standard output; progress goes to
standard error). Each run is a process of its own and leaves one JSON file; the same command again goes on where it was
stopped. Every option of run_glue_style.py that is not decided by the table is handed on to every run, for instance
--data_dir, --word_vectors (of width 300, as in the papers), --max_train_samples, --optimizer or --config_overrides. It
goes before the setting of the row; what is not given is the papers' setting. The exit code is 1 if a run failed, 2 for
bad input, 130 if stopped.
"""

JOBS = "runs side by side (1), each with one thread unless OMP_NUM_THREADS says otherwise"


def main(argv: list[str] | None = None) -> int:
    """Run a table; bad input is one sentence on standard error and exit code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m hf_blosan.experiments",
        description=DESCRIPTION,
        epilog="tables:\n" + "\n".join(f"  {name:<20} {table.title}" for name, table in TABLES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("table", metavar="TABLE", help="name of a table, see below; it comes first")
    parser.add_argument("--rows", nargs="+", metavar="NAME", help="only these systems, for instance bi_lstm disan")
    parser.add_argument("--columns", nargs="+", metavar="NAME", help="only these columns, for instance trec sst_2")
    parser.add_argument("--seeds", nargs="+", type=int, default=[42], help="a run for each of these seeds (42)")
    parser.add_argument("--folds", type=int, help="only that many of the folds of a data set without a test split")
    parser.add_argument("--jobs", type=int, default=1, help=JOBS)
    parser.add_argument("--output_dir", type=Path, help="folder of the records (out/experiments/TABLE)")
    parser.add_argument("--keep_models", action="store_true", help="keep each run's model, not its record alone")
    options, words = parser.parse_known_args(argv)
    try:
        return run_table(options, words)
    except (InputError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        return 130


def run_table(options: argparse.Namespace, words: list[str]) -> int:
    """Plan the runs, train those that are not finished, print the table.

    Args:
        options: of this command.
        words: the options that are handed on to every run.

    Raises:
        InputError: an option cannot be used, or a file in the output folder is in the way.
    """
    table = get_table(options.table)
    rows = choose(table.rows, options.rows, "row", options.table)
    columns = choose(table.columns, options.columns, "column", options.table)
    if min(options.seeds) < 0:
        raise InputError(f"--seeds has {min(options.seeds)}; a seed must be 0 or more")
    for name in ("folds", "jobs"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise InputError(f"--{name} is {value}; it must be 1 or more")
    # Imported here: --help and a wrong name are answered at once, and without the extra `train`.
    from .plan import plan
    from .report import render
    from .runner import Result, missing_data, train_all

    output_dir = options.output_dir or Path("out/experiments") / options.table
    seeds = list(dict.fromkeys(options.seeds))
    runs = plan(table, rows, columns, seeds, options.folds, output_dir, words)
    data_dir, word_vectors = runs[0].arguments.data_dir, runs[0].arguments.word_vectors
    if data_dir and not Path(data_dir).is_dir():
        raise InputError(f"data directory {data_dir} does not exist; correct --data_dir")
    if word_vectors and not Path(word_vectors).is_file():
        raise InputError(f"word-vector file {word_vectors} does not exist; correct --word_vectors")

    results = [Result(run, record) for run in runs if (record := run.record())]
    finished = {result.run.record_file for result in results}
    # Written at the very end of a run: a folder alone may be that of a run that was stopped.
    bare = sum(not Path(result.run.arguments.output_dir, "all_results.json").exists() for result in results)
    if options.keep_models and bare:
        print(
            f"--keep_models: {bare} of the finished runs kept no model; remove their records in {output_dir} to train "
            "them again, or give another --output_dir",
            file=sys.stderr,
        )
    left = [run for run in runs if run.record_file not in finished]
    reasons = {task: missing_data(task, data_dir) for task in dict.fromkeys(run.task for run in left)}
    missing = {task: reason for task, reason in reasons.items() if reason}
    left = [run for run in left if run.task not in missing]
    print(f"{options.table}: {len(results)} finished before, {len(left)} to train", file=sys.stderr)
    trained = train_all(left, options.table, jobs=options.jobs, keep_models=options.keep_models)
    for count, result in enumerate(trained, 1):
        print(f"[{count}/{len(left)}] {result}", file=sys.stderr)
        results.append(result)
    results.sort(key=lambda result: runs.index(result.run))
    print(render(table, rows, columns, results, missing))
    return 1 if any(result.failure for result in results) else 0
