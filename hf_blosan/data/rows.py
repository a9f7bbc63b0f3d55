"""Rows of a file or of standard input, read one by one in constant memory.

Needs only Python, and pyarrow for Parquet.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from ..errors import InputError, first_line

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import ParquetFile

READABLE_TABLES = (".jsonl.gz", ".jsonl", ".json", ".csv", ".tsv", ".parquet", ".json.gz", ".csv.gz", ".tsv.gz")
READABLE_ROWS = READABLE_TABLES + (".txt", ".txt.gz")
UNREADABLE = (ValueError, OSError, EOFError, RecursionError, csv.Error, zlib.error)
"""Exceptions raised by reading a damaged file."""
MAX_ROW = 2**27
"""Maximum characters of a row; without a limit a small compressed file could fill the memory."""
MAX_LIST = 2**30
"""Maximum characters of a list of rows in one JSON document, which is read at once."""
BLANK = object()
"""Marks a blank line, which is numbered but not a row."""
_LIKE_JSON = re.compile(r'\s*(\{\s*("[^"]*"\s*:|\}|$)|\[\s*(\{|$))')  # but not "[1] a text" or "{sigh} a text"
_ROWS_AT_ONCE = 1024  # of Parquet


def check_is_file(path: Path, remedy: str, kind: str = "data") -> None:
    """Raise InputError unless the path is a file; the message ends in the remedy."""
    if not path.is_file():
        raise InputError(f"{kind} file {path} {'is a folder' if path.is_dir() else 'does not exist'}; {remedy}")


def check_vectors(path: Path) -> None:
    """Raise InputError unless the path of a file with word vectors is a file; its contents are not read."""
    check_is_file(path, "give a file in GloVe text format (plain or .gz)", "word-vector")


def suffix_of(path: Path, suffixes: Sequence[str]) -> str:
    """The suffix of a data file, in lower case; raises InputError if it is none of these."""
    found = next((suffix for suffix in suffixes if path.name.lower().endswith(suffix)), None)
    if found is None:
        raise InputError(f"data file {path} is of an unknown type; use one that ends in {', '.join(suffixes)}")
    return found


def check_table(path: Path) -> str:
    """The suffix of a file that can be read as a table; raises InputError if it does not exist or cannot be one."""
    check_is_file(path, "give the path of a .jsonl, .json, .csv, .tsv or .parquet file")
    return suffix_of(path, READABLE_TABLES)


def check_rows(path: Path) -> str:
    """The suffix of a file that can be read row by row; raises InputError as :func:`check_table`."""
    check_is_file(path, "give a file, or - for standard input")
    return suffix_of(path, READABLE_ROWS)


class Rows:
    """The rows of a file as dictionaries; a context manager.

    CSV, TSV and JSON are read as by :func:`hf_blosan.data.tables.read_table`, which says where JSON differs; only a
    list of objects in one JSON document is read at once. A text file has one text per line, in column ``text``.

    Args:
        path: the file, or ``-`` for standard input with one JSON object or one text per line, or a list of objects.

    Attributes:
        name: name of the rows in messages.
        total, unit: end and unit of :attr:`position`: ``B`` of the file, or ``rows`` of a Parquet file; ``None`` for
            standard input.

    Raises:
        InputError: the file does not exist, has another type, or cannot be parsed at a row, which is named; a row
            has more than ``MAX_ROW`` characters.
    """

    _suffix: str | None = None  # in lower case

    def __init__(self, path: str | Path):
        self.path, self.name, self.total, self.unit = Path(path), str(path), None, "rows"
        self._number, self._file, self._columns = 0, None, None
        if self.name == "-":
            self.name = "standard input"
            self._rows = _lines_or_json(io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig"))
            return
        suffix = self._suffix = check_rows(self.path)
        try:
            self._file: BinaryIO | None = self.path.open("rb")
        except OSError as error:
            raise InputError(f"data file {path} cannot be read ({error.strerror}); make it readable") from error
        if suffix == ".parquet":
            self._rows = self._parquet()
            return
        self.total, self.unit = self.path.stat().st_size, "B"
        binary = gzip.GzipFile(fileobj=self._file) if suffix.endswith(".gz") else self._file
        # Kept alive, because garbage collection would close the file.
        self._text = io.TextIOWrapper(binary, encoding="utf-8-sig", newline="")
        separated = partial(_csv, name=self.name)
        read = {"txt": _text, "csv": separated, "tsv": separated}.get(suffix.split(".")[1], _json)
        self._rows = read(self._text, **csv_layout(suffix))

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._file is not None:
            self._file.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (row for _, row in self.numbered())

    def numbered(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The rows with their numbers in the file, from 1; blank lines count but are not returned."""
        with self._errors():
            for row in self._rows:
                row = _loads(row) if isinstance(row, str) else row
                self._number += 1
                if row is BLANK:
                    continue
                if not isinstance(row, dict):
                    raise InputError(f"{self.name}, row {self._number} is not a JSON object; write one per line")
                yield self._number, row

    def skip(self, most: int | None = None) -> int:
        """Pass over that many rows, or over all, without parsing JSON or decoding Parquet; returns their number."""
        skipped = 0
        if self._suffix == ".parquet":
            skipped = min(self.count() - self._number, math.inf if most is None else most)
            self._number += skipped
            self._rows = self._parquet()
            return skipped
        with self._errors():
            while skipped != most and (row := next(self._rows, self)) is not self:
                self._number += 1
                skipped += row is not BLANK
        return skipped

    def take_only(self, columns: Iterable[str]) -> None:
        """Leave the other columns of a Parquet file out of the rows that follow; other files are read whole."""
        if self._suffix == ".parquet":
            self._columns, self._rows = list(columns), self._parquet()

    def count(self) -> int:
        """The number of rows in the file, which is read for it if it is not Parquet."""
        if self._suffix != ".parquet":
            with Rows(self.path) as rows:
                return rows.skip()
        with self._errors(), _arrow_errors():
            return open_parquet(self._file, self.name).metadata.num_rows

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except InputError:
            raise
        except UNREADABLE as error:
            reason = getattr(error, "strerror", None) or first_line(error)
            shape = "give one JSON object, or one text, per line"
            solution = remedy(error) or ("correct the file" if self._file else shape)
            if isinstance(error, json.JSONDecodeError) and self._suffix not in (".json", ".json.gz"):  # of one line
                reason = f"{error.msg.removesuffix(' starting at').removesuffix(' at')} in column {error.pos + 1}"
            number = self._number
            if isinstance(error, UnicodeDecodeError):  # in a block of bytes, decoded ahead of the rows
                header = number == 0 and bool(csv_layout(self._suffix or ""))
                number += max(error.object.count(b"\n", 0, error.start) - header, 0)
                reason = f"byte {error.object[error.start]:#x} is not UTF-8"
            raise InputError(f"{self.name} cannot be read after row {number} ({reason}); {solution}") from error

    @property
    def position(self) -> int:
        """How far the file has been read."""
        return self._file.tell() if self.unit == "B" else self._number

    def parquet_table(self) -> pyarrow.Table:
        """All rows of a Parquet file at once."""
        with self._errors(), _arrow_errors():
            return open_parquet(self._file, self.name).read()

    def _parquet(self) -> Iterator[dict[str, Any]]:
        """The rows after those that were read; groups of rows that were passed over are not decoded."""
        table, passed = open_parquet(self._file, self.name), self._number
        self.total = table.metadata.num_rows
        with _arrow_errors():
            for group in range(table.num_row_groups):
                if passed >= (size := table.metadata.row_group(group).num_rows):
                    passed -= size
                    continue
                for batch in table.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=self._columns):
                    yield from batch[min(passed, len(batch)) :].to_pylist()
                    passed = max(0, passed - len(batch))


