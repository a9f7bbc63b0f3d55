"""A task made from a user's own files."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from datasets import Dataset

from ..errors import InputError
from ..tasks import Source, Task
from .tables import read_table

_LABEL_COLUMNS = ("label", "score")
_MOST_CLASSES = 1000


def custom_task(
    train_file: str | Path,
    validation_file: str | Path | None = None,
    test_file: str | Path | None = None,
    *,
    name: str = "custom",
) -> Task:
    """Describe the task that files with a header or JSON keys hold; :func:`load_task` then reads it.

    The texts are ``sentence1`` and ``sentence2``, or ``sentence1``, ``text`` or ``sentence`` alone, or else the first
    two columns that hold text (the first, if there is only one). The label column is ``label``, else ``score``. A
    ``score``, or numbers with decimals, make a regression task whose range is that of the scores in the files;
    anything else makes a classification task whose classes are the sorted labels.

    Args:
        train_file: training rows (.jsonl, .json, .csv, .tsv, optionally .gz).
        validation_file, test_file: optional further splits with the same columns.
        name: name of the task in reports.

    Raises:
        InputError: a file or column is missing, or the labels make neither a classification nor a regression task.
    """
    files = {"train": train_file, "validation": validation_file, "test": test_file}
    tables = {split: read_table(path) for split, path in files.items() if path is not None}
    label_column = _label_column(tables["train"], train_file)
    text_columns = _text_columns(tables["train"], label_column, train_file)
    for split, table in tables.items():
        if label_column not in table.column_names:
            raise InputError(f"{files[split]} has no column {label_column!r}; it has {', '.join(table.column_names)}")
    labels = {split: table.select_columns(label_column)[:][label_column] for split, table in tables.items()}
    for split, values in labels.items():
        blank = next((row for row, value in enumerate(values) if value is None or not str(value).strip()), None)
        if blank is not None:
            raise InputError(f"{files[split]}, row {blank + 1}: {label_column} is empty; fill it in or remove the row")
    common = {
        "name": name,
        "title": f"{name} ({Path(train_file).name})",
        "num_sentences": len(text_columns),
        "local": Source(location="", text_columns=text_columns, label_column=label_column, splits={}),
        "files": {split: str(files[split]) for split in tables},
    }
    if label_column == "score" or _is_regression(labels["train"]):
        return Task(**common, **_regression([value for values in labels.values() for value in values], train_file))
    return Task(**common, **_classification(labels["train"], len(text_columns), train_file))


def _label_column(table: Dataset, path: str | Path) -> str:
    column = next((column for column in _LABEL_COLUMNS if column in table.column_names), None)
    if column is None:
        raise InputError(f"{path} has no column 'label' or 'score'; it has {', '.join(table.column_names)}")
    return column


def _text_columns(table: Dataset, label_column: str, path: str | Path) -> tuple[str, ...]:
    if {"sentence1", "sentence2"} <= set(table.column_names):
        return ("sentence1", "sentence2")
    single = next((column for column in ("sentence1", "text", "sentence") if column in table.column_names), None)
    if single is not None:
        return (single,)
    first = table[0]
    others = [
        c for c in table.column_names if c not in _LABEL_COLUMNS and (first[c] is None or isinstance(first[c], str))
    ]
    if not others:
        raise InputError(
            f"{path} has no text column beside {label_column!r}; name it 'text', or 'sentence1' and 'sentence2'"
        )
    return tuple(others[:2])


def _number(value) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _is_regression(values: Iterable) -> bool:
    numbers = [_number(value) for value in values]
    if any(number is None for number in numbers):
        return False
    return any("." in str(value) for value in values)


def _regression(values: list, path: str | Path) -> dict:
    numbers = [_number(value) for value in values]
    bad = next((i for i, number in enumerate(numbers) if number is None or not math.isfinite(number)), None)
    if bad is not None:
        raise InputError(
            f"{path} or its companions: score {values[bad]!r} is not a number; correct or remove that row"
        )
    low, high = math.floor(min(numbers)), math.ceil(max(numbers))
    if low == high:
        raise InputError(f"{path}: every score is {low}; a regression task needs scores that differ")
    return {
        "problem": "regression",
        "score_min": float(low),
        "score_max": float(high),
        # One class per whole score, as on SICK; at least 5 for narrow ranges, at most 21 for wide ones.
        "num_score_classes": min(max(high - low + 1, 5), 21),
        "metrics": ("Pearson", "Spearman", "MeanSquaredError"),
        "best_metric": "pearson",
        "settings": "sick",
    }


def _classification(values: list, num_sentences: int, path: str | Path) -> dict:
    names = {str(value).strip() for value in values}
    if len(names) < 2:
        raise InputError(f"{path}: every label is {names.pop()!r}; a classification task needs two or more classes")
    if len(names) > _MOST_CLASSES:
        raise InputError(
            f"{path} has {len(names)} different labels, more than {_MOST_CLASSES}; check the label column"
        )
    whole = all(name.lstrip("-").isdigit() for name in names)
    labels = sorted(names, key=int) if whole else sorted(names)
    return {
        "labels": tuple(labels),
        "metrics": ("Accuracy", "F1") if len(labels) == 2 else ("Accuracy",),
        "settings": "snli" if num_sentences == 2 else "sst",
    }
