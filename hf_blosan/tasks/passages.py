"""Passages: their sentences, the sentence with the answer, and their tokens."""

from __future__ import annotations

import logging
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..data.batching import cut
from ..data.columns import as_text, whole_number
from ..errors import InputError

logger = logging.getLogger(__name__)

COLUMNS = ("question", "sentences", "label")
SQUAD_COLUMNS = ("question", "context", "answers")
_TEXTS_AT_ONCE = 4096  # what the tokenizer returns takes a hundred times as much memory as the tokens

_Passages = Iterable[tuple[str, tuple[str, ...], int, int]]


def listed_rows(columns: dict[str, list], where: str, numbers: Sequence[int]) -> _Passages:
    for row, question, sentences, label in zip(numbers, *(columns[name] for name in COLUMNS), strict=True):
        sentences = _as_sentences(sentences, where, row)
        index = whole_number(label)
        if index is None or not 0 <= index < len(sentences):
            raise InputError(
                f"{where}, row {row}: label {label!r} is not the index of one of its {len(sentences)} sentence(s), "
                "from 0; correct the row or remove it"
            )
        yield _question(question, where, row), sentences, index, row


def _as_sentences(cell: Any, where: str, row: int) -> tuple[str, ...]:
    if not isinstance(cell, list):
        raise InputError(
            f"{where}, row {row}: sentences is of type {type(cell).__name__}; write a list, in JSON lines or Parquet"
        )
    sentences = tuple(as_text(text, where, row, f"sentence {n}").strip() for n, text in enumerate(cell, 1))
    if not all(sentences) or not sentences:
        what = f"sentence {sentences.index('') + 1} is empty" if sentences else "the passage has no sentences"
        raise InputError(f"{where}, row {row}: {what}; fill it in or remove the row")
    return sentences


def as_passage(row: Mapping[str, Any], where: str, number: int) -> tuple[str, tuple[str, ...]]:
    """The question and the sentences of a row, given as a list or as one text, ``context``; raises InputError if the
    question is empty, or the passage has no sentences or an empty one.
    """
    question = _question(row.get("question"), where, number)
    if "sentences" in row:
        return question, _as_sentences(row["sentences"], where, number)
    return question, _split(as_text(row.get("context"), where, number, "context"), where, number)[1]


def _split(context: str, where: str, row: int) -> tuple[tuple[tuple[int, int], ...], tuple[str, ...]]:
    """The spans of a passage's sentences, and the sentences; raises InputError if there are none."""
    spans = sentence_spans(context)
    if not spans:
        raise InputError(f"{where}, row {row}: the passage has no sentences; fill in its context or remove the row")
    return spans, tuple(context[start:end] for start, end in spans)


def squad_rows(columns: dict[str, list], where: str, numbers: Sequence[int]) -> _Passages:
    passages, across, without = {}, 0, 0
    for row, question, context, answers in zip(numbers, *(columns[name] for name in SQUAD_COLUMNS), strict=True):
        context = as_text(context, where, row, "context")
        if context not in passages:
            passages[context] = _split(context, where, row)
        spans, sentences = passages[context]
        found = _find_answer(context, answers, where, row)
        if found is None:
            without += 1
            continue
        start, end = found
        label = max(0, bisect([first for first, _ in spans], start) - 1)
        across += end > spans[label][1]
        yield _question(question, where, row), sentences, label, row
    count = sum(len(sentences) for _, sentences in passages.values())
    logger.info("%s: %d distinct passages of %d sentences", where, len(passages), count)
    if across:
        logger.info("%s: %d answers continue in the next sentence; the label is where they start", where, across)
    if without:
        logger.info("%s: %d of %d rows have no answer in their context and are left out", where, without, len(numbers))


def _question(cell: Any, where: str, row: int) -> str:
    question = as_text(cell, where, row, "question")
    if not question.strip():
        raise InputError(f"{where}, row {row}: question is empty; fill it in or remove the row")
    return question


def _find_answer(context: str, answers: Any, where: str, row: int) -> tuple[int, int] | None:
    """Start and end of the first answer: at its ``answer_start``, or else at the first occurrence of its text."""
    try:
        texts, starts = answers["text"], answers["answer_start"]
        if not texts:
            return None
        text, start = texts[0].strip(), int(starts[0])
    except (TypeError, KeyError, IndexError, AttributeError, ValueError) as error:
        raise InputError(
            f"{where}, row {row}: answers is {answers!r}; write lists of equal length, text and answer_start"
        ) from error
    start = (
        context.find(text, start) if 0 <= start and context[start:].lstrip().startswith(text) else context.find(text)
    )
    return None if start < 0 or not text else (start, start + len(text))


@lru_cache(maxsize=64)  # several questions may follow about a passage
def sentence_spans(text: str) -> tuple[tuple[int, int], ...]:
    """First and last character + 1 of each sentence of an English text, without surrounding whitespace; raises
    InputError if the sentence splitter is not installed.
    """
    try:
        from sentencex import get_sentence_boundaries
    except ImportError as error:
        raise InputError(
            "splitting passages into sentences needs sentencex, of the extra train: pip install sentencex"
        ) from error
    spans = []
    for boundary in get_sentence_boundaries("en", text):
        start, end = boundary["start_index"], boundary["end_index"]
        stripped = text[start:end].strip()
        if stripped:
            start = text.index(stripped, start)
            spans.append((start, start + len(stripped)))
    return tuple(spans)


def tokens_of_passages(
    questions: Sequence[str], passages: Sequence[Sequence[str]], tokenizer: PreTrainedTokenizerBase, limit: int
) -> tuple[list[list[list[int]]], list[list[int]], list[int]]:
    """Tokens of each passage's sentences and of each question, and the original lengths of the truncated ones."""
    texts = [cut(sentence, limit) for sentences in passages for sentence in sentences]
    of_sentences = _tokens(tokenizer, [""] * len(texts), texts, of=1)
    questions = [cut(question, limit) for question in questions]
    of_questions = _tokens(tokenizer, questions, [""] * len(questions), of=0)
    long = [len(ids) for ids in (*of_sentences, *of_questions) if len(ids) > limit]
    tokens = iter(_shortened(ids, limit, tokenizer) for ids in of_sentences)
    # A sentence without tokens becomes an unknown word; otherwise it would count as padding.
    by_passage = [[next(tokens) or [tokenizer.unk_token_id] for _ in passage] for passage in passages]
    return by_passage, [_shortened(ids, limit, tokenizer) for ids in of_questions], long


def _tokens(tokenizer: PreTrainedTokenizerBase, first: list[str], second: list[str], *, of: int) -> list[list[int]]:
    """The tokens of the first or second text of each pair."""
    found = []
    for start in range(0, len(first), _TEXTS_AT_ONCE):
        texts = (part[start : start + _TEXTS_AT_ONCE] for part in (first, second))
        encoding = tokenizer(*texts, return_token_type_ids=True, return_attention_mask=False, verbose=False)
        pairs = zip(encoding["input_ids"], encoding["token_type_ids"], strict=True)
        found += [[token for token, kind in zip(ids, kinds, strict=True) if kind == of] for ids, kinds in pairs]
    return found


def _shortened(ids: list[int], limit: int, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Truncate to that many tokens, keeping special tokens at the end, such as [SEP]."""
    if len(ids) <= limit:
        return ids
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    end = next((n for n, token in enumerate(reversed(ids)) if token not in special), len(ids))
    end = min(end, limit)
    return ids[: limit - end] + ids[len(ids) - end :]
