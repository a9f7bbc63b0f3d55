"""Rows of words with a tag for each, and a predicate among them in semantic role labelling."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.columns import LABEL_COLUMNS, as_text, check_columns, check_distinct, label_text, row_numbers
from ..errors import InputError, listed
from ..hub.configs import saved_labels
from ..text.tokenization import put_spaces_before_words
from .base import CLASSIFIER_FIELDS, SCORE_FIELDS, TaskKind
from .classification import Classification, label_fields, listed_labels, shortened, warn_of_case
from .tags import decode_tags, may_follow
from .words import GOLD, TaggingCollator, as_predicate, as_words, cut_words, encode_tags, encode_words

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

TOKEN_COLUMN, TAG_COLUMNS, PREDICATE_COLUMN = "tokens", ("tags", "ner_tags"), "predicate_index"
NO_TAG = -1
"""Class id for missing gold tags and for words without a token."""
NO_TAGS = (str(NO_TAG), "-100")
"""What stands for no tag in data sets; with -100, transformers leaves tokens out of the loss."""
PREDICATE_SIZE = 100  # of a new model, unless the recipe sets it


class Tagging(TaskKind):
    """A tag for each word; with a predicate in each row if the task has a column of them."""

    head = "ForTokenClassification"
    auto_class = "AutoModelForTokenClassification"
    pipeline = "token-classification"
    reference = GOLD
    column = "tags"
    flat = False
    use = "tagging sentences"
    unused_fields = (*SCORE_FIELDS, *CLASSIFIER_FIELDS, "classifier_size", "passage_block_length")
    other_uses = (
        "tags words; use it with hf-blosan predict and evaluate or, if it takes no predicates, with "
        "pipeline('token-classification')"
    )
    gives_vectors = False

    @classmethod
    def recognises(cls, table, where, names):
        """Lists of words; raises InputError if columns with the names of words and tags have text instead of lists."""
        if is_list(table.features.get(names.text or TOKEN_COLUMN)):
            return True
        columns = set(table.column_names)
        named = TOKEN_COLUMN in columns and columns & set(TAG_COLUMNS) and not columns & set(LABEL_COLUMNS)
        if named and not names.text and names.label in (None, *TAG_COLUMNS):
            raise InputError(
                f"{where}: {TOKEN_COLUMN} is not a list; give a list of words and a list of tags in each row (in "
                ".jsonl or .parquet), or classify texts with --text_column_name and --label_column_name"
            )
        return False

    @classmethod
    def choose_columns(cls, table, where, names):
        names.refuse_pair("tagging")
        token_column = names.text or TOKEN_COLUMN
        tag_column = names.label or next((name for name in TAG_COLUMNS if name in table.column_names), None)
        if tag_column is None:
            raise InputError(
                f"{where} has no column {' or '.join(map(repr, TAG_COLUMNS))}; it has {listed(table.column_names)}; "
                "name the column of tags with --label_column_name"
            )
        check_distinct((token_column, tag_column), where)
        check_columns([token_column, tag_column], table.column_names, where)
        predicates = PREDICATE_COLUMN if PREDICATE_COLUMN in table.column_names else None
        return {"text_columns": (token_column,), "label_column": tag_column, "predicate_column": predicates}

    @classmethod
    def has_gold(cls, table, columns):
        return super().has_gold(table, columns) and not all(map(_without_gold, table[columns["label_column"]][:]))

    @classmethod
    def task_fields(cls, tables, columns):
        tags = tags_of(tables, columns["label_column"])
        return cls.fields_of(tags, columns["predicate_column"] is not None) | {"recipe_family": "own_tags"}

    @staticmethod
    def fields_of(tags: Sequence[str], predicates: bool) -> dict[str, Any]:
        """Fields of a task with these tags; its metrics are span metrics if the tags mark spans."""
        spans = any(tag.startswith("B-") for tag in tags)
        metrics = ("ArgumentScores",) if predicates else ("SpanScores", "TagAccuracy") if spans else ("TagAccuracy",)
        best = "f1" if metrics != ("TagAccuracy",) else "accuracy"
        return {"labels": tuple(tags), "metrics": metrics, "best_metric": best}

    @classmethod
    def saved_fields(cls, config):
        return cls.fields_of(saved_labels(config), bool(getattr(config, "predicate_size", 0)))

    def normalise(self, raw, source, where):
        """Rows with ``tokens``, ``tags`` (class ids) and, for semantic role labelling, ``predicate_index``.

        An ``I-X`` outside a span becomes ``B-X``: both mark the same span. Rows whose tags are all -1 have no
        gold tags and are left out.
        """
        from datasets import ClassLabel, Dataset, Features, List, Value

        columns = [source.text_columns[0], source.label_column]
        columns += [source.predicate_column] if source.predicate_column else []
        check_columns(columns, raw.column_names, where)
        names = _tag_names(raw, source.label_column)
        ids = {name: i for i, name in enumerate(self.task.labels)}
        rows = {"tokens": [], "tags": [], "row": []} | ({"predicate_index": []} if source.predicate_column else {})
        changed, left_out = 0, 0
        cells = (raw[column][:] for column in columns)
        for number, words, tags, *predicate in zip(row_numbers(raw), *cells, strict=True):
            row = f"{where}, row {number}"
            words = as_words(words, where, number, columns[0])
            if not isinstance(tags, list) or len(tags) != len(words):
                count = f"{len(tags)} tags" if isinstance(tags, list) else "no list of tags"
                raise InputError(f"{row} has {len(words)} words and {count}; give one tag for each word")
            if _without_gold(tags):
                left_out += 1
                continue
            if names:
                if wrong := [tag for tag in tags if tag is not None and not 0 <= tag < len(names)]:
                    raise InputError(f"{row}: tag {wrong[0]} is not from 0 to {len(names) - 1}; correct the row")
                tags = [tag if tag is None else names[tag] for tag in tags]
            read = as_text if names else _tag
            tags = [read(tag, where, number, f"tag {n} of {columns[1]}") for n, tag in enumerate(tags, 1)]
            for n, (before, tag) in enumerate(zip(["O", *tags], tags, strict=False)):
                if tag not in ids:
                    known = listed(self.task.labels, 8)
                    raise InputError(f"{row}: {tag!r} is not one of the tags ({known}); correct the row")
                if not may_follow(before, tag):
                    tags[n], changed = f"B-{tag[2:]}", changed + 1
            for index in predicate:
                rows["predicate_index"].append(as_predicate(index, words, where, number, columns[2]))
            rows["row"].append(number)
            rows["tokens"].append(words)
            rows["tags"].append([ids[tag] for tag in tags])
        if not rows["tokens"]:
            raise InputError(f"{where} has no row with gold tags; give another file or leave this split out")
        if left_out:
            logger.info("%s: %d rows have no gold tags and are left out", where, left_out)
        if changed:
            logger.info("%s: %d tags I-X do not continue a span and were read as B-X", where, changed)
        features = {"tokens": List(Value("string")), "tags": List(ClassLabel(names=list(self.task.labels)))}
        features |= {"row": Value("int64")}
        features |= {"predicate_index": Value("int64")} if source.predicate_column else {}
        return Dataset.from_dict(rows, features=Features(features))

    def row_groups(self, rows):
        """The predicates of one sentence."""
        if PREDICATE_COLUMN not in rows.column_names:
            return None
        numbers: dict[tuple[str, ...], int] = {}
        return [numbers.setdefault(tuple(words), len(numbers)) for words in rows["tokens"][:]], "sentences"

    def texts(self, rows):
        return chain.from_iterable(rows["tokens"][:])

    continue_head = Classification.continue_head

    def prepare_tokenizer(self, tokenizer, *, for_backbone):
        return put_spaces_before_words(super().prepare_tokenizer(tokenizer, for_backbone=for_backbone))

    def encode(self, dataset, tokenizer, max_length=None):
        splits = {}
        for split, rows in dataset.items():
            options = {"where": f"{split}: ", "for_training": split == "train"}
            splits[split] = encode_tags(rows, tokenizer, max_length, **options)
        return type(dataset)(splits)

    def lengths(self, encoded):
        return np.array(list(map(len, encoded["input_ids"][:])))

    def collator(self, tokenizer, **padding):
        return TaggingCollator(tokenizer, **padding)

    def config_fields(self):
        return super().config_fields() | label_fields(self.task.labels)

    @property
    def has_predicates(self) -> bool:
        return self.task.local.predicate_column is not None

    def make_model(self, encoder, config_fields, tokenizer):
        predicates = {"predicate_size": PREDICATE_SIZE} if self.has_predicates else {}
        return super().make_model(encoder, predicates | config_fields, tokenizer)

    def check_config(self, config):
        size, title = config.predicate_size, self.task.title
        if self.has_predicates and not size:
            raise InputError(
                f"predicate_size is 0, but {title} has predicates; use a model with predicate_size above 0"
            )
        if size and not self.has_predicates:
            raise InputError(
                f"predicate_size is {size}, but {title} has no column of predicates; add predicate_index, or use a "
                "model with predicate_size 0"
            )

    def infer(self, model, batch, *, quick=False):
        """Tag ids of the words with a token, (B, N), -100 elsewhere."""
        return decode_tags(model(**batch).logits, self.task.labels, batch["word_mask"])

    def decode(self, answers):
        return answers

    def complete(self, predictions, references):
        """The tags of all words of each row; that of a word without a token is `NO_TAG`."""
        found = np.full((len(references), max(len(gold["tags"]) for gold in references)), -100)
        for row, of_tokens, gold in zip(found, predictions, references, strict=True):
            row[: len(gold["tags"])] = _of_words(of_tokens, gold)
        return found

    def figures(self, predictions, references, tokenizer):
        gold = [self._names(row["tags"]) for row in references]
        return self.metrics.compute(predictions=[self._names(row) for row in predictions.tolist()], references=gold)

    def lines(self, predictions, tokenizer):
        return (" ".join(self._names(row)) for row in predictions.tolist())

    def _names(self, ids: Iterable[int], missing: str | None = "_") -> list[str | None]:
        """Tag ids, padded with -100, as tags; a word without a token gets O or, if O is not a tag, `missing`."""
        missing = "O" if "O" in self.task.labels else missing
        return [missing if i == NO_TAG else self.task.labels[i] for i in ids if i != -100]

    def choose_texts(self, head, where, names):
        names.refuse_pair("a tagger")
        trained = self.task.local.text_columns
        words = names.text or (trained[0] if trained and set(trained) <= head[0].keys() else TOKEN_COLUMN)
        if words not in head[0] and not names.text:
            raise InputError(f"{where} has no column {words!r}; it has {listed(head[0])}; give --text_column_name")
        columns = (words, *([PREDICATE_COLUMN] if getattr(self.config, "predicate_size", 0) else []))
        check_columns(columns, head[0], where)

        def read(row: dict[str, Any], number: int) -> tuple:
            words = as_words(row.get(columns[0]), where, number, columns[0])
            return words, *(as_predicate(row.get(name), words, where, number, name) for name in columns[1:])

        return columns, read

    def sizes(self, items):
        return (sum(map(len, words)) for words, *_ in items)

    def tokenize(self, items, tokenizer, limit):
        sentences, *predicates = (list(column) for column in zip(*items, strict=True))
        parts = [cut_words(words, limit) for words in sentences]

        def tokenize(limit: int | None = None) -> list[dict[str, Any]]:
            columns, words = encode_words(tokenizer, parts, predicates[0] if predicates else None, limit)
            columns[GOLD] = [
                {"tags": [NO_TAG] * len(sentence), "words": [word for word in of_tokens if word is not None]}
                for sentence, of_tokens in zip(sentences, words, strict=True)
            ]
            return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

        return shortened(tokenize, limit)

    def trim(self, answer, row):
        return _of_words(answer, row[GOLD])

    def columns(self, answers, items, tokenizer, *, probabilities=False):
        """A word without a token, for example beyond the limit, has the tag O, or ``None`` if there is no such tag."""
        return {"tags": [self._names(ids, None) for ids in answers]}

    @classmethod
    def input_of(cls, run):
        predicates = run["config"].get("predicate_size")
        return "a sentence and one of its predicates" if predicates else super().input_of(run)

    @classmethod
    def output_of(cls, run):
        return listed_labels(run, "tags")

    @classmethod
    def snippet(cls, run, location, example):
        if not run["config"].get("predicate_size"):
            return f"""from transformers import {cls.auto_class}, AutoTokenizer, pipeline

