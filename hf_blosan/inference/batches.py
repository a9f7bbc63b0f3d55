"""Computes a saved model's output for rows, in batches of similar length."""

from __future__ import annotations

import logging
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..data.batching import characters, token_limit
from ..errors import InputError, fitting
from ..hub.finite import NotFinite
from ..hub.saved import is_normalized
from ..tasks.base import TaskKind
from ..tasks.classification import Classification, choose_texts
from ..tasks.kinds import remembered_rows
from ..tasks.task import Source, Task
from ..text.tokenization import check_max_length, positions_of

logger = logging.getLogger(__name__)

CHARACTERS_AT_ONCE = 2**23
"""Limit for one tokenizer call, whose result takes a hundred times the memory of its tokens."""
TOKENIZING = Lock()
"""Held while a tokenizer is used: its truncation is state that other threads would change."""


class SentenceVectors(Classification):
    """Used like a kind of task: computes the vector of each text, (B, features), with or without a head.

    Raises InputError where :func:`hf_blosan.hub.saved.is_normalized` does.
    """

    pipeline = "feature-extraction"

    def __init__(self, config: Any):
        super().__init__(
            Task(name="vectors", title="sentence vectors", local=Source(location="", text_columns=(), splits={})),
            config,
        )
        self.normalized = is_normalized(config.name_or_path)

    def infer(self, model, batch, *, quick=False):
        vectors = getattr(model(**batch), "pooler_output", None)
        if vectors is None:
            raise InputError(
                f"the model at {model.name_or_path!r} gives no sentence vectors (pooler_output); give an encoder that "
                "pools its tokens"
            )
        return F.normalize(vectors, dim=-1) if self.normalized else vectors

    def choose_texts(self, head, where, names):
        trained = tuple(remembered_rows(self.config).get("text_columns", ()))
        columns, read = choose_texts(head, where, names, trained if len(trained) == 1 else (), None)
        if len(columns) == 2 and not names.text_pair:
            raise InputError(
                f"{where} has two columns of texts, {' and '.join(columns)}; name one with --text_column_name, or "
                "also the second with --text_pair_column_name, which gives two vectors per row"
            )
        return columns, read


def portions(items: Sequence[tuple], sizes: Iterable[int]) -> Iterator[Sequence[tuple]]:
    """Groups of at least one item and at most ``CHARACTERS_AT_ONCE``; `sizes`: the characters of each item."""
    ends = list(accumulate(sizes))
    start = 0
    while start < len(items):
        before = ends[start - 1] if start else 0
        end = max(start + 1, bisect(ends, before + CHARACTERS_AT_ONCE))
        yield items[start:end]
        start = end


class Batches:
    """Computes rows in batches of similar length, with model and tokenizer from :func:`hf_blosan.hub.saved.load`.

    ``kind`` is the model's kind of task, or :class:`SentenceVectors`; ``max_length`` is in tokens of a row, by default
    the tokenizer's limit.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        kind: TaskKind,
        *,
        batch_size: int,
        max_length: int | None = None,
    ):
        self.model, self.tokenizer, self.kind, self.size = model, tokenizer, kind, batch_size
        check_max_length(max_length, model.config)
        self.limit = token_limit(tokenizer, max_length, kind.task.num_sentences, "--max_length")
        self.collate = kind.collator(tokenizer)
        self.truncated = self.longest = self.shortened = 0

    def __call__(self, items: Sequence[tuple]) -> list[np.ndarray]:
        """The model's answer for each item, (...), floats as float32. Raises InputError if a batch does not fit into
        memory; and NotFinite, with the index of the item, if the model's output for it is not finite.
        """
        rows = self.tokenize(items)
        # Longest rows first, so that running out of memory shows in the first batch.
        order = sorted(range(len(rows)), key=lambda row: -len(rows[row]["input_ids"]))
        answers: list[Any] = [None] * len(rows)
        for start in range(0, len(order), self.size):
            part = order[start : start + self.size]
            try:
                with fitting(f"a batch of {len(part)} rows", "give a smaller batch size or maximum length"):
                    found = self.forward([rows[i] for i in part])
            except NotFinite as error:
                raise NotFinite(str(error), part[error.of(len(part))], len(rows), error.value) from error
            for i, answer in zip(part, found, strict=True):
                answers[i] = self.kind.trim(answer, rows[i])
        return answers

    @torch.inference_mode()
    def forward(self, rows: list[dict[str, Any]]) -> np.ndarray:
        """The answers, (rows, ...), for one batch of token ids, with its padding."""
        batch = {name: x.to(self.model.device) for name, x in self.collate(rows).items() if x is not None}
        answers = self.kind.infer(self.model, batch)
        return (answers.float() if answers.is_floating_point() else answers).cpu().numpy()

    def tokenize(self, items: Sequence[tuple]) -> list[dict[str, Any]]:
        """Rows of token ids; counts the truncated ones."""
        found = []
        items = list(map(self.cut, items))
        for some in portions(items, self.kind.sizes(items)):
            with TOKENIZING:
                rows, long = self.kind.tokenize(some, self.tokenizer, self.limit)
            found += rows
            self.truncated, self.longest = self.truncated + len(long), max(self.longest, *long, 0)
        return found

    def cut(self, item: tuple) -> tuple:
        """The part of an item that is tokenized; counts texts that were cut."""
        part = self.kind.cut(item, self.limit, self.tokenizer.truncation_side)
        self.shortened += sum(len(cut) < len(text) for cut, text in zip(part, item, strict=True) if cut is not text)
        return part

    def report(self, option: str = "--max_length") -> None:
        """Warn about truncated texts; `option`: the option that raises the limit."""
        if self.truncated:
            most = self.limit == positions_of(self.model.config)
            remedy = "the model has no positions for more" if most else f"increase {option}"
            logger.warning(
                "texts with more than %d tokens (the longest has %d) were truncated: %d; %s",
                *(self.limit, self.longest, self.truncated, remedy),
            )
        if self.shortened:
            logger.warning(
                "texts with more than %d characters, of which no more were tokenized: %d",
                *(characters(self.limit), self.shortened),
            )
