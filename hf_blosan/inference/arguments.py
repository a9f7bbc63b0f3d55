"""Options of the commands that use a saved model."""

from __future__ import annotations

from dataclasses import dataclass

from ..cli.options import option, positional
from ..errors import InputError
from ..registry import MODEL

INPUT = (
    "Rows: .jsonl, .csv, .tsv, .parquet, or .txt with one text per line (all but Parquet also .gz); - is standard "
    "input, one JSON object or one text per line."
)


@dataclass
class StreamArguments:
    """Common options of the commands that process a file row by row."""

    model: str = positional(MODEL)
    input: str = positional(INPUT, "-")
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
    resume: bool = option("Continue an interrupted run of the same command.", False, group="output")
    overwrite: bool = option(
        "Discard the partial output of an interrupted command, and start over. A complete output needs no "
        "option: it is replaced once the new one is complete.",
        False,
    )

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_length"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 2**31:
                raise InputError(f"--{name} is {value}; it must be more than 0 and at most {2**31 - 1:,}.")
        if self.text_pair_column_name and not self.text_column_name:
            raise InputError(
                "--text_pair_column_name needs --text_column_name, the column of the first text; give both."
            )
        if self.resume and "-" in (self.input, self.output):
            raise InputError("--resume needs files; standard input and output cannot be resumed.")
        if self.resume and self.overwrite:
            raise InputError("--resume continues an unfinished output, --overwrite discards it; give one of them.")


@dataclass
class PredictArguments(StreamArguments):
    """Options of ``hf-blosan predict``."""

    output: str = positional(
        "Predictions in the order of the input: .jsonl, .csv (except for taggers) or .parquet; - is JSON on standard "
        "output.",
        "-",
    )
    probabilities: bool = option("Also write the probability of every class.", False)


@dataclass
class EncodeArguments(StreamArguments):
    """Options of ``hf-blosan encode``."""

    output: str = positional(
        "Sentence vectors in the order of the input: .npy (float32, one row each; np.load(..., mmap_mode='r') opens "
        "it without reading it), .jsonl or .parquet; - is JSON on standard output.",
        "-",
    )


@dataclass
class BenchArguments:
    """Options of ``hf-blosan bench``."""

    model: str = positional(MODEL)
    batch_sizes: list[int] = option("Rows per batch.", [1, 32], group="measurement")
    lengths: list[int] = option("Tokens per sentence.", [16, 64, 256])
    seconds: float = option("Time each cell at least this long.", 1.0)
    cpu: bool = option("Use the CPU even if an accelerator is available.", False)
    trust_remote_code: bool = option("Run code from the Hub that comes with a model or tokenizer.", False)
    output_file: str | None = option("JSON file for the figures.", group="output")

    def __post_init__(self) -> None:
        for name in ("batch_sizes", "lengths", "seconds"):
            value = getattr(self, name)
            for number in value if isinstance(value, list) else [value]:
                if not number > 0:
                    raise InputError(f"--{name} has {number}; it must be more than 0.")