def open_parquet(file: BinaryIO, name: str) -> ParquetFile:
    """A Parquet file. Raises InputError if two columns have the same name, of which pyarrow reads only the last, or
    pyarrow is missing; and ValueError if the file is damaged.
    """
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise InputError(f"reading {name} needs pyarrow: pip install pyarrow") from error
    with _arrow_errors():
        table = ParquetFile(file)
        _check_names(table.schema_arrow.names, name)
    return table


@contextmanager
def _arrow_errors() -> Iterator[None]:
    from pyarrow.lib import ArrowException

    try:
        yield
    except ArrowException as error:  # damaged files raise any of these
        raise ValueError(first_line(error)) from error


def _check_names(columns: Iterable[str], name: str) -> None:
    if twice := [column for column, count in Counter(columns).items() if count > 1]:
        raise InputError(f"{name} has two columns {twice[0]!r}; rename one of them")


class TooLong(ValueError):
    """A row, or a list of rows, exceeds its limit of characters."""


class _Lines:
    """The lines of a text file. ``length``, the number of characters since it was last set to 0, is limited."""

    def __init__(self, file: TextIO):
        self.file, self.length = file, 0

    def __iter__(self) -> Iterator[str]:
        while line := self.file.readline(MAX_ROW + 1):
            self.length += len(line)
            if self.length > MAX_ROW:
                raise TooLong(f"a row has more than {MAX_ROW:,} characters")
            yield line


