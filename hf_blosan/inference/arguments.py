"""Options of the commands that use a saved model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..cli.options import CheckedOptions, option, positional
from ..data.rows import check_rows
from ..errors import InputError
from ..registry import MODEL
from .shards import Shard

INPUT = (
    "Rows: .jsonl, .json, .csv, .tsv, .parquet, or .txt with one text per line (all but Parquet also .gz); - is "
    "standard input: JSON lines, a JSON list, or one text per line."
)

DAY = 24 * 60 * 60
"""The longest time of an option, in seconds."""

VectorDtype = Literal["float32", "float16", "int8"]
VECTOR_SUFFIXES = {"float16": (".npy", ".parquet"), "int8": (".parquet",)}
"""Files that hold them; only Parquet has a column for the scales."""


@dataclass
class StreamArguments(CheckedOptions):
    """Common options of the commands that process a file row by row."""

    model: str = positional(MODEL)
    input: str = positional(INPUT, "-", reads=check_rows)
    output: str = positional("Set by the commands.", "-")
    text_column_name: str | None = option(
        "Column of the (first) text, or of a tagger's words. Default: as in training, or detected; see the log.",
        group="data",
    )
    text_pair_column_name: str | None = option("Column of the second text of pairs. Default: as in training.")
    max_length: int | None = option("Truncate rows to this many tokens. Default: the tokenizer's limit.")
    batch_size: int = option("Rows per batch.", 64, group="computation")
    cpu: bool = option("Use the CPU even if an accelerator is available.", False)
    trust_remote_code: bool = option("Run code from the Hub that comes with a model or tokenizer.", False)
    shard: str | None = option(
        "INDEX/NUMBER, from 0/16 to 15/16: write one of that many contiguous blocks of rows; OUTPUT vectors.parquet "
        "becomes vectors-00000-of-00016.parquet and so on. `hf-blosan shards OUTPUT` says what is missing.",
        group="output",
    )
    resume: bool = option(
        "Continue an interrupted run of the same command; with --shard, a part that is complete stays as it is.", False
    )
    overwrite: bool = option(
        "Discard the partial output of an interrupted command, and start over. A complete output needs no "
        "option: it is replaced once the new one is complete.",
        False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.text_pair_column_name and not self.text_column_name:
            raise InputError(
                "--text_pair_column_name needs --text_column_name, the column of the first text; give both."
            )
        if self.part is not None and "-" in (self.input, self.output):
            raise InputError("--shard needs files; standard input and output have no parts.")
        if self.resume and "-" in (self.input, self.output):
            raise InputError("--resume needs files; standard input and output cannot be resumed.")
        if self.resume and self.overwrite:
            raise InputError("--resume continues an unfinished output, --overwrite discards it; give one of them.")

    @property
    def part(self) -> Shard | None:
        """What is asked for with --shard."""
        return None if self.shard is None else Shard.of(self.shard)

    @property
    def path(self) -> str:
        """The file that is written: OUTPUT, or a part of it."""
        return str(self.part.part(self.output)) if self.part else self.output


@dataclass
class PredictArguments(StreamArguments):
    """Options of ``hf-blosan predict``."""

    output: str = positional(
        "Predictions in the order of the input: .jsonl, .csv (except for tags) or .parquet; - is JSON on standard "
        "output.",
        "-",
    )
    probabilities: bool = option("Also write the probability of every class.", False)


@dataclass
class EncodeArguments(StreamArguments):
    """Options of ``hf-blosan encode``."""

    output: str = positional(
        "Sentence vectors in the order of the input: .npy (one row each; np.load(..., mmap_mode='r') opens it without "
        "reading it), .jsonl or .parquet; - is JSON on standard output.",
        "-",
    )
    text_pair_column_name: str | None = option(
        "Column of a second text, which gets a vector of its own. Default: none."
    )
    vector_dtype: VectorDtype = option(
        "Data type of the vectors: float16 for .npy and .parquet; int8 for .parquet, with each vector's factor in "
        "the column vector_scale.",
        "float32",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        suffixes = VECTOR_SUFFIXES.get(self.vector_dtype, (Path(self.output).suffix,))
        if Path(self.output).suffix not in suffixes:
            raise InputError(
                f"--vector_dtype {self.vector_dtype} is for files that end in {' or '.join(suffixes)}; the output is "
                f"{self.output}."
            )


@dataclass
class ShardsArguments:
    """Options of ``hf-blosan shards``."""

    output: str = positional("The OUTPUT that `predict` or `encode` was given with --shard.")


@dataclass
class BenchArguments(CheckedOptions):
    """Options of ``hf-blosan bench``."""

    model: str = positional(MODEL)
    batch_sizes: list[int] = option("Rows per batch.", [1, 32], group="measurement")
    lengths: list[int] = option("Tokens per sentence.", [16, 64, 256])
    seconds: float = option("Time each cell for at least this long.", 1.0, most=DAY)
    cpu: bool = option("Use the CPU even if an accelerator is available.", False)
    trust_remote_code: bool = option("Run code from the Hub that comes with a model or tokenizer.", False)
    output_file: str | None = option("JSON file for the figures.", group="output")
