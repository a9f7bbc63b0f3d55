"""A task defined by a user's own files."""

from __future__ import annotations

import math
from pathlib import Path

from datasets import Dataset

from ..errors import InputError
from ..tasks import Source, Task
from .tables import read_table

_MAX_CLASSES = 1000


def custom_task(
    train_file: str | Path,
    validation_file: str | Path | None = None,
    test_file: str | Path | None = None,
    *,
    name: str = "custom",
) -> Task:
    """Derive a task from files with a header or JSON keys; :func:`load_task` loads it.

    The texts are ``sentence1`` and ``sentence2``, or ``sentence1``, ``text`` or ``sentence`` alone, or else the first
    two columns that contain text (or the only one). The label column is ``label``, else ``score``. A ``score``, or
    numbers with decimals, define a regression task with the range of the scores in the files; anything else defines a
    classification task with the sorted labels as classes.

    Args:
        train_file: training rows (.jsonl, .json, .csv, .tsv, optionally .gz).
        validation_file, test_file: optional further splits with the same columns.
        name: name of the task in reports.

    Raises:
        InputError: a file or column is missing, or the labels define neither a classification nor a regression task.
    """
    files = {"train": train_file, "validation": validation_file, "test": test_file}
    files = {split: str(path) for split, path in files.items() if path is not None}
    tables = {split: read_table(path) for split, path in files.items()}
    label_column = next((column for column in ("label", "score") if column in tables["train"].column_names), None)
    if label_column is None:
        columns = ", ".join(tables["train"].column_names)
        raise InputError(f"{train_file} has no column 'label' or 'score'; it has {columns}")
    text_columns = _text_columns(tables["train"], label_column, train_file)
    labels = {split: _labels(table, label_column, files[split]) for split, table in tables.items()}
    common = {
        "name": name,
        "title": f"{name} ({Path(train_file).name})",
        "num_sentences": len(text_columns),
        "local": Source(location="", text_columns=text_columns, label_column=label_column, splits={}),
        "files": files,
    }
    numbers = all(_is_number(label) for label in labels["train"])
    if label_column == "score" or numbers and any("." in str(label) for label in labels["train"]):
        return Task(**common, **_regression(sum(labels.values(), []), train_file))
    return Task(**common, **_classification(labels["train"], len(text_columns), train_file))


def _text_columns(table: Dataset, label_column: str, path: str | Path) -> tuple[str, ...]:
    if {"sentence1", "sentence2"} <= set(table.column_names):
        return ("sentence1", "sentence2")
    named = [column for column in ("sentence1", "text", "sentence") if column in table.column_names]
    others = table.column_names if not named else []
    texts = [c for c in others if c not in ("label", "score") and isinstance(table[0][c], str | None)]
    if not named and not texts:
        raise InputError(
            f"{path} has no text column besides {label_column!r}; name it 'text', or 'sentence1' and 'sentence2'"
        )
    return tuple(named[:1] or texts[:2])


def _labels(table: Dataset, column: str, path: str) -> list:
    if column not in table.column_names:
        raise InputError(f"{path} has no column {column!r}; it has {', '.join(table.column_names)}")
    labels = table.select_columns(column)[:][column]
    for row, label in enumerate(labels, 1):
        if label is None or not str(label).strip():
            raise InputError(f"{path}, row {row}: {column} is empty; fill it in or remove the row")
    return labels


def _is_number(label) -> bool:
    try:
        return math.isfinite(float(label))
    except (TypeError, ValueError):
        return False


def _regression(scores: list, path: str | Path) -> dict:
    for score in scores:
        if not _is_number(score):
            raise InputError(f"{path} or its companions: score {score!r} is not a number; correct or remove that row")
    low, high = math.floor(min(map(float, scores))), math.ceil(max(map(float, scores)))
    if low == high:
        raise InputError(f"{path}: every score is {low}; a regression task needs different scores")
    return {
        "problem": "regression",
        "score_min": float(low),
        "score_max": float(high),
        # One class per integer score, as on SICK, but at least 5 and at most 21.
        "num_score_classes": min(max(high - low + 1, 5), 21),
        "metrics": ("Pearson", "Spearman", "MeanSquaredError"),
        "best_metric": "pearson",
        "settings": "sick",
    }


def _classification(values: list, num_sentences: int, path: str | Path) -> dict:
    names = {str(value).strip() for value in values}
    if len(names) < 2:
        raise InputError(f"{path}: every label is {names.pop()!r}; a classification task needs two or more classes")
    if len(names) > _MAX_CLASSES:
        raise InputError(f"{path} has {len(names)} different labels, more than {_MAX_CLASSES}; check the label column")
    integers = all(name.lstrip("-").isdigit() for name in names)
    return {
        "labels": tuple(sorted(names, key=int if integers else None)),
        "metrics": ("Accuracy", "F1") if len(names) == 2 else ("Accuracy",),
        "settings": "snli" if num_sentences == 2 else "sst",
    }
