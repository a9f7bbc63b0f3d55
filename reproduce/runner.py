"""Plans the runs of a table and trains each in its own process. A run leaves only its record, a JSON file."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from signal import Signals
from tempfile import TemporaryDirectory
from typing import Any

from filelock import FileLock, Timeout

from hf_blosan.cli.options import Parser, add_options
from hf_blosan.cli.overrides import format_config_overrides, parse_config_overrides
from hf_blosan.errors import InputError
from hf_blosan.tasks import TASKS
from hf_blosan.training import RunArguments
from hf_blosan.training.preparation import check_overrides
from hf_blosan.training.reporting import held_out, read_record, write_record

from .tables import SET_BY_TABLE, Row, Table, slug

IGNORED = (
    *("data_dir", "output_dir", "results_file"),
    *("per_device_eval_batch_size", "cpu", "trust_remote_code", "ignore_mismatched_sizes"),
    *("checkpointing_steps", "logging_steps", "with_tracking", "report_to", "hub_model_id"),
)
"""Options that do not affect the figures: locations and monitoring."""

PATHS = ("word_vectors", "backbone", "distill_from", "unlabeled_file")
"""Options whose values may be paths; the settings of a record have their last parts."""


@dataclass(eq=False)
class Run:
    """One training run of a table: planned, then with a record or the reason of its failure."""

    row: Row
    arguments: RunArguments  # output_dir is for the model, results_file for the record
    folds: int  # of the task; 0 if it has its own test split
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
        settings = {"data": "local files" if self.arguments.data_dir else "Hugging Face Hub"}
        for name, value in self.arguments.changed().items():
            if name not in IGNORED:
                settings[name] = Path(value).name if name in PATHS else value
        return settings

    def load_record(self) -> None:
        """Load the record of an earlier call, if any; raises InputError if the file is not a record, or its run had
        different settings.
        """
        path = self.record_file
        if not path.exists():
            return
        try:
            record = read_record(path)
            old, new = dict(record["experiment"]["settings"]), self.settings
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is not the record of a table's run; remove it") from error
        for name in new | old:
            if name not in IGNORED and old.get(name) != new.get(name):
                was, now = (repr(given[name]) if name in given else "the default" for given in (old, new))
                raise InputError(
                    f"{path} was made with {name} {was}, this call has {now}; give another --output_dir, or remove "
                    "the file to train again"
                )
        self.record = record


def plan(table: Table, seeds: list[int], folds: int | None, output_dir: Path, words: list[str]) -> list[Run]:
    """One run per seed, task, row and, for tasks without a test split, fold; all runs of a seed come first.

    ``folds`` is the maximum number of folds, ``None``: all; ``output_dir`` is the folder of the records. The training
    options in ``words``, from the command line, override those of table, row and recipe. Raises InputError if one is
    unknown, invalid or set by the table.
    """
    tasks, given = dict.fromkeys(column.task for column in table.columns), given_options(words)
    common = [(row, _arguments(table, row, task, output_dir, given)) for task in tasks for row in table.rows]
    runs = []
    for seed in dict.fromkeys(seeds):
        for row, arguments in common:
            task = TASKS[arguments.task_name]
            protocol = arguments.resolved(task, row.encoder)
            available = protocol.num_folds if "test" in held_out(protocol, task) else 0
            for fold in range(min(folds or available, available) or 1):
                part = f"_{task.name}_seed{seed}" + (f"_fold{fold}" if available else "")
                path = output_dir / f"{slug(row.name)}{part}"
                files = {"output_dir": str(path), "results_file": f"{path}.json"}
                if row.teacher:
                    files["distill_from"] = str(output_dir / f"{slug(row.teacher)}{part}")
                    files["unlabeled_file"] = str(output_dir / f"texts_{task.name}.jsonl")
                runs.append(Run(row, replace(arguments, seed=seed, fold=fold, **files), available))
    return runs


def given_options(words: list[str]) -> dict[str, Any]:
    """The training options on a command line, only those that are given; raises InputError if one is unknown, has a
    value of the wrong type, or is set by the table.
    """
    parser = Parser(prog="run_glue_style.py")
    add_options(parser, RunArguments)
    not_given = dict.fromkeys((entry.name for entry in fields(RunArguments)), MISSING)  # instead of the defaults
    namespace, unknown = parser.parse_known_args(words, Namespace(**not_given))
    parser.refuse(unknown, RunArguments)
    given = {name: value for name, value in vars(namespace).items() if value is not MISSING}
    for name, remedy in SET_BY_TABLE.items():
        if name in given:
            raise InputError(f"--{name} is set by the table; {remedy}")
    return given


def _arguments(table: Table, row: Row, task: str, output_dir: Path, given: dict[str, Any]) -> RunArguments:
    """Options of a row's runs on a task, except seed, fold and files."""
    options = {**table.options, **row.options, **given}
    overrides = parse_config_overrides(options.pop("config_overrides", None))
    check_overrides(overrides, row.encoder)
    text = format_config_overrides({**row.overrides, **overrides}) or None
    place = {"output_dir": str(output_dir), "config_overrides": text}
    start = {"model_name_or_path": row.pretrained} if row.pretrained else {"encoder": row.encoder}
    return RunArguments(task_name=task, **start, **place, **options)


