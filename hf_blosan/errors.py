"""The exception for bad input, and what others say in one line."""

from __future__ import annotations


class InputError(ValueError):
    """User input cannot be used.

    The message is one sentence that names the input, its value and the remedy. Command-line programs print it as
    ``error: <message>`` on standard error and exit with status 2.
    """


def first_line(error: BaseException) -> str:
    """The first line of an error message, or the name of the error if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
