"""Reads one file of rows."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import TextIO

from datasets import Dataset, Features, Value, load_dataset
from datasets.exceptions import DatasetsError

from ..errors import InputError

TABLE_SUFFIXES = (".jsonl.gz", ".jsonl", ".json", ".csv", ".tsv", ".parquet")
_READABLE = TABLE_SUFFIXES + (".json.gz", ".csv.gz", ".tsv.gz")


def read_table(path: str | Path) -> Dataset:
    """Read a file of rows; the columns keep their names.

    JSON has one object per line (or one list of objects). CSV and TSV have a header line and are read as text, so that
    an empty cell is an empty text and ``007`` stays ``007``; TSV is read without quoting, like GLUE's files.

    Args:
        path: a file ending in .jsonl, .json, .csv or .tsv, optionally compressed (.gz), or in .parquet.

    Raises:
        InputError: the file does not exist, has another type, has no rows, or cannot be parsed.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(
            f"data file {path} does not exist; give the path of a .jsonl, .json, .csv, .tsv or .parquet file"
        )
    suffix = next((suffix for suffix in _READABLE if path.name.endswith(suffix)), None)
    if suffix is None:
        raise InputError(f"data file {path} is of an unknown type; use one that ends in {', '.join(_READABLE)}")
    try:
        kind, options = (suffix.split(".")[1].removesuffix("l"), {})
        if kind != "parquet" and _is_empty(path, header=kind != "json"):
            rows = ()
        else:
            if kind in ("csv", "tsv"):
                kind, options = "csv", _csv_options(path, suffix)
            rows = load_dataset(kind, data_files={"train": str(path)}, split="train", **options)
    except (DatasetsError, ValueError, OSError, EOFError) as error:
        reason = str(error.__cause__ or error).strip().splitlines()[0]
        raise InputError(f"data file {path} cannot be read ({reason}); check that every line is complete") from error
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
    layout = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if suffix.startswith(".tsv") else {"delimiter": ","}
    with _open_text(path) as file:
        columns = next(csv.reader(file, **layout), [])
    # Declared as text because pandas would turn empty cells into NaN and "007" into 7.
    return layout | {"features": Features(dict.fromkeys(columns, Value("string"))), "keep_default_na": False}
