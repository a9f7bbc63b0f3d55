"""Records of runs, by system, for the papers' plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hf_blosan.errors import InputError
from hf_blosan.registry import FAMILIES
from hf_blosan.training.preparation import DECIDED_BY_DATA
from hf_blosan.training.reporting import read_record

MAY_DIFFER = ("seed", "fold", "block_length", *DECIDED_BY_DATA)
"""Settings and configuration fields in which the runs of a system may differ."""


@dataclass(frozen=True)
class Record:
    """The record of a finished run; records with the same label are averaged."""

    path: Path  # written by --results_file
    content: dict[str, Any]
    label: str  # name of the system

    @property
    def folder(self) -> Path:
        """The folder of the run's log and predictions: the record's path without ``.json``."""
        return self.path.with_suffix("")

    @property
    def task(self) -> str:
        return self.content["task"]["name"]

    @property
    def metric(self) -> str:
        """The metric that selects the best model."""
        return self.content["task"]["best_metric"]

    @property
    def rows(self) -> tuple[Any, ...]:
        """Task and data of the run, apart from seed and fold."""
        return self.task, self.content["data"]["source"], self.content["data"].get("files")

    @property
    def system(self) -> dict[str, Any]:
        """Everything that defines a system, by name."""
        content = self.content
        start = {
            "word vectors": (content["word_vectors"] or {}).get("file"),
            "a start from a saved model": bool(content.get("continued_from")),  # may be another for each seed
            "a teacher's texts": bool(content.get("distillation")),  # may be others for each fold
        }
        fields = {"encoder": content["encoder"]} | start | content["settings"] | content["config"]
        return {name: value for name, value in fields.items() if name not in MAY_DIFFER}

    @property
    def hardware(self) -> str:
        """The machine of the run in words."""
        machine = self.content["hardware"]
        return f"{machine['device']} ({machine['name']}), {machine['processes']} x {machine['threads']} threads"

    def figure(self, name: str) -> float:
        """One of the figures; NaN if it is undefined, such as the correlation of constant predictions.

        Raises:
            InputError: the record lacks it.
        """
        figures = self.content["figures"]
        if name not in figures:
            raise InputError(
                f"{self.path} has no figure {name}, it has {', '.join(figures)}; give runs that were tested"
            )
        return number(figures[name])


def read_records(paths: Sequence[str | Path], labels: Sequence[str] | None = None) -> list[Record]:
    """Read the records of runs on one task.

    Args:
        paths: JSON files, or the folders next to them (``out/trec`` for ``out/trec.json``).
        labels: the name of each run's system. Default: its row in a table of the papers, or its encoder.

    Raises:
        InputError: a path is not a record, the runs are on different tasks, or runs with the same label differ in more
            than seed and fold.
    """
    if labels and len(labels) != len(paths):
        raise InputError(f"there are {len(paths)} runs and {len(labels)} labels; give one label for each run")
    records = [_read(path, label) for path, label in zip(paths, labels or [None] * len(paths), strict=True)]
    first, seen = records[0], set()
    for record in records:
        if (path := record.path.resolve()) in seen:
            raise InputError(f"{record.path} is given twice; leave one out")
        seen.add(path)
        if record.rows != first.rows:
            raise InputError(
                f"{first.path} is a run on {first.task} and {record.path} on {record.task}, or on other files; give "
                "runs on one task"
            )
    for first, *others in by_system(records).values():
        for other in others:
            _check_same_system(first, other)
    return records


def _read(path: str | Path, label: str | None) -> Record:
    file = Path(f"{Path(path)}.json") if Path(path).is_dir() else Path(path)
    if not file.is_file():
        remedy = f"train with --output_dir {file.with_suffix('')} --results_file {file.with_suffix('.json')}"
        raise InputError(f"there is no record {file}; {remedy}")
    try:
        content = read_record(file)
        known = content["experiment"]["row"] if "experiment" in content else FAMILIES[content["encoder"]]
        record = Record(file, content, label or known)
        _check_same_system(record, record), record.rows, record.metric, record.hardware
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} is not the record of a run; give a file written by --results_file") from error
    return record


def by_system(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Label -> its records, in the given order."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.label, []).append(record)
    return found


def _check_same_system(first: Record, other: Record) -> None:
    """Raise InputError if the runs are of different systems, whose mean is meaningless."""
    wanted, given = first.system, other.system
    for name in wanted | given:
        if given.get(name) != wanted.get(name):
            raise InputError(
                f"{first.path} and {other.path} are both {first.label!r}, but {name} is {wanted.get(name)!r} in the "
                f"one and {given.get(name)!r} in the other; separate the systems by --labels"
            )


def check_same_hardware(records: Sequence[Record]) -> None:
    """Raise InputError if the runs are from different machines, whose times and memory cannot be compared."""
    first = records[0]
    for other in records:
        if other.hardware != first.hardware:
            raise InputError(
                f"{first.path} ran on {first.hardware}, {other.path} on {other.hardware}; give runs from one machine"
            )


def number(value: float | None) -> float:
    """A number from a JSON file, where null means NaN."""
    return math.nan if value is None else value


def mean_and_error(values: Sequence[float]) -> dict[str, float]:
    """``mean`` and ``standard_error``, which is NaN for a single value."""
    array = np.asarray(values, dtype=float)
    error = array.std(ddof=1) / math.sqrt(len(array)) if len(array) > 1 else math.nan
    return {"mean": float(array.mean()), "standard_error": float(error)}


def means_and_errors(groups: Sequence[Sequence[float]]) -> dict[str, list[float]]:
    """The lists ``mean`` and ``standard_error`` of several groups of values."""
    each = [mean_and_error(values) for values in groups]
    return {name: [entry[name] for entry in each] for name in ("mean", "standard_error")}
