"""Predictions and sentence vectors of every row of a file, in constant memory: ``predict`` and ``encode``.

Rows are read into a buffer, tokenized, sorted by length, computed in batches, and written in the order of the input.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from ..data.columns import ColumnNames
from ..data.rows import Rows
from ..errors import InputError
from ..hub.configs import read_config
from ..hub.finite import NotFinite
from ..hub.saved import file_state, identity, load
from ..tasks.base import TaskKind
from ..tasks.kinds import kind_of
from .arguments import EncodeArguments, PredictArguments, StreamArguments
from .batches import Batches, SentenceVectors
from .output import NESTED_PREDICTIONS, PREDICTIONS, VECTOR_COLUMNS, VECTORS, Columns, Format, Output, choose_format

logger = logging.getLogger(__name__)

BUFFER_BATCHES = 64
"""Batches that are read ahead and sorted by length."""


def predict(arguments: PredictArguments) -> int:
    """Write label and probability, score, tags, translation, or sentence of every row; return the exit status.

    Raises:
        InputError: the model, the rows or the output cannot be used.
    """
    check_streams(arguments, PREDICTIONS)
    kind = kind_of(read_config(arguments.model, trust_remote_code=arguments.trust_remote_code))
    if arguments.probabilities and kind.column:
        raise InputError(
            f"--probabilities: {arguments.model} writes the column {kind.column!r}, which has no "
            "probabilities; leave it out"
        )
    formats = PREDICTIONS if kind.flat else NESTED_PREDICTIONS
    choose_format(arguments.output, formats)
    batches = load_batches(arguments, kind, kind.pipeline)

    def compute(items: list[tuple]) -> Columns:
        return kind.columns(batches(items), items, batches.tokenizer, probabilities=arguments.probabilities)

    names = {"--probabilities": arguments.probabilities}
    stream(arguments, compute, formats, batches, made_by=(identity(arguments.model), names))
    return 0


def encode(arguments: EncodeArguments) -> int:
    """Write the sentence vector of every row, or of both texts of every row; return the exit status.

    Raises:
        InputError: the model, the rows or the output cannot be used.
    """
    check_streams(arguments, VECTORS)
    config = read_config(arguments.model, trust_remote_code=arguments.trust_remote_code)
    batches = load_batches(arguments, SentenceVectors(config), "feature-extraction")

    def compute(items: list[tuple[str, ...]]) -> Columns:
        vectors = np.stack(batches([(text,) for item in items for text in item]))
        vectors = vectors.reshape(len(items), len(items[0]), -1)
        return {name: vectors[:, i] for i, name in enumerate(VECTOR_COLUMNS[: len(items[0])])}

    stream(arguments, compute, VECTORS, batches, made_by=(identity(arguments.model), {}))
    return 0


def load_batches(arguments: StreamArguments, kind: TaskKind, task: str) -> Batches:
    """The model of a command, with its kind of task; `task`: as in :func:`hf_blosan.hub.saved.load`."""
    options = {"cpu": arguments.cpu, "trust_remote_code": arguments.trust_remote_code}
    model, tokenizer = load(arguments.model, task, **options)
    return Batches(model, tokenizer, kind, batch_size=arguments.batch_size, max_length=arguments.max_length)


def stream(
    arguments: StreamArguments,
    compute: Callable[[list[tuple]], Columns],
    formats: Mapping[str, Format],
    batches: Batches,
    *,
    made_by: tuple[list[Any], dict[str, Any]],
) -> None:
    """Read rows, compute columns from them, and write these.

    Args:
        arguments: options of the command.
        compute: items, read from rows by the kind of task -> columns.
        formats: suffix of the output -> format.
        batches: the model, and its kind of task.
        made_by: identity of the model, and options in addition to the common ones, that must match to resume.

    Raises:
        InputError: the rows or the output cannot be used.
        KeyboardInterrupt: the command was interrupted; the message reports the progress.
    """
    # Interactive input is answered line by line.
    typed = arguments.input == "-" and sys.stdin.isatty()
    size = 1 if typed else BUFFER_BATCHES * arguments.batch_size
    model, options = made_by
    if arguments.output != "-" and Path(arguments.output).resolve() == Path(arguments.input).resolve():
        raise InputError(f"the output {arguments.output} is the input, which would be lost; give another file")
    with Rows(arguments.input) as rows:
        head, numbered = begin(rows, size)
        names, read = batches.kind.choose_texts(head, rows.name, ColumnNames.of(arguments))
        items = ((number, batches.cut(read(row, number))) for number, row in numbered)
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
            logger.info("%s: %d rows are already there", arguments.output, output.rows)
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
            useful = False  # the input has to change, so there is nothing to resume
            raise
        except OSError as error:
            if arguments.output == "-":
                raise
            raise InputError(
                f"output file {arguments.output} cannot be written ({error.strerror}); free some space and repeat the "
                "command with --resume"
            ) from error
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(interruption(arguments, output)) from error
        finally:
            bar.close()
            output.close(discard=not useful)
    batches.report()


def check_streams(arguments: StreamArguments, formats: Mapping[str, Format]) -> None:
    """Check before the model is loaded that standard input is open and the output can be written.

    Raises:
        InputError: one of them is not.
    """
    if arguments.input == "-" and sys.stdin is None:
        raise InputError("standard input is closed; give an input file")
    choose_format(arguments.output, formats)


def interruption(arguments: StreamArguments, output: Output) -> str:
    """The message after an interruption."""
    if "-" in (arguments.input, arguments.output) or not output.rows:
        return f"interrupted after {output.rows:,} rows"
    return f"interrupted after {output.rows:,} rows; the same command with --resume continues there"


def begin(rows: Rows, read_ahead: int) -> tuple[list[dict[str, Any]], Iterator[tuple[int, dict[str, Any]]]]:
    """The first rows, and an iterator over all rows with their numbers.

    Raises:
        InputError: there are no rows.
    """
    iterator = rows.numbered()
    head = list(islice(iterator, min(read_ahead, 100)))
    if not head:
        raise InputError(f"{rows.name} has no rows; give a file with at least one")
    return [row for _, row in head], chain(head, iterator)
