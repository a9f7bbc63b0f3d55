"""The queue of a server: texts of all requests are computed together in batches of similar length."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from fastapi import HTTPException

from ..data.batching import characters, token_limit
from ..hub.finite import NotFinite
from ..inference.batches import Batches
from ..tasks.classification import tokenize_texts
from .metrics import Metrics

logger = logging.getLogger(__name__)

Texts = list[tuple[str, ...]]


@dataclass(eq=False)
class Row:
    """A waiting text or pair, as token ids."""

    tokens: dict[str, list[int]]
    output: asyncio.Future
    number: int  # in its request, from 1

    @property
    def length(self) -> int:
        return len(self.tokens["input_ids"])


class Queue:
    """Tokenizes texts in one thread and computes them in another, while the event loop stays free.

    As soon as a batch is computed, the next one is taken from the queue: the oldest text, and those closest to it in
    length. Batches never wait to be filled, and no text waits for ever.

    Args:
        batches: the model, its tokenizer, and the number of texts in a batch.
        size: maximum texts accepted but not yet answered.
        batch_tokens: tokens in a batch, padding included.
    """

    def __init__(self, batches: Batches, *, size: int, batch_tokens: int):
        self.batches, self.size, self.batch_tokens = batches, size, batch_tokens
        most = min(batches.limit, batch_tokens)
        self.limit = token_limit(batches.tokenizer, most, batches.kind.task.num_sentences, "--batch_tokens")
        self.waiting: list[Row] = []
        self.accepted = 0
        self.metrics = Metrics(lambda: self.accepted)
        self.seconds_per_text = 0.0
        self.began: float | None = None  # start of the current batch
        self.arrived = asyncio.Event()
        # One thread each: a fast tokenizer is not thread-safe, and a model already uses all cores.
        self.tokenizing, self.computing = (ThreadPoolExecutor(1, name) for name in ("tokenizer", "model"))

    async def answer(self, texts: Texts, *, truncate: bool = False) -> np.ndarray:
        """The model's output, (texts, ...); cancelling removes what is not yet computed. Raises HTTPException: 413 if
        a text is too long, 422 if it has no tokens, 429 if the queue is full, 500 if the model fails.
        """
        if self.accepted + len(texts) > self.size:
            raise HTTPException(
                429,
                f"the queue is full: {self.accepted} texts wait, {self.size} may; send this request again later",
                {"Retry-After": str(self.retry_after())},
            )
        self.accepted += len(texts)
        rows: list[Row] = []
        try:
            loop = asyncio.get_running_loop()
            tokenized = await loop.run_in_executor(self.tokenizing, self.tokenize, texts, truncate)
            rows = [Row(tokens, loop.create_future(), number) for number, tokens in enumerate(tokenized, 1)]
            self.waiting += rows
            self.arrived.set()
            return np.stack(await asyncio.gather(*(row.output for row in rows)))
        finally:
            self.accepted -= len(texts)
            for row in rows:
                row.output.cancel()

    def retry_after(self) -> int:
        """Estimated seconds until all accepted texts are computed."""
        return max(1, math.ceil(self.accepted * self.seconds_per_text))

    def tokenize(self, texts: Texts, truncate: bool) -> list[dict[str, list[int]]]:
        """Rows of token ids that the model can compute."""
        limit, tokenizer = self.limit, self.batches.tokenizer
        longest = max(len(text) for row in texts for text in row)
        if not truncate and longest > (most := characters(limit)):
            raise HTTPException(
                413, f"a text has {longest} characters, {most} are allowed; shorten it, or set truncate"
            )
        texts = [self.batches.kind.cut(row, limit, tokenizer.truncation_side) for row in texts]
        rows = tokenize_texts(texts, tokenizer)
        lengths = [len(row["input_ids"]) for row in rows]
        if max(lengths) > limit:
            if not truncate:
                number, length = next((i, length) for i, length in enumerate(lengths, 1) if length > limit)
                raise HTTPException(
                    413, f"text {number} has {length} tokens, {limit} are allowed; shorten it, or set truncate"
                )
            rows = tokenize_texts(texts, tokenizer, limit)
        special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
        for number, row in enumerate(rows, 1):
            ids = row["input_ids"]
            # The texts that have tokens; without type ids, whether any of them has.
            found = {
                kind
                for token, kind in zip(ids, row.get("token_type_ids", range(len(ids))), strict=True)
                if token not in special
            }
            if len(found) < (len(texts[0]) if "token_type_ids" in row else 1):
                raise HTTPException(422, f"text {number} has no tokens; give a text with words")
        return rows

    def start(self) -> None:
        """Start computing."""
        self.running = asyncio.create_task(self.run())

    def close(self) -> None:
        """Stop computing."""
        self.running.cancel()
        self.tokenizing.shutdown(cancel_futures=True)
        self.computing.shutdown(cancel_futures=True)

    def is_stuck(self, seconds: float) -> bool:
        """Whether a batch takes longer than that, or computation has stopped."""
        return self.running.done() or self.began is not None and time.monotonic() - self.began > seconds

    async def run(self) -> None:
        """Compute batch after batch."""
        while True:
            await self.arrived.wait()
            if batch := self.take():
                await self.compute(batch)
            else:
                self.arrived.clear()

    def take(self) -> list[Row]:
        """Remove the next batch from the queue."""
        waiting = [row for row in self.waiting if not row.output.done()]  # without those of disconnected clients
        batch, longest = [], 0
        for row in sorted(waiting, key=lambda row: abs(row.length - waiting[0].length)):
            longest = max(longest, row.length)
            if batch and (len(batch) == self.batches.size or longest * (len(batch) + 1) > self.batch_tokens):
                break
            batch.append(row)
        taken = set(batch)
        self.waiting = [row for row in waiting if row not in taken]
        return batch

    async def compute(self, batch: list[Row]) -> None:
        """Give every row its output; one that fails does not fail the others."""
        forward = partial(self.batches.forward, [row.tokens for row in batch])
        self.began = began = time.monotonic()
        try:
            outputs = await asyncio.get_running_loop().run_in_executor(self.computing, forward)
        except Exception as error:
            if len(batch) > 1:
                for row in batch:
                    await self.compute([row])
            elif not batch[0].output.done():
                logger.exception("a text of %d tokens cannot be computed", batch[0].length)
                reason = f"its output is {error.value}" if isinstance(error, NotFinite) else type(error).__name__
                failure = f"the model fails on text {batch[0].number} of this request ({reason})"
                batch[0].output.set_exception(HTTPException(500, failure))
            return
        finally:
            self.began = None
        self.count(batch, time.monotonic() - began)
        for row, output in zip(batch, outputs, strict=True):
            if not row.output.done():
                row.output.set_result(output)

    def count(self, batch: list[Row], seconds: float) -> None:
        """Record a batch in the metrics."""
        tokens = sum(row.length for row in batch)
        self.metrics.batch_texts.observe(len(batch))
        self.metrics.batch_seconds.observe(seconds)
        self.metrics.tokens.inc(tokens)
        self.metrics.padding.inc(len(batch) * max(row.length for row in batch) - tokens)
        self.seconds_per_text += 0.1 * (seconds / len(batch) - self.seconds_per_text)
