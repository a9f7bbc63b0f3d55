"""Loads a task from local files or the Hub, with the same columns and splits for every source."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from datasets import Dataset, DatasetDict, concatenate_datasets
from datasets.utils.stratify import stratified_shuffle_split_generate_indices
from sklearn.model_selection import KFold, StratifiedKFold

from ..data.demo_corpus import make_demo_corpus
from ..data.rows import READABLE_TABLES
from ..data.tables import load_splits, read_table
from ..errors import InputError
from .folds import stored_folds
from .kinds import find_kind
from .table import get_task
from .task import Source, Task

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
    num_folds: int | None = None,
    validation_fraction: float | None = None,
    select_on_test: bool = False,
    max_train_samples: int | None = None,
    max_eval_samples: int | None = None,
) -> DatasetDict:
    """Load a task; every split has the columns ``sentence1``, ``sentence2`` (pairs only), ``label`` and ``row``.

    ``label`` is a ``ClassLabel`` with the task's class names, or a float score. Other kinds of tasks have others:
    tagging ``tokens``, ``tags`` and, for semantic role labelling, ``predicate_index``; selection ``question``,
    ``sentences``, ``label`` (an index) and ``passage``; translation ``sentence1`` and ``translation``. ``row`` is the
    number of the row in its file, from 1, counting rows that are left out.

    Files given here replace the task's own splits, which come from ``data_dir`` or else from the Hub. With a training
    file the Hub is not used, because its other splits would not match that file.

    Training rows are held out only if the task's protocol or an option says so: without a
    test split, fold ``fold`` of ``num_folds`` (stratified) folds, which are stored for CR, MPQA and SUBJ and seeded
    for other rows; without a validation split, a seeded (stratified) ``validation_fraction`` of the remaining rows.
    Questions about one passage stay together, as do the predicates of one sentence. Held-out splits are logged.
    Empty texts are kept.

    Args:
        task: a task or its name.
        data_dir: directory with ``<folder>/<split>.jsonl.gz`` (or .jsonl, .json, .csv, .tsv, .parquet; all but
            Parquet also as .gz).
        train_file, validation_file, test_file: files that replace the task's own splits.
        seed: seed of the held-out splits and of the sampling.
        fold, num_folds: test fold and number of folds; 0 folds: no test split. By default the task's protocol, but
            none with a training file.
        validation_fraction: fraction of the training rows for a missing validation split, between 0 and 1; default as
            for ``num_folds``.
        select_on_test: use the test rows as the missing validation split and hold none out, as the authors' code
            does for TREC, CR, MPQA and SUBJ.
        max_train_samples: size of a seeded sample of the training rows, drawn last; ``None`` keeps all.
        max_eval_samples: the same for every other split.

    Returns:
        Splits ``train``, ``validation``, ``test``; for MNLI also ``validation_mismatched``.

    Raises:
        InputError: a directory, file or column is missing, a label or score is not one of the task's, or the splitting
            options do not fit the data.
    """
    task, given_fraction = get_task(task) if isinstance(task, str) else task, validation_fraction
    if train_file is None:
        num_folds = task.num_folds if num_folds is None else num_folds
        validation_fraction = task.validation_fraction if validation_fraction is None else validation_fraction
    num_folds = num_folds or 0
    _check_options(fold, num_folds, validation_fraction, max_train_samples, max_eval_samples)
    files = {"train": train_file, "validation": validation_file, "test": test_file}
    files = dict(task.files) | {split: path for split, path in files.items() if path is not None}
    splits = _read_splits(task, data_dir, files)
    if "train" not in splits:
        raise InputError("there are no training rows; give --train_file or --data_dir")
    if "test" not in splits and num_folds:
        splits["train"], splits["test"] = _hold_out_fold(splits["train"], task, fold, num_folds, seed)
    elif fold or num_folds not in (0, task.num_folds):
        why = f"of {num_folds} is not used: there are test rows" if num_folds else "is not used: there are no folds"
        logger.warning("fold %d %s", fold, why)
    if select_on_test:
        if "validation" in splits or "test" not in splits:
            which = "validation rows" if "validation" in splits else "no test rows"
            raise InputError(f"--select_on_test: there are {which}, so it cannot be used; leave it out")
        splits["validation"] = splits["test"]
    elif "validation" in splits and given_fraction not in (None, task.validation_fraction):
        logger.warning("there are validation rows: validation_fraction %g is not used", given_fraction)
    elif task.evaluation_splits and "validation" not in splits:
        if validation_fraction is None:
            raise InputError(
                "there are no validation rows, which select the best model; give --validation_file, or hold out a "
                "part of the training rows, for instance with --validation_fraction 0.1"
            )
        splits["train"], splits["validation"] = _hold_out_fraction(splits["train"], task, validation_fraction, seed)
    order = dict.fromkeys(["train", "validation", *sorted(splits.keys() - {"test"}), "test"])
    limits = {split: max_train_samples if split == "train" else max_eval_samples for split in order}
    return DatasetDict({split: sample(splits[split], limits[split], seed) for split in order if split in splits})


def _check_options(fold, num_folds, validation_fraction, max_train_samples, max_eval_samples) -> None:
    if num_folds < 0 or num_folds == 1:
        raise InputError(f"num_folds is {num_folds}; use 2 or more folds, or 0 for no test fold")
    if fold < 0 or (num_folds and fold >= num_folds):
        raise InputError(f"fold is {fold}; with {num_folds} folds it must be 0 to {num_folds - 1}")
    if validation_fraction is not None and not 0 < validation_fraction < 1:
        raise InputError(f"validation_fraction is {validation_fraction}; it must be between 0 and 1")
    for name, limit in (("max_train_samples", max_train_samples), ("max_eval_samples", max_eval_samples)):
        if limit is not None and limit < 1:
            raise InputError(f"{name} is {limit}; give 1 or more, or leave it out to use every row")


def _read_splits(task: Task, data_dir: str | Path | None, files: Mapping[str, str | Path]) -> dict[str, Dataset]:
    """All available splits, normalised; the files replace the task's own splits."""
    kind, local, hub = find_kind(task), task.local, task.hub or task.local
    # Split -> a file, or rows that are read already; the names of their columns; their name in messages.
    found: dict[str, tuple[str | Path | Dataset, Source, str]] = {}
    if task.generated:
        found = {split: (rows, local, f"{local.location} {split}") for split, rows in make_demo_corpus().items()}
    elif task.tables and files.get("train") == task.files.get("train"):
        for split, rows in task.tables.items():
            found[split] = rows, local, str(task.files.get(split, f"{hub.location} {split}"))
    elif data_dir is not None and not task.files:
        found = {split: (path, local, str(path)) for split, path in _local_paths(task, Path(data_dir), files).items()}
    elif "train" not in files:
        found = {split: (rows, hub, f"{hub.location} {split}") for split, rows in _load_from_hub(task).items()}
    for split, path in files.items():
        if split not in found or path != task.files.get(split):
            found[split] = path, local, str(path)
    splits = {}
    for split, (rows, source, where) in found.items():
        splits[split] = kind.normalise(rows if isinstance(rows, Dataset) else read_table(rows), source, where)
    if local.phrases and data_dir is not None and "train" not in files:
        path = find_file(Path(data_dir), task, (local.phrases,), required=True)
        phrases = kind.normalise(read_table(path), local, str(path))
        splits["train"] = concatenate_datasets([splits["train"], phrases])
    return splits


