"""Word vectors in GloVe text format, and embedding matrices made from them."""

from __future__ import annotations

import codecs
import gzip
import logging
import re
import unicodedata
import zlib
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..data.rows import check_vectors
from ..errors import InputError
from .tokenization import num_training_words

logger = logging.getLogger(__name__)

_UNSEEN_RANGE = 0.05
_HEADER = re.compile(rb"\d+ \d+")


@dataclass(frozen=True)
class WordVectors:
    """Words and their vectors.

    Attributes:
        words: the words in file order.
        matrix: float32 (number of words, width).
    """

    words: list[str]
    matrix: np.ndarray

    @property
    def width(self) -> int:
        """Numbers per vector."""
        return self.matrix.shape[1]

    @cached_property
    def index(self) -> dict[str, int]:
        """Word -> row of the matrix."""
        return {word: row for row, word in enumerate(self.words)}


@dataclass(frozen=True)
class CoverageReport:
    """Coverage of a vocabulary by word vectors.

    Attributes:
        training_words: words of the training vocabulary, without special tokens.
        with_vector, without_vector: those with a vector in the file, and those with random vectors.
        type_coverage: ``with_vector / training_words``.
        token_coverage: fraction of the running words that have a vector, if word counts were given.
        fixed_words: words of the file outside the training vocabulary.
        examples: the most frequent words without a vector.
    """

    training_words: int
    with_vector: int
    without_vector: int
    type_coverage: float
    token_coverage: float | None
    fixed_words: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        share = f"{self.type_coverage:.2%}"
        if self.token_coverage is not None:
            share += f", {self.token_coverage:.2%} of the running words"
        text = f"{self.with_vector} of {self.training_words} training words have a vector ({share})"
        if self.without_vector:
            more = " ..." if self.without_vector > len(self.examples) else ""
            text += f"; {self.without_vector} start at random: {' '.join(self.examples)}{more}"
        if self.fixed_words:
            text += f"; {self.fixed_words} other words of the file have fixed vectors"
        return text


def read_word_vectors(
    path: str | Path, *, words: Container[str] | None = None, width: int | None = None
) -> WordVectors:
    """Read vectors in GloVe text format: a word and its numbers on each line, separated by spaces or tabs.

    A first line of two integers (the header of word2vec's text format) is skipped. If a word occurs twice, its first
    vector is used, and a warning gives the number of such words.

    Args:
        path: text file, gzip-compressed if the name ends in .gz.
        words: words to keep; ``None`` keeps all.
        width: required numbers per line; ``None`` accepts the width of the first line.

    Raises:
        InputError: the file does not exist or a line is malformed; the message names the line.
    """
    path = Path(path)
    check_vectors(path)
    names: dict[str, None] = {}
    rows: list[np.ndarray] = []
    duplicates = 0
    for number, line in _lines(path):
        first, _, text = line.partition(b" ")
        found = text.count(b" ") + 1 if text else 0
        width = width or max(found, 1)
        if found > width:  # some published files contain words with spaces, such as ". . ."
            whole = line.rsplit(b" ", width)[0]
            if _numbers(whole.split(b" ")[1:]) is None:  # extra numbers are still an error
                first, text, found = whole, line[len(whole) + 1 :], width
        if found != width:
            raise InputError(
                f"{path}, line {number}: {found} numbers where {width} are expected; correct or remove the line, "
                "or give a file of that width"
            )
        try:
            word = unicodedata.normalize("NFC", first.decode())  # as the tokenizer reads texts
        except UnicodeDecodeError as error:
            raise InputError(f"{path}, line {number}: the word is not UTF-8; correct the line") from error
        if words is not None and word not in words:
            continue  # without parsing: makes selecting a few of millions of words fast
        if word in names:
            duplicates += 1
            continue
        vector = _numbers(text.split(b" "))
        if vector is None or not np.isfinite(vector).all():
            raise InputError(f"{path}, line {number}: a number is malformed or not finite; correct or remove the line")
        names[word] = None
        rows.append(vector)
    if width is None:
        raise InputError(f"word-vector file {path} is empty; give a file in GloVe text format")
    if duplicates:
        logger.warning("%s: %d duplicate words; the first vector of each is used", path, duplicates)
    matrix = np.stack(rows) if rows else np.zeros((0, width), dtype=np.float32)
    return WordVectors(list(names), matrix)


def embedding_matrix(
    tokenizer: PreTrainedTokenizerBase, vectors: WordVectors, *, counts: Mapping[str, int] | None = None, seed: int
) -> tuple[np.ndarray, CoverageReport]:
    """Initial embedding table for a word-level tokenizer.

    Words without a vector are drawn from U(-0.05, 0.05); [PAD] and [UNK] are zero.

    Args:
        tokenizer: from :func:`hf_blosan.text.tokenization.build_tokenizer`.
        vectors: from :func:`read_word_vectors`.
        counts: word -> occurrences in the training texts, for the token coverage.
        seed: seed of the random vectors.

    Returns:
        float32 (vocabulary, width), and the coverage of the training words.

    Raises:
        InputError: the tokenizer's first two entries are not [PAD] and [UNK].
    """
    if (tokenizer.pad_token_id, tokenizer.unk_token_id) != (0, 1):
        raise InputError("word vectors need a word-level tokenizer with [PAD] = 0 and [UNK] = 1; use build_tokenizer")
    words = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    training = num_training_words(tokenizer)
    rng = np.random.default_rng(seed)
    matrix = rng.uniform(-_UNSEEN_RANGE, _UNSEEN_RANGE, (len(words), vectors.width)).astype(np.float32)
    found = [i for i, word in enumerate(words) if word in vectors.index]
    matrix[found] = vectors.matrix[[vectors.index[words[i]] for i in found]]
    matrix[:2] = 0.0
    words, fixed = words[2 : training + 2], len(words) - training - 2
    missing = [word for word in words if word not in vectors.index]
    running = None
    if counts and (total := sum(counts.get(word, 0) for word in words)):
        running = 1 - sum(counts.get(word, 0) for word in missing) / total
    report = CoverageReport(
        training_words=len(words),
        with_vector=len(words) - len(missing),
        without_vector=len(missing),
        type_coverage=1 - len(missing) / len(words),
        token_coverage=running,
        fixed_words=fixed,
        examples=tuple(missing[:10]),
    )
    return matrix, report


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The number and bytes of every line except empty ones and a header."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                # Bytes, because str.split treats characters such as U+00A0 as spaces, but here they are words.
                line = line.replace(b"\t", b" ").rstrip(b" \r\n")
                line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                if line and not (number == 1 and _HEADER.fullmatch(line)):
                    yield number, line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"word-vector file {path} is a damaged gzip file ({error}); download it again") from error


def _numbers(parts: list[bytes]) -> np.ndarray | None:
    """The numbers as float32, or ``None`` if one is malformed."""
    try:
        with np.errstate(over="ignore"):
            return np.fromiter(map(float, parts), np.float32, len(parts))
    except ValueError:
        return None
