"""Output files that are written row by row, can be resumed, and are renamed into place when complete."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from ..errors import InputError
from ..files import check_writable, write_json

Columns = Mapping[str, Any]
"""Columns of equal length: lists of strings or of lists, arrays of numbers (rows,) or of vectors (rows, width)."""

_ROWS_AT_ONCE = 8192  # when a file is converted to Parquet


@dataclass(frozen=True)
class Format:
    """How rows are encoded as bytes to append, and how these become the file.

    Attributes:
        encode: columns -> bytes to append.
        header: columns -> bytes before the first row.
        complete: (partial file, number of rows) -> the file to rename into place.
    """

    encode: Callable[[Columns], bytes]
    header: Callable[[Columns], bytes] = lambda columns: b""
    complete: Callable[[Path, int], Path] = lambda path, rows: path


class Output:
    """The output of a command.

    The rows are appended to ``.NAME.partial``. After every append ``.NAME.partial.json`` records how much is valid
    and what it was made from, so that the file can be resumed however the process ends.

    Args:
        path: the file; ``-`` for standard output.
        formats: suffix -> format.
        made_from: what the content depends on, by name.
        resume: continue a partial file; start over if there is none.
        overwrite: discard a partial file, and start over.

    Attributes:
        rows: number of rows written.

    Raises:
        InputError: the suffix is unknown; there is a partial file and neither option is given; or it
            cannot be resumed, because it was made from something else or is damaged.
    """

    def __init__(
        self,
        path: str,
        formats: Mapping[str, Format],
        made_from: Mapping[str, Any],
        *,
        resume: bool = False,
        overwrite: bool = False,
    ):
        # What a link points to is replaced, not the link.
        self.path, self.rows, self.bytes = Path(os.path.realpath(path) if os.path.islink(path) else path), 0, 0
        self.made_from = json.loads(json.dumps(made_from))
        self.format = choose_format(path, formats)
        if path == "-":
            self.partial, self.file = None, sys.stdout.buffer
            return
        self.partial = self.path.with_name(f".{self.path.name}.partial")
        self.state = self.path.with_name(f".{self.path.name}.partial.json")
        self.lock = FileLock(self.path.with_name(f".{self.path.name}.lock"), timeout=0)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.lock.acquire()
            if not overwrite:
                self._find_unfinished(resume)
            if not self.rows:
                self._write_state()
            self.file = self.partial.open("r+b" if self.rows else "wb")
            self.file.truncate(self.bytes)
            self.file.seek(self.bytes)
        except BaseException as error:
            self._unlock()
            if isinstance(error, Timeout):
                raise InputError(
                    f"another command is writing to {path}; wait until it finishes, or give another output file"
                ) from error
            if isinstance(error, OSError):
                raise InputError(
                    f"output file {path} cannot be written ({error.strerror}); give another path"
                ) from error
            raise

    def _find_unfinished(self, resume: bool) -> None:
        """Resume an earlier command's partial file, if it has rows and `resume` is set."""
        size = self.partial.stat().st_size if self.partial.exists() else 0
        if not self.state.exists():
            if size:
                raise InputError(
                    f"{self.partial} was left by an earlier command, but {self.state.name}, which records its progress"
                    ", is missing; --overwrite discards it and starts over"
                )
            return
        try:
            state = json.loads(self.state.read_bytes())
            rows, valid, made_from = int(state["rows"]), int(state["bytes"]), dict(state["made_from"])
            if min(rows, valid) < 0:
                raise ValueError("a negative number")
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
            raise InputError(
                f"{self.state}, which records the progress of {self.partial.name}, is damaged; --overwrite "
                "discards both and starts over"
            ) from error
        if not rows or (not self.partial.exists() and self.path.exists()):  # killed while the output was renamed
            return
        if not resume:
            proceed = "--resume continues it, " if self.made_from.get("input") else ""  # not from standard input
            raise InputError(
                f"{self.path} is unfinished: {self.partial} has {rows:,} rows of an earlier command; {proceed}"
                "--overwrite discards it and starts over"
            )
        for name, value in self.made_from.items():
            if made_from.get(name) != value:
                raise InputError(
                    f"{self.path} was started with another {name}; repeat that command, or start over with --overwrite"
                )
        if size < valid:
            raise InputError(f"{self.partial} is incomplete or missing; start over with --overwrite")
        self.rows, self.bytes = rows, valid

    def _write_state(self) -> None:
        write_json(self.state, {"rows": self.rows, "bytes": self.bytes, "made_from": self.made_from})

    def append(self, columns: Columns) -> None:
        """Write rows; they survive any later failure."""
        content = self.format.encode(columns)
        if not self.rows:
            content = self.format.header(columns) + content
        self.file.write(content)
        self.file.flush()
        self.bytes += len(content)
        self.rows += len(next(iter(columns.values())))
        if self.partial:
            self._write_state()

    def complete(self) -> None:
        """Rename the file into place."""
        if self.partial:
            self.file.close()
            os.replace(self.format.complete(self.partial, self.rows), self.path)
            self.partial.unlink(missing_ok=True)
            self.state.unlink()
            self._unlock()

    def close(self, *, discard: bool = False) -> None:
        """Keep the rows written so far for resuming, unless `discard` is set."""
        if self.partial and self.lock.is_locked:
            with suppress(OSError):  # a full disk, again: what was not recorded is cut off when the command resumes
                self.file.close()
            if discard or not self.rows:
                self.partial.unlink(missing_ok=True)
                self.state.unlink(missing_ok=True)
            self._unlock()

    def _unlock(self) -> None:
        if self.lock.is_locked:
            Path(self.lock.lock_file).unlink(missing_ok=True)
            self.lock.release()