tag = pipeline("{cls.pipeline}", model="{location}", aggregation_strategy="simple", trust_remote_code=True)
tag("Your text")

{cls.loading_snippet(location)}"""
        return f"""import torch
from transformers import {cls.auto_class}, AutoTokenizer

words, predicate = ["she", "sold", "the", "car"], 1
{cls.loading_snippet(location)}
inputs = tokenizer(words, is_split_into_words=True, return_tensors="pt")
predicate_mask = torch.tensor([[int(word == predicate) for word in inputs.word_ids()]])  # 1 at its tokens
tags = model(**inputs, predicate_mask=predicate_mask).logits[0].argmax(dim=1)  # of each token
[model.config.id2label[tag] for tag in tags.tolist()]"""


def _of_words(of_tokens: np.ndarray, gold: dict[str, list]) -> np.ndarray:
    """The tag ids of all words, from the first token of each; `NO_TAG` for words without a token."""
    found = np.full(len(gold["tags"]), NO_TAG)
    found[gold["words"]] = of_tokens[of_tokens != -100]
    return found


def tags_of(tables: Mapping[str, Dataset], column: str) -> list[str]:
    """The tags that data sets declare, or else contain (where -> rows), with a ``B-X`` for every ``I-X``.

    Warns of tags that are not in the first, the training rows, and of tags that differ only in case. Raises InputError
    if the training rows have only one tag, a tag is empty, a row has no list of tags or only some, or the tags also
    mark the ends of spans.
    """
    train = next(iter(tables))
    tags = learned = _tag_names(tables[train], column)
    if not tags:
        found = {where: _tags_in(where, table, column) for where, table in tables.items()}
        learned = sorted(found[train])
        for where, others in found.items():
            if new := others.difference(learned):
                text = "%s has tags that no training row has, and that the model cannot learn: %s"
                logger.warning(text, where, listed(sorted(new), 8))
        every = set().union(*found.values())
        warn_of_case(every, "tags")
        tags = sorted(every, key=lambda tag: (tag != "O", tag[2:] if tag[:2] in ("B-", "I-") else tag, tag))
    ends = [tag for tag in tags if tag.startswith(("E-", "S-", "L-", "U-"))]
    if ends and (any(tag.startswith(("B-", "I-")) for tag in tags) or set(tags) - set(ends) == {"O"}):
        raise InputError(f"{train}: tag {ends[0]!r} is of the form IOBES or BILOU; convert the tags to B-X, I-X and O")
    if len(learned) < 2:
        only = next(iter(learned), NO_TAG)
        raise InputError(f"{train}: every tag is {only!r}; tagging needs two or more different tags")
    return tags + [f"B-{tag[2:]}" for tag in tags if tag.startswith("I-") and f"B-{tag[2:]}" not in tags]


def _tags_in(where: str, table: Dataset, column: str) -> set[str]:
    """The tags that a data set declares, or else those of its rows with gold tags."""
    if names := _tag_names(table, column):
        return set(names)
    found: set[str] = set()
    cells = table[column][:] if column in table.column_names else ()
    for row, cell in zip(row_numbers(table), cells, strict=False):
        if not isinstance(cell, list):
            raise InputError(f"{where}, row {row}: {column} is not a list; give a list of tags")
        if not _without_gold(cell):
            found.update(_tag(tag, where, row, f"tag {n} of {column}") for n, tag in enumerate(cell, 1))
    return found


def is_list(feature: Any) -> bool:
    """Whether the cells of a column are lists."""
    from datasets import LargeList, List

    return isinstance(feature, (List, LargeList))


def _tag_names(table: Dataset, column: str) -> list[str]:
    """The names of tags that are stored as class ids."""
    from datasets import ClassLabel

    feature = table.features.get(column)
    names = feature.feature.names if is_list(feature) and isinstance(feature.feature, ClassLabel) else []
    return list(names)


def _without_gold(tags: Any) -> bool:
    return isinstance(tags, list) and len(tags) > 0 and all(label_text(tag) in NO_TAGS for tag in tags)


def _tag(tag: Any, where: str, row: int, cell: str) -> str:
    """A tag as text; raises InputError if it is missing, empty or one of the numbers for no tag."""
    text = as_text(int(tag) if isinstance(tag, float) and tag.is_integer() else tag, where, row, cell).strip()
    if not text:
        raise InputError(f"{where}, row {row}: {cell} is empty; write O for a word outside all spans")
    if text in NO_TAGS:
        raise InputError(
            f"{where}, row {row}: {cell} is {text}, no tag, but other words have one; give every word a tag, or -1 to "
            "all of them to leave the row out"
        )
    return text
