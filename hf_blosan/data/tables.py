"""Reads files of rows, and data sets, as tables of `datasets`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import Any

import pyarrow as pa
from datasets import Dataset, DatasetDict, load_dataset, load_from_disk
from datasets.exceptions import DatasetGenerationError, DatasetsError
from datasets.fingerprint import generate_random_fingerprint

from ..errors import InputError, first_line
from .rows import Rows, check_table

NO_COMMON_TYPE = (pa.ArrowException, OverflowError, UnicodeEncodeError)


def read_table(path: str | Path) -> Dataset:
    """Read a file of rows; columns keep their names.

    JSON has one object per line (or one list of objects). CSV and TSV have a header line and are read as text, so that
    an empty cell is an empty text and ``007`` stays ``007``; TSV is read without quoting, like GLUE's files.

    A column of JSON has one type, as in Arrow: 1 next to 2.5 becomes 1.0, and next to text it becomes text; so do the
    items of lists.

    Blank lines are skipped but counted by :func:`row_numbers`.

    Args:
        path: a file ending in .jsonl, .json, .csv or .tsv, optionally compressed (.gz), or in .parquet.

    Raises:
        InputError: the file does not exist, has another type, has no rows, or cannot be parsed; two columns share a
            name, a column has lists or objects next to other types, or a row repeats the header or has another number
            of cells.
    """
    path = Path(path)
    suffix = check_table(path)
    columns: dict[str, list] = {}
    numbers: list[int] = []
    with Rows(path) as rows:
        if suffix == ".parquet":
            table = _table(path, rows.parquet_table())
        else:
            for number, row in rows.numbered():
                for name in row:
                    if name not in columns:
                        columns[name] = [None] * len(numbers)
                for name, cells in columns.items():
                    cells.append(row.get(name))
                numbers.append(number)
            arrays = {name: _array(path, name, cells, numbers) for name, cells in columns.items()}
            table = _table(path, pa.table(arrays))
            table.row_numbers = numbers
    if not len(table):
        raise InputError(f"data file {path} has no rows; give a file with at least one")
    return table


def _table(path: Path, table: pa.Table) -> Dataset:
    try:
        return Dataset(table, fingerprint=generate_random_fingerprint())  # a hash of all rows has no use
    except (ValueError, NotImplementedError) as error:  # a map, for instance
        raise InputError(f"data file {path} cannot be read ({first_line(error)}); leave that column out") from error


def _array(path: Path, name: str, cells: list, numbers: list[int]) -> pa.Array:
    """The cells of a column, as text if they are of several types; raises InputError if that leaves several."""
    try:
        kinds = {*map(type, cells)} - {NoneType}
        with suppress(*NO_COMMON_TYPE):
            if kinds == {bool} or bool not in kinds:  # which pyarrow reads as 1.0 among numbers with decimals
                return pa.array(cells)
        cells = list(map(_text, cells))
        return pa.array(cells)
    except NO_COMMON_TYPE as error:
        row = _first_that_fails(cells, numbers)
        raise InputError(
            f"data file {path} cannot be read: column {name!r} has cells of different types, or an invalid "
            f"value, at row {row} ({first_line(error)}); correct it"
        ) from error


def _text(cell: Any) -> Any:
    """A cell, or those of a list, as text; objects as they are."""
    if isinstance(cell, list):
        return list(map(_text, cell))
    return cell if isinstance(cell, dict) else None if cell is None or cell != cell else str(cell)  # NaN beside text


def _first_that_fails(cells: list, numbers: list[int]) -> int:
    low, high = 0, len(cells)  # this many cells can be converted together, this many cannot
    while high - low > 1:
        middle = (low + high) // 2
        try:
            pa.array(cells[:middle])
            low = middle
        except NO_COMMON_TYPE:
            high = middle
    return numbers[high - 1]


def load_splits(name: str, config: str | None = None, *, revision: str | None = None, remedy: str) -> DatasetDict:
    """All splits of a data set on the Hub, or in a folder of data files or of ``save_to_disk``.

    ``name``, ``config`` and ``revision`` are as in ``datasets.load_dataset``. Raises InputError if the data set cannot
    be loaded; ``remedy``, the end of the message, says what to do then.
    """
    folder = Path(name)
    try:
        if any((folder / file).exists() for file in ("dataset_dict.json", "state.json")):
            loaded = load_from_disk(name).with_format(None)
            return loaded if isinstance(loaded, DatasetDict) else DatasetDict(train=loaded)
        return load_dataset(name, config, revision=revision)
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        reason = first_line((isinstance(error, DatasetGenerationError) and error.__cause__) or error)
        raise InputError(f"data set {name!r} cannot be loaded ({reason}); {remedy}") from error
