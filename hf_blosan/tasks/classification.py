"""Sentences or pairs with a label."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ..data.batching import cut, encode_dataset, sentence_lengths
from ..data.columns import (
    TEXTS_A_ROW,
    ColumnNames,
    as_text,
    check_columns,
    check_distinct,
    is_integer,
    is_number,
    label_column,
    label_text,
    positions,
    row_numbers,
    text_columns,
)
from ..errors import InputError, listed
from ..hub.configs import saved_labels
from .base import SCORE_FIELDS, TaskKind
from .task import Source

if TYPE_CHECKING:  # `datasets` comes with training; a saved model does without
    from datasets import Dataset

logger = logging.getLogger(__name__)

MANY_LEFT_OUT = 0.1
"""Share of rows without a gold label above which leaving them out may be a mistake."""
MANY_CLASSES = 1000
"""Number of labels above which they are refused if half of the rows have a label of their own."""
NO_GOLD_LABEL = ("-1", "-1.0")
SINGLE = [{"text": "Who wrote Hamlet?"}, {"text": "The plot is thin, but the actors save the film."}]
PAIR = [{"text": "A man is playing a guitar.", "text_pair": "Somebody makes music."}]


class Classification(TaskKind):
    """One label per row."""

    unused_fields = (*SCORE_FIELDS, "passage_block_length")

    @classmethod
    def recognises(cls, table, where, names):
        return True

    @classmethod
    def choose_columns(cls, table, where, names):
        column = names.label or label_column(table.column_names, where)
        head = table.with_format("arrow")[:100].to_pydict()  # does not decode images and sounds
        texts = names.texts or text_columns(head, where, label_column=column)
        check_distinct((*texts, column), where)
        check_columns((*texts, column), table.column_names, where)
        return {"text_columns": texts, "label_column": column}

    @classmethod
    def has_gold(cls, table, columns):
        labels = table[columns["label_column"]][:] if super().has_gold(table, columns) else ()
        return any(label is not None and label_text(label).strip() not in NO_GOLD_LABEL for label in labels)

    @classmethod
    def task_fields(cls, tables, columns):
        """The labels are the names of a ``ClassLabel``, or else the sorted labels of the training rows."""
        from datasets import ClassLabel

        values = labels_of(tables, columns)
        where, train = next(iter(tables.items()))
        feature = train.features[columns["label_column"]]
        names = feature.names if isinstance(feature, ClassLabel) else _classes(values[where])
        if not len(train):
            raise InputError(f"{where} has no rows; give rows to train on")
        if len(names) < 2:
            raise InputError(f"{where}: every label is {names[0]!r}; a classification task needs two or more classes")
        if len(names) > max(MANY_CLASSES, len(train) / 2) and not isinstance(feature, ClassLabel):
            raise InputError(f"{where} has {len(names)} different labels in {len(train)} rows; check the label column")
        family = "own_pairs" if len(columns["text_columns"]) == 2 else "own_sentences"
        return cls.fields_of(names) | {"recipe_family": family}

    @classmethod
    def fields_of(cls, names: list[str]) -> dict[str, Any]:
        """Fields of a task with these labels."""
        return {
            "labels": tuple(names),
            "unlabelled": NO_GOLD_LABEL if set(NO_GOLD_LABEL).isdisjoint(names) else (),
            "metrics": ("Accuracy", "MacroF1"),
        }

    @classmethod
    def recognises_config(cls, config):
        return True

    @classmethod
    def saved_fields(cls, config):
        return cls.fields_of(saved_labels(config))

    def for_rows(self, table, where, names):
        from datasets import ClassLabel

        task = super().for_rows(table, where, names)
        labels = labels_of({where: table}, vars(task.local))[where]
        two = len({label_text(label).strip() for label in labels}) == 2
        if two and not isinstance(table.features[task.local.label_column], ClassLabel):
            return replace(task, unlabelled=())  # as in training, -1 is a class beside one other label
        return task

    def normalise(self, raw, source, where):
        """Rows with ``sentence1``, ``sentence2`` (pairs only) and ``label``, without those that have no gold label."""
        from datasets import ClassLabel, Dataset, Features, Value

        texts, column = source.text_columns, source.label_column
        check_columns((*texts, column), raw.column_names, where)
        cells = raw.select_columns(list(dict.fromkeys((*texts, column))))[:]
        labels, numbers = cells[column], row_numbers(raw)
        kept = [row for row, label in enumerate(labels) if label_text(label).strip() not in self.task.unlabelled]
        if 0 < len(kept) < len(labels):
            left_out = len(labels) - len(kept)
            level = logging.WARNING if left_out > MANY_LEFT_OUT * len(labels) else logging.INFO
            logger.log(level, "%s: %d of %d rows have no gold label and are left out", where, left_out, len(labels))
        if not kept:
            raise InputError(f"{where} has no row with a gold label; give another file or leave this split out")
        feature, read, wrong = self.label_reader(raw, source)
        values = [read(labels[row]) for row in kept]
        given = raw.features[source.label_column]
        if None in values:
            row = kept[values.index(None)]
            label = labels[row]
            if isinstance(given, ClassLabel) and label in range(len(given.names)):
                label = given.names[label]
            why = (
                " (next to just one other label, -1 is a class)" if label_text(label).strip() in NO_GOLD_LABEL else ""
            )
            raise InputError(f"{where}, row {numbers[row]}: {wrong.format(label)}{why}; correct the row or remove it")
        if isinstance(given, ClassLabel):
            warn_of_other_names(given.names, source, self.task.labels, where)
        elif isinstance(feature, ClassLabel):
            log_class_ids([labels[row] for row in kept], values, feature.names, where)
        rows = {}
        for name, column in zip(self.task.text_columns, texts, strict=True):
            given = {row: cells[column][row] for row in kept}
            if missing := sum(cell is None for cell in given.values()):
                logger.warning(
                    "%s: %s is null in %d of %d rows and is read as empty", where, column, missing, len(kept)
                )
            rows[name] = [
                "" if cell is None else as_text(cell, where, numbers[row], column) for row, cell in given.items()
            ]
        features = dict.fromkeys(self.task.text_columns, Value("string")) | {"label": feature, "row": Value("int64")}
        rows |= {"label": values, "row": [numbers[row] for row in kept]}
        return Dataset.from_dict(rows, features=Features(features))

    def label_reader(self, raw: Dataset, source: Source) -> tuple[Any, Callable[[Any], Any], str]:
        """The type of labels, how to read a cell (``None`` if invalid), and the message for one, with ``{!r}``."""
        from datasets import ClassLabel

        lookup = _label_lookup(raw.features[source.label_column], source, self.task.labels)
        known = listed(self.task.labels, 20).replace("{", "{{").replace("}", "}}")
        wrong = f"label {{!r}} is not one of the labels ({known})"
        return ClassLabel(names=list(self.task.labels)), lambda label: _class_id(label, lookup), wrong

    def strata(self, rows):
        return rows["label"][:]

    def encode(self, dataset, tokenizer, max_length=None):
        return encode_dataset(dataset, tokenizer, max_length=max_length)

    def lengths(self, encoded):
        """The sentences of a pair are padded to the longer."""
        return sentence_lengths(encoded).max(axis=1)

    def check_teacher(self, teacher, name):
        if teacher.config.problem_type == "multi_label_classification":
            raise InputError(
                f"--distill_from: the model at {name!r} gives a text several labels; give a model that gives it one"
            )
        if (order := self.teachers_order(teacher)) is None:
            raise InputError(
                f"--distill_from: the model at {name!r} predicts {', '.join(teacher.task.labels) or 'scores'}, the "
                f"task has {', '.join(self.task.labels)}; give a model trained on these labels"
            )
        if positions(self.task.labels, teacher.task.labels) is None:
            read = [f"{teacher.task.labels[i]} for {label}" for i, label in zip(order, self.task.labels, strict=True)]
            logger.warning("the labels of %s are taken in the order of the task's: %s", name, listed(read, 8))

    def continue_head(self, model, saved):
        """A head for as many other labels is trained further, which may not be what was meant."""
        labels = saved_labels(saved)
        if positions(self.task.labels, labels) is None:
            given = (listed(labels, 8), listed(self.task.labels, 8))
            logger.warning("the saved model's head is for the labels %s; its weights start those for %s", *given)

    def teachers_order(self, teacher: TaskKind) -> list[int] | None:
        """The teacher's class id for each label; ``None`` if its labels are different ones.

        Labels without names, as in LABEL_0, are in the order of the task's.
        """
        if not isinstance(teacher, Classification):
            return None
        theirs, ours = teacher.task.labels, self.task.labels
        unnamed = [label.lower() for label in theirs] == [f"label_{i}" for i in range(len(ours))]
        return positions(ours, theirs) or (list(range(len(ours))) if unnamed else None)

    def taught_rows(self, gold, texts, answers, teacher):
        """Labels become probabilities, (labels,): 1 for a gold label."""
        from datasets import Dataset, Features, List, Value

        soft = probabilities_of(teacher.config, answers, "softmax")[:, self.teachers_order(teacher)]
        exact = np.eye(len(self.task.labels), dtype=np.float32)[gold["label"][:]]
        features = Features(gold.features | {"label": List(Value("float32"))})
        rows = (gold.to_dict() | {"label": exact}, texts | {"label": soft})
        return tuple(Dataset.from_dict(columns, features=features) for columns in rows)

    def outputs(self, model, batch):
        """Without the model's own loss if labels are a teacher's probabilities, (B, labels)."""
        if batch["labels"].dim() == 2:
            batch = {name: value for name, value in batch.items() if name != "labels"}
        return super().outputs(model, batch)

    def config_fields(self):
        return super().config_fields() | label_fields(self.task.labels)

    def choose_texts(self, head, where, names):
        taken = getattr(self.config, "num_sentences", len(names.texts) or 1)  # a transformer takes either
        return choose_texts(head, where, names, self.task.local.text_columns, taken)

    def cut(self, item, limit, side):
        return tuple(cut(text, limit, side) for text in item)

    def tokenize(self, items, tokenizer, limit):
        return shortened(partial(tokenize_texts, items, tokenizer), limit)

    def columns(self, answers, items, tokenizer, *, probabilities=False):
        """Same output as transformers' text-classification pipeline."""
        found = probabilities_of(self.config, np.stack(answers))
        best = found.argmax(axis=1)
        columns = {"label": [self.task.labels[i] for i in best], "score": found.max(axis=1)}
        of_classes = {f"probability_{name}": found[:, i] for i, name in enumerate(self.task.labels)}
        return columns | (of_classes if probabilities else {})

    @classmethod
    def output_of(cls, run):
        return listed_labels(run, "classes")

    @classmethod
    def examples(cls, task):
        return PAIR if task["num_sentences"] == 2 else SINGLE

    @classmethod
    def snippet(cls, run, location, example):
        pair = run["task"]["num_sentences"] == 2
        example = example or {"text": "Your text"} | ({"text_pair": "Your other text"} if pair else {})
        text = json.dumps(dict(example) if pair else example["text"], ensure_ascii=False)
        return f"""from transformers import {cls.auto_class}, AutoTokenizer, pipeline

classify = pipeline("{cls.pipeline}", model="{location}", trust_remote_code=True)
classify({text})

{cls.loading_snippet(location)}"""


