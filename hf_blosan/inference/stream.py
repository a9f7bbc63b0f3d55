"""Predictions and sentence vectors of every row of a file, in constant memory: ``predict`` and ``encode``.

Rows are read into a buffer, tokenized, sorted by length, computed in batches, and written in the order of the input.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

import numpy as np
from tqdm import tqdm

from .. import __version__
from ..data.columns import ColumnNames
from ..data.rows import Rows, is_of_the_system
from ..errors import InputError, NoMemory
from ..files import check_not_read
from ..hub.configs import read_config
from ..hub.finite import NotFinite
from ..hub.saved import contents, file_state, identity, load
from ..tasks.base import TaskKind
from ..tasks.kinds import kind_of
from .arguments import EncodeArguments, PredictArguments, StreamArguments
from .batches import Batches, SentenceVectors
from .output import (
    NESTED_PREDICTIONS,
    PREDICTIONS,
    VECTOR_COLUMNS,
    Columns,
    Format,
    Output,
    choose_format,
    vector_formats,
)

logger = logging.getLogger(__name__)

BUFFER_BATCHES = 64
"""Batches that are read ahead and sorted by length."""


def predict(arguments: PredictArguments) -> None:
    """Write the label and its probability, the score, tags, translation, or sentence of every row.

    Raises:
        InputError: the model, the rows or the output cannot be used.
    """
    check_streams(arguments, PREDICTIONS)
    config = read_config(arguments.model, trust_remote_code=arguments.trust_remote_code)
    kind = kind_of(config)
    if arguments.probabilities and kind.column:
        raise InputError(
            f"--probabilities: {arguments.model} writes the column {kind.column!r}, which has no "
            "probabilities; leave it out"
        )
    if config.problem_type == "multi_label_classification" and not arguments.probabilities:
        logger.warning(
            "%s gives a row any number of labels; label is the most probable one, --probabilities adds the "
            "probability of every label",
            arguments.model,
        )
    formats = PREDICTIONS if kind.flat else NESTED_PREDICTIONS
    choose_format(arguments.path, formats)
    batches = load_batches(arguments, kind)

    def compute(items: list[tuple]) -> Columns:
        return kind.columns(batches(items), items, batches.tokenizer, probabilities=arguments.probabilities)

    fixed = {"--probabilities": arguments.probabilities}
    stream(arguments, compute, formats, batches, fixed)


def encode(arguments: EncodeArguments) -> None:
    """Write the sentence vector of every row, or of both texts of every row.

    Raises:
        InputError: the model, the rows or the output cannot be used.
    """
    formats = vector_formats(arguments.vector_dtype)
    check_streams(arguments, formats)
    config = read_config(arguments.model, trust_remote_code=arguments.trust_remote_code)
    kind = SentenceVectors(config)
    batches = load_batches(arguments, kind)

    def compute(items: list[tuple[str, ...]]) -> Columns:
        vectors = np.stack(batches([(text,) for item in items for text in item]))
        vectors = vectors.reshape(len(items), len(items[0]), -1)
        return {name: vectors[:, i] for i, name in enumerate(VECTOR_COLUMNS[: len(items[0])])}

    fixed = {"--vector_dtype": arguments.vector_dtype, "modules.json": kind.normalized}
    stream(arguments, compute, formats, batches, fixed)


def load_batches(arguments: StreamArguments, kind: TaskKind) -> Batches:
    """The model of a command, with its kind of task."""
    options = {"cpu": arguments.cpu, "trust_remote_code": arguments.trust_remote_code}
    model, tokenizer = load(arguments.model, kind.pipeline, **options)
    return Batches(model, tokenizer, kind, batch_size=arguments.batch_size, max_length=arguments.max_length)


def stream(
    arguments: StreamArguments,
    compute: Callable[[list[tuple]], Columns],
    formats: Mapping[str, Format],
    batches: Batches,
    options: dict[str, Any],
) -> None:
    """Read rows, compute columns from them, and write these.

    ``compute`` makes columns of items, which the kind of task of ``batches`` reads from rows; ``formats`` are those of
    the output by suffix; ``options`` must match to resume, in addition to the common ones. Raises InputError if the
    rows or the output cannot be used; KeyboardInterrupt, with the progress as its message, when interrupted.
    """
    # Interactive input is answered line by line.
    typed = arguments.input == "-" and sys.stdin.isatty()
    size = 1 if typed else BUFFER_BATCHES * arguments.batch_size
    if arguments.output != "-":
        check_not_read("output file", arguments.path, [arguments.input])
    with Rows(arguments.input) as rows:
        head = list(islice(rows.numbered(), min(size, 100)))  # of the file, so that all shards take the same columns
        if not head:
            raise InputError(f"{rows.name} has no rows; give a file with at least one")
        names, read = batches.kind.choose_texts([row for _, row in head], rows.name, ColumnNames.of(arguments))
        rows.take_only(names)
        columns = {"--text_column_name or --text_pair_column_name": names}
        options = {"--max_length": arguments.max_length, **columns, **options}
        shard, source, start, end = arguments.part, {}, 0, None
        if shard:
            source = source_of(arguments, rows, options)
            start, end = shard.block(source["input"]["rows"])
            if arguments.resume and shard.is_complete(arguments.output, source):
                logger.info("%s is complete", arguments.path)
                return
        output = open_output(arguments, formats, source or source_here(arguments, rows, options))
        numbered = following(rows, head, start + output.rows, end)
        items = ((number, batches.cut(read(row, number))) for number, row in numbered)
        blocks = iter(lambda: list(islice(items, size)), [])
        total, unit = (rows.total, rows.unit) if end is None else (end - start, "rows")
        with tqdm(total=total, unit=unit, unit_scale=True, disable=typed) as bar, keeping(output, arguments):
            for block in blocks:
                output.append(computed(compute, block, rows.name))
                bar.set_postfix_str(f"rows={output.rows:,}", refresh=False)
                bar.update((output.rows if unit == "rows" else rows.position) - bar.n)
            with described(arguments, source):
                output.complete()
    batches.report()


def open_output(arguments: StreamArguments, formats: Mapping[str, Format], source: dict[str, Any]) -> Output:
    """The output file, or what an interrupted command has left of it; `source`: what it is made from."""
    made_from = source | {"--batch_size": [arguments.batch_size, BUFFER_BATCHES]}
    again = {"resume": arguments.resume, "overwrite": arguments.overwrite}
    output = Output(arguments.path, formats, made_from, **again)
    if output.rows:
        logger.info("%s: %d rows are already there", arguments.path, output.rows)
    return output


@contextmanager
def described(arguments: StreamArguments, source: dict[str, Any]) -> Iterator[None]:
    """Replace the manifest of a part together with the part, which counts as missing in between."""
    if arguments.part:
        arguments.part.manifest(arguments.output).unlink(missing_ok=True)
    yield
    if arguments.part:
        arguments.part.write_manifest(arguments.output, source)


def source_of(arguments: StreamArguments, rows: Rows, options: dict[str, Any]) -> dict[str, Any]:
    """What a shard is made from, named so that it is the same on every machine; raises InputError if there are more
    shards than rows.
    """
    count = rows.count()
    if arguments.part.number > count:
        raise InputError(f"--shard is {arguments.shard}; {rows.name} has {count} rows, so give at most {count} parts")
    file = {"name": rows.path.name, "bytes": rows.path.stat().st_size, "rows": count}
    return {"input": file, "model": contents(arguments.model), **options, "hf_blosan": __version__}


def source_here(arguments: StreamArguments, rows: Rows, options: dict[str, Any]) -> dict[str, Any]:
    """What an output is made from, by paths and times of files on this machine, without reading them."""
    file = [] if arguments.input == "-" else [str(rows.path.resolve()), *file_state(rows.path)]
    return {"input": file, "model": identity(arguments.model), **options, "hf_blosan": __version__}


def following(
    rows: Rows, head: list[tuple[int, dict[str, Any]]], start: int, end: int | None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows from the one with index `start` to the one before `end`, with their numbers; `head` has been read."""
    rows.skip(max(0, start - len(head)))
    yield from islice(chain(head[start:], rows.numbered()), None if end is None else end - start)


