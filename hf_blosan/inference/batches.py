"""What `predict` and `encode` compute of rows, in batches of similar length: one class for each kind of model."""

from __future__ import annotations

import logging
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ..data.batching import PaddingCollator, characters, cut, token_limit
from ..hub.finite import NotFinite
from ..hub.saved import probabilities_of
from ..tasks.encoder_decoder import translate
from ..tasks.selection import PassageCollator, tokens_of_passages
from ..tasks.tagging import TaggingCollator, cut_words, encode_words
from ..tasks.tags import decode_tags
from ..text.tokenization import check_max_length
from .arguments import StreamArguments
from .output import PREDICTIONS, TAGS, Columns

logger = logging.getLogger(__name__)

CHARACTERS_AT_ONCE = 2**23
"""What a tokenizer returns takes a hundred times as much memory as the tokens."""


def prediction_columns(config: Any, logits: np.ndarray, probabilities: bool) -> Columns:
    """Columns of predictions from logits (rows, labels), as in transformers' text-classification pipeline."""
    probability = probabilities_of(config, logits)
    if probability is None:
        return {"score": logits[:, 0]}
    names, best = [config.id2label[i] for i in range(config.num_labels)], probability.argmax(axis=1)
    columns = {"label": [names[i] for i in best], "score": probability.max(axis=1)}
    return columns | (
        {f"probability_{name}": probability[:, i] for i, name in enumerate(names)} if probabilities else {}
    )


def portions(texts: list[tuple], sizes: Iterable[int]) -> Iterator[list[tuple]]:
    """Texts of at most ``CHARACTERS_AT_ONCE`` together, at least one of them; `sizes`: the characters of each."""
    ends = list(accumulate(sizes))
    start = 0
    while start < len(texts):
        before = ends[start - 1] if start else 0
        end = max(start + 1, bisect(ends, before + CHARACTERS_AT_ONCE))
        yield texts[start:end]
        start = end