def listed_labels(run: Mapping[str, Any], what: str) -> str:
    """The labels of a task, in a card: their number, and up to 50 of them."""
    labels = run["task"]["labels"]
    names = f": {', '.join(labels)}" if len(labels) <= 50 else ""
    return f" ({len(labels)} {what}{names})"


def label_fields(labels: Sequence[str]) -> dict[str, Any]:
    """Configuration fields of a model with one of these labels per row or word."""
    names = dict(enumerate(labels))
    ids = {name: i for i, name in names.items()}
    return {"id2label": names, "label2id": ids, "problem_type": "single_label_classification"}


def probabilities_of(config: Any, logits: np.ndarray, function_to_apply: str | None = None) -> np.ndarray | None:
    """Label probabilities, (rows, labels), from logits, as in transformers' text-classification pipeline.

    ``None`` for a regression, whose logits are scores. ``function_to_apply`` is ``"sigmoid"``, ``"softmax"`` or
    ``"none"``, instead of the model's default.
    """
    if function_to_apply is None:
        several = config.problem_type == "multi_label_classification" or config.num_labels == 1
        function_to_apply = "none" if config.problem_type == "regression" else "sigmoid" if several else "softmax"
    if function_to_apply == "none":
        return None
    logits = torch.from_numpy(logits)
    return (logits.sigmoid() if function_to_apply == "sigmoid" else logits.softmax(-1)).numpy()


