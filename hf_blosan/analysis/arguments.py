"""Options of the commands that explain a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from ..cli.options import CheckedOptions, option, positional, same_as
from ..inference.arguments import BenchArguments
from ..registry import MODEL

MAX_TOKENS = 128
"""Default maximum sentence length; attention maps grow with its square."""
FigureFormat = Literal["png", "svg", "pdf"]
FIGURE_FORMATS = get_args(FigureFormat)


@dataclass
class ExplainArguments(CheckedOptions):
    """Options of ``hf-blosan explain``."""

    model: str = positional(MODEL)
    text: str = positional("A sentence.")
    pair: str | None = positional("The second sentence, for a model of pairs.", None)
    top_tokens: int = option("Tokens to print per sentence, largest weights first.", 10, group="output")
    output_dir: str | None = option("Folder for figures, explanation.json (feature means) and arrays.npz.")
    figure_format: FigureFormat = option("Format of the figures.", "png")
    max_tokens: int = option("Refuse longer sentences.", MAX_TOKENS, group="computation")
    cpu: bool = same_as(BenchArguments, "cpu")
    trust_remote_code: bool = same_as(BenchArguments, "trust_remote_code")


@dataclass
class DemoArguments(CheckedOptions):
    """Options of ``hf-blosan demo``."""

    model: str = positional(MODEL)
    model2: str | None = positional("Another model, shown next to the first.", None)
    host: str = option("Address to listen on; 0.0.0.0 is every address of this machine.", "127.0.0.1", group="server")
    port: int | None = option("Port to listen on. Default: the first free one from 7860.", below=65536)
    cpu: bool = same_as(BenchArguments, "cpu")
    trust_remote_code: bool = same_as(BenchArguments, "trust_remote_code")
