"""Questions about passages, one sentence of which has the answer."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ..data.batching import token_limit
from ..data.columns import ColumnNames, check_columns, row_numbers
from ..errors import InputError, listed
from .base import CLASSIFIER_FIELDS, SCORE_FIELDS, TaskKind
from .passages import COLUMNS, SQUAD_COLUMNS, as_passage, listed_rows, squad_rows, tokens_of_passages
from .tagging import is_list

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)


class Selection(TaskKind):
    """The sentence of a passage that answers a question; batches are packed."""

    head = "ForSentenceSelection"
    auto_class = "AutoModelForMultipleChoice"
    pipeline = "multiple-choice"
    column = "sentence"
    has_graph = False
    use = "choosing the sentence that answers a question"
    unused_fields = (*SCORE_FIELDS, *CLASSIFIER_FIELDS)
    other_uses = (
        "chooses sentences from passages, which this command does not support; use it with hf-blosan predict, "
        "evaluate and encode"
    )

    @classmethod
    def recognises(cls, table, where, names):
        """Rows with the columns of questions on passages, unless others are named; raises InputError if the sentences
        are text instead of a list.
        """
        columns = _columns_of(table)
        if names != ColumnNames() or columns is None:
            return False
        if columns == COLUMNS and not is_list(table.features["sentences"]):
            raise InputError(
                f"{where}: sentences is not a list; give a list of sentences in each row (in .jsonl or .parquet), or "
                "classify pairs with --text_column_name, --text_pair_column_name and --label_column_name"
            )
        return True

    @classmethod
    def choose_columns(cls, table, where, names):
        *texts, label = _columns_of(table)
        return {"text_columns": tuple(texts), "label_column": label}

    @classmethod
    def has_gold(cls, table, columns):
        labels = table[columns["label_column"]][:] if super().has_gold(table, columns) else ()
        return any(label["text"] if isinstance(label, dict) else label not in (None, -1) for label in labels)

    @classmethod
    def task_fields(cls, tables, columns):
        return {"recipe_family": "own_passages"}

    def for_rows(self, table, where, names):
        _refuse_names(names)
        return self.task

    @classmethod
    def saved_fields(cls, config):
        return {"num_sentences": 2}

    def normalise(self, raw, source, where):
        """Rows with ``question``, ``sentences`` (a list), ``label``, the index of the answer's sentence, and
        ``passage``, a number that rows with the same sentences share.

        Rows may have these columns already, or SQuAD's: ``question``, ``context`` and ``answers``, with lists ``text``
        and ``answer_start``. Each distinct context is split into sentences once. The label is the sentence in which
        the first answer begins, even if it continues in the next one. Rows without an answer, or whose answer is
        not in the context, are left out. The log counts both.
        """
        import pyarrow as pa
        from datasets import Dataset

        columns = _columns_of(raw)
        if columns is None:
            raise InputError(
                f"{where} has no columns {', '.join(COLUMNS)}, nor {', '.join(SQUAD_COLUMNS)} as in SQuAD; it has "
                f"{listed(raw.column_names)}"
            )
        read = listed_rows if columns == COLUMNS else squad_rows
        rows = list(read(raw.select_columns(list(columns))[:], where, row_numbers(raw)))
        if not rows:
            raise InputError(f"{where} has no question with an answer in its context; give another file")
        questions, passages, labels, in_file = zip(*rows, strict=True)
        numbers: dict[tuple[str, ...], int] = {}
        places = pa.array([numbers.setdefault(passage, len(numbers)) for passage in passages])
        sentences = pa.array(list(numbers), pa.list_(pa.string())).take(places)
        table = {"question": pa.array(questions), "sentences": sentences, "label": pa.array(labels)}
        return Dataset(pa.table(table | {"row": pa.array(in_file), "passage": places}))

    def row_groups(self, rows):
        return passages_of(rows), "passages"

    def texts(self, rows):
        yield from rows["question"][:]
        for sentences in distinct_passages(rows)["sentences"][:]:
            yield from sentences

    def encode(self, dataset, tokenizer, max_length=None):
        """Splits with ``input_ids`` (a list for each sentence), ``question_input_ids``, ``passage`` and ``labels``.

        Questions are tokenized as the first text of a pair, sentences as the second. Those of more
        than `max_length` tokens are truncated, and a warning gives their number.
        """
        limit = token_limit(tokenizer, max_length)
        return type(dataset)({split: _encode(rows, tokenizer, limit, split) for split, rows in dataset.items()})

    def lengths(self, encoded):
        """Tokens of the longest sentence of each row's passage."""
        lengths, first = _sentence_lengths(encoded)
        return np.maximum.reduceat(lengths, first)

    def groups(self, encoded):
        return passages_of(encoded)

    def length_statistics(self, encoded):
        """Lengths of the sentences of the distinct passages."""
        lengths, _ = _sentence_lengths(distinct_passages(encoded))
        return float(lengths.mean()), float(lengths.std())

    def collator(self, tokenizer, **padding):
        return PassageCollator(tokenizer, padding)

    def config_fields(self):
        return super().config_fields() | {"num_labels": 1}

    def loss(self, output, labels, label_smoothing):
        """Label smoothing covers the passage's sentences, not the padding of a batch of passages."""
        if not label_smoothing:
            return output.loss
        # Minima of both dtypes: in mixed precision the logits have been converted since they were masked.
        there = output.logits > torch.finfo(torch.float16).min
        log_probs = torch.where(there, output.logits.float().log_softmax(dim=1), 0.0)
        smooth = -(log_probs.sum(dim=1) / there.sum(dim=1).clamp(min=1)).mean()
        return (1 - label_smoothing) * output.loss + label_smoothing * smooth

    def lines(self, predictions, tokenizer):
        return map(str, predictions)

    def choose_texts(self, head, where, names):
        """The question and the sentences of its passage, given as a list or as one text, ``context``."""
        _refuse_names(names)
        columns = ("question", "sentences" if "sentences" in head[0] else "context")
        check_columns(columns, head[0], where)
        return columns, lambda row, number: as_passage(row, where, number)

    def sizes(self, items):
        """No size: :func:`tokens_of_passages` tokenizes in portions, and rows of one call share their passages."""
        return (0 for _ in items)

    def tokenize(self, items, tokenizer, limit):
        numbers: dict[tuple[str, ...], int] = {}
        passages = [numbers.setdefault(sentences, len(numbers)) for _, sentences in items]
        questions = [question for question, _ in items]
        by_passage, questions, long = tokens_of_passages(questions, list(numbers), tokenizer, limit)
        names = ("input_ids", "question_input_ids", "passage")
        rows = zip((by_passage[number] for number in passages), questions, passages, strict=True)
        return [dict(zip(names, row, strict=True)) for row in rows], long

    @classmethod
    def input_of(cls, run):
        return "a question and the sentences of a passage"

    @classmethod
    def snippet(cls, run, location, example):
        return f"""from transformers import {cls.auto_class}, AutoTokenizer

question = "When did she arrive?"
sentences = ["She came by ship.", "She arrived in May.", "It rained."]
{cls.loading_snippet(location)}
rows = tokenizer([question] * len(sentences), sentences, padding=True, return_tensors="pt")
model(**{{name: rows[name][None] for name in rows}}).logits.argmax()  # the sentence with the answer"""

    def trim(self, answer, row):
        return answer[: len(row["input_ids"])]

    def columns(self, answers, items, tokenizer, *, probabilities=False):
        """The index of the best sentence, from 0, its text and its probability."""
        found = [torch.from_numpy(logits).softmax(0).numpy() for logits in answers]
        best = [int(scores.argmax()) for scores in found]
        return {
            "sentence": best,
            "text": [sentences[i] for (_, sentences), i in zip(items, best, strict=True)],
            "score": [float(scores[i]) for scores, i in zip(found, best, strict=True)],
        }


