"""Options of the commands that look inside a model, and of the one that compares runs."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Literal

from ..errors import InputError
from ..inference.arguments import MODEL, BenchArguments
from ..options import option, positional, same_as

MAX_TOKENS = 128
"""Longest sentence that is explained by default; an attention map grows with its square."""

LENGTH_BINS = 8
"""Groups of sentences of similar length by default."""

FIGURE_SUFFIXES = (".png", ".svg", ".pdf")

ONLY_LENGTH = ("data_dir", "test_file", "bins")
"""Options of one analysis alone."""


@dataclass
class ExplainArguments:
    """Options of ``hf-blosan explain``."""

    model: str = positional(MODEL)
    text: str = positional("A sentence.")
    pair: str | None = positional("The second sentence, for a model of pairs.", None)
    top_tokens: int = option("Tokens to print per sentence, those of the largest weights first.", 10, group="output")
    output_dir: str | None = option("Folder for figures, explanation.json (feature means) and arrays.npz.")
    figure_format: Literal["png", "svg", "pdf"] = option("Format of the figures.", "png")
    max_tokens: int = option("Refuse longer sentences.", MAX_TOKENS, group="computation")
    cpu: bool = same_as(BenchArguments, "cpu")
    trust_remote_code: bool = same_as(BenchArguments, "trust_remote_code")

    def __post_init__(self) -> None:
        for name in ("top_tokens", "max_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"--{name} is {getattr(self, name)}; it must be more than 0.")


@dataclass
class DemoArguments:
    """Options of ``hf-blosan demo``."""

    model: str = positional(MODEL)
    model2: str | None = positional("Another model, shown beside the first.", None)
    host: str = option("Address to listen on; 0.0.0.0 is every address of this machine.", "127.0.0.1", group="server")
    port: int | None = option("Port to listen on. Default: the first free one from 7860.")
    cpu: bool = same_as(BenchArguments, "cpu")
    trust_remote_code: bool = same_as(BenchArguments, "trust_remote_code")

    def __post_init__(self) -> None:
        if self.port is not None and not 0 < self.port < 65536:
            raise InputError(f"--port is {self.port}; it must be from 1 to 65535.")


@dataclass
class CompareArguments:
    """Options of ``python -m hf_blosan.analysis``."""

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
