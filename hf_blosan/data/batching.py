"""From texts to padded batches of similar length."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler
from transformers import BatchEncoding, DataCollatorWithPadding, PreTrainedTokenizerBase

from ..errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

logger = logging.getLogger(__name__)

_MODEL_INPUTS = {"input_ids": "int32", "token_type_ids": "int8", "attention_mask": "int8"}
"""What models read -> the type that it is stored in."""


class LengthBucketBatchSampler(Sampler[list[int]]):
    """Batches of rows of similar length, in an order that depends only on ``seed`` and the epoch.

    The rows are shuffled, divided into pools of 50 batches, sorted by length within each pool and divided into
    batches, which are shuffled again. An incomplete batch always comes last: accelerate relies on that when it
    distributes batches over processes.

    Args:
        lengths: length of each row, any unit.
        groups: group id of each row; rows of a group have equal length and stay together.
        batch_size: rows per batch.
        seed: seed of the shuffling.
        drop_last: leave out the incomplete batch.

    Raises:
        InputError: ``batch_size`` is below 1.
    """

    pool_batches = 50

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int,
        *,
        groups: Sequence[int] | None = None,
        seed: int = 0,
        drop_last: bool = False,
    ):
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; use 1 or more")
        self.lengths = np.asarray(lengths, dtype=np.int64)
        self.groups = None if groups is None else np.asarray(groups, dtype=np.int64)
        self.batch_size = batch_size
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the order."""
        self.epoch = epoch

    def __len__(self) -> int:
        full, rest = divmod(len(self.lengths), self.batch_size)
        return full + bool(rest and not self.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        size = self.batch_size
        rng = np.random.default_rng((self.seed, self.epoch))
        order = rng.permutation(len(self.lengths))
        if self.groups is not None:
            _, first, number = np.unique(self.groups[order], return_index=True, return_inverse=True)
            order = order[np.argsort(first[number], kind="stable")]
        full, pool_size = len(order) // size * size, size * self.pool_batches
        pools = [order[start : min(start + pool_size, full)] for start in range(0, full, pool_size)]
        pools = [pool[np.argsort(self.lengths[pool], kind="stable")] for pool in pools]
        batches = [pool[start : start + size] for pool in pools for start in range(0, len(pool), size)]
        batches = [batches[i] for i in rng.permutation(len(batches))]
        if full < len(order):
            batches.append(order[full:])
        for batch in batches[: len(self)]:
            yield batch.tolist()


def encode_dataset(
    dataset: Dataset | DatasetDict, tokenizer: PreTrainedTokenizerBase, *, max_length: int | None = None
) -> Dataset | DatasetDict:
    """Tokenize a loaded task.

    Rows of more than ``max_length`` tokens (both sentences of a pair together) are truncated, the longer sentence
    first, and a warning gives their number.

    Args:
        dataset: the result of :func:`load_task` or one of its splits.
        tokenizer: any tokenizer that marks pairs by type ids 0 and 1.
        max_length: tokens per row; ``None`` uses the tokenizer's limit.

    Returns:
        The same splits with the columns ``input_ids``, ``token_type_ids``, ``attention_mask``, ``labels``.

    Raises:
        InputError: ``max_length`` has no room for the special tokens and a token of each sentence.
    """
    if isinstance(dataset, dict):
        encoded = {split: _encode(rows, tokenizer, max_length, f"{split}: ") for split, rows in dataset.items()}
        return type(dataset)(encoded)
    return _encode(dataset, tokenizer, max_length, "")


def token_limit(
    tokenizer: PreTrainedTokenizerBase, max_length: int | None, num_sentences: int = 1, option: str = "max_length"
) -> int:
    """``max_length``, or the tokenizer's limit if it is ``None``. Raises InputError if it has no room for the special
    tokens and a token of each sentence; ``option`` is its name in the message.
    """
    # A tokenizer without a limit has 1e30, which is more than its truncation accepts.
    limit = min(tokenizer.model_max_length, 2**31 - 1) if max_length is None else max_length
    least = tokenizer.num_special_tokens_to_add(num_sentences == 2) + num_sentences
    if limit < least:
        raise InputError(f"{option} is {limit}; use {least} or more tokens")
    return limit


def characters(limit: int) -> int:
    """Characters of a text to tokenize for its first ``limit`` tokens: far more than these need.

    This bounds the cost of very long texts. The rest would matter only with more than 100 characters,
    including spaces, per token.
    """
    return 10_000 + 100 * limit


def cut(text: str, limit: int, side: str = "right") -> str:
    """The part of a text that is tokenized, see :func:`characters`; the end if texts are truncated on the left."""
    if len(text) <= (most := characters(limit)):
        return text
    return text[-most:] if side == "left" else text[:most]


def _encode(dataset: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int | None, prefix: str) -> Dataset:
    import pyarrow as pa

    columns = [column for column in ("sentence1", "sentence2") if column in dataset.column_names]
    limit = token_limit(tokenizer, max_length, len(columns))
    too_long = []

    def encode(rows: dict[str, list]) -> pa.Table:  # lists would be converted row by row
        texts = [[cut(text, limit, tokenizer.truncation_side) for text in rows[column]] for column in columns]
        options = {"return_token_type_ids": True, "return_attention_mask": True, "verbose": False}
        encoding = tokenizer(*texts, **options)
        lengths = [len(ids) for ids in encoding["input_ids"] if len(ids) > limit]
        if lengths:
            too_long.extend(lengths)
            encoding = tokenizer(*texts, truncation=True, max_length=limit, **options)
        return pa.table(
            {
                name: pa.array(encoding[name], pa.list_(pa.type_for_alias(type_)))
                for name, type_ in _MODEL_INPUTS.items()
            }
        )

    encoded = map_in_memory(dataset.select_columns(columns), encode, desc=f"{prefix}tokens")
    if too_long:
        logger.warning(
            "%s%d of %d rows have more than %d tokens (the longest %d) and were truncated; increase max_length",
            *(prefix, len(too_long), len(dataset), limit, max(too_long)),
        )
    if "label" not in dataset.column_names:
        return encoded
    return encoded.add_column("labels", dataset["label"][:], feature=dataset.features["label"])


def map_in_memory(rows: Dataset, encode: Callable[..., Any], **options: Any) -> Dataset:
    """``rows.map`` in batches, not cached: a hash of the tokenizer would take longer than small data sets."""
    from datasets.fingerprint import generate_random_fingerprint

    options |= {"batched": True, "keep_in_memory": True, "load_from_cache_file": False}
    return rows.map(encode, new_fingerprint=generate_random_fingerprint(), **options)


def sentence_lengths(encoded: Dataset) -> np.ndarray:
    """Tokens of each sentence of an encoded data set, shape (rows, 2); the second column is 0 for single sentences.

    The models encode both sentences of a pair in one batch, so the cost of a row, and the length to pass to
    :class:`LengthBucketBatchSampler`, is ``sentence_lengths(encoded).max(axis=1)``.
    """
    if "token_type_ids" not in encoded.column_names:
        pairs = [(len(ids), 0) for ids in encoded[:]["input_ids"]]
    else:
        pairs = [(len(types) - sum(types), sum(types)) for types in encoded[:]["token_type_ids"]]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def length_statistics(encoded: Dataset) -> tuple[float, float]:
    """Mean and standard deviation of the tokens per sentence (of both sentences of a pair).

    These are the arguments of :func:`hf_blosan.functional.optimal_block_length`.
    """
    lengths = sentence_lengths(encoded)
    lengths = lengths if lengths[:, 1].any() else lengths[:, :1]
    return float(lengths.mean()), float(lengths.std())


@dataclass
class PaddingCollator(DataCollatorWithPadding):
    """``DataCollatorWithPadding`` that accepts batches without tokens, and pairs with empty second texts.

    Such a batch gets one extra masked [PAD]; for pairs it belongs to the second sentence. A column is padded at once,
    several times as fast as ``tokenizer.pad``; ``return_tensors`` is always ``"pt"``.

    Args:
        num_sentences: 2 for pairs.
    """

    num_sentences: int = 1
    fillers: ClassVar[Mapping[str, int]] = {}
    """Further columns with a value per token, and their padding values."""

    def __call__(self, features: list[dict[str, Any]]) -> BatchEncoding:
        tokenizer, pairs = self.tokenizer, self.num_sentences == 2
        if not any(1 in row["token_type_ids"] if pairs else len(row["input_ids"]) for row in features):
            masked = {"input_ids": tokenizer.pad_token_id, "token_type_ids": int(pairs), "attention_mask": 0}
            features = [{"attention_mask": [1] * len(row["input_ids"])} | row for row in features]
            first = features[0]
            longer = {name: [*first[name], value] for name, value in masked.items() if name in first}
            features = [first | longer, *features[1:]]
        rows = {name: [row[name] for row in features] for name in features[0]}
        if "attention_mask" in tokenizer.model_input_names and "attention_mask" not in rows:
            rows["attention_mask"] = [[1] * len(ids) for ids in rows["input_ids"]]
        width = max(map(len, rows["input_ids"]))
        if self.padding == "max_length" and self.max_length is not None:
            width = max(width, self.max_length)
        if self.pad_to_multiple_of:
            width += -width % self.pad_to_multiple_of
        fillers = {"input_ids": tokenizer.pad_token_id, "token_type_ids": tokenizer.pad_token_type_id}
        fillers |= {"attention_mask": 0, **self.fillers}
        batch = {}
        for name, column in rows.items():
            if name in fillers:
                batch[name] = padded_rows(column, width, fillers[name], left=tokenizer.padding_side == "left")
            else:
                batch["labels" if name in ("label", "label_ids") else name] = torch.tensor(column)
        return BatchEncoding(batch)


def padded_rows(rows: Sequence[Sequence[int]], width: int, filler: int, *, left: bool = False) -> Tensor:
    """Rows of integers as a tensor (rows, width), padded after them or, with `left`, before them."""
    lengths_B1, places_N = np.array([[len(row)] for row in rows]), np.arange(width)
    found = np.full((len(rows), width), filler, dtype=np.int64)
    found[places_N >= width - lengths_B1 if left else places_N < lengths_B1] = list(chain.from_iterable(rows))
    return torch.from_numpy(found)
