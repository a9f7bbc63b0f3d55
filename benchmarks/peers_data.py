"""The rows that `benchmarks.peers` compares systems on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_blosan.errors import InputError
from hf_blosan.tasks import Task, get_task

Row = tuple[str, ...]
"""The one or two texts of a row."""
Predict = Callable[[Sequence[Row]], np.ndarray]
"""Rows -> class ids, or scores for regression, (rows,); computes all rows that it gets as one batch."""


@dataclass(frozen=True)
class Split:
    """Rows of a task: their texts, and class ids or scores, (rows,)."""

    texts: list[Row]
    labels: np.ndarray


@dataclass(frozen=True)
class Problem:
    """A task with its rows, and what systems start from.

    Attributes:
        task: the task.
        splits: ``train``, ``validation`` and ``test``.
        data_dir: folder with the rows.
        word_vectors: file of word vectors in GloVe text format.
        minilm: folder of a sentence-transformers model.
        seed: of the splits and of every system.
    """

    task: Task
    splits: Mapping[str, Split]
    data_dir: str | None
    word_vectors: str | None
    minilm: str | None
    seed: int

    @property
    def scored(self) -> bool:
        """Whether rows have scores instead of classes."""
        return not self.task.labels

    def figures(self, split: str, predictions: np.ndarray) -> dict[str, float]:
        """The metrics of the task on a split, by name."""
        return self.metrics(predictions, self.splits[split].labels)

    def metrics(self, predictions: np.ndarray, references: np.ndarray) -> dict[str, float]:
        """The metrics of the task, by name."""
        from hf_blosan.tasks.metrics import task_metrics

        return task_metrics(self.task).compute(predictions=predictions.tolist(), references=references.tolist())


def read_problem(name: str, fold: int = 0, **options: Any) -> Problem:
    """A task with the splits that the training command makes with its default options, this fold and this seed.

    Raises:
        InputError: the rows cannot be read, or there are no test rows.
    """
    from hf_blosan.tasks import load_task

    task = get_task(name)
    data = load_task(task, data_dir=options["data_dir"], seed=options["seed"], fold=fold)
    if "test" not in data:
        raise InputError(f"task {name} has no test rows; choose one that has")
    splits = {}
    for split in ("train", "validation", "test"):
        columns = data[split][:]
        texts = list(zip(*(columns[column] for column in task.text_columns), strict=True))
        splits[split] = Split(texts, np.asarray(columns["label"]))
    return Problem(task, splits, **options)
