"""A task's rows from local files or the Hub, with the same columns and splits wherever they come from."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value, load_dataset
from datasets.exceptions import DatasetsError
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit

from ..errors import InputError
from ..tasks import Source, Task, get_task
from .demo_corpus import make_demo_corpus
from .tables import TABLE_SUFFIXES, read_table

logger = logging.getLogger(__name__)


def load_task(
    task: Task | str,
    *,
    data_dir: str | Path | None = None,
    train_file: str | Path | None = None,
    validation_file: str | Path | None = None,
    test_file: str | Path | None = None,
    seed: int,
    fold: int = 0,
    num_folds: int = 10,
    validation_fraction: float = 0.1,
    max_train_samples: int | None = None,
    max_eval_samples: int | None = None,
) -> DatasetDict:
    """Read a task and give every split the same columns: ``sentence1``, ``sentence2`` (pairs) and ``label``.

    ``label`` is a ``ClassLabel`` with the task's class names, or a float score. Files named in the arguments replace
    the task's own splits, which are read from ``data_dir`` if it is given, else from the Hub (not asked where a
    training file is named: other rows would not belong to it).

    A task without a labelled test split gets fold ``fold`` of ``num_folds`` seeded (stratified) folds of its training
    rows as test split; one without a validation split gets a seeded (stratified) ``validation_fraction`` of what then
    remains. What was held out is logged. Empty texts are kept.

    Args:
        task: a task or its name.
        data_dir: directory with ``<folder>/<split>.jsonl.gz`` (or .jsonl, .json, .csv, .tsv).
        train_file, validation_file, test_file: files that replace the task's own splits.
        seed: seed of the held-out splits and of the sampling.
        fold, num_folds: which of how many folds is the test split; ``num_folds=0`` keeps all training rows and leaves
            the test split out.
        validation_fraction: share of the training rows for a missing validation split, above 0 and below 1.
        max_train_samples: seeded sample of the training rows, taken last; ``None`` keeps all.
        max_eval_samples: the same for every other split.

    Returns:
        Splits ``train``, ``validation``, ``test``; for MNLI also ``validation_mismatched``.

    Raises:
        InputError: missing directory, file or column, a label outside the label set, a score outside the range, or
            splitting options that do not fit the data.
    """
    task = get_task(task) if isinstance(task, str) else task
    _check_options(fold, num_folds, validation_fraction, max_train_samples, max_eval_samples)
    files = {"train": train_file, "validation": validation_file, "test": test_file}
    files = dict(task.files) | {split: path for split, path in files.items() if path is not None}
    splits = _read_splits(task, data_dir, files)
    if "train" not in splits:
        raise InputError(f"task {task.name} has no training rows; give --train_file or --data_dir")
    if "test" not in splits and num_folds:
        splits["train"], splits["test"] = _hold_out_fold(splits["train"], task, fold, num_folds, seed)
    elif fold:
        logger.warning("%s has its own test split: fold %d is not used", task.name, fold)
    if "validation" not in splits:
        splits["train"], splits["validation"] = _hold_out_fraction(splits["train"], task, validation_fraction, seed)
    order = [
        "train",
        "validation",
        *(split for split in splits if split not in ("train", "validation", "test")),
        "test",
    ]
    limits = {split: max_train_samples if split == "train" else max_eval_samples for split in order}
    return DatasetDict({s: _sample(splits[s], limits[s], seed) for s in order if s in splits})


def _check_options(fold, num_folds, validation_fraction, max_train_samples, max_eval_samples) -> None:
    if num_folds < 0 or num_folds == 1:
        raise InputError(f"num_folds is {num_folds}; use 2 or more folds, or 0 for no test fold")
    if fold < 0 or (num_folds and fold >= num_folds):
        raise InputError(f"fold is {fold}; with {num_folds} folds it must be 0 to {num_folds - 1}")
    if not 0 < validation_fraction < 1:
        raise InputError(f"validation_fraction is {validation_fraction}; it must lie between 0 and 1")
    for name, limit in (("max_train_samples", max_train_samples), ("max_eval_samples", max_eval_samples)):
        if limit is not None and limit < 1:
            raise InputError(f"{name} is {limit}; give 1 or more, or leave it out to use every row")


def _read_splits(task: Task, data_dir: str | Path | None, files: Mapping[str, str | Path]) -> dict[str, Dataset]:
    """Every split there is, normalised; the files come before the task's own rows."""
    if task.generated:
        corpus = make_demo_corpus()
        splits = {s: normalise(rows, task.local, task, f"demo {s}") for s, rows in corpus.items() if s not in files}
    elif data_dir is not None and not task.files:
        splits = _read_directory(task, Path(data_dir), files)
    elif "train" in files:
        splits = {}
    else:
        splits = _read_hub(task, files)
    return splits | {split: normalise(read_table(path), task.local, task, str(path)) for split, path in files.items()}