def labels_of(tables: Mapping[str, Dataset], columns: Mapping[str, Any]) -> dict[str, list]:
    """The labels of tables (name in messages -> rows); raises InputError if a column is missing, a label is null or
    empty, or a text is null or not a string.
    """
    found = {}
    for where, table in tables.items():
        for column in (*columns["text_columns"], columns["label_column"]):
            check_columns([column], table.column_names, where)
            found[where] = table.select_columns(column)[:][column]
            for row, cell in zip(row_numbers(table), found[where], strict=True):
                if not as_text(cell, where, row, column).strip() and column == columns["label_column"]:
                    raise InputError(f"{where}, row {row}: {column} is empty; fill it in or remove the row")
    return found


def _classes(labels: list) -> list[str]:
    found = {label_text(label).strip() for label in labels}
    numbers = all(map(is_number, found))
    if numbers:  # 1.0 is the class 1, where both are written
        found -= {f"{name}.0" for name in found if is_integer(name) and name == str(int(name))}
    # -1 marks rows without a label, unless it is one of two labels or there are lower numbers.
    if len(found) > 2 and not (numbers and min(map(float, found)) < -1):
        found -= set(NO_GOLD_LABEL)
    warn_of_case(found, "labels")
    return sorted(found, key=(lambda name: (float(name), name)) if numbers else None)


