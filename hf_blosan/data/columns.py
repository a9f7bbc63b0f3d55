"""Finds the text columns of a table. Needs only Python, for rows that are read one by one."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..errors import InputError, listed, unpaired_surrogate

LABEL_COLUMNS = ("label", "labels", "score")
IDENTIFIERS = ("id", "idx", "index", "guid", "uid")
TEXTS_A_ROW = {1: "one text", 2: "a pair of texts"}
"""What a model or a task takes, by its number of texts, in messages."""


@dataclass(frozen=True)
class ColumnNames:
    """Columns that a user names; ``None``: as in training, or detected.

    Attributes:
        text, text_pair: column of the (first) text or the words to tag; of the second text of pairs.
        label: column of the labels, scores, tags or translations.
    """

    text: str | None = None
    text_pair: str | None = None
    label: str | None = None

    @classmethod
    def of(cls, options: Any) -> ColumnNames:
        """The columns named by a command's options."""
        return cls(*(getattr(options, f"{name}_column_name", None) for name in ("text", "text_pair", "label")))

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.text, self.text_pair)))

    def refuse_pair(self, what: str) -> None:
        """Raise InputError if a second text is named for a kind of task that takes one."""
        if self.text_pair:
            raise InputError(
                f"--text_pair_column_name is {self.text_pair!r}, but {what} takes one text a row; leave it out"
            )


def text_columns(head: Mapping[str, Sequence[Any]], where: str, *, label_column: str | None = None) -> tuple[str, ...]:
    """The one or two text columns of a table without named columns, by its first rows, given as columns.

    They are ``sentence1`` and ``sentence2``, or ``sentence1``, ``text`` or ``sentence`` alone, or else the first two
    columns that contain text (or the only one); identifiers, numbers, dates, labels and ``label_column`` are not text.
    Raises InputError, with ``where`` as the name of the table, if there is no text column.
    """
    if {"sentence1", "sentence2"} <= head.keys():
        return ("sentence1", "sentence2")
    named = [column for column in ("sentence1", "text", "sentence") if column in head]
    others = [] if named else [c for c in head if c not in (label_column, *LABEL_COLUMNS)]
    texts = [column for column in others if not _is_identifier(column) and _is_text(head[column])]
    if not named and not texts:
        besides = f" besides {label_column!r}" if label_column else ""
        remedy = "name it 'text', or 'sentence1' and 'sentence2', or give --text_column_name"
        if lists := [column for column in others if any(isinstance(cell, list) for cell in head[column])]:
            remedy = f"for words with tags name both columns, --text_column_name {lists[0]} and --label_column_name"
        raise InputError(f"{where} has no text column{besides}; {remedy}")
    return tuple(named[:1] or texts[:2])


def label_column(columns: Collection[str], where: str) -> str:
    """The label column of a table without named columns; raises InputError if there is none."""
    found = next((name for name in LABEL_COLUMNS if name in columns), None)
    if found is None:
        first_line = " (from its first line)" if re.search(r"\.[ct]sv(\.gz)?$", where) else ""
        raise InputError(
            f"{where} has no column 'label', 'labels' or 'score'; it has {listed(columns, 20)}{first_line}; "
            "name the column with --label_column_name"
        )
    return found


def check_columns(wanted: Iterable[str], columns: Collection[str], where: str) -> None:
    """Raise InputError if the table lacks one of the columns."""
    for column in wanted:
        if column not in columns:
            raise InputError(f"{where} has no column {column!r}; it has {listed(columns, 20)}")


def check_distinct(columns: Iterable[str], where: str) -> None:
    """Raise InputError if a column is used twice."""
    if twice := [column for column, count in Counter(columns).items() if count > 1]:
        raise InputError(
            f"{where}: column {twice[0]!r} is used twice; name a separate column for every text and the label"
        )


def as_text(value: Any, where: str, row: int, column: str) -> str:
    """A cell as text; raises InputError if it is missing, null or NaN, a list, an object or bytes, or has an unpaired
    surrogate.
    """
    if value is None or value != value:
        raise InputError(f"{where}, row {row}: {column} is {value or 'null or missing'}; fill it in or remove the row")
    if isinstance(value, list | dict | bytes):
        hint = ""
        if isinstance(value, dict) and "0" in value:  # all rows in one object are what pandas writes by default
            hint = ", or one row per line (in pandas, to_json(orient='records', lines=True))"
        elif isinstance(value, list) and column.startswith("label"):
            hint = "; for several labels a row use transformers' Trainer"
        raise InputError(f"{where}, row {row}: {column} is of type {type(value).__name__}; write it as text{hint}")
    text = str(value)
    if half := unpaired_surrogate(text):
        raise InputError(f"{where}, row {row}: {column} has an unpaired surrogate, {half!r}; correct the text")
    return text


def positions(names: Sequence[str], known: Sequence[str]) -> list[int] | None:
    """The position of each name among known ones, in lower case if these still differ; ``None`` if that fails, too."""
    for form in (str, str.lower):
        wanted, given = ([form(name) for name in names_] for names_ in (names, known))
        if sorted(wanted) == sorted(given) and len(set(given)) == len(given):
            return [given.index(name) for name in wanted]
    return None


def normal(text: str) -> str:
    """A text's letters, with their marks, and digits in lower case, to compare texts; all of it if it has none."""
    composed = unicodedata.normalize("NFC", text)
    return "".join(x for x in composed.lower() if unicodedata.category(x)[0] in "LMN") or composed


def is_number(value: Any) -> bool:
    """Whether a cell is a finite number, or a text of one."""
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def is_integer(text: str) -> bool:
    """Whether a text is a whole number in plain digits."""
    return re.fullmatch("-?[0-9]{1,18}", text) is not None


def label_text(label: Any) -> str:
    """A label as text; 5.0, as pandas writes integers in a column with empty cells, gives 5."""
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def whole_number(cell: Any) -> int | None:
    """A cell as a whole number, also for 5.0 and "5"; ``None`` if it is not one."""
    text = label_text(cell).strip()
    return int(text) if is_integer(text) else None


def _is_identifier(column: str) -> bool:
    name = column.lower()
    return name in IDENTIFIERS or name.endswith("_id") or name.startswith("__index_level_")  # of pandas, in Parquet


def _is_text(values: Sequence[Any]) -> bool:
    given = [value for value in values if value is not None and str(value).strip()]
    is_text = bool(given) and all(isinstance(value, str) for value in given)
    return is_text and not all(map(is_number, given)) and not all(map(_is_date, given))


def _is_date(text: str) -> bool:
    with suppress(ValueError):
        return bool(datetime.fromisoformat(text.strip()))
    return False


def row_numbers(table: Any) -> Sequence[int]:
    """The number of each row of a table in its file, from 1, counting blank lines."""
    numbers = getattr(table, "row_numbers", ())
    return numbers if len(numbers) == len(table) else range(1, len(table) + 1)
