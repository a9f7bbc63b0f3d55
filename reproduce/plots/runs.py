"""Recorded runs, by system: what the plots of the papers are made from."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hf_blosan.errors import InputError
from hf_blosan.registry import FAMILIES
from hf_blosan.training.preparation import DECIDED_BY_DATA

MAY_DIFFER = ("seed", "fold", "block_length", *DECIDED_BY_DATA)
"""Settings and configuration fields in which the runs of a system may differ."""


@dataclass(frozen=True)
class Run:
    """A finished run of the training command.

    Attributes:
        path: its record, a JSON file written by ``--results_file``.
        record: the content of the file.
        label: name of the system; runs of the same name are averaged.
    """

    path: Path
    record: dict[str, Any]
    label: str

    @property
    def folder(self) -> Path:
        """Where its log and its predictions are: the path of the record without ``.json``."""
        return self.path.with_suffix("")

    @property
    def task(self) -> str:
        return self.record["task"]["name"]

    @property
    def metric(self) -> str:
        """The metric that selects the best model."""
        return self.record["task"]["best_metric"]

    def figure(self, name: str) -> float:
        """One of the figures; NaN if it is undefined, as the correlation of constant predictions.

        Raises:
            InputError: the record does not have it.
        """
        if name not in self.record["figures"]:
            has = ", ".join(self.record["figures"])
            raise InputError(f"{self.path} has no figure {name}, it has {has}; give runs that were tested")
        return number(self.record["figures"][name])


def read_runs(paths: Sequence[str | Path], labels: Sequence[str] | None = None) -> list[Run]:
    """Read the records of runs on one task.

    Args:
        paths: JSON files, or the folders beside them (``out/trec`` for ``out/trec.json``).
        labels: the name of each run's system. Default: its row in a table of the papers, or its encoder.

    Raises:
        InputError: a path is not a record, the runs are of different tasks, or runs with the same label differ in more
            than seed and fold.
    """
    if labels and len(labels) != len(paths):
        raise InputError(f"there are {len(paths)} runs and {len(labels)} labels; give one label for each run")
    runs = [read_run(path, label) for path, label in zip(paths, labels or [None] * len(paths), strict=True)]
    seen: dict[Path, Run] = {}
    for run in runs:
        if seen.setdefault(run.path.resolve(), run) is not run:
            raise InputError(f"{run.path} is given twice; leave one out")
        if rows_of(run) != rows_of(runs[0]):
            raise InputError(
                f"{runs[0].path} is a run on {runs[0].task} and {run.path} on {run.task}, or on other files; give "
                "runs on one task"
            )
    for same in by_system(runs).values():
        for run in same:
            check_same_settings(same[0], run)
    return runs


def read_run(path: str | Path, label: str | None = None) -> Run:
    """Read the record of a run; raises InputError if there is none."""
    file = Path(f"{Path(path)}.json") if Path(path).is_dir() else Path(path)
    if not file.is_file():
        remedy = f"train with --output_dir {file.with_suffix('')} --results_file {file.with_suffix('.json')}"
        raise InputError(f"there is no record {file}; {remedy}")
    try:
        record = json.loads(file.read_bytes())
        known = record["experiment"]["row"] if "experiment" in record else FAMILIES[record["encoder"]]
        run = Run(file, record, label or known)
        rows_of(run), run.metric, description(run), hardware(run)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} is not the record of a run; give a file written by --results_file") from error
    return run


def by_system(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Label -> its runs, in the order in which they are given."""
    return {label: [run for run in runs if run.label == label] for label in dict.fromkeys(run.label for run in runs)}


def rows_of(run: Run) -> tuple[Any, ...]:
    """What the run was trained on and evaluated with, apart from seed and fold."""
    return run.task, run.record["data"]["source"], run.record["data"].get("files")


def description(run: Run) -> dict[str, Any]:
    """Everything that makes a system, by name."""
    vectors = {"word vectors": (run.record["word_vectors"] or {}).get("file")}
    fields = {"encoder": run.record["encoder"]} | vectors | run.record["settings"] | run.record["config"]
    return {name: value for name, value in fields.items() if name not in MAY_DIFFER}


def check_same_settings(first: Run, other: Run) -> None:
    """Raise InputError if the runs are of different systems, whose mean would mean nothing."""
    given, wanted = description(other), description(first)
    for name in wanted | given:
        if given.get(name) != wanted.get(name):
            raise InputError(
                f"{first.path} and {other.path} are both {first.label!r}, but {name} is {wanted.get(name)!r} in the "
                f"one and {given.get(name)!r} in the other; tell the systems apart by --labels"
            )


def hardware(run: Run) -> str:
    """The machine of a run in words."""
    machine = run.record["hardware"]
    return f"{machine['device']} ({machine['name']}), {machine['processes']} x {machine['threads']} threads"


def check_same_hardware(runs: Sequence[Run]) -> None:
    """Raise InputError if the runs are of different machines, whose times and memory cannot be compared."""
    for run in runs:
        if hardware(run) != hardware(runs[0]):
            raise InputError(
                f"{runs[0].path} ran on {hardware(runs[0])}, {run.path} on {hardware(run)}; give runs of one machine"
            )


def number(value: float | None) -> float:
    """A number of a JSON file, in which null stands for NaN."""
    return math.nan if value is None else value


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error, which is NaN for a single value."""
    array = np.asarray(values, dtype=float)
    error = array.std(ddof=1) / math.sqrt(len(array)) if len(array) > 1 else math.nan
    return float(array.mean()), float(error)
