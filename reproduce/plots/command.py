"""The command `python -m reproduce.plots`: the plots of the papers, from recorded runs."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from hf_blosan.cli.options import Parser, exit_status, option, positional
from hf_blosan.errors import InputError, install

ANALYSES = {
    "length": "test accuracy (or squared error) against sentence length (DiSAN, Figure 5)",
    "convergence": "validation metric against the time of training (Bi-BloSAN, Figure 5)",
    "scatter": "test metric against time per epoch and memory (Bi-BloSAN, Figure 1)",
}
"""Each is a module here, with ``measure(records, ...)``, which returns numbers, and ``draw(numbers)``."""

FIGURE_SUFFIXES = (".png", ".svg", ".pdf")

ONLY_LENGTH = ("data_dir", "test_file", "bins")
"""Options of only one analysis."""


@dataclass
class PlotArguments:
    """Options of ``python -m reproduce.plots``."""

    name: Literal["length", "convergence", "scatter"] = positional("The analysis; see below.")
    runs: list[str] = positional(
        "Records of runs (files of `train --results_file`), or the folders next to them: out/trec for out/trec.json."
    )
    output: str = option("File of the figure: .png, .svg or .pdf.", MISSING, group="output")
    figures_file: str | None = option("JSON file for the numbers in the figure.")
    labels: list[str] | None = option(
        "System name of each run. Default: its row in a table, or its encoder. Runs of the same name are averaged."
    )
    data_dir: str | None = option("Folder of the task's test rows, as in training. Default: the Hub.", group="length")
    test_file: str | None = option("Test rows of runs on your own data.")
    bins: int | None = option("Groups of sentences of similar length. Default: 8.")

    def __post_init__(self) -> None:
        if Path(self.output).suffix not in FIGURE_SUFFIXES:
            raise InputError(f"--output is {self.output!r}; its suffix must be one of {', '.join(FIGURE_SUFFIXES)}.")
        if self.bins is not None and self.bins < 1:
            raise InputError(f"--bins is {self.bins}; it must be more than 0.")
        for name in ONLY_LENGTH:
            if self.name != "length" and getattr(self, name) is not None:
                raise InputError(f"--{name} is for the analysis length, not for {self.name}; leave it out.")


def main(argv: list[str] | None = None) -> int:
    """Compare runs; bad input prints one sentence to standard error and returns 2."""
    analyses = "\n".join(f"  {name:<12} {summary}" for name, summary in ANALYSES.items())
    description = "Compare recorded runs on a task in a plot of the papers."
    parser = Parser(prog="python -m reproduce.plots", description=description, epilog=f"analyses:\n{analyses}")
    return exit_status(lambda: plot(parser.read(PlotArguments, argv)))


def plot(arguments: PlotArguments) -> None:
    """Write the figure, and its numbers if asked for; raises InputError if the runs cannot be compared, a package is
    missing, or a file cannot be written.
    """
    try:
        from datasets import disable_progress_bars

        from hf_blosan.analysis.explanation import draw
        from hf_blosan.files import write_bytes, write_json

        from .records import read_records

        analysis = import_module(f".{arguments.name}", __package__)
    except ModuleNotFoundError as error:
        raise InputError(f"this command needs more packages ({error}); {install('train')}") from error
    disable_progress_bars()  # for reading test rows, which is fast
    output, records = Path(arguments.output), read_records(arguments.runs, arguments.labels)
    options = {name: getattr(arguments, name) for name in ONLY_LENGTH if arguments.name == "length"}
    numbers = analysis.measure(records, **options)
    content = draw(analysis.draw(numbers), output.suffix.removeprefix("."))
    try:
        if arguments.figures_file:
            write_json(arguments.figures_file, numbers)
        write_bytes(output, content)
    except OSError as error:
        raise InputError(f"{error.filename} cannot be written ({error.strerror}); give another file") from error
    print(f"wrote {output}")