def _columns_of(rows: Dataset) -> tuple[str, ...] | None:
    """The columns of questions on passages that the rows have, of the two forms that are read."""
    return next((columns for columns in (COLUMNS, SQUAD_COLUMNS) if set(columns) <= set(rows.column_names)), None)


def _refuse_names(names: ColumnNames) -> None:
    for option in ("text", "label"):
        if getattr(names, option):
            raise InputError(
                f"--{option}_column_name: the columns of passages have fixed names; rename them and leave it out"
            )


def passages_of(rows: Dataset) -> np.ndarray:
    """The number of each row's passage, (rows,)."""
    return rows.with_format("arrow")[:]["passage"].to_numpy()


def distinct_passages(rows: Dataset) -> Dataset:
    """One row of each passage."""
    return rows.select(np.unique(passages_of(rows), return_index=True)[1])


def _encode(rows: Dataset, tokenizer: PreTrainedTokenizerBase, limit: int, split: str) -> Dataset:
    import pyarrow as pa
    from datasets import Dataset

    numbers = np.unique(passages_of(rows), return_inverse=True)[1]
    passages = distinct_passages(rows)["sentences"][:]
    by_passage, questions, long = tokens_of_passages(rows["question"][:], passages, tokenizer, limit)
    if long:
        logger.warning(
            "%s: %d of %d sentences and questions have more than %d tokens and were truncated; increase max_length",
            *(split, len(long), sum(map(len, passages)) + len(questions), limit),
        )
    table = pa.table(
        {
            "input_ids": pa.array(by_passage, pa.list_(pa.list_(pa.int32()))).take(pa.array(numbers)),
            "question_input_ids": pa.array(questions, pa.list_(pa.int32())),
            "passage": pa.array(numbers),
            "labels": pa.array(rows["label"][:], pa.int64()),
        }
    )
    return Dataset(table)


def _sentence_lengths(encoded: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of every sentence of every row, and the index of each row's first sentence."""
    import pyarrow.compute as pc

    rows = encoded.with_format("arrow")[:]["input_ids"].combine_chunks()  # as Python lists they would take another GB
    lengths, counts = (pc.list_value_length(x).to_numpy(zero_copy_only=False) for x in (rows.flatten(), rows))
    return lengths, np.cumsum(counts) - counts


@dataclass
class PassageCollator:
    """Rows -> a batch in the packed layout of ``...ForSentenceSelection``: rows about one passage share its sentences.
    ``padding`` are options of ``tokenizer.pad``.
    """

    tokenizer: PreTrainedTokenizerBase
    padding: dict[str, Any] = field(default_factory=dict)

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        passages = {row["passage"]: row["input_ids"] for row in rows}
        places = {number: i for i, number in enumerate(passages)}
        sentences = self._pad(sentence for passage in passages.values() for sentence in passage)
        questions = self._pad(row["question_input_ids"] for row in rows)
        integers = {
            "passage_lengths": list(map(len, passages.values())),
            "question_passages": [places[row["passage"]] for row in rows],
            **({"labels": [row["labels"] for row in rows]} if "labels" in rows[0] else {}),
        }
        return {
            **sentences,
            **{f"question_{name}": tensor for name, tensor in questions.items()},
            **{name: torch.tensor(values) for name, values in integers.items()},
        }

    def _pad(self, ids: Iterable[list[int]]) -> dict[str, Any]:
        return self.tokenizer.pad({"input_ids": list(ids)}, return_tensors="pt", **self.padding)