def _read_directory(task: Task, data_dir: Path, skip: Mapping[str, str | Path]) -> dict[str, Dataset]:
    if not data_dir.is_dir():
        raise InputError(
            f"data directory {data_dir} does not exist; give the directory that holds {task.local.location}/"
        )
    folder = data_dir / task.local.location
    splits = {}
    for split, stems in task.local.splits.items():
        if split in skip:
            continue
        candidates = [folder / f"{stem}{suffix}" for stem in stems for suffix in TABLE_SUFFIXES]
        path = next((candidate for candidate in candidates if candidate.is_file()), None)
        if path is not None:
            splits[split] = normalise(read_table(path), task.local, task, str(path))
            if not path.name.startswith(stems[0] + "."):
                logger.warning("%s: split %s was read from %s", task.name, split, path.name)
        elif split == "train":
            raise InputError(
                f"task {task.name} finds no {folder / stems[0]}.jsonl.gz (nor {', '.join(TABLE_SUFFIXES[1:])}); "
                "check --data_dir or give --train_file"
            )
    return splits


def _read_hub(task: Task, skip: Mapping[str, str | Path]) -> dict[str, Dataset]:
    hub = task.hub
    if hub is None:
        raise InputError(f"task {task.name} is not on the Hub; give --data_dir or --train_file")
    try:
        raw = load_dataset(hub.location, hub.config, revision=hub.revision)
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"dataset {hub.location} of task {task.name} cannot be had from the Hub ({reason}); give --data_dir"
        ) from error
    found = {split: next((n for n in names if n in raw), None) for split, names in hub.splits.items()}
    return {
        split: normalise(raw[name], hub, task, f"{hub.location} {name}")
        for split, name in found.items()
        if name is not None and split not in skip
    }


def normalise(raw: Dataset, source: Source, task: Task, where: str) -> Dataset:
    """Rows of a source with the columns ``sentence1``, (``sentence2``,) ``label``; rows without a gold label dropped.

    Args:
        raw: the rows as read.
        source: names of the columns and order of integer labels in ``raw``.
        task: the task, for its labels or range of scores.
        where: name of the rows for error messages.

    Raises:
        InputError: a column is missing, a label is outside the label set, or a score outside the range.
    """
    for column in (*source.text_columns, source.label_column):
        if column not in raw.column_names:
            raise InputError(f"{where} has no column {column!r}; it has {', '.join(raw.column_names)}")
    columns = raw.select_columns(list(dict.fromkeys((*source.text_columns, source.label_column))))[:]
    labels = columns[source.label_column]
    kept = [row for row, label in enumerate(labels) if str(label) not in task.unlabelled]
    if not kept:
        raise InputError(f"{where} has no row with a gold label; give another file or leave this split out")
    if task.problem == "regression":
        label_feature = Value("float32")
        values = [_score(labels[row], task, where, row) for row in kept]
    else:
        label_feature = ClassLabel(names=list(task.labels))
        lookup = _label_lookup(raw, source, task)
        values = [_class_id(labels[row], lookup, task, where, row) for row in kept]
    texts, features = {}, {}
    for name, column in zip(task.text_columns, source.text_columns, strict=True):
        texts[name] = ["" if columns[column][row] is None else str(columns[column][row]) for row in kept]
        features[name] = Value("string")
    return Dataset.from_dict(texts | {"label": values}, features=Features(features | {"label": label_feature}))


