"""Options of ``hf-blosan serve``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..cli.options import CheckedOptions, option, positional, same_as
from ..errors import InputError
from ..inference.arguments import DAY, BenchArguments
from ..registry import MODEL

TOKEN_VARIABLE = "HF_BLOSAN_TOKEN"


@dataclass
class ServeArguments(CheckedOptions):
    """Options of ``hf-blosan serve``."""

    model: str = positional(MODEL)
    task: Literal["text-classification", "feature-extraction"] | None = option(
        "Return labels or scores, or sentence vectors. Default: labels or scores if the model has a head."
    )
    host: str = option("Address to listen on; 0.0.0.0 is every address of this machine.", "127.0.0.1", group="server")
    port: int = option("Port to listen on; 0 is any free one.", 8000, zero=True, below=65536)
    token_file: str | None = option(
        "File with a token that every request except GET /health must send as `Authorization: Bearer TOKEN`. Default: "
        f"the environment variable {TOKEN_VARIABLE} if it is set, otherwise no token is needed."
    )
    timeout: float = option(
        "Seconds allowed for sending a request, and again for answering it.", 30.0, group="limits", most=DAY
    )
    max_connections: int = option("Maximum connections; beyond that, only /health and /metrics are answered.", 512)
    max_request_bytes: int = option("Maximum bytes in a request.", 1_000_000)
    max_texts: int = option("Maximum texts, or pairs, in a request.", 256)
    max_length: int | None = option("Maximum tokens in a text, or a pair. Default: the tokenizer's limit.")
    queue_size: int = option("Texts that are accepted and not yet answered; more are refused with status 429.", 1024)
    batch_size: int = option("Maximum texts in a batch.", 64, group="computation")
    batch_tokens: int = option("Maximum tokens in a batch, padding included.", 16384)
    cpu: bool = same_as(BenchArguments, "cpu")
    trust_remote_code: bool = same_as(BenchArguments, "trust_remote_code")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.queue_size < self.max_texts:
            raise InputError(f"--queue_size is {self.queue_size}; it must be at least --max_texts, {self.max_texts}.")
        if self.max_length is not None and self.max_length > self.batch_tokens:
            raise InputError(
                f"--max_length is {self.max_length}; it must be at most --batch_tokens, {self.batch_tokens}."
            )
