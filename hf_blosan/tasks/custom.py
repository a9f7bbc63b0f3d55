"""A task defined by a user's own data."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from datasets import Dataset

from ..data.columns import ColumnNames
from ..data.tables import load_splits, read_table
from ..errors import InputError
from .base import log_columns
from .kinds import KINDS, kind_class
from .table import TASKS
from .task import Source, Task

logger = logging.getLogger(__name__)

SPLITS = {
    "train": ("train",),
    "validation": ("validation", "dev", "validation_matched", "val", "valid"),
    "test": ("test",),
}


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
    do_regression: bool | None = None,
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

    Rows with ``translation``, an object with a text for each language, define a translation task from the first
    language into the second, or from ``text_column_name`` into ``label_column_name``.

    Rows with ``question`` and either ``sentences`` and ``label``, the index of one of them, or SQuAD's ``context`` and
    ``answers`` define a task of sentence selection, unless columns are named.

    Args:
        train_file: training rows (.jsonl, .json, .csv, .tsv, optionally .gz; or .parquet).
        validation_file, test_file: optional further splits with the same columns.
        dataset_name, dataset_config_name: instead of ``train_file``, a data set as in ``datasets.load_dataset``, or a
            folder of ``save_to_disk``; its splits are those that the files do not replace.
        text_column_name, text_pair_column_name, label_column_name: columns to take.
        do_regression: whether texts have scores (true) or classes (false); ``None``: as described above.

    Raises:
        InputError: a file or column is missing, or the labels define no task.
    """
    files = {"train": train_file, "validation": validation_file, "test": test_file}
    files = {split: str(path) for split, path in files.items() if path is not None}
    tables, found = {}, {}
    if dataset_name is not None:
        remedy = "check --dataset_name and --dataset_config_name"
        loaded = load_splits(dataset_name, dataset_config_name, remedy=remedy)
        found = {split: next((name for name in names if name in loaded), None) for split, names in SPLITS.items()}
        found = {split: name for split, name in found.items() if name and split not in files}
        if "train" not in found | files:
            raise InputError(f"{dataset_name} has no split 'train'; it has {', '.join(loaded)}")
        tables = {split: loaded[name] for split, name in found.items()}
    where = {split: f"{dataset_name} {split}" for split in tables} | files
    tables = {
        split: tables[split] if split in tables else read_table(files[split]) for split in SPLITS if split in where
    }

    names = ColumnNames(text_column_name, text_pair_column_name, label_column_name)
    title = "custom" if dataset_name is None else Path(dataset_name).resolve().name
    title = f"custom_{title}" if title in TASKS else title  # distinct from the built-in task
    task = task_of_rows(
        tables,
        where,
        names,
        may_lack_labels=[split for split in found if split != "train"],
        name=title,
        title=f"{title} ({Path(train_file).name})" if dataset_name is None else title,
        files=files,
        kind={None: None, True: "regression", False: "classification"}[do_regression],
    )
    if dataset_name is None:
        return task
    splits = {split: (name,) for split, name in found.items() if split in task.tables}
    return replace(task, hub=replace(task.local, location=dataset_name, config=dataset_config_name, splits=splits))


def task_of_rows(
    tables: Mapping[str, Dataset],
    where: Mapping[str, str],
    names: ColumnNames,
    *,
    kind: str | None = None,
    may_lack_labels: Collection[str] = (),
    **fields: Any,
) -> Task:
    """The task that rows define, as in :func:`custom_task`.

    Args:
        tables: split -> its rows; `train` is required.
        where: split -> the name of its rows in messages.
        names: the columns that the user names.
        kind: the kind of task; ``None``: the one that recognises the rows.
        may_lack_labels: splits that are left out if none of their rows has a gold label.
        fields: further fields of the task, its name and title among them.

    Raises:
        InputError: a column is missing, or the labels define no task.
    """
    if kind is None:
        kind = next(name for name in KINDS if kind_class(name).recognises(tables["train"], where["train"], names))
    own = kind_class(kind)
    columns = own.choose_columns(tables["train"], where["train"], names)
    log_columns(where["train"], columns, own.column)
    without = [split for split in may_lack_labels if not own.has_gold(tables[split], columns)]
    for split in without:
        logger.info("%s has no gold labels and is not used", where[split])
    tables = {split: table for split, table in tables.items() if split not in without}
    defined = own.task_fields({where[split]: table for split, table in tables.items()}, columns)
    defined = {"languages": ()} | defined  # unknown, but for translations
    return Task(
        kind=kind,
        num_sentences=len(columns["text_columns"]),
        local=Source(location="", splits={}, **columns),
        tables=tables,
        **fields,
        **defined,
    )