def warn_of_case(names: Collection[str], what: str) -> None:
    """Warn of classes whose names differ only in case."""
    counts = Counter(name.lower() for name in names)
    if alike := sorted(name for name in names if counts[name.lower()] > 1):
        logger.warning("%s that differ in case alone are different classes: %s", what, listed(alike, 8))


def _label_lookup(feature: Any, source: Source, labels: tuple[str, ...]) -> dict[str, int]:
    """Label as text -> class id, for class names, lower-cased names and the source's integers."""
    from datasets import ClassLabel

    exact = {name: i for i, name in enumerate(labels)}
    lower = {name.lower(): i for i, name in enumerate(labels)}
    by_position = {str(i): exact[name] for i, name in enumerate(source.label_order or labels)}
    if isinstance(feature, ClassLabel):  # its cells are positions, also where the names are numbers
        found = {str(i): exact.get(name, lower.get(name.lower())) for i, name in enumerate(feature.names)}
        return {i: label for i, label in found.items() if label is not None} or by_position
    if numbers := {name: float(name) for name in labels if is_number(name)}:
        # A number is a name, never a class id, and files may write it as 1 or as 1.0. One like 007 is text.
        forms = {name: {str(number), label_text(number)} for name, number in numbers.items()}
        return {form: exact[name] for name in forms if name in forms[name] for form in forms[name]} | lower | exact
    return by_position | lower | exact


def _class_id(label: Any, lookup: Mapping[str, int]) -> int | None:
    text = label_text(label).strip()
    return lookup.get(text, lookup.get(text.lower()))


