"""The one exception for bad input."""

from __future__ import annotations


class InputError(ValueError):
    """Something the user gave cannot be used.

    The message is one sentence that names the thing, its value and the remedy. Command-line programs print it as
    ``error: <message>`` on standard error and exit with status 2.
    """
