"""Reads one file of rows."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import numpy as np
from datasets import Dataset, Features, Value, load_dataset
from datasets.exceptions import DatasetsError

from ..errors import InputError, first_line
from .rows import READABLE_TABLES, UNREADABLE, Rows, csv_layout, csv_rows, lines_of, no_object, open_parquet, remedy

_NESTED = 1000  # brackets in a row


def read_table(path: str | Path) -> Dataset:
    """Read a file of rows; the columns keep their names.

    JSON has one object per line (or one list of objects). CSV and TSV have a header line and are read as text, so that
    an empty cell is an empty text and ``007`` stays ``007``; TSV is read without quoting, like GLUE's files.

    A column of JSON has one type, as in Arrow: dates in ISO 8601 become times (``2020-01-01 00:00:00`` as text), and 1
    beside 2.5 becomes 1.0. :class:`hf_blosan.data.rows.Rows` keeps both as they are written.

    Blank lines are left out; :func:`row_numbers` counts them.

    Args:
        path: a file ending in .jsonl, .json, .csv or .tsv, optionally compressed (.gz), or in .parquet.

    Raises:
        InputError: the file does not exist, has another type, has no rows, or cannot be parsed; two columns have one
            name, or a row repeats the header or has more or fewer cells.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(
            f"data file {path} does not exist; give the path of a .jsonl, .json, .csv, .tsv or .parquet file"
        )
    suffix = next((suffix for suffix in READABLE_TABLES if path.name.endswith(suffix)), None)
    if suffix is None:
        raise InputError(f"data file {path} is of an unknown type; use one that ends in {', '.join(READABLE_TABLES)}")
    try:
        kind, options, blank = (suffix.split(".")[1].removesuffix("l"), {}, [])
        if kind != "parquet" and _is_empty(path, header=kind != "json"):
            rows = ()
        else:
            if kind in ("csv", "tsv"):
                kind, (options, blank) = "csv", _csv_options(path, suffix)
            elif kind == "json":
                blank = _refuse_fatal_rows(path)
            else:
                with path.open("rb") as file:
                    open_parquet(file, str(path))
            rows = load_dataset(kind, data_files={"train": str(path)}, split="train", **options)
    except InputError:
        raise
    except (DatasetsError, *UNREADABLE) as error:
        error = error.__cause__ or error
        solution = remedy(error) or "check that every line is complete"
        raise InputError(f"data file {path} cannot be read ({first_line(error)}); {solution}") from error
    if not rows:
        raise InputError(f"data file {path} has no rows; give a file with at least one")
    if blank:
        rows.row_numbers = np.setdiff1d(np.arange(1, len(rows) + len(blank) + 1), blank).tolist()
    return rows


def row_numbers(table: Dataset) -> Sequence[int]:
    """The number of each row of a table in the file that it was read from, from 1; blank lines are counted."""
    numbers = getattr(table, "row_numbers", ())
    return numbers if len(numbers) == len(table) else range(1, len(table) + 1)


def _open_text(path: Path) -> TextIO:
    return (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig", newline="")


def _is_empty(path: Path, header: bool) -> bool:
    with _open_text(path) as file:
        lines = filter(str.strip, lines_of(file))
        return next(lines, None) is None or (header and next(lines, None) is None)


def _csv_options(path: Path, suffix: str) -> tuple[dict, list[int]]:
    """How to read a file, and the numbers of its blank rows."""
    layout = csv_layout(suffix)
    with _open_text(path) as file:
        columns, rows = csv_rows(file, str(path), **layout)
        # All of them are checked: pandas takes cells beyond the header for an index, and fills short rows up.
        blank = [number for number, row in enumerate(rows, 1) if not row]
    # Declared as text because pandas would turn empty cells into NaN and "007" into 7.
    features = Features(dict.fromkeys(columns, Value("string")))
    return layout | {"features": features, "keep_default_na": False}, blank


def _refuse_fatal_rows(path: Path) -> list[int]:
    """For pyarrow, which ends the process at a row that is null (https://github.com/apache/arrow/issues/47409) and at
    one that is nested too deeply. Returns the numbers of blank lines."""
    blank = []
    with _open_text(path) as file:
        for number, line in enumerate(lines_of(file), 1):
            line = line.lstrip()
            if not line:
                blank.append(number)
            if line.startswith("["):  # one list
                with Rows(path) as rows:
                    for _ in rows:
                        pass
                return []
            if line.startswith("null"):
                raise no_object(str(path), number)
            if line.count("[") + line.count("{") > _NESTED:
                with suppress(ValueError):  # which pyarrow finds too
                    json.loads(line)
    return blank
