"""Plans the runs of a table and trains each in its own process. A run's only trace is its record, a JSON file."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from signal import Signals
from tempfile import TemporaryDirectory
from typing import Any

from datasets import disable_progress_bars

from ..data import load_task
from ..errors import InputError
from ..overrides import format_config_overrides, parse_config_overrides
from ..tasks import TASKS
from ..training import RunArguments, parse_arguments
from ..training.files import write_json
from ..training.preparation import check_overrides
from .tables import Column, Row, Table, slug

SET_BY_TABLE = {
    "task_name": "select columns with --columns",
    "encoder": "select rows with --rows",
    "model_name_or_path": "every run starts from random weights",
    "resume_from_checkpoint": "finished runs are kept, others start again",
    **dict.fromkeys(("train_file", "validation_file", "test_file"), "put the data into --data_dir"),
    "seed": "use --seeds",
    "fold": "use --folds",
    "results_file": "the records are in --output_dir",
    **dict.fromkeys(("push_to_hub", "hub_token"), "upload a model that --keep_models kept"),
}
"""Training options that the user cannot give because rows and columns set them -> what to do instead."""

IGNORED_WHEN_RESUMING = (
    *("data_dir", "output_dir", "results_file"),
    *("per_device_eval_batch_size", "cpu", "trust_remote_code", "ignore_mismatched_sizes"),
    *("checkpointing_steps", "logging_steps", "with_tracking", "report_to", "hub_model_id"),
)
"""Options without influence on the figures: locations, and how a run is monitored."""

# Tensors of these sizes do not occupy a second thread. The user's environment takes precedence.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


@dataclass(eq=False)
class Run:
    """One training run of a table.

    Attributes:
        row: the system.
        arguments: all options; ``output_dir`` is for the model, ``results_file`` for the record.
        folds: number of folds of the task; 0 if it has its own test split.
        record: the record, once the run is finished.
        failure: the reason, once the run has failed.
    """

    row: Row
    arguments: RunArguments
    folds: int = 0
    record: dict[str, Any] | None = None
    failure: str | None = None

    @property
    def task(self) -> str:
        return self.arguments.task_name

    @property
    def record_file(self) -> Path:
        return Path(self.arguments.results_file)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that determines the figures: the options that differ from their defaults, without paths."""
        changed = _without_ignored(self.arguments.changed())
        if self.arguments.word_vectors:
            changed["word_vectors"] = Path(self.arguments.word_vectors).name
        return changed | {"data": "local files" if self.arguments.data_dir else "Hugging Face Hub"}

    def __str__(self) -> str:
        fold = f", fold {self.arguments.fold} of {self.folds}" if self.folds else ""
        label = f"{self.row.name} on {self.task}, seed {self.arguments.seed}{fold}"
        if not self.record:
            return f"{label} failed: {self.failure}" if self.failure else label
        metric, figures = self.record["task"]["best_metric"], self.record["figures"]
        names = [name for name in (f"validation_{metric}", f"test_{metric}") if figures.get(name) is not None]
        shown = [f"{name} {figures[name]:.4f}" for name in names]
        return f"{label}: {', '.join(shown)}, {self.record['training']['seconds_in_all']:.0f} s"

    def load_record(self) -> None:
        """Load the record of an earlier call, if there is one.

        Raises:
            InputError: the file is not a record, or its run had different settings.
        """
        if not self.record_file.exists():
            return
        try:
            record = json.loads(self.record_file.read_text(encoding="utf-8"))
            recorded = _without_ignored(record["experiment"]["settings"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{self.record_file} is not the record of a table's run; remove it") from error
        wanted = self.settings
        for name in wanted | recorded:
            if recorded.get(name) != wanted.get(name):
                old, new = (f"{given[name]!r}" if name in given else "the default" for given in (recorded, wanted))
                raise InputError(
                    f"{self.record_file} was made with {name} {old}, this call has {new}; give another --output_dir, "
                    "or remove the file to train again"
                )
        self.record = record


def _without_ignored(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in IGNORED_WHEN_RESUMING}


def plan(
    table: Table,
    rows: tuple[Row, ...],
    columns: tuple[Column, ...],
    seeds: list[int],
    folds: int | None,
    output_dir: Path,
    argv: list[str],
) -> list[Run]:
    """One run per seed, task, row and, for tasks without a test split, fold; all runs of a seed come first.

    Args:
        table, rows, columns, seeds: what to run.
        folds: maximum number of folds; None runs all.
        output_dir: folder of the records.
        argv: training options from the command line; they override those of table, row and recipe.

    Raises:
        InputError: a training option is unknown, invalid or set by the table.
    """
    tasks = dict.fromkeys(column.task for column in columns)
    runs = {seed: [] for seed in seeds}
    for task in tasks:
        for row in rows:
            common = _arguments(table, row, task, output_dir, argv)
            source = TASKS[task].local if common.data_dir else TASKS[task].hub
            own_split = source is None or {"test", "validation"} & source.splits.keys()
            available = 0 if own_split else common.num_folds
            for seed in runs:
                for fold in range(min(folds or available, available) or 1):
                    name = f"{slug(row.name)}_{task}_seed{seed}" + (f"_fold{fold}" if available else "")
                    paths = {"output_dir": str(output_dir / name), "results_file": str(output_dir / f"{name}.json")}
                    runs[seed].append(Run(row, replace(common, seed=seed, fold=fold, **paths), available))
    return [run for of_seed in runs.values() for run in of_seed]


def _arguments(table: Table, row: Row, task: str, output_dir: Path, argv: list[str]) -> RunArguments:
    """Options of a row's runs on a task, except seed, fold and files."""
    expected = RunArguments(task_name=task, encoder=row.encoder, output_dir=str(output_dir), **table.options)
    arguments = parse_arguments([*expected.to_argv(), *argv])
    for name, remedy in SET_BY_TABLE.items():
        if getattr(arguments, name) != getattr(expected, name):
            raise InputError(f"--{name} is set by the table; {remedy}")
    given = parse_config_overrides(arguments.config_overrides)
    check_overrides(given, row.encoder)
    return replace(arguments, config_overrides=format_config_overrides({**row.overrides, **given}) or None)


def missing_data(tasks: Iterable[str], data_dir: str | None) -> dict[str, str]:
    """Tasks whose rows cannot be loaded -> the reason."""
    disable_progress_bars()
    missing = {}
    for task in tasks:
        try:
            load_task(task, data_dir=data_dir, seed=0)
        except InputError as error:
            missing[task] = str(error)
    return missing


def train_all(runs: Iterable[Run], table: str, *, jobs: int = 1, keep_models: bool = False) -> Iterator[Run]:
    """Train `jobs` runs at a time and yield each as it ends; closing the iterator terminates those in progress.

    Args:
        runs: what to train; sets their ``record`` or ``failure``.
        table: name of the table, for the records.
        jobs: number of processes.
        keep_models: keep model, log and predictions in the run's ``output_dir``, not just its record.
    """
    processes: set[subprocess.Popen] = set()
    pool = ThreadPoolExecutor(jobs)
    try:
        futures = {pool.submit(_train, run, table, keep_models, processes): run for run in runs}
        for future in as_completed(futures):
            future.result()
            yield futures[future]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(processes):
            process.terminate()


def _train(run: Run, table: str, keep_models: bool, processes: set[subprocess.Popen]) -> None:
    """Train a run in a hidden folder, then write its record; keep the log if the run fails by itself."""
    log, folder = run.record_file.with_suffix(".log"), run.record_file.parent
    folder.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    for path in folder.glob(f".{log.stem}.*"):  # of a call that was killed
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with TemporaryDirectory(prefix=f".{log.stem}.", dir=folder, ignore_cleanup_errors=True) as temporary:
        new_log, new_record = Path(temporary, "log"), Path(temporary, "record.json")
        model = run.arguments.output_dir if keep_models else str(Path(temporary, "model"))
        arguments = replace(run.arguments, output_dir=model, results_file=str(new_record))
        code = _call(arguments.to_argv(), new_log, processes)
        if code < 0:
            run.failure = f"ended by {Signals(-code).name}"
        elif code or not new_record.exists():
            os.replace(new_log, log)
            run.failure = f"{_last_message(log) or f'exit code {code}'} (log: {log})"
        else:
            run.record = json.loads(new_record.read_text(encoding="utf-8")) | {
                "command": shlex.join(["python", "run_glue_style.py", *run.arguments.to_argv()]),
                "experiment": {"table": table, "row": run.row.name, "settings": run.settings},
            }
            write_json(run.record_file, run.record)


def _call(argv: list[str], log: Path, processes: set[subprocess.Popen]) -> int:
    """Run the training command with its output in `log`; return its exit code."""
    command = [sys.executable, "-m", "hf_blosan.training", *argv]
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=ONE_THREAD | os.environ)
        processes.add(process)
        try:
            return process.wait()
        finally:
            processes.discard(process)


def _last_message(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or lines or [""])[-1]