def computed(compute: Callable[[list[tuple]], Columns], block: list[tuple[int, tuple]], name: str) -> Columns:
    """The columns of numbered items; an error of the model names the row."""
    numbers, items = zip(*block, strict=True)
    try:
        return compute(list(items))
    except NotFinite as error:
        raise error.at(f"{name}, row {numbers[error.of(len(numbers))]}") from error


@contextmanager
def keeping(output: Output, arguments: StreamArguments) -> Iterator[None]:
    """Keep the rows of an interrupted output for resuming, unless the input is wrong; say how to continue."""
    useful, files = True, "-" not in (arguments.input, arguments.output)
    try:
        yield
    except InputError as error:
        # Otherwise the input has to change, so there is nothing to resume.
        useful = files and is_of_the_system(error.__cause__)
        if useful:
            raise InputError(f"{error} with --resume") from error
        if isinstance(error, NoMemory) and files and output.rows:
            useful = True  # there may be more of it later
            raise InputError(
                f"{error} and --overwrite; or, once there is more memory, continue after {output.rows:,} rows by the "
                "same command with --resume"
            ) from error
        raise
    except OSError as error:
        if arguments.output == "-":
            raise
        proceed = "--overwrite" if arguments.input == "-" else "--resume"
        raise InputError(
            f"output file {arguments.path} cannot be written ({error.strerror}); free some space and repeat the "
            f"command with {proceed}"
        ) from error
    except KeyboardInterrupt as error:
        how = "; the same command with --resume continues there" if files and output.rows else ""
        raise KeyboardInterrupt(f"interrupted after {output.rows:,} rows{how}") from error
    finally:
        output.close(discard=not useful)


def check_streams(arguments: StreamArguments, formats: Mapping[str, Format]) -> None:
    """Raise InputError, before the model is loaded, if standard input is closed or the output cannot be written."""
    if arguments.input == "-" and sys.stdin is None:
        raise InputError("standard input is closed; give an input file")
    choose_format(arguments.path, formats)