def lines_of(file: TextIO) -> Iterator[str]:
    """The lines of a text file, each of at most ``MAX_ROW`` characters."""
    lines = _Lines(file)
    for line in lines:
        lines.length = 0
        yield line


def is_of_the_system(error: BaseException | None) -> bool:
    """Whether reading failed, as on a network drive, rather than what was read; damaged files have no error number."""
    return isinstance(error, OSError) and error.errno is not None


def remedy(error: BaseException) -> str | None:
    """How to fix an unreadable file, if the error tells."""
    if isinstance(error, TooLong):
        return "divide it, or compress the file again if it is damaged"
    if isinstance(error, UnicodeDecodeError):
        return "save it as UTF-8"
    if is_of_the_system(error):
        return "repeat the command"
    return "nest lists and objects less deeply" if isinstance(error, RecursionError) else None


def csv_layout(suffix: str) -> dict[str, Any]:
    """The cell format of files with that suffix: TSV without quoting, like GLUE's files."""
    if suffix.startswith(".tsv"):
        return {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    return {"delimiter": ","} if suffix.startswith(".csv") else {}


def _csv(file: TextIO, name: str, **layout: Any) -> Iterator[Any]:
    """The rows after the header; unnamed columns are named as in pandas. Raises InputError if two columns have the
    same name, or the only one's name has semicolons or tabs, or commas in TSV; or if a row repeats the header (as in
    files that were joined), has another number of cells, or is quoted wrongly.
    """
    csv.field_size_limit(2**31 - 1)  # the default, 131,072 characters, is too small for texts
    lines = _Lines(file)
    # Without strict, an unclosed quotation mark makes the rest of the file one cell.
    rows = csv.reader(iter(lines), strict=True, **layout)
    header = next(filter(None, rows), [])
    columns = [column or f"Unnamed: {i}" for i, column in enumerate(header)]
    if len(columns) == 1 and set(columns[0]) & (set(";\t,") - {layout["delimiter"]}):
        raise InputError(
            f"{name} has one column, {columns[0]!r}; separate cells by commas in a .csv file, by tabs in a .tsv file"
        )
    _check_names(columns, name)
    number = lines.length = 0
    try:
        for number, row in enumerate(rows, 1):
            lines.length = 0
            if row == columns and len(columns) > 1:
                raise InputError(
                    f"{name}, row {number} repeats the header, {','.join(columns)[:60]}; remove it, or, if that is a "
                    "row, give the file a first line with the names of its columns"
                )
            if row and len(row) != len(columns):
                cells = f"{len(row)} cell{'s' * (len(row) != 1)}"
                raise InputError(
                    f"{name}, row {number} has {cells}, the header has {len(columns)}; correct the row (in CSV a text "
                    "with a comma needs quotes)"
                )
            yield dict(zip(columns, row, strict=True)) if row else BLANK
    except csv.Error as error:
        raise InputError(
            f"{name}, row {number + 1} is not CSV ({first_line(error)}); close every quotation mark, and double those "
            "within a quoted cell"
        ) from error


def _json(file: TextIO, head: Iterable[str] = ()) -> Iterator[Any]:
    """Rows; those of JSON lines as text, because most of the time of reading is that of parsing.

    `head`: lines that have been read.
    """
    blank = 0
    for line in chain(head, lines_of(file)):
        if not line.strip():
            blank += 1
        elif line.lstrip().startswith("["):  # its rows are counted from 1, regardless of blank lines before it
            rest = file.read(MAX_LIST)
            if len(rest) == MAX_LIST:
                raise TooLong(f"a list of rows has more than {MAX_LIST:,} characters")
            yield from (row if isinstance(row, dict) else None for row in _loads(line + rest))
        else:
            yield from [BLANK] * blank
            yield line
            blank = 0


def _loads(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError(f"a row names {max(row, key=[name for name, _ in pairs].count)!r} twice")
    return row


def _text(file: TextIO, head: Iterable[str] = ()) -> Iterator[dict[str, str]]:
    for line in chain(head, lines_of(file)):
        yield {"text": line.rstrip("\r\n")}


def _lines_or_json(file: TextIO) -> Iterator[Any]:
    """JSON if the first line that is not blank begins like it, else texts."""
    head = []
    for line in lines_of(file):
        head.append(line)
        if line.strip():
            break
    yield from (_json if head and _is_json(head[-1]) else _text)(file, head)


def _is_json(line: str) -> bool:
    """Whether a line is a list or an object, or begins like one over several lines or like a damaged object.

    A list of numbers, such as [12], is a text.
    """
    try:
        found = json.loads(line)
        return isinstance(found, dict) or (
            isinstance(found, list) and not any(isinstance(row, int | float) for row in found)
        )
    except ValueError:
        return bool(_LIKE_JSON.match(line))
