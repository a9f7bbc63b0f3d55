"""Reading one file of rows."""

from __future__ import annotations

import csv
import gzip
from itertools import islice
from pathlib import Path
from typing import TextIO

from datasets import Dataset, Features, Value, load_dataset
from datasets.exceptions import DatasetGenerationError

from ..errors import InputError

TABLE_SUFFIXES = (".jsonl.gz", ".jsonl", ".json", ".csv", ".tsv")
_READABLE = TABLE_SUFFIXES + (".json.gz", ".csv.gz", ".tsv.gz")


def read_table(path: str | Path) -> Dataset:
    """Read a file of rows with the columns as they are named in it.

    JSON is one object a line (or one list of objects). CSV and TSV have a header line and are read as text throughout,
    so that an empty cell is an empty text and ``007`` stays ``007``; TSV is read without quoting, as GLUE's files are
    written.

    Args:
        path: a file ending in .jsonl, .json, .csv or .tsv, optionally compressed (.gz).

    Raises:
        InputError: the file is missing, is of another kind, has no rows, or cannot be parsed.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"data file {path} does not exist; give the path of a .jsonl, .json, .csv or .tsv file")
    suffix = next((suffix for suffix in _READABLE if path.name.endswith(suffix)), None)
    if suffix is None:
        raise InputError(f"data file {path} is of an unknown kind; use one that ends in {', '.join(_READABLE)}")
    is_json = suffix.startswith(".json")
    try:
        if not _has_lines(path, 1 if is_json else 2):
            raise InputError(f"data file {path} has no rows; give a file with at least one")
        options = {} if is_json else _csv_options(path, suffix)
        return load_dataset("json" if is_json else "csv", data_files={"train": str(path)}, split="train", **options)
    except InputError:
        raise
    except (DatasetGenerationError, ValueError, OSError, EOFError) as error:
        reason = str(error.__cause__ or error).strip().splitlines()[0]
        raise InputError(f"data file {path} cannot be read ({reason}); check that every line is complete") from error


def _open_text(path: Path) -> TextIO:
    return (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig", newline="")


def _has_lines(path: Path, count: int) -> bool:
    with _open_text(path) as file:
        return sum(1 for _ in islice((line for line in file if line.strip()), count)) == count


def _csv_options(path: Path, suffix: str) -> dict:
    layout = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if suffix.startswith(".tsv") else {"delimiter": ","}
    with _open_text(path) as file:
        columns = next(csv.reader(file, **layout), [])
    # Declared as text, or pandas would turn empty cells into NaN and "007" into 7.
    return layout | {"features": Features({column: Value("string") for column in columns}), "keep_default_na": False}