def warn_of_other_names(names: Sequence[str], source: Source, labels: Sequence[str], where: str) -> None:
    """Warn if no class name is one of the task, so that classes are read by their positions."""
    known = {label.lower() for label in labels}
    if not source.label_order and known.isdisjoint(name.lower() for name in names):
        read = [f"{name} as {label}" for name, label in zip(names, labels, strict=False)]
        logger.warning("%s: classes with other names are read by position: %s", where, listed(read, 8))


def log_class_ids(labels: Sequence[Any], values: Sequence[int], names: Sequence[str], where: str) -> None:
    """Log the names of labels that are numbers, and so were read as class ids."""
    distinct = dict(zip(labels, values, strict=True))
    ids = {label_text(label).strip(): names[value] for label, value in distinct.items()}
    read = [f"{label} for {ids[label]}" for label in sorted(filter(is_integer, ids), key=int) if label != ids[label]]
    if read:
        logger.info("%s: numbers as labels are read as class ids: %s", where, listed(read, 8))


def choose_texts(
    head: list[dict[str, Any]], where: str, names: ColumnNames, trained: tuple[str, ...], num_texts: int | None
) -> tuple[tuple[str, ...], Callable[[dict[str, Any], int], tuple[str, ...]]]:
    """The text columns to read, and the function that reads them, as in :meth:`TaskKind.choose_texts`.

    ``trained`` are the model's columns in training; ``num_texts`` is how many texts it takes, ``None``: one or two.
    """
    columns = names.texts
    if not columns:
        fits = trained and set(trained) <= head[0].keys() and len(trained) == (num_texts or len(trained))
        columns = trained if fits else text_columns({name: [row.get(name) for row in head] for name in head[0]}, where)
        logger.info("%s: texts from %s", where, " and ".join(columns))
        if not fits and " " in columns[0]:
            logger.warning(
                "%s: %r is taken for the name of a column; if it is a row, put a line with column names before it",
                *(where, columns[0]),
            )
    if num_texts and len(columns) != num_texts:
        given, taken = " and ".join(columns), TEXTS_A_ROW[num_texts]
        raise InputError(
            f"the model takes {taken} a row, but {where} has {given}; name the columns with --text_column_name and, "
            "for pairs, --text_pair_column_name"
        )
    check_distinct(columns, where)
    check_columns(columns, head[0], where)
    return columns, lambda row, number: tuple(as_text(row.get(name), where, number, name) for name in columns)


def shortened(tokenize: Callable[..., list[dict[str, Any]]], limit: int) -> tuple[list[dict[str, Any]], list[int]]:
    """The result of a tokenizing function, truncated to `limit` tokens, and the lengths of the truncated rows. The
    function is called without a limit, then again with it if any row is longer.
    """
    rows = tokenize()
    long = [len(row["input_ids"]) for row in rows if len(row["input_ids"]) > limit]
    return (tokenize(limit=limit) if long else rows), long


def tokenize_texts(
    items: Sequence[tuple[str, ...]], tokenizer: PreTrainedTokenizerBase, limit: int | None = None
) -> list[dict[str, list[int]]]:
    """Texts or pairs as rows of token ids, of any length or truncated to the limit; pairs with type ids."""
    columns = [list(column) for column in zip(*items, strict=True)]
    paired = len(columns) == 2 and "token_type_ids" in tokenizer.model_input_names
    if limit is not None or not tokenizer.is_fast:
        options = {"truncation": True, "max_length": limit} if limit is not None else {}
        options |= {"return_token_type_ids": paired, "return_attention_mask": False}
        encoding = tokenizer(*columns, verbose=False, **options)
        return [dict(zip(encoding, row, strict=True)) for row in zip(*encoding.values(), strict=True)]
    # The underlying tokenizers library takes less than half the time of transformers' wrapper.
    backend = tokenizer.backend_tokenizer
    if backend.truncation or backend.padding:
        backend.no_truncation()
        backend.no_padding()
    encodings = backend.encode_batch_fast(items if len(columns) == 2 else columns[0])
    if paired:
        return [{"input_ids": encoding.ids, "token_type_ids": encoding.type_ids} for encoding in encodings]
    return [{"input_ids": encoding.ids} for encoding in encodings]
