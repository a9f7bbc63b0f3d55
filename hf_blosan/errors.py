"""The exception for bad input."""

from __future__ import annotations


class InputError(ValueError):
    """User input cannot be used.

    The message is one sentence that names the input, its value and the remedy. Command-line programs print it as
    ``error: <message>`` on standard error and exit with status 2.
    """