def choose_format(path: str, formats: Mapping[str, Format]) -> Format:
    """The format of an output file, or of standard output for ``-``, after a check that it can be written.

    Raises InputError if the suffix is unknown, the file cannot be written, or pyarrow, which writes the final Parquet
    file, is missing.
    """
    suffix = ".jsonl" if path == "-" else Path(path).suffix
    if suffix not in formats:
        raise InputError(f"output file {path} is of an unknown type; use one that ends in {', '.join(formats)}")
    if suffix == ".parquet" and find_spec("pyarrow") is None:
        raise InputError(f"writing {path} needs pyarrow: pip install pyarrow")
    if path == "-" and sys.stdout is None:
        raise InputError("standard output is closed; give an output file")
    if path != "-":
        check_writable("output file", path, folder=False)
    return formats[suffix]


def _by_row(columns: Columns) -> Iterator[tuple]:
    plain = (column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values())
    return zip(*plain, strict=True)


def _json_lines(columns: Columns) -> bytes:
    rows = (json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) for row in _by_row(columns))
    return "".join(f"{row}\n" for row in rows).encode()


def _csv_lines(rows) -> bytes:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue().encode()


def _npy_header(shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype.str, "fortran_order": False, "shape": shape})
    return file.getvalue()


def _array(columns: Columns, dtype: str) -> np.ndarray:
    """Vectors (rows, width), or (rows, sentences, width) for several columns; raises InputError if a number does not
    fit.
    """
    with np.errstate(over="ignore"):
        arrays = [np.asarray(column).astype(dtype, copy=False) for column in columns.values()]
    if dtype == "<f2" and not all(np.isfinite(array).all() for array in arrays):
        largest = max(float(np.abs(column).max()) for column in columns.values())
        raise InputError(f"a vector has the number {largest:.3g}, which float16 cannot hold; leave out --vector_dtype")
    return arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=1)


def _complete_npy(path: Path, rows: int) -> Path:
    """The number of rows in the header; NumPy reserves space there for it to grow."""
    with path.open("r+b") as file:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        length = file.tell()
        header = _npy_header((rows, *shape[1:]), dtype)
        if len(header) != length:
            raise RuntimeError(f"the header of {path} has no space for {rows} rows; please report it")
        file.seek(0)
        file.write(header)
    return path


