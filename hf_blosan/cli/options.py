"""Command-line options as fields of a dataclass, parsed by argparse.

The fields work as in ``transformers.HfArgumentParser``, which is too slow to import for ``--help``: a
``bool`` is a flag (``--name``, ``--name false``, and ``--no_name`` if the default is true), a ``Literal`` a choice, a
``list`` takes several words, a field without default is required, and ``-`` and ``_`` in names are the same.
"""

from __future__ import annotations

import argparse
import difflib
import math
import re
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import MISSING, field, fields
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import InputError

T = TypeVar("T")

BOOLEANS = dict.fromkeys(("yes", "true", "t", "y", "1"), True) | dict.fromkeys(("no", "false", "f", "n", "0"), False)
"""The words that may follow a flag."""


MOST = 2**31 - 1
"""The largest whole number of an option that names no other; others may be any finite number."""


def option(
    text: str,
    default: Any = None,
    *,
    group: str | None = None,
    zero: bool = False,
    most: float | None = None,
    below: float | None = None,
    reads: Callable[[Path], Any] | None = None,
) -> Any:
    """A field with help text and a default.

    Args:
        group: heading in ``--help`` of this option and the following ones.
        zero: whether a number may be 0; it may if that is the default.
        most, below: the largest number; or one that all must be below.
        reads: check of the file that is named, unless by ``-``; raises InputError for one that cannot be read.
    """
    limits = {"zero": zero or type(default) in (int, float) and not default, "most": most, "below": below}
    return field(metadata={"help": text, "group": group, "limits": limits, "reads": reads}, **_default(default))


def positional(text: str, default: Any = MISSING, *, reads: Callable[[Path], Any] | None = None) -> Any:
    """A field that is a positional argument; ``reads`` as in :func:`option`."""
    return field(metadata={"help": text, "positional": True, "reads": reads}, **_default(default))


def same_as(options: type, name: str) -> Any:
    """The field ``name`` of another dataclass of options."""
    entry = next(entry for entry in fields(options) if entry.name == name)
    return field(default=entry.default, metadata=entry.metadata)


class CheckedOptions:
    """Options whose values are checked when they are made."""

    def __post_init__(self) -> None:
        """Raise InputError for a value that is none of an option's choices, or a number outside its limits."""
        kinds = get_type_hints(type(self))
        for entry in fields(self):
            name, value, limits = entry.name, getattr(self, entry.name), entry.metadata.get("limits")
            kind = without_none(kinds[name])
            if get_origin(kind) is Literal and value is not None and value not in get_args(kind):
                raise InputError(f"--{name} is {value!r}; choose from {', '.join(get_args(kind))}.")
            for number in value if isinstance(value, (list, tuple)) else [value]:
                if not limits or not isinstance(number, (int, float)) or isinstance(number, bool):
                    continue
                zero, most, below = limits.values()
                if below is not None:
                    fits, end = number < below, f"below {below:,}"
                elif most is None and isinstance(number, float):
                    fits, end = math.isfinite(number), "finite"
                else:
                    fits, end = number <= (most or MOST), f"at most {most or MOST:,}"
                if not (fits and (number > 0 or zero and number == 0)):
                    start = "0 or more" if zero else "more than 0"
                    raise InputError(f"--{name} is {number}; it must be {start} and {end}.")


def check_files(options: Any) -> None:
    """Raise InputError for a file that cannot be read, before a command's imports, which take seconds."""
    for entry in fields(options):
        check, value = entry.metadata.get("reads"), getattr(options, entry.name)
        if check and value not in (None, "-"):
            check(Path(value))


class Parser(argparse.ArgumentParser):
    """A parser that raises its errors as InputError."""

    def __init__(self, **settings: Any):
        super().__init__(**({"formatter_class": Formatter, "allow_abbrev": False} | settings))

    def error(self, message: str) -> NoReturn:
        remedy = f"{self.prog} --help describes every option"
        if wrong := re.match(r"(.*invalid choice: '(.*)') \(choose from (.*)\)", message):
            if similar := difflib.get_close_matches(wrong[2], re.findall(r"[\w-]+", wrong[3]), n=1):
                message, remedy = wrong[1], f"did you mean {similar[0]}?"
        raise InputError(f"{message}; {remedy}")

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        words = None if args is None else self._complete_flags(_with_underscores(args))
        return super().parse_known_args(words, namespace)

    def _complete_flags(self, words: list[str]) -> list[str]:
        """Write ``--flag=true``, because argparse takes a positional argument after a flag for the flag's value."""
        if all(action.option_strings for action in self._actions):
            return words
        flags = {name for action in self._actions if action.type is _boolean for name in action.option_strings}
        return [
            f"{word}=true" if word in flags and after.lower() not in BOOLEANS else word
            for word, after in zip_longest(words, words[1:], fillvalue="true")
        ]

    def refuse(self, words: Sequence[str], options: type, program: str | None = None) -> None:
        """Raise InputError if `parse_known_args` left arguments of ``program`` unparsed."""
        if words:
            word = words[0].partition("=")[0]
            kind = "option" if word.startswith("-") else "argument"
            known = {f"--{entry.name}": entry for entry in fields(options)}
            similar = difflib.get_close_matches(word, known, n=1)
            help_ = f"{program or self.prog} --help"
            remedy = f"did you mean {similar[0]}?" if similar else f"{help_} lists them all"
            if similar and known[similar[0]].metadata.get("positional"):
                remedy = f"{similar[0].lstrip('-').upper()} is a positional argument, see {help_}"
            raise InputError(f"unknown {kind} {word!r}; {remedy}")

    def read(self, options: type[T], argv: Sequence[str] | None = None) -> T:
        """The options on a command line, by default that of this process."""
        add_options(self, options)
        namespace, unknown = self.parse_known_args(sys.argv[1:] if argv is None else argv)
        self.refuse(unknown, options)
        return read_options(namespace, options)


