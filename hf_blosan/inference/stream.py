"""Predictions and sentence vectors of every row of a file, in constant memory: ``predict`` and ``encode``.

Rows are read into a buffer, tokenized, sorted by length, computed in batches, and written in the order of the input.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm
from transformers import (
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ..data.batching import PaddingCollator, token_limit
from ..data.columns import as_text, check_columns, check_distinct, check_single, text_columns, trained_columns
from ..data.rows import Rows
from ..data.tagging import TaggingCollator, as_predicate, as_words, encode_words
from ..errors import InputError
from ..overrides import read_config
from ..tagging import decode_tags
from ..tokenization import check_max_length
from ..translation import translate
from .arguments import EncodeArguments, PredictArguments, StreamArguments
from .output import PREDICTIONS, TAGS, VECTOR_COLUMNS, VECTORS, Columns, Format, Output, choose_format
from .saved import file_state, identity, load, probabilities_of

logger = logging.getLogger(__name__)

BUFFER_BATCHES = 64
"""Batches that are read ahead and sorted by length."""


def predict(arguments: PredictArguments) -> int:
    """Write label and probability, score, tags, or translation of every row; return the exit status.

    Raises:
        InputError: the model, the rows or the output cannot be used.
    """
    check_streams(arguments, PREDICTIONS)
    options = {"cpu": arguments.cpu, "trust_remote_code": arguments.trust_remote_code}
    config = read_config(arguments.model, trust_remote_code=arguments.trust_remote_code)
    is_tagger = any(name.endswith("ForTokenClassification") for name in config.architectures or ())
    kind = Translations if config.is_encoder_decoder else Tags if is_tagger else Batches
    if arguments.probabilities and kind.column:
        raise InputError(
            f"--probabilities: {arguments.model} writes the column {kind.column!r}, which has none; leave it out"
        )
    if arguments.probabilities and config.problem_type == "regression":
        raise InputError(f"--probabilities: {arguments.model} predicts scores, which have none; leave it out")
    choose_format(arguments.output, kind.formats)
    model, tokenizer = load(arguments.model, kind.auto_class, **options)
    batches = kind(model, tokenizer, arguments, lambda output: output.logits)
    settings = {"--probabilities": arguments.probabilities}

    def compute(rows: list[tuple]) -> Columns:
        if kind.column:
            return {kind.column: batches(rows).tolist()}
        return prediction_columns(model.config, batches(rows), arguments.probabilities)

    if is_tagger:
        choose = partial(choose_words, arguments=arguments, config=model.config)
    else:
        num_texts = 1 if kind is Translations else getattr(model.config, "num_sentences", None)
        choose = partial(choose_texts, arguments=arguments, config=model.config, num_texts=num_texts)
    stream(arguments, compute, kind.formats, choose=choose, made_by=(identity(arguments.model, model), settings))
    batches.report()
    return 0


def encode(arguments: EncodeArguments) -> int:
    """Write the sentence vector of every row, or of both texts of every row; return the exit status.

    Raises:
        InputError: the model, the rows or the output cannot be used.
    """
    check_streams(arguments, VECTORS)
    options = {"cpu": arguments.cpu, "trust_remote_code": arguments.trust_remote_code}
    model, tokenizer = load(arguments.model, AutoModel, **options)
    batches = Batches(model, tokenizer, arguments, lambda output: output.pooler_output)

    def compute(texts: list[tuple[str, ...]]) -> Columns:
        vectors = batches([(text,) for row in texts for text in row])
        vectors = vectors.reshape(len(texts), len(texts[0]), -1)
        return {name: vectors[:, i] for i, name in enumerate(VECTOR_COLUMNS[: len(texts[0])])}

    num_texts = 2 if arguments.text_pair_column_name else 1
    choose = partial(choose_texts, arguments=arguments, config=model.config, num_texts=num_texts)
    stream(arguments, compute, VECTORS, choose=choose, made_by=(identity(arguments.model, model), {}))
    batches.report()
    return 0


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
        self.truncated = self.longest = 0

    def __call__(self, texts: list[tuple[str, ...]]) -> np.ndarray:
        """(rows, ...) in float32, in the order of the texts."""
        rows = self.tokenize(texts)
        lengths = [len(row["input_ids"]) for row in rows]
        # Longest rows first, so that running out of memory shows in the first batch.
        order = sorted(range(len(rows)), key=lambda row: -lengths[row])
        starts = range(0, len(order), self.size)
        by_length = np.concatenate([self.forward([rows[i] for i in order[at : at + self.size]]) for at in starts])
        result = np.empty_like(by_length)
        result[order] = by_length
        return result

    @torch.inference_mode()
    def forward(self, rows: list[dict[str, list[int]]]) -> np.ndarray:
        """(rows, ...) in float32, of one batch of token ids."""
        batch = self.collate(rows)
        return self.take(self.model(**batch.to(self.model.device))).float().cpu().numpy()

    def tokenize(self, texts: list[tuple[str, ...]]) -> list[dict[str, list[int]]]:
        """Rows of token ids; counts those that are truncated."""
        rows = self.rows(texts)
        too_long = [len(row["input_ids"]) for row in rows if len(row["input_ids"]) > self.limit]
        if too_long:
            self.truncated, self.longest = self.truncated + len(too_long), max(self.longest, *too_long)
            rows = self.rows(texts, truncate=True)
        return rows

    def rows(self, texts: list[tuple[str, ...]], *, truncate: bool = False) -> list[dict[str, list[int]]]:
        """Rows of token ids, of any length or cut to the limit; with type ids in pairs."""
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

    def report(self) -> None:
        """Warn of texts that were truncated."""
        if self.truncated:
            logger.warning(
                "%d texts have more than %d tokens (the longest %d) and were truncated; increase --max_length",
                *(self.truncated, self.limit, self.longest),
            )


class Translations(Batches):
    """The same for an encoder-decoder: texts."""

    auto_class, column = AutoModelForSeq2SeqLM, "translation"

    def forward(self, rows: list[dict[str, list[int]]]) -> np.ndarray:
        found = translate(self.model, self.collate(rows).to(self.model.device))
        return np.array(self.tokenizer.batch_decode(found, skip_special_tokens=True), dtype=object)


class Tags(Batches):
    """The same for a tagger: rows of words, with a predicate if the model needs one, and lists of tags.

    A word without a token, for example behind the limit, has the tag O, or ``None`` if there is no such tag.
    """

    auto_class, column, formats = AutoModelForTokenClassification, "tags", TAGS

    def __init__(self, model: PreTrainedModel, *args: Any):
        super().__init__(model, *args)
        self.collate = TaggingCollator(self.tokenizer)
        self.labels = [model.config.id2label[i] for i in range(model.config.num_labels)]
        self.missing = "O" if "O" in self.labels else None

    def rows(self, texts: list[tuple], *, truncate: bool = False) -> list[dict[str, Any]]:
        sentences, *predicates = (list(column) for column in zip(*texts, strict=True))
        limit = self.limit if truncate else None
        columns, words = encode_words(self.tokenizer, sentences, predicates[0] if predicates else None, limit)
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


def stream(
    arguments: StreamArguments,
    compute: Callable[[list[tuple]], Columns],
    formats: Mapping[str, Format],
    *,
    choose: Callable[..., tuple[tuple[str, ...], Iterator[tuple]]],
    made_by: tuple[list[Any], dict[str, Any]],
) -> None:
    """Read rows, compute columns of them, and write these.

    Args:
        arguments: options of the command.
        compute: what `choose` gives of some rows -> columns.
        formats: suffix of the output -> format.
        choose: (rows, read_ahead=...) -> the columns to read, and what is computed of each row.
        made_by: identity of the model, and options in addition to the common ones, which must be the same to resume.

    Raises:
        InputError: the rows or the output cannot be used.
        KeyboardInterrupt: the command was interrupted; the message says how far it came.
    """
    # A person who types is answered line by line.
    typed = arguments.input == "-" and sys.stdin.isatty()
    size = 1 if typed else BUFFER_BATCHES * arguments.batch_size
    model, options = made_by
    if arguments.output != "-" and Path(arguments.output).resolve() == Path(arguments.input).resolve():
        raise InputError(f"the output {arguments.output} is the input, which would be lost; give another file")
    with Rows(arguments.input) as rows:
        names, items = choose(rows, read_ahead=size)
        made_from = {
            "input": [] if arguments.input == "-" else [str(rows.path.resolve()), *file_state(rows.path)],
            "model": model,
            "--batch_size": [arguments.batch_size, BUFFER_BATCHES],
            "--max_length": arguments.max_length,
            "--text_column_name or --text_pair_column_name": names,
            **options,
        }
        output = Output(arguments.output, formats, made_from, resume=arguments.resume)
        if output.rows:
            logger.info("%s: %d rows are there already", arguments.output, output.rows)
        bar = tqdm(total=rows.total, unit=rows.unit, unit_scale=True, disable=typed)
        useful = True
        try:
            if output.rows:
                next(islice(items, output.rows - 1, None), None)
            while block := list(islice(items, size)):
                output.append(compute(block))
                bar.set_postfix(rows=output.rows, refresh=False)
                bar.update((output.rows if rows.unit == "rows" else rows.position) - bar.n)
            output.complete()
        except InputError:
            useful = False  # the input has to change, so that there is nothing to continue
            raise
        except OSError as error:
            if arguments.output == "-":
                raise
            raise InputError(
                f"output file {arguments.output} cannot be written ({error.strerror}); make room and repeat the "
                "command with --resume"
            ) from error
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(interruption(arguments, output)) from error
        finally:
            bar.close()
            output.close(discard=not useful)


def check_streams(arguments: StreamArguments, formats: Mapping[str, Format]) -> None:
    """Check before the model is loaded that standard input is open and the output can be written.

    Raises:
        InputError: one of them is not.
    """
    if arguments.input == "-" and sys.stdin is None:
        raise InputError("standard input is closed; give an input file")
    choose_format(arguments.output, formats)


def interruption(arguments: StreamArguments, output: Output) -> str:
    """The sentence for a user who has interrupted the command."""
    if "-" in (arguments.input, arguments.output) or not output.rows:
        return f"interrupted after {output.rows:,} rows"
    return f"interrupted after {output.rows:,} rows; the same command with --resume continues there"


def begin(rows: Rows, read_ahead: int) -> tuple[list[dict[str, Any]], Iterator[dict[str, Any]]]:
    """The first rows, and all.

    Raises:
        InputError: there are none.
    """
    iterator = iter(rows)
    head = list(islice(iterator, min(read_ahead, 100)))
    if not head:
        raise InputError(f"{rows.name} has no rows; give a file with at least one")
    return head, chain(head, iterator)


def choose_words(
    rows: Rows, arguments: StreamArguments, config: Any, read_ahead: int
) -> tuple[tuple[str, ...], Iterator[tuple]]:
    """The names of the columns of words and predicates, and the words of every row, with its predicate.

    Raises:
        InputError: a column is missing, or has no words or no predicate in a row; there are no rows.
    """
    where = rows.name
    check_single(arguments.text_pair_column_name, "a tagger")
    head, rows = begin(rows, read_ahead)
    words = arguments.text_column_name or next(iter(trained_columns(config, head[0])), "tokens")
    names = (words, *(["predicate_index"] if config.predicate_size else []))
    check_columns(names, head[0], where)

    def items() -> Iterator[tuple]:
        for number, row in enumerate(rows, 1):
            words = as_words(row.get(names[0]), where, number, names[0])
            yield words, *(as_predicate(row.get(name), words, where, number, name) for name in names[1:])

    return names, items()


def choose_texts(
    rows: Rows, arguments: StreamArguments, config: Any, num_texts: int | None, read_ahead: int
) -> tuple[tuple[str, ...], Iterator[tuple[str, ...]]]:
    """The names of the text columns, and the texts of every row.

    Raises:
        InputError: a column is missing, taken twice, or no text in a row; there are no rows, or not as many texts as
            the model takes.
    """
    where = rows.name
    head, rows = begin(rows, read_ahead)
    if arguments.text_column_name:
        names = tuple(filter(None, (arguments.text_column_name, arguments.text_pair_column_name)))
    else:
        names = trained_columns(config, head[0])
        if not names or len(names) != (num_texts or len(names)):
            names = text_columns({name: [row.get(name) for row in head] for name in head[0]}, where)
        logger.info("%s: texts from %s", where, " and ".join(names))
    if num_texts and len(names) != num_texts:
        given, taken = (" and ".join(names), "one text") if len(names) == 2 else (names[0], "pairs of texts")
        raise InputError(
            f"the model takes {taken} a row, but {where} has {given}; name the columns with --text_column_name and, "
            "for pairs, --text_pair_column_name"
        )
    check_distinct(names, where)
    check_columns(names, head[0], where)

    def texts() -> Iterator[tuple[str, ...]]:
        for number, row in enumerate(rows, 1):
            yield tuple(as_text(row.get(name), where, number, name) for name in names)

    return names, texts()
