"""Options of `python -m reproduce.plots`."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Literal

from hf_blosan.cli.options import option, positional
from hf_blosan.errors import InputError

LENGTH_BINS = 8
"""Groups of sentences of similar length by default."""

FIGURE_SUFFIXES = (".png", ".svg", ".pdf")

ONLY_LENGTH = ("data_dir", "test_file", "bins")
"""Options of one analysis alone."""


@dataclass
class CompareArguments:
    """Options of ``python -m reproduce.plots``."""

    name: Literal["length", "convergence", "scatter"] = positional("The analysis; see below.")
    runs: list[str] = positional(
        "Records of runs (files of `train --results_file`), or the folders beside them: out/trec for out/trec.json."
    )
    output: str = option("File of the figure: .png, .svg or .pdf.", MISSING, group="output")
    figures_file: str | None = option("JSON file for the numbers in the figure.")
    labels: list[str] | None = option(
        "Name of the system of each run. Default: its row in a table, or its encoder. Runs of one name are averaged."
    )
    data_dir: str | None = option("Folder of the task's test rows, as in training. Default: the Hub.", group="length")
    test_file: str | None = option("Test rows of runs on your own data.")
    bins: int | None = option(f"Groups of sentences of similar length. Default: {LENGTH_BINS}.")

    def __post_init__(self) -> None:
        if Path(self.output).suffix not in FIGURE_SUFFIXES:
            raise InputError(f"--output is {self.output!r}; its suffix must be one of {', '.join(FIGURE_SUFFIXES)}.")
        if self.bins is not None and self.bins < 1:
            raise InputError(f"--bins is {self.bins}; it must be more than 0.")
        for option_name in ONLY_LENGTH:
            if self.name != "length" and getattr(self, option_name) is not None:
                raise InputError(f"--{option_name} is for the analysis length, not for {self.name}; leave it out.")