def _predictions_to_parquet(path: Path, rows: int) -> Path:
    import pyarrow

    def tables() -> Iterator[pyarrow.Table]:
        schema = None
        with path.open(encoding="utf-8") as file:
            while lines := list(islice(file, _ROWS_AT_ONCE)):
                table = pyarrow.Table.from_pylist(list(map(json.loads, lines)), schema)
                if schema is None:  # tags may be missing, for words without a token
                    types = {field.name: _text_for_null(field.type) for field in table.schema}
                    table = table.cast(schema := pyarrow.schema(types))
                yield table

    return _write_parquet(path, tables())


def _text_for_null(type_: Any) -> Any:
    """An Arrow type in which what has been null so far is text."""
    from pyarrow import list_, string, types

    if types.is_list(type_):
        return list_(_text_for_null(type_.value_type))
    return string() if types.is_null(type_) else type_


def _vectors_to_parquet(path: Path, rows: int, *, int8: bool = False) -> Path:
    import pyarrow

    vectors = np.load(_complete_npy(path, rows), mmap_mode="r")
    vectors = vectors if vectors.ndim == 3 else vectors[:, None]

    def tables() -> Iterator[pyarrow.Table]:
        for start in range(0, rows, _ROWS_AT_ONCE):
            parts, columns = np.array(vectors[start : start + _ROWS_AT_ONCE]).swapaxes(0, 1), {}
            for name, part in zip(VECTOR_COLUMNS, parts, strict=False):
                part, scales = quantized(part) if int8 else (part, None)
                columns[name] = pyarrow.FixedSizeListArray.from_arrays(part.ravel(), part.shape[1])
                columns |= {f"{name}_scale": scales} if int8 else {}
            yield pyarrow.table(columns)

    # Few numbers of float32 occur twice.
    return _write_parquet(path, tables(), use_dictionary=vectors.dtype != np.float32 or int8)


def quantized(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Integers (rows, width) and a factor for each row; its largest number becomes 127, as in an int8 word table."""
    scales = np.abs(vectors).max(axis=1) / np.float32(127)
    codes = np.rint(vectors / np.maximum(scales, np.finfo(np.float32).tiny)[:, None])
    return codes.astype(np.int8), scales


def _write_parquet(path: Path, tables: Iterator[Any], **options: Any) -> Path:
    from pyarrow.parquet import ParquetWriter

    first, converted = next(tables), path.with_name(f"{path.name}.parquet")
    try:
        with ParquetWriter(converted, first.schema, **options) as writer:
            for table in chain([first], tables):
                writer.write_table(table)
    except BaseException:
        converted.unlink(missing_ok=True)
        raise
    return converted


VECTOR_COLUMNS = ("vector", "vector_pair")
_JSON_LINES = Format(_json_lines)
PREDICTIONS = {
    ".jsonl": _JSON_LINES,
    ".csv": Format(lambda columns: _csv_lines(_by_row(columns)), lambda columns: _csv_lines([tuple(columns)])),
    ".parquet": Format(_json_lines, complete=_predictions_to_parquet),
}
NESTED_PREDICTIONS = {suffix: PREDICTIONS[suffix] for suffix in (".jsonl", ".parquet")}  # CSV has no lists


def vector_formats(vector_dtype: str = "float32") -> dict[str, Format]:
    """Suffix -> format of sentence vectors. Int8 is made from float32 once the file is complete."""
    dtype = "<f2" if vector_dtype == "float16" else "<f4"

    def encode(columns: Columns) -> bytes:
        return _array(columns, dtype).tobytes()

    def header(columns: Columns) -> bytes:
        return _npy_header((0, *_array(columns, dtype).shape[1:]), np.dtype(dtype))

    to_parquet = partial(_vectors_to_parquet, int8=vector_dtype == "int8")
    parquet = Format(encode, header, to_parquet)
    return {".npy": Format(encode, header, _complete_npy), ".jsonl": _JSON_LINES, ".parquet": parquet}