def train_all(runs: Iterable[Run], table: str, *, jobs: int = 1, keep_models: bool = False) -> Iterator[Run]:
    """Train `jobs` runs at a time and yield each, with its ``record`` or ``failure`` set, when it ends.

    Closing the iterator terminates runs in progress. Only a run's record, which names the `table`, is kept; with
    `keep_models`, and of teachers, also model, log and predictions, in the run's ``output_dir``. Teachers come first.
    """
    processes: list[subprocess.Popen] = []
    pool, runs, futures = ThreadPoolExecutor(jobs), list(runs), {}
    teachers = {run.arguments.distill_from for run in runs}
    try:
        for run in sorted(runs, key=lambda run: run.row.teacher is not None):
            place, teacher = run.arguments.output_dir, futures.get(run.arguments.distill_from)
            keep = keep_models or place in teachers
            futures[place] = pool.submit(_train, run, table, keep, processes, after=teacher)
        yield from (future.result() for future in as_completed(futures.values()))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()  # no effect after its end


def _train(
    run: Run, table: str, keep_models: bool, processes: list[subprocess.Popen], after: Future | None = None
) -> Run:
    """Train a run unless another call does, or its teacher, which it waits for (`after`), failed."""
    if after is not None and after.result().failure:
        run.failure = "its teacher failed"
        return run
    lock = run.record_file.with_suffix(".lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(lock, timeout=0):
            _train_alone(run, table, keep_models, processes)
            lock.unlink(missing_ok=True)
    except Timeout:
        run.failure = f"another call trains it (lock: {lock})"
    return run


def _train_alone(run: Run, table: str, keep_models: bool, processes: list[subprocess.Popen]) -> None:
    """Train a run in a hidden folder, then write its record; keep the log if the run itself fails."""
    file, log = run.record_file, run.record_file.with_suffix(".log")
    log.unlink(missing_ok=True)
    for path in file.parent.glob(f".{file.stem}.*"):  # left by a killed call
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with TemporaryDirectory(prefix=f".{file.stem}.", dir=file.parent, ignore_cleanup_errors=True) as temporary:
        new_log, new_record = Path(temporary, "log"), Path(temporary, "record.json")
        model = run.arguments.output_dir if keep_models else str(Path(temporary, "model"))
        arguments = replace(run.arguments, output_dir=model, results_file=str(new_record))
        code = _call(arguments, new_log, processes)
        if code < 0 or code in (130, 143):  # killed, or stopped by a signal
            run.failure = f"ended by {Signals(abs(code) % 128).name}"
        elif code or not new_record.exists():
            os.replace(new_log, log)
            run.failure = f"{_last_message(log) or f'exit code {code}'} (log: {log})"
        else:
            run.record = read_record(new_record) | {
                "command": shlex.join(["python", "run_glue_style.py", *run.arguments.to_argv()]),
                "experiment": {"table": table, "row": run.row.name, "settings": run.settings},
            }
            write_record(file, run.record)


def _call(arguments: RunArguments, log: Path, processes: list[subprocess.Popen]) -> int:
    """Train in a process whose output goes to `log`; return its exit code."""
    # Tensors of these sizes do not use a second thread. The user's environment takes precedence.
    options = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "env": {"OMP_NUM_THREADS": "1"} | os.environ}
    with log.open("w", encoding="utf-8") as file:
        command = [sys.executable, "-m", "hf_blosan.training", *arguments.to_argv()]
        process = subprocess.Popen(command, stdout=file, **options)
    processes.append(process)
    return process.wait()


def _last_message(log: Path) -> str:
    lines = [line for line in map(str.strip, log.read_text(encoding="utf-8", errors="replace").splitlines()) if line]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or lines or [""])[-1]
