"""Words with a tag for each as inputs of a model: their tokens, and batches."""

from __future__ import annotations

import logging
from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from transformers import BatchEncoding, PreTrainedTokenizerBase

from ..data.batching import PaddingCollator, characters, map_in_memory, token_limit
from ..data.columns import as_text, whole_number
from ..errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

FILLERS = {"labels": -100, "word_mask": 0, "predicate_mask": 0}
"""Columns of encoded rows with a value per token, and their padding values."""
GOLD = "gold"
"""Column of encoded rows with the tags of all words, and the words that have a token."""


def as_words(words: Any, where: str, row: int, column: str) -> list[str]:
    """A cell as words; raises InputError if it is not a list, has no words, or has an empty one."""
    if not isinstance(words, list):
        raise InputError(f"{where}, row {row}: {column} is not a list; give a list of words (in .jsonl or .parquet)")
    if not words:
        raise InputError(f"{where}, row {row}: {column} is empty; give the words of a sentence or remove the row")
    words = [as_text(word, where, row, f"word {n} of {column}") for n, word in enumerate(words, 1)]
    for n, word in enumerate(words, 1):
        if not word.strip():
            raise InputError(
                f"{where}, row {row}: word {n} of {column} is empty; remove it, and its tag if it has one"
            )
    return words


def as_predicate(index: Any, words: Sequence[str], where: str, row: int, column: str) -> int:
    """A cell as the index of a word; raises InputError if it is not a valid index."""
    found = whole_number(index)
    if found is None or not 0 <= found < len(words):
        raise InputError(
            f"{where}, row {row}: {column} is {index!r}, but the row has {len(words)} words; give 0 to "
            f"{len(words) - 1}"
        )
    return found


def cut_words(words: Sequence[str], limit: int) -> Sequence[str]:
    """The first words, as many as can matter for ``limit`` tokens, see :func:`characters`."""
    ends = list(accumulate(len(word) + 1 for word in words))
    if not ends or ends[-1] <= (most := characters(limit)):
        return words
    kept = bisect(ends, most)
    return [*words[:kept], words[kept][: most - (ends[kept - 1] if kept else 0)]]


def encode_words(
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sequence[str]],
    predicates: Sequence[int] | None,
    limit: int | None,
) -> tuple[dict[str, list], list[list[int | None]]]:
    """Sentences, as lists of words, as inputs of a tagger, and the word that each token starts, else ``None``.

    ``word_mask`` has 1 at the first token of each word, ``predicate_mask`` at all tokens of the predicate.
    ``predicates`` has the index of each sentence's predicate, if there are any; ``limit`` is the number of tokens per
    sentence, ``None``: any number.
    """
    sentences = [cut_words(words, limit) for words in sentences] if limit else sentences
    options = {"return_token_type_ids": True, "return_attention_mask": True, "verbose": False}
    shorten = {"truncation": True, "max_length": limit} if limit else {}
    encoding = tokenizer(sentences, is_split_into_words=True, **shorten, **options)
    columns = {name: encoding[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
    of_tokens = [encoding.word_ids(row) for row in range(len(sentences))]
    first = [
        [None if word == before else word for before, word in zip([None, *words], words, strict=False)]
        for words in of_tokens
    ]
    columns["word_mask"] = [[int(word is not None) for word in words] for words in first]
    if predicates is not None:
        pairs = zip(of_tokens, predicates, strict=True)
        columns["predicate_mask"] = [[int(word == predicate) for word in words] for words, predicate in pairs]
    return columns, first


def encode_tags(
    rows: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int | None = None,
    where: str = "",
    *,
    for_training: bool = False,
) -> Dataset:
    """Rows of :meth:`Tagging.normalise` as inputs of a model, see :func:`encode_words`, ``labels`` and ``gold``.

    The first token of a word has its tag; all other tokens, special tokens among them, have -100, as in transformers'
    run_ner. ``gold`` has the ``tags`` of all words, and the ``words`` that have a token.

    Args:
        max_length: tokens per row; ``None`` uses the tokenizer's limit.
        where: prefix of messages.
        for_training: leave out rows whose words, or whose predicate, have no token.

    Raises:
        InputError: ``max_length`` has no room for a word, or no row is left.
    """
    limit = token_limit(tokenizer, max_length)
    lost = []

    def encode(batch: dict[str, list]) -> dict[str, list]:
        columns, words = encode_words(tokenizer, batch["tokens"], batch.get("predicate_index"), limit)
        columns["labels"], columns[GOLD] = [], []
        for tags, of_tokens in zip(batch["tags"], words, strict=True):
            columns["labels"].append([-100 if word is None else tags[word] for word in of_tokens])
            with_token = [word for word in of_tokens if word is not None]
            columns[GOLD].append({"tags": tags, "words": with_token})
            if missing := len(tags) - len(with_token):
                lost.append(missing)
        return columns

    encoded = map_in_memory(rows, encode, desc=f"{where}tokens", remove_columns=rows.column_names)
    if lost:
        logger.warning(
            "%s%d words of %d rows have no token, or none within %d tokens, and get no tag in training or prediction; "
            "increase max_length if they are too long",
            *(where, sum(lost), len(lost), limit),
        )
    return _learnable(encoded, where) if for_training else encoded


def _learnable(encoded: Dataset, where: str) -> Dataset:
    """The rows in which some word, and the predicate if any, has a token."""
    masks = [encoded[name][:] for name in ("word_mask", "predicate_mask") if name in encoded.column_names]
    kept = [row for row, of_row in enumerate(zip(*masks, strict=True)) if all(map(any, of_row))]
    if len(kept) == len(encoded):
        return encoded
    if not kept:
        raise InputError(f"{where}no row has tokens for a word and its predicate; increase --max_length")
    logger.warning(
        "%s%d rows have no token for a word or the predicate and are left out", where, len(encoded) - len(kept)
    )
    return encoded.select(kept)


class TaggingCollator(PaddingCollator):
    """A ``PaddingCollator`` that also pads the columns of ``FILLERS`` and drops ``GOLD``."""

    fillers = FILLERS

    def __call__(self, features: list[dict[str, Any]]) -> BatchEncoding:
        return super().__call__([{name: value for name, value in row.items() if name != GOLD} for row in features])
