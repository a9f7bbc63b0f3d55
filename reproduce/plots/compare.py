"""The command `python -m reproduce.plots`: the plots of the papers, from recorded runs."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from hf_blosan.cli.options import Parser, add_options, read_options
from hf_blosan.errors import InputError, install

from .arguments import ONLY_LENGTH, CompareArguments

ANALYSES = {
    "length": "test accuracy (or squared error) against sentence length (DiSAN, Figure 5)",
    "convergence": "validation metric against the time of training (Bi-BloSAN, Figure 5)",
    "scatter": "test metric against time per epoch and memory (Bi-BloSAN, Figure 1)",
}
"""Each is a module here, with ``measure(runs, ...)``, which returns numbers, and ``draw(numbers)``."""


def main(argv: list[str] | None = None) -> int:
    """Compare runs; bad input prints one sentence to standard error and returns 2."""
    parser = Parser(
        prog="python -m reproduce.plots",
        description="Compare recorded runs on a task in a plot of the papers.",
        epilog="analyses:\n" + "\n".join(f"  {name:<12} {summary}" for name, summary in ANALYSES.items()),
    )
    add_options(parser, CompareArguments)
    try:
        namespace, unknown = parser.parse_known_args(sys.argv[1:] if argv is None else argv)
        parser.refuse(unknown, CompareArguments)
        compare(read_options(namespace, CompareArguments))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    return 0


def compare(arguments: CompareArguments) -> None:
    """Write the figure, and its numbers if asked for.

    Raises:
        InputError: the runs cannot be compared, a package is missing, or a file cannot be written.
    """
    try:
        from datasets import disable_progress_bars

        from hf_blosan.analysis.explanation import draw
        from hf_blosan.files import write_bytes, write_json

        from .runs import read_runs

        analysis = import_module(f".{arguments.name}", __package__)
    except ModuleNotFoundError as error:
        raise InputError(f"this command needs more packages ({error}); {install('train')}") from error
    disable_progress_bars()  # of reading test rows, which takes a moment
    output, runs = Path(arguments.output), read_runs(arguments.runs, arguments.labels)
    options = {name: getattr(arguments, name) for name in ONLY_LENGTH if arguments.name == "length"}
    numbers = analysis.measure(runs, **options)
    content = draw(analysis.draw(numbers), output.suffix.removeprefix("."))
    try:
        if arguments.figures_file:
            write_json(arguments.figures_file, numbers)
        write_bytes(output, content)
    except OSError as error:
        raise InputError(f"{error.filename} cannot be written ({error.strerror}); give another file") from error
    print(f"wrote {output}")