def _local_paths(task: Task, data_dir: Path, skip: Mapping[str, str | Path]) -> dict[str, Path]:
    if not data_dir.is_dir():
        raise InputError(
            f"data directory {data_dir} does not exist; give the directory that contains {task.local.location}/"
        )
    paths = {}
    for split, stems in task.local.splits.items():
        if split in skip:
            continue
        if path := find_file(data_dir, task, stems, required=split == "train"):
            paths[split] = path
            if not path.name.startswith(f"{stems[0]}."):
                logger.warning("%s: split %s was read from %s", task.name, split, path.name)
    return paths


def find_file(data_dir: Path, task: Task, stems: tuple[str, ...], *, required: bool = False) -> Path | None:
    """The first file of a task with one of these stems; raises InputError if a required one is missing."""
    folder = data_dir / task.local.location
    candidates = (folder / f"{stem}{suffix}" for stem in stems for suffix in READABLE_TABLES)
    path = next(filter(Path.is_file, candidates), None)
    if required and not path:
        raise InputError(
            f"task {task.name} finds no {folder / stems[0]}.jsonl.gz (nor {', '.join(READABLE_TABLES[1:])}); "
            "check --data_dir or give --train_file"
        )
    return path


def _load_from_hub(task: Task) -> dict[str, Dataset]:
    hub = task.hub
    if hub is None:
        raise InputError(f"task {task.name} is not on the Hub; give --data_dir or --train_file")
    raw = load_splits(hub.location, hub.config, revision=hub.revision, remedy="give --data_dir")
    found = {split: next((name for name in names if name in raw), None) for split, names in hub.splits.items()}
    return {split: raw[name] for split, name in found.items() if name}


