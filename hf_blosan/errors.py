"""InputError, and helpers for one-line messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path


class InputError(ValueError):
    """Bad user input.

    The message is one sentence that names the input, its value and the remedy. Commands print it as
    ``error: <message>`` on standard error and exit with status 2.
    """


class MissingExtra(InputError, ImportError):
    """Packages of an optional extra are missing."""


def first_line(error: BaseException) -> str:
    """The first line of an error message, or the name of the error if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def listed(names: Iterable[str], most: int | None = None) -> str:
    """Names from a file for a one-line message, at most ``most`` of them; with what cannot be seen in quotes."""
    names = list(names)
    shown = [name if name.isprintable() and name == name.strip() else repr(name) for name in names[:most]]
    return ", ".join([*shown, "..."] if len(shown) < len(names) else shown)


def unpaired_surrogate(text: str) -> str | None:
    """The first unpaired surrogate of a text, which JSON can escape and UTF-8 cannot encode."""
    found = None if text.isascii() else re.search("[\ud800-\udfff]", text)
    return found and found[0]


def require(what: str, extra: str, *modules: str) -> None:
    """Raise MissingExtra if a module is not installed; ``what`` starts the message, as in ``"export needs"``."""
    if missing := [name for name in modules if find_spec(name) is None]:
        raise MissingExtra(f"{what} {', '.join(missing)}; {install(extra)}")


def install(extra: str) -> str:
    """The command that installs the packages of an extra.

    It installs from the source of this copy of the package: an index, the checkout, or the folder,
    file or repository that pip recorded. The quotes are for shells that expand brackets.
    """
    checkout = Path(__file__).resolve().parents[1]
    if (checkout / "pyproject.toml").is_file():
        return f'pip install -e "{checkout}[{extra}]"'
    return f'pip install "{_requirement(extra)}"'


def _requirement(extra: str) -> str:
    from importlib.metadata import PackageNotFoundError, distribution  # here, to keep --help fast
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = json.loads(distribution("hf_blosan").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        origin = {}
    url, repository = origin.get("url", ""), origin.get("vcs_info")
    folder = Path(url2pathname(urlsplit(url).path))
    if url.startswith("file:") and not folder.exists():
        return f"hf_blosan[{extra}]"
    if "dir_info" in origin:
        return f"{folder}[{extra}]"
    if repository:
        url = f"{repository['vcs']}+{url}@{repository['commit_id']}"
    return f"hf_blosan[{extra}] @ {url}" if url else f"hf_blosan[{extra}]"


class NoMemory(InputError):
    """What is to be computed does not fit into the memory, as it is now."""


@contextmanager
def fitting(what: str, remedy: str) -> Iterator[None]:
    """Turn running out of memory, for which torch has several messages, into InputError."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        messages = "out of memory|allocate memory|Storage size|empty_strided"
        if not isinstance(error, MemoryError) and not re.search(messages, str(error)):
            raise
        raise NoMemory(f"{what} does not fit into the memory; {remedy}") from error


@contextmanager
def loading(name: str, what: str = "model") -> Iterator[None]:
    """Turn exceptions of transformers' loading of a saved model or tokenizer into InputError.

    Damaged files raise exceptions of every type, including plain ``Exception``. A missing package stays that:
    commands say how to install it.
    """
    try:
        yield
    except (InputError, ModuleNotFoundError):
        raise
    except OSError as error:
        raise InputError(f"no saved {what} at {name!r} ({first_line(error)}); give its folder or Hub name") from error
    except Exception as error:
        reason = first_line(error)
        raise InputError(f"the saved {what} at {name!r} cannot be loaded ({reason}); save it again") from error