def exit_status(run: Callable[..., int | None], *given: Any) -> int:
    """Of a command: 0, what it returns, 2 after bad input with one sentence on standard error, 130 after Ctrl-C."""
    try:
        return run(*given) or 0
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        print(f"\n{str(error) or 'interrupted'}", file=sys.stderr)
        return 130


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Help that adds the default of an option if its text does not mention it."""

    def __init__(self, prog: str, **settings: Any):
        super().__init__(prog, **({"max_help_position": 30} | settings))

    def _format_action_invocation(self, action: argparse.Action) -> str:
        flag = action.const is True  # rarely followed by true or false
        return action.option_strings[0] if flag else super()._format_action_invocation(action)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        shown = action.option_strings and not isinstance(action.default, bool | None)
        if not shown or action.default == argparse.SUPPRESS or "Default:" in action.help:
            return action.help
        return f"{action.help} Default: %(default)s."


def add_options(parser: argparse.ArgumentParser, options: type) -> None:
    """Add the fields of a dataclass to a parser."""
    types_of, target, shown = get_type_hints(options), parser, [parser.prog]
    for entry in fields(options):
        settings: dict[str, Any] = {"help": entry.metadata.get("help", "").replace("%", "%%")}
        kind = without_none(types_of[entry.name])
        several = get_origin(kind) is list
        if several:
            (kind,), settings["nargs"] = get_args(kind), "+"
        if get_origin(kind) is Literal:
            settings["choices"], kind = get_args(kind), str
        default = entry.default if entry.default_factory is MISSING else entry.default_factory()
        if default is not MISSING:
            settings["default"] = default
        if entry.metadata.get("positional"):
            settings |= {"metavar": entry.name.upper(), "type": kind}
            if default is not MISSING and not several:
                settings["nargs"] = "?"
            parser.add_argument(entry.name, **settings)
            shown.append(f"[{settings['metavar']}]" if default is not MISSING else settings["metavar"])
            shown += ["..."] if several else []
            continue
        if group := entry.metadata.get("group"):
            target = parser.add_argument_group(group)
        settings["required"] = default is MISSING
        if "choices" not in settings:
            settings["metavar"] = entry.name.rpartition("_")[2].upper()
        if kind is bool:
            settings |= {"nargs": "?", "const": True}
            target.add_argument(f"--{entry.name}", type=_boolean, **settings)
            if default is True:
                target.add_argument(f"--no_{entry.name}", dest=entry.name, action="store_false", help="Turn it off.")
        else:
            target.add_argument(f"--{entry.name}", type=kind, **settings)
    parser.usage = " ".join([*shown, "[options]"])


def read_options(namespace: argparse.Namespace, options: type[T]) -> T:
    """The dataclass with the values parsed from its fields."""
    return options(**{entry.name: getattr(namespace, entry.name) for entry in fields(options)})


def _default(default: Any) -> dict[str, Any]:
    return {"default_factory": lambda: list(default)} if isinstance(default, list) else {"default": default}


def without_none(kind: Any) -> Any:
    """The type of an option that may be left out."""
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = [part for part in get_args(kind) if part is not type(None)]
    return kind


def _boolean(word: str) -> bool:
    if word.lower() in BOOLEANS:
        return BOOLEANS[word.lower()]
    raise argparse.ArgumentTypeError(f"{word!r} is neither true nor false")


def _with_underscores(words: Sequence[str]) -> list[str]:
    """The names of options, up to a bare ``--``; not texts that begin like one."""
    end = words.index("--") if "--" in words else len(words)
    option = re.compile(r"^--[\w-]+(?==|$)")
    names = [option.sub(lambda name: "--" + name[0][2:].replace("-", "_"), word) for word in words[:end]]
    return [*names, *words[end:]]
