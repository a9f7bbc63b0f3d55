"""Which columns of a table are the texts. Needs nothing but Python, for rows that are read one by one."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InputError

LABEL_COLUMNS = ("label", "labels", "score")
IDENTIFIERS = ("id", "idx", "index", "guid", "uid")


def text_columns(head: Mapping[str, Sequence[Any]], where: str, *, label_column: str | None = None) -> tuple[str, ...]:
    """The one or two text columns of a table whose columns were not named.

    They are ``sentence1`` and ``sentence2``, or ``sentence1``, ``text`` or ``sentence`` alone, or else the first two
    columns that contain text (or the only one); identifiers, numbers and labels are not text.

    Args:
        head: the first rows, by column.
        where: description of the table for the error.
        label_column: a column that is no text either.

    Raises:
        InputError: there is none.
    """
    if {"sentence1", "sentence2"} <= head.keys():
        return ("sentence1", "sentence2")
    named = [column for column in ("sentence1", "text", "sentence") if column in head]
    others = [] if named else [c for c in head if c not in (label_column, *LABEL_COLUMNS, *IDENTIFIERS)]
    texts = [column for column in others if _is_text(head[column])]
    if not named and not texts:
        besides = f" besides {label_column!r}" if label_column else ""
        raise InputError(
            f"{where} has no text column{besides}; name it 'text', or 'sentence1' and 'sentence2', or "
            "give --text_column_name"
        )
    return tuple(named[:1] or texts[:2])


def is_number(value: Any) -> bool:
    """Whether a cell is a finite number, also written as text."""
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def is_integer(text: str) -> bool:
    """Whether a text is a whole number in plain digits."""
    return re.fullmatch("-?[0-9]{1,18}", text) is not None


def _is_text(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str | None) for value in values) and not all(map(is_number, values))
