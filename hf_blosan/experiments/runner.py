"""Training the runs of a table, each in a process of its own."""

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
from tempfile import mkdtemp
from typing import Any

from datasets import disable_progress_bars

from ..data import load_task
from ..errors import InputError
from ..training.files import write_json
from .plan import Run

ONE_THREAD = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
"""Tensors of these sizes do not fill a second thread; the environment of the user goes before."""


@dataclass(frozen=True)
class Result:
    """What became of a run: its record, or why there is none."""

    run: Run
    record: dict[str, Any] | None = None
    failure: str | None = None

    def __str__(self) -> str:
        if self.failure:
            return f"{self.run.label} failed: {self.failure}"
        metric = self.record["task"]["best_metric"]
        figures = {name: self.record["figures"].get(name) for name in (f"validation_{metric}", f"test_{metric}")}
        shown = [f"{name} {value:.4f}" for name, value in figures.items() if value is not None]
        return f"{self.run.label}: {', '.join(shown)}, {self.record['training']['seconds_in_all']:.0f} s"


def missing_data(task: str, data_dir: str | None) -> str | None:
    """Why the rows of a task cannot be had, ``None`` if they can."""
    disable_progress_bars()
    try:
        load_task(task, data_dir=data_dir, seed=0)
    except InputError as error:
        return str(error)
    return None


def train_all(runs: Iterable[Run], table: str, *, jobs: int = 1, keep_models: bool = False) -> Iterator[Result]:
    """Train the runs, `jobs` at a time, and give each result as it is there; leaving early ends those under way.

    Args:
        runs: what to train.
        table: name of the table, for the records.
        jobs: processes side by side.
        keep_models: keep model, log and predictions of a run in its ``output_dir``, and not its record alone.
    """
    under_way: set[subprocess.Popen] = set()
    pool = ThreadPoolExecutor(jobs)
    try:
        futures = [pool.submit(_train, run, table, keep_models, under_way) for run in runs]
        for future in as_completed(futures):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(under_way):
            process.terminate()


def _train(run: Run, table: str, keep_models: bool, under_way: set[subprocess.Popen]) -> Result:
    """Train one run in a process; its record appears whole or not at all, its log stays if it fails of itself."""
    log = run.record_file.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    _remove_remains(run)
    folder = Path(mkdtemp(prefix=f".{log.stem}.", dir=log.parent))
    record_file = folder / "record.json"
    model = run.arguments.output_dir if keep_models else str(folder / "model")
    arguments = replace(run.arguments, output_dir=model, results_file=str(record_file))
    try:
        code = _call(arguments.to_argv(), folder / "log", under_way)
        if code < 0:
            return Result(run, failure=f"ended by {Signals(-code).name}")
        if code or not record_file.exists():
            os.replace(folder / "log", log)
            return Result(run, failure=f"{_reason(log, code)} (log: {log})")
        record = json.loads(record_file.read_text(encoding="utf-8")) | {
            "command": shlex.join(["python", "run_glue_style.py", *run.arguments.to_argv()]),
            "experiment": {"table": table, "row": run.row.name, "settings": run.settings},
        }
        write_json(run.record_file, record)
        return Result(run, record)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_remains(run: Run) -> None:
    """Remove the log of an earlier try that failed, and the hidden files of one that was killed."""
    stem = run.record_file.stem
    for path in (run.record_file.with_suffix(".log"), *run.record_file.parent.glob(f".{stem}.*")):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _call(words: list[str], log: Path, under_way: set[subprocess.Popen]) -> int:
    """Run the training command with its output in a file, and return its exit code."""
    command = [sys.executable, "-m", "hf_blosan.training", *words]
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=ONE_THREAD | os.environ)
        under_way.add(process)
        try:
            return process.wait()
        finally:
            under_way.discard(process)


def _reason(log: Path, code: int) -> str:
    """Why a run failed, in a line: what it said last."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    said = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")] or lines
    return said[-1] if said else f"exit code {code}"
