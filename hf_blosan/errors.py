"""The exception for bad input, and what others say in one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class InputError(ValueError):
    """User input cannot be used.

    The message is one sentence that names the input, its value and the remedy. Command-line programs print it as
    ``error: <message>`` on standard error and exit with status 2.
    """


def first_line(error: BaseException) -> str:
    """The first line of an error message, or the name of the error if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def listed(names: Iterable[str], most: int | None = None) -> str:
    """Names from a file, for a message of one line; only the first ``most`` of them."""
    names = list(names)
    shown = [name if name.isprintable() else repr(name) for name in names[:most]]
    return ", ".join([*shown, "..."] if len(shown) < len(names) else shown)


@contextmanager
def loading(name: str, what: str = "model") -> Iterator[None]:
    """Raise what goes wrong while transformers loads a saved model or tokenizer as an InputError.

    Damaged files raise every kind of exception there, a plain ``Exception`` among them.
    """
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"no saved {what} at {name!r} ({first_line(error)}); give its folder or Hub name") from error
    except Exception as error:
        reason = first_line(error)
        raise InputError(f"the saved {what} at {name!r} cannot be loaded ({reason}); save it again") from error