class Batches:
    """Computes rows in batches of similar length.

    Args:
        model, tokenizer: from :func:`load`.
        arguments: batch size and length limit.
        take: output of the model -> the tensor wanted, (batch, ...).

    Attributes:
        auto_class: loads the models that `predict` uses it for.
        column: what `predict` calls its results; ``None``: labels or scores.
        formats: suffixes of `predict`'s output.
    """

    auto_class: type = AutoModelForSequenceClassification
    column: str | None = None
    formats = PREDICTIONS

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        arguments: StreamArguments,
        take: Callable[[Any], torch.Tensor],
    ):
        self.model, self.tokenizer, self.take, self.size = model, tokenizer, take, arguments.batch_size
        check_max_length(arguments.max_length, tokenizer, getattr(model.config, "backbone_config", None))
        self.limit = token_limit(tokenizer, arguments.max_length)
        # An encoder takes the sentences of a pair one by one.
        num_sentences = getattr(model.config, "num_sentences", 1) if hasattr(model, "classifier") else 1
        self.collate = PaddingCollator(tokenizer, num_sentences=num_sentences)
        self.truncated = self.longest = self.shortened = 0

    def __call__(self, texts: list[tuple[str, ...]]) -> np.ndarray:
        """(rows, ...) in float32, in the order of the texts.

        Raises:
            NotFinite: with the number of the text, if what the model computes of it is not finite.
        """
        rows = self.tokenize(texts)
        lengths = [len(row["input_ids"]) for row in rows]
        # Longest rows first, so that running out of memory shows in the first batch.
        order = sorted(range(len(rows)), key=lambda row: -lengths[row])
        parts = []
        for start in range(0, len(order), self.size):
            part = order[start : start + self.size]
            try:
                parts.append(self.forward([rows[i] for i in part]))
            except NotFinite as error:
                raise NotFinite(str(error), part[error.of(len(part))], len(rows), error.value) from error
        by_length = np.concatenate(parts)
        result = np.empty_like(by_length)
        result[order] = by_length
        return result

    @torch.inference_mode()
    def forward(self, rows: list[dict[str, list[int]]]) -> np.ndarray:
        """(rows, ...) in float32, of one batch of token ids."""
        batch = self.collate(rows)
        return self.take(self.model(**batch.to(self.model.device))).float().cpu().numpy()

    def tokenize(self, texts: list[tuple]) -> list[dict[str, Any]]:
        """Rows of token ids; counts those that are truncated."""
        sizes = (sum(map(len, parts)) for parts in self.texts(texts))
        return [row for some in portions(texts, sizes) for row in self._tokenize(some)]

    def texts(self, rows: list[tuple]) -> Iterable[Sequence[str]]:
        """The texts of each row."""
        return rows

    def _tokenize(self, texts: list[tuple]) -> list[dict[str, Any]]:
        rows = self.rows(texts)
        too_long = [len(row["input_ids"]) for row in rows if len(row["input_ids"]) > self.limit]
        if too_long:
            self.truncated, self.longest = self.truncated + len(too_long), max(self.longest, *too_long)
            rows = self.rows(texts, truncate=True)
        return rows

    def cut(self, text: str) -> str:
        """The part of a text that is tokenized; counts texts that are longer."""
        part = cut(text, self.limit, self.tokenizer.truncation_side)
        self.shortened += len(part) < len(text)
        return part

    def rows(self, texts: list[tuple[str, ...]], *, truncate: bool = False) -> list[dict[str, list[int]]]:
        """Rows of token ids, of any length or cut to the limit; with type ids in pairs."""
        if max(len(text) for row in texts for text in row) > characters(self.limit):
            texts = [tuple(map(self.cut, row)) for row in texts]
        columns = [list(column) for column in zip(*texts, strict=True)]
        paired = len(columns) == 2 and "token_type_ids" in self.tokenizer.model_input_names
        if truncate or not self.tokenizer.is_fast:
            options = {"truncation": True, "max_length": self.limit} if truncate else {}
            options |= {"return_token_type_ids": paired, "return_attention_mask": False}
            encoding = self.tokenizer(*columns, verbose=False, **options)
            return [dict(zip(encoding, row, strict=True)) for row in zip(*encoding.values(), strict=True)]
        # The library under transformers' tokenizer, which by itself takes less than half the time.
        backend = self.tokenizer.backend_tokenizer
        if backend.truncation or backend.padding:
            backend.no_truncation()
            backend.no_padding()
        encodings = backend.encode_batch_fast(texts if len(columns) == 2 else columns[0])
        if paired:
            return [{"input_ids": encoding.ids, "token_type_ids": encoding.type_ids} for encoding in encodings]
        return [{"input_ids": encoding.ids} for encoding in encodings]

    def columns(self, rows: list[tuple], probabilities: bool) -> Columns:
        """What `predict` writes of some rows."""
        if self.column:
            return {self.column: self(rows).tolist()}
        return prediction_columns(self.model.config, self(rows), probabilities)

    def report(self) -> None:
        """Warn of texts that were truncated."""
        if self.truncated:
            logger.warning(
                "%d texts have more than %d tokens (the longest %d) and were truncated; increase --max_length",
                *(self.truncated, self.limit, self.longest),
            )
        if self.shortened:
            logger.warning(
                "%d texts have more than %d characters; no more of them was tokenized",
                *(self.shortened, characters(self.limit)),
            )


class Translations(Batches):
    """The same for an encoder-decoder: texts."""

    auto_class, column = AutoModelForSeq2SeqLM, "translation"

    def forward(self, rows: list[dict[str, list[int]]]) -> np.ndarray:
        found = translate(self.model, self.collate(rows).to(self.model.device))
        return np.array(self.tokenizer.batch_decode(found, skip_special_tokens=True), dtype=object)


