"""A task defined by a user's own data."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from pathlib import Path

from datasets import ClassLabel, Dataset

from ..data.columns import (
    LABEL_COLUMNS,
    as_text,
    check_columns,
    check_distinct,
    check_single,
    is_integer,
    is_number,
    text_columns,
)
from ..data.tables import read_table, row_numbers
from ..errors import InputError, listed
from .loading import load_splits
from .table import TASKS, Source, Task
from .tagging import has_gold_tags, has_tags, tagging_columns, tagging_fields, tags_of

logger = logging.getLogger(__name__)

SPLITS = {
    "train": ("train",),
    "validation": ("validation", "dev", "validation_matched", "val"),
    "test": ("test",),
}
_MAX_CLASSES = 1000
_LARGEST_SCORE = 1e15  # whose square float32 can hold
_NO_GOLD_LABEL = ("-1", "-1.0")


def custom_task(
    train_file: str | Path | None = None,
    validation_file: str | Path | None = None,
    test_file: str | Path | None = None,
    *,
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    text_column_name: str | None = None,
    text_pair_column_name: str | None = None,
    label_column_name: str | None = None,
) -> Task:
    """Derive a task from files, a data set on the Hub or a saved data set; :func:`load_task` loads it.

    Unless columns are named, the texts are ``sentence1`` and ``sentence2``, or ``sentence1``, ``text`` or
    ``sentence`` alone, or else the first two columns that contain text (or the only one); identifiers, numbers and
    dates are not text. The label column is ``label``, ``labels`` or ``score``. The columns taken are logged.

    A ``score``, or numbers with decimals, define a regression task with the range of the scores in the data; anything
    else defines a classification task with the sorted labels as classes, or the class names of the data set. Rows with
    the label -1 have no gold label, as everywhere in ``datasets``, and are left out.

    Rows with lists of words, in ``tokens`` or the column named, define a tagging task: their tags are in ``tags`` or
    ``ner_tags``; a column ``predicate_index`` makes it semantic role labelling.

    Args:
        train_file: training rows (.jsonl, .json, .csv, .tsv, optionally .gz; or .parquet).
        validation_file, test_file: optional further splits with the same columns.
        dataset_name, dataset_config_name: instead of ``train_file``, a data set as in ``datasets.load_dataset``, or a
            folder of ``save_to_disk``; its splits are those that the files do not replace.
        text_column_name, text_pair_column_name, label_column_name: columns to take.

    Raises:
        InputError: a file or column is missing, or the labels define neither a classification nor a regression task.
    """
    files = {"train": train_file, "validation": validation_file, "test": test_file}
    files = {split: str(path) for split, path in files.items() if path is not None}
    tables, names = {}, {}
    if dataset_name is not None:
        remedy = "check --dataset_name and --dataset_config_name"
        loaded = load_splits(dataset_name, dataset_config_name, remedy=remedy)
        found = {split: next((name for name in names if name in loaded), None) for split, names in SPLITS.items()}
        names = {split: (name,) for split, name in found.items() if name and split not in files}
        if "train" not in names | files:
            raise InputError(f"{dataset_name} has no split 'train'; it has {', '.join(loaded)}")
        tables = {split: loaded[name] for split, (name,) in names.items()}
    where = {split: f"{dataset_name} {split}" for split in tables} | files
    tables |= {split: read_table(path) for split, path in files.items()}

    def leave_out_unlabelled(is_labelled: Callable[[Dataset], bool]) -> None:
        """Drop splits of a data set, but not files, without gold labels."""
        for split in [split for split in names if split != "train" and not is_labelled(tables[split])]:
            logger.info("%s has no gold labels and is not used", where[split])
            del tables[split], names[split]

    train = tables["train"]
    names_of_columns = (text_column_name, text_pair_column_name, label_column_name)
    if has_tags(train, text_column_name):
        check_single(text_pair_column_name, "tagging")
        columns = tagging_columns(train, where["train"], text_column_name, label_column_name)
        leave_out_unlabelled(lambda table: has_gold_tags(table, columns["label_column"]))
        tags = tags_of({where[split]: table for split, table in tables.items()}, columns["label_column"])
        head = tagging_fields(tags, columns["predicate_column"] is not None)
    else:
        texts, label_column = choose_columns(train, where["train"], *names_of_columns)
        leave_out_unlabelled(lambda table: _has_labels(table, label_column))
        labels = {split: read_columns(table, texts, label_column, where[split]) for split, table in tables.items()}
        columns = {"text_columns": texts, "label_column": label_column}
        head = _head_fields(labels, train.features[label_column], columns, where["train"])
    hub = None
    if dataset_name is not None:
        hub = Source(location=dataset_name, config=dataset_config_name, splits=names, **columns)
    name = "custom" if dataset_name is None else Path(dataset_name).name
    name = f"custom_{name}" if name in TASKS else name  # or it would be taken for that task
    common = {
        "name": name,
        "title": f"{name} ({Path(train_file).name})" if dataset_name is None else name,
        "num_sentences": len(columns["text_columns"]),
        "languages": (),  # not known
        "local": Source(location="", splits={}, **columns),
        "hub": hub,
        "files": files,
    }
    return Task(**common, **head)


def _head_fields(labels: dict[str, list], feature: object, columns: dict, where: str) -> dict:
    """Fields of a regression or classification task, whichever the labels of the splits are."""
    values = labels["train"]
    numbers = not isinstance(feature, ClassLabel) and all(map(is_number, values))
    if columns["label_column"] == "score" or numbers and any("." in str(label) for label in values):
        return regression_fields(sum(labels.values(), []), where)
    classes = feature.names if isinstance(feature, ClassLabel) else None
    return classification_fields(values, classes, len(columns["text_columns"]), where)


def choose_columns(
    table: Dataset,
    where: str,
    text_column_name: str | None = None,
    text_pair_column_name: str | None = None,
    label_column_name: str | None = None,
) -> tuple[tuple[str, ...], str]:
    """The text columns of a table and its label column, as named or by the rules of :func:`custom_task`.

    Raises:
        InputError: there is no label column or no text column, or one column is taken twice.
    """
    label_column = label_column_name or next((name for name in LABEL_COLUMNS if name in table.column_names), None)
    if label_column is None:
        raise InputError(
            f"{where} has no column 'label', 'labels' or 'score'; it has {listed(table.column_names)}; "
            "name the column with --label_column_name"
        )
    texts = (text_column_name, text_pair_column_name)[: 1 if text_pair_column_name is None else 2]
    if text_column_name is None:
        texts = text_columns(table[:100], where, label_column=label_column)
    check_distinct((*texts, label_column), where)
    logger.info("%s: texts from %s, labels from %s", where, " and ".join(texts), label_column)
    return texts, label_column


def read_columns(table: Dataset, texts: tuple[str, ...], label_column: str, where: str) -> list:
    """The labels of a table; raises InputError if a column is missing, or a label or a text is (or is no text)."""
    for column in texts:
        _column(table, column, where, may_be_empty=True)
    return _column(table, label_column, where)


def _has_labels(table: Dataset, column: str) -> bool:
    return column in table.column_names and any(
        label is not None and str(label) not in _NO_GOLD_LABEL for label in table[column]
    )


def _column(table: Dataset, column: str, path: str, *, may_be_empty: bool = False) -> list:
    check_columns([column], table.column_names, path)
    values = table.select_columns(column)[:][column]
    for row, value in zip(row_numbers(table), values, strict=True):
        if not as_text(value, path, row, column).strip() and not may_be_empty:
            raise InputError(f"{path}, row {row}: {column} is empty; fill it in or remove the row")
    return values


def regression_fields(scores: list, path: str | Path) -> dict:
    """Fields of a regression task with the range of these scores; raises InputError if they define none."""
    for score in scores:
        if not is_number(score):
            raise InputError(f"{path} or its companions: score {score!r} is not a number; correct or remove that row")
        if abs(float(score)) > _LARGEST_SCORE:
            raise InputError(
                f"{path} or its companions: score {score!r} is beyond {_LARGEST_SCORE:g}; scale the scores, for "
                "instance to between 0 and 1"
            )
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
        "settings": "own_scores",
    }


def classification_fields(values: list, names: list[str] | None, num_sentences: int, path: str | Path) -> dict:
    """Fields of a classification task with the classes ``names`` or, without them, those that occur in ``values``.

    Raises:
        InputError: there is only one class, or far too many.
    """
    if names is None:
        found = {str(value).strip() for value in values}
        integers = all(map(is_integer, found))
        # -1 beside class ids; alone with 1 it is a class.
        if integers and len(found) > 2 and min(map(int, found)) == -1:
            found -= set(_NO_GOLD_LABEL)
        names = sorted(found, key=int if integers else None)
    if len(names) < 2:
        raise InputError(f"{path}: every label is {names[0]!r}; a classification task needs two or more classes")
    if len(names) > _MAX_CLASSES:
        raise InputError(f"{path} has {len(names)} different labels, more than {_MAX_CLASSES}; check the label column")
    return {
        "labels": tuple(names),
        "unlabelled": () if "-1" in names else _NO_GOLD_LABEL,
        "metrics": ("Accuracy", "F1") if len(names) == 2 else ("Accuracy",),
        "settings": "own_pairs" if num_sentences == 2 else "own_sentences",
    }