def _label_lookup(raw: Dataset, source: Source, task: Task) -> dict[str, int]:
    """Label as text -> class id: class names, also in lower case, and the source's integers."""
    exact = {name: i for i, name in enumerate(task.labels)}
    lower = {name.lower(): i for i, name in enumerate(task.labels)}
    if any(name.lstrip("-").isdigit() for name in task.labels):
        return exact  # the names are numbers themselves: a number never means a position
    feature = raw.features[source.label_column]
    order = source.label_order or task.labels
    if isinstance(feature, ClassLabel) and all(name.lower() in lower for name in feature.names):
        order = feature.names
    return {str(i): lower[name.lower()] for i, name in enumerate(order)} | lower | exact


def _class_id(value, lookup: Mapping[str, int], task: Task, where: str, row: int) -> int:
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()
    class_id = lookup.get(text, lookup.get(text.lower()))
    if class_id is None:
        choices = ", ".join(task.labels)
        raise InputError(
            f"{where}, row {row + 1}: label {value!r} is not one of the labels of {task.name} ({choices}); "
            "correct the row or remove it"
        )
    return class_id


def _score(value, task: Task, where: str, row: int) -> float:
    try:
        score = float(value)
    except (TypeError, ValueError):
        score = math.nan
    if not task.score_min <= score <= task.score_max:
        raise InputError(
            f"{where}, row {row + 1}: score {value!r} is not a number from {task.score_min:g} to {task.score_max:g}; "
            "correct the row or remove it"
        )
    return score


def _strata(rows: Dataset) -> np.ndarray:
    """Class of each row; a class of one row joins the largest, since it cannot be on both sides of a split."""
    labels = np.asarray(rows[:]["label"])
    classes, counts = np.unique(labels, return_counts=True)
    return np.where(np.isin(labels, classes[counts == 1]), classes[counts.argmax()], labels)


def _hold_out_fold(rows: Dataset, task: Task, fold: int, num_folds: int, seed: int) -> tuple[Dataset, Dataset]:
    if len(rows) < num_folds:
        raise InputError(f"{task.name} has {len(rows)} training rows, too few for {num_folds} folds; use fewer folds")
    if task.problem == "regression":
        parts = KFold(num_folds, shuffle=True, random_state=seed).split(np.zeros(len(rows)))
    else:
        strata = _strata(rows)
        largest = int(np.unique(strata, return_counts=True)[1].max())
        if largest < num_folds:
            raise InputError(
                f"the largest class of {task.name} has {largest} rows, too few for {num_folds} folds; use fewer folds"
            )
        parts = StratifiedKFold(num_folds, shuffle=True, random_state=seed).split(np.zeros(len(rows)), strata)
    kept, held_out = list(parts)[fold]
    logger.info(
        "%s: fold %d of %d (%d rows) of the training rows is the test split", task.name, fold, num_folds, len(held_out)
    )
    return rows.select(np.sort(kept)), rows.select(np.sort(held_out))


def _hold_out_fraction(rows: Dataset, task: Task, fraction: float, seed: int) -> tuple[Dataset, Dataset]:
    strata = None if task.problem == "regression" else _strata(rows)
    classes = 1 if strata is None else len(np.unique(strata))
    size = max(round(fraction * len(rows)), classes)
    if len(rows) - size < classes:
        raise InputError(
            f"{task.name} has {len(rows)} training rows, too few to hold {size} out for validation; "
            "give a validation file or more rows"
        )
    splitter = ShuffleSplit if strata is None else StratifiedShuffleSplit
    parts = splitter(n_splits=1, test_size=size, random_state=seed).split(np.zeros(len(rows)), strata)
    kept, held_out = next(parts)
    logger.info("%s: %d of %d training rows are the validation split", task.name, size, len(rows))
    return rows.select(np.sort(kept)), rows.select(np.sort(held_out))


def _sample(rows: Dataset, limit: int | None, seed: int) -> Dataset:
    if limit is None or limit >= len(rows):
        return rows
    # A seeded draw and not the first rows: some of the files are sorted by label.
    return rows.select(np.sort(np.random.default_rng(seed).choice(len(rows), limit, replace=False)))