class Tags(Batches):
    """The same for a tagger: rows of words, with a predicate if the model needs one, and lists of tags.

    A word without a token, for example beyond the limit, has the tag O, or ``None`` if there is no such tag.
    """

    auto_class, column, formats = AutoModelForTokenClassification, "tags", TAGS

    def __init__(self, model: PreTrainedModel, *args: Any):
        super().__init__(model, *args)
        self.collate = TaggingCollator(self.tokenizer)
        self.labels = [model.config.id2label[i] for i in range(model.config.num_labels)]
        self.missing = "O" if "O" in self.labels else None

    def texts(self, rows: list[tuple]) -> Iterable[Sequence[str]]:
        return (words for words, *_ in rows)

    def rows(self, texts: list[tuple], *, truncate: bool = False) -> list[dict[str, Any]]:
        sentences, *predicates = (list(column) for column in zip(*texts, strict=True))
        limit, parts = self.limit if truncate else None, [cut_words(words, self.limit) for words in sentences]
        columns, words = encode_words(self.tokenizer, parts, predicates[0] if predicates else None, limit)
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        for row, sentence, of_tokens in zip(rows, sentences, words, strict=True):
            row["words"] = len(sentence), [word for word in of_tokens if word is not None]
        return rows

    @torch.inference_mode()
    def forward(self, rows: list[dict[str, Any]]) -> np.ndarray:
        words = [row["words"] for row in rows]
        batch = self.collate([{name: row[name] for name in row if name != "words"} for row in rows])
        batch = batch.to(self.model.device)
        tags = np.empty(len(rows), dtype=object)
        decoded = decode_tags(self.model(**batch).logits, self.labels, batch["word_mask"]).tolist()
        for i, ((count, with_token), ids) in enumerate(zip(words, decoded, strict=True)):
            found = dict(zip(with_token, (self.labels[tag] for tag in ids if tag != -100), strict=True))
            tags[i] = [found.get(word, self.missing) for word in range(count)]
        return tags


class Selections(Batches):
    """The same for a model that chooses sentences: rows of a question and the sentences of its passage."""

    auto_class, column = AutoModelForMultipleChoice, "sentence"

    def __init__(self, model: PreTrainedModel, *args: Any):
        super().__init__(model, *args)
        self.collate = PassageCollator(self.tokenizer)

    def tokenize(self, texts: list[tuple]) -> list[dict[str, Any]]:
        numbers: dict[tuple[str, ...], int] = {}
        passages = [numbers.setdefault(sentences, len(numbers)) for _, sentences in texts]
        by_passage, questions, too_long = tokens_of_passages(
            [question for question, _ in texts], list(numbers), self.tokenizer, self.limit
        )
        if too_long:
            self.truncated, self.longest = self.truncated + len(too_long), max(self.longest, *too_long)
        names = ("input_ids", "question_input_ids", "passage")
        rows = zip((by_passage[number] for number in passages), questions, passages, strict=True)
        return [dict(zip(names, row, strict=True)) for row in rows]

    @torch.inference_mode()
    def forward(self, rows: list[dict[str, Any]]) -> np.ndarray:
        """The logits (sentences,) of each row."""
        batch = {name: tensor.to(self.model.device) for name, tensor in self.collate(rows).items()}
        logits = self.model(**batch).logits.float().cpu().numpy()
        found = np.empty(len(rows), dtype=object)
        for i, row in enumerate(rows):
            found[i] = logits[i, : len(row["input_ids"])]
        return found

    def columns(self, rows: list[tuple], probabilities: bool) -> Columns:
        """The index of the best sentence, from 0, its text and its probability."""
        found = [torch.from_numpy(logits).softmax(0).numpy() for logits in self(rows)]
        best = [int(scores.argmax()) for scores in found]
        chosen = list(zip(rows, found, best, strict=True))
        return {
            "sentence": best,
            "text": [sentences[i] for (_, sentences), _, i in chosen],
            "score": [float(scores[i]) for _, scores, i in chosen],
        }
