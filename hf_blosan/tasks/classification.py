"""Rows of sentences or pairs with a label or score, as read from a source, with the columns of the package."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from datasets import ClassLabel, Dataset, Features, Value

from ..data.columns import as_text, check_columns, is_integer
from ..data.tables import row_numbers
from ..errors import InputError
from .table import Source, Task

logger = logging.getLogger(__name__)

MANY_LEFT_OUT = 0.1
"""Share of rows without a gold label above which leaving them out may be a mistake."""


def normalise_sentences(raw: Dataset, source: Source, task: Task, where: str) -> Dataset:
    """Rows with the columns ``sentence1``, ``sentence2`` (pairs only), ``label`` and ``row``, its number in the file.

    Rows without a gold label are left out.

    Args:
        raw: the rows as read.
        source: the names of their columns and the order of their integer labels.
        task: the task, for its labels or range of scores.
        where: description of the rows for error messages.

    Raises:
        InputError: a column is missing, or a label or score is not one of the task's.
    """
    check_columns((*source.text_columns, source.label_column), raw.column_names, where)
    columns = raw.select_columns(list(dict.fromkeys((*source.text_columns, source.label_column))))[:]
    labels, numbers = columns[source.label_column], row_numbers(raw)
    kept = [row for row, label in enumerate(labels) if str(label) not in task.unlabelled]
    if 0 < len(kept) < len(labels):
        left_out = len(labels) - len(kept)
        level = logging.WARNING if left_out > MANY_LEFT_OUT * len(labels) else logging.INFO
        logger.log(level, "%s: %d of %d rows have no gold label and are left out", where, left_out, len(labels))
    if not kept:
        raise InputError(f"{where} has no row with a gold label; give another file or leave this split out")
    features = Features(dict.fromkeys(task.text_columns, Value("string")))
    if task.problem == "regression":
        features["label"], lookup = Value("float32"), {}
        expected = f"score {{!r}} is not a number from {task.score_min:g} to {task.score_max:g}"
    else:
        features["label"], lookup = ClassLabel(names=list(task.labels)), _label_lookup(raw, source, task)
        expected = f"label {{!r}} is not one of the labels of {task.name} ({', '.join(task.labels)})"
    values = []
    for row in kept:
        value = _class_id(labels[row], lookup) if lookup else _score(labels[row], task)
        if value is None:
            raise InputError(
                f"{where}, row {numbers[row]}: {expected.format(labels[row])}; correct the row or remove it"
            )
        values.append(value)
    rows = {}
    for name, column in zip(task.text_columns, source.text_columns, strict=True):
        cells = [(row, columns[column][row]) for row in kept]
        rows[name] = ["" if cell is None else as_text(cell, where, numbers[row], column) for row, cell in cells]
    features["row"] = Value("int64")
    return Dataset.from_dict(rows | {"label": values, "row": [numbers[row] for row in kept]}, features=features)


def _label_lookup(raw: Dataset, source: Source, task: Task) -> dict[str, int]:
    """Label as text -> class id, for class names, lower-cased names and the source's integers."""
    exact = {name: i for i, name in enumerate(task.labels)}
    lower = {name.lower(): i for i, name in enumerate(task.labels)}
    if any(map(is_integer, task.labels)):
        return exact  # the names are numbers themselves, so a number is never a class id
    feature = raw.features[source.label_column]
    order = source.label_order or task.labels
    if isinstance(feature, ClassLabel) and all(name.lower() in lower for name in feature.names):
        order = feature.names
    return {str(i): lower[name.lower()] for i, name in enumerate(order)} | lower | exact


def _class_id(label, lookup: Mapping[str, int]) -> int | None:
    text = str(int(label)) if isinstance(label, float) and label.is_integer() else str(label).strip()
    return lookup.get(text, lookup.get(text.lower()))


def _score(label, task: Task) -> float | None:
    try:
        score = float(label)
    except (TypeError, ValueError):
        return None
    return score if task.score_min <= score <= task.score_max else None
