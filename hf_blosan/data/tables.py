"""Reads one file of rows."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from datasets import Dataset, Features, Value, load_dataset
from datasets.exceptions import DatasetsError

from ..errors import InputError, first_line
from .rows import READABLE_TABLES, UNREADABLE, Rows, csv_layout, csv_rows, no_object, open_parquet, remedy

_NESTED = 1000  # brackets in a row


def read_table(path: str | Path) -> Dataset:
    """Read a file of rows; the columns keep their names.

    JSON has one object per line (or one list of objects). CSV and TSV have a header line and are read as text, so that
    an empty cell is an empty text and ``007`` stays ``007``; TSV is read without quoting, like GLUE's files.

    A column of JSON has one type, as in Arrow: dates in ISO 8601 become times (``2020-01-01 00:00:00`` as text), and 1
    beside 2.5 becomes 1.0. :class:`hf_blosan.data.rows.Rows` keeps both as they are written.

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
        kind, options = (suffix.split(".")[1].removesuffix("l"), {})
        if kind != "parquet" and _is_empty(path, header=kind != "json"):
            rows = ()
        else:
            if kind in ("csv", "tsv"):
                kind, options = "csv", _csv_options(path, suffix)
            elif kind == "json":
                _refuse_fatal_rows(path)
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
    return rows


def _open_text(path: Path) -> TextIO:
    return (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig", newline="")


def _is_empty(path: Path, header: bool) -> bool:
    with _open_text(path) as file:
        lines = filter(str.strip, file)
        return next(lines, None) is None or (header and next(lines, None) is None)


def _csv_options(path: Path, suffix: str) -> dict:
    layout = csv_layout(suffix)
    with _open_text(path) as file:
        columns, rows = csv_rows(file, str(path), **layout)
        # All of them are checked: pandas takes cells beyond the header for an index, and fills short rows up.
        for _ in rows:
            pass
    # Declared as text because pandas would turn empty cells into NaN and "007" into 7.
    return layout | {"features": Features(dict.fromkeys(columns, Value("string"))), "keep_default_na": False}


def _refuse_fatal_rows(path: Path) -> None:
    """For pyarrow, which ends the process at a row that is null (https://github.com/apache/arrow/issues/47409) and at
    one that is nested too deeply."""
    with _open_text(path) as file:
        for number, line in enumerate(filter(str.strip, file), 1):
            line = line.lstrip()
            if line.startswith("["):  # one list
                with Rows(path) as rows:
                    for _ in rows:
                        pass
                return
            if line.startswith("null"):
                raise no_object(str(path), number)
            if line.count("[") + line.count("{") > _NESTED:
                with suppress(ValueError):  # which pyarrow finds too
                    json.loads(line)
