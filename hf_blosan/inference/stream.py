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

from tqdm import tqdm
from transformers import AutoModel, PreTrainedConfig

from ..data.columns import as_text, check_columns, check_distinct, check_single, text_columns, trained_columns
from ..data.rows import Rows
from ..errors import InputError
from ..hub.configs import read_config
from ..hub.finite import NotFinite
from ..hub.saved import file_state, identity, load
from ..tasks.selection import as_passage
from ..tasks.tagging import as_predicate, as_words
from .arguments import EncodeArguments, PredictArguments, StreamArguments
from .batches import Batches, Selections, Tags, Translations
from .output import PREDICTIONS, VECTOR_COLUMNS, VECTORS, Columns, Format, Output, choose_format

logger = logging.getLogger(__name__)

BUFFER_BATCHES = 64
"""Batches that are read ahead and sorted by length."""


def predict(arguments: PredictArguments) -> int:
    """Write label and probability, score, tags, translation, or sentence of every row; return the exit status.

    Raises:
        InputError: the model, the rows or the output cannot be used.
    """
    check_streams(arguments, PREDICTIONS)
    options = {"cpu": arguments.cpu, "trust_remote_code": arguments.trust_remote_code}
    config = read_config(arguments.model, trust_remote_code=arguments.trust_remote_code)
    kind = kind_of(config)
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

    compute = partial(batches.columns, probabilities=arguments.probabilities)
    if kind is Tags:
        choose = partial(choose_words, arguments=arguments, config=model.config)
    elif kind is Selections:
        choose = partial(choose_passages, arguments=arguments)
    else:
        num_texts = 1 if kind is Translations else getattr(model.config, "num_sentences", None)
        choose = partial(choose_texts, arguments=arguments, config=model.config, num_texts=num_texts, cut=batches.cut)
    stream(arguments, compute, kind.formats, choose=choose, made_by=(identity(arguments.model), settings))
    batches.report()
    return 0


def kind_of(config: PreTrainedConfig) -> type[Batches]:
    """What `predict` computes with the model of a configuration."""
    if config.is_encoder_decoder:
        return Translations
    heads = {"ForTokenClassification": Tags, "ForSentenceSelection": Selections}
    names = config.architectures or ()
    return next((kind for head, kind in heads.items() if any(name.endswith(head) for name in names)), Batches)


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
    choose = partial(choose_texts, arguments=arguments, config=model.config, num_texts=num_texts, cut=batches.cut)
    stream(arguments, compute, VECTORS, choose=choose, made_by=(identity(arguments.model), {}))
    batches.report()
    return 0


def stream(
    arguments: StreamArguments,
    compute: Callable[[list[tuple]], Columns],
    formats: Mapping[str, Format],
    *,
    choose: Callable[..., tuple[tuple[str, ...], Iterator[tuple[int, tuple]]]],
    made_by: tuple[list[Any], dict[str, Any]],
) -> None:
    """Read rows, compute columns of them, and write these.

    Args:
        arguments: options of the command.
        compute: what `choose` gives of some rows -> columns.
        formats: suffix of the output -> format.
        choose: (rows, read_ahead=...) -> the columns to read, and the number and what is computed of each row.
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
        again = {"resume": arguments.resume, "overwrite": arguments.overwrite}
        output = Output(arguments.output, formats, made_from, **again)
        if output.rows:
            logger.info("%s: %d rows are there already", arguments.output, output.rows)
        bar = tqdm(total=rows.total, unit=rows.unit, unit_scale=True, disable=typed)
        useful = True
        try:
            if output.rows:
                next(islice(items, output.rows - 1, None), None)
            while block := list(islice(items, size)):
                numbers, given = zip(*block, strict=True)
                try:
                    columns = compute(list(given))
                except NotFinite as error:
                    raise error.at(f"{rows.name}, row {numbers[error.of(len(numbers))]}") from error
                output.append(columns)
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


def begin(rows: Rows, read_ahead: int) -> tuple[list[dict[str, Any]], Iterator[tuple[int, dict[str, Any]]]]:
    """The first rows, and all with their numbers.

    Raises:
        InputError: there are none.
    """
    iterator = rows.numbered()
    head = list(islice(iterator, min(read_ahead, 100)))
    if not head:
        raise InputError(f"{rows.name} has no rows; give a file with at least one")
    return [row for _, row in head], chain(head, iterator)


def choose_words(
    rows: Rows, arguments: StreamArguments, config: Any, read_ahead: int
) -> tuple[tuple[str, ...], Iterator[tuple[int, tuple]]]:
    """The names of the columns of words and predicates, and number and words of every row, with its predicate.

    Raises:
        InputError: a column is missing, or has no words or no predicate in a row; there are no rows.
    """
    where = rows.name
    check_single(arguments.text_pair_column_name, "a tagger")
    head, rows = begin(rows, read_ahead)
    words = arguments.text_column_name or next(iter(trained_columns(config, head[0])), "tokens")
    names = (words, *(["predicate_index"] if config.predicate_size else []))
    check_columns(names, head[0], where)

    def items() -> Iterator[tuple[int, tuple]]:
        for number, row in rows:
            words = as_words(row.get(names[0]), where, number, names[0])
            predicates = (as_predicate(row.get(name), words, where, number, name) for name in names[1:])
            yield number, (words, *predicates)

    return names, items()


def choose_passages(
    rows: Rows, arguments: StreamArguments, read_ahead: int
) -> tuple[tuple[str, ...], Iterator[tuple[int, tuple[str, tuple[str, ...]]]]]:
    """The names of the columns, and the number, the question and the sentences of its passage of every row.

    Raises:
        InputError: a column is missing, a question or a sentence is empty; there are no rows; columns are named.
    """
    where = rows.name
    if arguments.text_column_name:
        raise InputError("--text_column_name: the columns of passages have fixed names; rename them and leave it out")
    head, rows = begin(rows, read_ahead)
    names = ("question", "sentences" if "sentences" in head[0] else "context")
    check_columns(names, head[0], where)
    return names, ((number, as_passage(row, where, number)) for number, row in rows)


def choose_texts(
    rows: Rows,
    arguments: StreamArguments,
    config: Any,
    num_texts: int | None,
    cut: Callable[[str], str],
    read_ahead: int,
) -> tuple[tuple[str, ...], Iterator[tuple[int, tuple[str, ...]]]]:
    """The names of the text columns, and number and texts of every row; of long texts what `cut` leaves of them.

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

    def texts() -> Iterator[tuple[int, tuple[str, ...]]]:
        for number, row in rows:
            yield number, tuple(cut(as_text(row.get(name), where, number, name)) for name in names)

    return names, texts()
