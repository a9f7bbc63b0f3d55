"""Distillation of a task: a larger model labels texts, and the student learns its probabilities."""

from __future__ import annotations

import hashlib
import io
import json
import logging
from collections.abc import Iterable
from pathlib import Path

import datasets
import numpy as np
from datasets import Dataset, DatasetDict, concatenate_datasets
from tqdm.auto import tqdm

from ..data.columns import TEXTS_A_ROW, as_text, check_columns, normal, row_numbers
from ..data.tables import read_table
from ..errors import InputError
from ..files import write_bytes
from ..hub.configs import read_config
from ..hub.finite import NotFinite
from ..hub.saved import contents, load
from ..inference.batches import Batches
from ..tasks.base import TaskKind
from ..tasks.kinds import kind_of
from .arguments import RunArguments

logger = logging.getLogger(__name__)

BATCH_SIZE = 64
ROWS_AT_ONCE = 64 * BATCH_SIZE
"""Rows that are read ahead and sorted by length."""


def with_taught_rows(arguments: RunArguments, kind: TaskKind, dataset: DatasetDict) -> Dataset:
    """The training rows and, after them, those of `--unlabeled_file` with the teacher's answers as labels.

    Rows with the texts of a row of the task, whatever their case and punctuation, are left out: they would teach
    held-out rows, or give a training row a second label. So are repetitions. Raises InputError if the teacher, the
    file or the task cannot be used.
    """
    name, where = arguments.distill_from, str(arguments.unlabeled_file)
    teacher = kind_of(read_config(name, trust_remote_code=arguments.trust_remote_code))
    kind.check_teacher(teacher, name)
    taken = getattr(teacher.config, "num_sentences", kind.task.num_sentences)  # a transformer takes one text or two
    if taken != kind.task.num_sentences:
        raise InputError(
            f"--distill_from: the model at {name!r} takes {TEXTS_A_ROW[taken]} a row, the task has "
            f"{TEXTS_A_ROW[kind.task.num_sentences]}; give another model"
        )
    table, columns = read_table(where), kind.task.local.text_columns
    check_columns(columns, table.column_names, where)
    cells = zip(*(table[column][:] for column in columns), strict=True)
    items = {
        number: tuple(as_text(cell, where, number, column) for cell, column in zip(row, columns, strict=True))
        for number, row in zip(row_numbers(table), cells, strict=True)
    }
    new = without_known(items, dataset, kind.task.text_columns)
    if not new:
        raise InputError(f"every text of {where} is one of the task; give texts that are not")
    answers = answers_of(name, teacher, list(new.values()), arguments)
    texts = dict(zip(kind.task.text_columns, zip(*new.values(), strict=True), strict=True))
    rows = kind.taught_rows(dataset["train"], texts | {"row": list(new)}, answers, teacher)
    left_out = len(items) - len(new)
    logger.info("%s: %d texts labelled by %s; %d known or repeated ones left out", where, len(new), name, left_out)
    return concatenate_datasets(rows)


def without_known(
    items: dict[int, tuple[str, ...]], dataset: DatasetDict, columns: Iterable[str]
) -> dict[int, tuple[str, ...]]:
    """The items whose texts are in no row of the splits, each once."""
    columns = list(columns)
    known = {
        tuple(map(normal, row))
        for rows in dataset.values()
        for row in zip(*(rows[c][:] for c in columns), strict=True)
    }
    kept = {}
    for number, item in items.items():
        if (key := tuple(map(normal, item))) not in known:
            known.add(key)
            kept[number] = item
    return kept


def answers_of(name: str, teacher: TaskKind, items: list[tuple[str, ...]], arguments: RunArguments) -> np.ndarray:
    """The teacher's logits, (items, labels), float32, from the cache if it has answered them before.

    The cache is below that of `datasets` (`HF_DATASETS_CACHE`); the name of a file is a hash of the teacher's files
    and of the texts, so that runs of other students and seeds share it. Raises InputError if the teacher cannot be
    loaded, or the cache cannot be written.
    """
    digest = hashlib.sha256(json.dumps([contents(name), items], sort_keys=True).encode("utf-8", "replace"))
    file = Path(datasets.config.HF_DATASETS_CACHE, "hf_blosan", f"answers-{digest.hexdigest()[:16]}.npy")
    if file.is_file():
        return np.load(file)
    model, tokenizer = load(name, teacher.pipeline, cpu=arguments.cpu, trust_remote_code=arguments.trust_remote_code)
    batches, answers = Batches(model, tokenizer, teacher, batch_size=BATCH_SIZE), []
    starts = range(0, len(items), ROWS_AT_ONCE)
    for start in tqdm(starts, desc="answers of the teacher", disable=arguments.in_memory):
        part = items[start : start + ROWS_AT_ONCE]
        try:
            answers += batches(part)
        except NotFinite as error:
            raise error.at(f"--distill_from {name}, the text {' '.join(part[error.of(len(part))])[:60]!r}") from error
    batches.report("model_max_length of the teacher's tokenizer")
    buffer = io.BytesIO()
    np.save(buffer, np.stack(answers))
    try:
        write_bytes(file, buffer.getvalue())
    except OSError as error:
        raise InputError(
            f"--distill_from: {file} cannot be written ({error.strerror or error}); set HF_DATASETS_CACHE to a folder "
            "with free space"
        ) from error
    return np.stack(answers)