def _hold_out_fold(rows: Dataset, task: Task, fold: int, num_folds: int, seed: int) -> tuple[Dataset, Dataset]:
    """Training and test rows; groups of rows stay together."""
    kind = find_kind(task)
    groups, unit = kind.row_groups(rows) or (np.arange(len(rows)), "rows")
    distinct, labels = np.unique(groups), kind.strata(rows)
    splitter, what, count = KFold, "the training split", len(distinct)
    if labels is not None:
        splitter, what, count = StratifiedKFold, "the largest class", max(Counter(labels).values())
    if count < num_folds:
        raise InputError(f"{what} has {count} {unit}, too few for {num_folds} folds; use fewer folds")
    folds = stored_folds(task.name, rows) if num_folds == task.num_folds else None
    if folds is None:
        parts = splitter(num_folds, shuffle=True, random_state=seed).split(distinct, labels)
        is_held_out = np.isin(groups, distinct[list(parts)[fold][1]])
    else:
        is_held_out = folds == fold
    kept, held_out = np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)
    logger.info(
        "%s %d of %d (%d rows) of the training rows is the test split",
        *("fold" if folds is None else "stored fold", fold, num_folds, len(held_out)),
    )
    return rows.select(kept), rows.select(held_out)


def _hold_out_fraction(rows: Dataset, task: Task, fraction: float, seed: int) -> tuple[Dataset, Dataset]:
    """Training and validation rows; a class with a single row cannot be stratified and stays in the training rows.

    Groups of rows stay together.
    """
    kind = find_kind(task)
    if grouped := kind.row_groups(rows):
        groups, unit = grouped
        distinct = np.random.default_rng(seed).permutation(np.unique(groups))
        is_held_out = np.isin(groups, distinct[: round(fraction * len(distinct))])
        if not 0 < is_held_out.sum() < len(rows):
            raise InputError(
                f"{len(distinct)} training {unit} are too few to hold out {fraction:g} of them for validation; give a "
                "validation file or more rows"
            )
        logger.info("%d of %d training rows are the validation split", is_held_out.sum(), len(rows))
        return rows.select(np.flatnonzero(~is_held_out)), rows.select(np.flatnonzero(is_held_out))
    labels = kind.strata(rows)
    counts = Counter(labels or ())
    single = [row for row, label in enumerate(labels or ()) if counts[label] == 1]
    size = max(round(fraction * len(rows)), len(counts) - len(single), 1)
    kept = sorted(set(range(len(rows))) - set(single))
    rest = rows.select(kept)
    if not rest:
        raise InputError(
            f"none of {len(rows)} training rows can be held out for validation, because each has a label of its own; "
            "check which column holds the labels, or give validation rows"
        )
    try:
        if labels is None:
            train, validation = rest.train_test_split(test_size=size, seed=seed).values()
        else:
            # As train_test_split draws, which reads the column of labels row by row.
            strata, generator = np.array(labels)[kept], np.random.default_rng(seed)
            drawn = stratified_shuffle_split_generate_indices(strata, len(rest) - size, size, generator)
            train, validation = map(rest.select, next(drawn))
    except ValueError as error:
        raise InputError(
            f"{len(rows)} training rows are too few to hold out {size} for validation; give validation rows or more "
            "training rows"
        ) from error
    logger.info("%d of %d training rows are the validation split", size, len(rows))
    return concatenate_datasets([train, rows.select(single)]), validation


def sample(rows: Dataset, limit: int | None, seed: int) -> Dataset:
    """That many rows, or all if there are not more or the limit is None."""
    # A shuffled sample rather than the first rows, because some files are sorted by label.
    return rows if limit is None or limit >= len(rows) else rows.shuffle(seed=seed).select(range(limit))
