"""Texts and targets, as users of scikit-learn pass them, to rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, Features, Value
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from ..data.columns import ColumnNames, label_text
from ..errors import InputError, unpaired_surrogate
from ..tasks import Task
from ..tasks.custom import task_of_rows

MISSING = ("nan", "None", "<NA>", "NaT")
"""What pandas and other libraries put in an empty cell, as printed."""

LABELS = {"classification": "label", "regression": "score"}
"""The column of the targets, by kind of task."""


def read_texts(X: Any, name: str = "X") -> list[tuple[str, ...]]:
    """Texts as tuples of one string, pairs as tuples of two.

    Args:
        X: a sequence of strings or pairs of strings: list, array or Series; or a table of one or two columns, (n, 1)
            or (n, 2).
        name: its name in messages.

    Raises:
        TypeError: it is a single text, a dictionary, a set, a sparse matrix or not a sequence.
        InputError: it is empty, has rows that are neither texts nor pairs, or has both.
    """
    if isinstance(X, (str, bytes, Mapping, Set)) or not isinstance(X, Iterable):
        raise TypeError(f"{name} is of type {type(X).__name__}; give a list of texts, or of pairs of texts")
    if hasattr(X, "toarray"):
        raise TypeError(f"{name} is a sparse matrix; give a list of texts, or of pairs of texts")
    if hasattr(X, "columns") and hasattr(X, "to_numpy"):
        if (width := len(X.columns)) > 2:
            raise InputError(f"{name} has {width} columns; give the one of the texts, or the two of pairs of texts")
        X = X.to_numpy()
    rows = X.tolist() if isinstance(X, np.ndarray) else list(X)
    if not rows:
        raise InputError(f"{name} has 0 sample(s); give at least one text")
    items = [_item(row, f"{name}[{i}]") for i, row in enumerate(rows)]
    width = len(items[0])
    for i, item in enumerate(items):
        if len(item) != width:
            what = ("a single text", "a pair of texts")
            raise InputError(
                f"{name}[{i}] is {what[len(item) - 1]}, {name}[0] is {what[width - 1]}; give either texts or pairs"
            )
    return items


def _item(row: Any, name: str) -> tuple[str, ...]:
    item = (row,) if isinstance(row, str) else tuple(row) if isinstance(row, (list, tuple, np.ndarray)) else ()
    if len(item) not in (1, 2) or not all(isinstance(text, str) for text in item):
        shown = repr(row) if len(repr(row)) <= 60 else f"{repr(row)[:60]}..."
        if shown in MISSING:
            raise InputError(f'{name} is missing ({shown}); fill empty cells, by .fillna(""), or leave the row out')
        raise InputError(f"{name} is {shown}; give a text (str), or a pair of two texts")
    if half := unpaired_surrogate("".join(item)):
        raise InputError(f"{name} has an unpaired surrogate, {half!r}; correct the text")
    return item


def read_labels(y: Any, name: str = "y") -> np.ndarray:
    """Labels of any sortable type, (n,); raises ValueError if they are missing, of several types, or numbers that are
    not classes.
    """
    if isinstance(y, list | tuple) and len({isinstance(label, str) for label in y}) > 1:
        y = np.array(y, dtype=object)  # as text, numpy would make a class 'nan' of a missing label
    labels = _column(y, name, None)
    try:
        classes = np.unique(labels)
    except TypeError as error:
        types = ", ".join(sorted({type(label).__name__ for label in labels.tolist()}))
        raise InputError(f"{name} has labels of several types ({types}); give labels of one type") from error
    for label in classes.tolist():
        if half := unpaired_surrogate(str(label)):
            raise InputError(f"{name} has a label with an unpaired surrogate, {half!r}; correct it")
    if labels.dtype == object and not isinstance(labels[0], str):  # a column of a table of several types
        labels = np.array(labels.tolist())
    check_classification_targets(labels)
    return labels


def read_scores(y: Any, name: str = "y") -> np.ndarray:
    """Scores, (n,), float64; raises ValueError if they are missing or not finite numbers."""
    return _column(y, name, np.float64)


def read_rows(
    X: Any, y: Any, X_val: Any, y_val: Any, read_targets: Callable[..., np.ndarray]
) -> dict[str, tuple[list[tuple[str, ...]], np.ndarray]]:
    """split -> texts and targets, from the arguments of `fit`. Raises ValueError or TypeError if an argument cannot be
    used, or the validation rows do not match the training rows.
    """
    rows = {"train": (read_texts(X), read_targets(y))}
    if X_val is not None or y_val is not None:
        if X_val is None:
            raise InputError("y_val is given without X_val; give the texts of the validation rows, too")
        rows["validation"] = read_texts(X_val, "X_val"), read_targets(y_val, "y_val")
    for items, targets in rows.values():
        check_consistent_length(items, targets)
        if len(items[0]) != len(rows["train"][0][0]):
            what = ("single texts", "pairs of texts")
            raise InputError(f"X_val has {what[len(items[0]) - 1]}, X has {what[2 - len(items[0])]}; give the same")
    return rows


def _column(y: Any, name: str, dtype: Any) -> np.ndarray:
    if y is None:
        raise InputError(
            f"fit requires {name} to be passed, but the target {name} is None; give a target for each text"
        )
    if hasattr(y, "isna"):  # of pandas: scikit-learn cannot compare NA, and reads nullable integers as floats
        if missing := int(np.sum(np.asarray(y.isna()))):
            raise InputError(f"{name} contains NaN or other missing values: {missing}; give a target for each text")
        y = y.to_numpy()
    return column_or_1d(check_array(y, ensure_2d=False, dtype=dtype, input_name=name), warn=True)


def make_task(
    kind: str, rows: dict[str, tuple[list[tuple[str, ...]], np.ndarray]], classes: np.ndarray | None = None
) -> Task:
    """The `classification` or `regression` task that rows in memory define: split -> texts, and class ids or scores.

    ``classes`` are the labels in the order of the class ids, for classification. Raises InputError if the targets do
    not define a task.
    """
    texts = ("text",) if len(rows["train"][0][0]) == 1 else ("sentence1", "sentence2")
    label = LABELS[kind]
    feature = Value("float64") if classes is None else ClassLabel(names=list(map(label_text, classes.tolist())))
    features = Features(dict.fromkeys(texts, Value("string")) | {label: feature})
    tables = {}
    for split, (items, targets) in rows.items():
        columns = dict(zip(texts, map(list, zip(*items, strict=True)), strict=True))
        tables[split] = Dataset.from_dict(columns | {label: targets.tolist()}, features=features)
    columns = ColumnNames(texts[0], texts[1] if len(texts) == 2 else None, label)
    where = {"train": "y", "validation": "y_val"}
    return task_of_rows(tables, where, columns, kind=kind, name="custom", title="custom")
