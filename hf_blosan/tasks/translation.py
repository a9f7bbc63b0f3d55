"""Rows of sentences and their translations."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from datasets import Dataset, DatasetDict, Features, Value

from ..data.batching import cut, token_limit
from ..data.columns import as_text, check_columns
from ..data.tables import row_numbers
from ..errors import InputError
from ..text.tokenization import decoder_positions
from .table import Source, Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)


def normalise_translations(raw: Dataset, source: Source, task: Task, where: str) -> Dataset:
    """Rows with the columns ``sentence1`` and ``translation``, both text, and ``row``, its number in the file.

    Args:
        raw, source, where: as for sentences; ``source.label_column`` holds the translations.

    Raises:
        InputError: a column is missing, or a text is missing, empty or not text.
    """
    names = {"sentence1": source.text_columns[0], "translation": source.label_column}
    check_columns(names.values(), raw.column_names, where)
    rows, numbers = {}, row_numbers(raw)
    for name, column in names.items():
        cells = zip(numbers, raw[column], strict=True)
        rows[name] = [as_text(cell, where, row, column).strip() for row, cell in cells]
        if "" in rows[name]:
            row = numbers[rows[name].index("")]
            raise InputError(f"{where}, row {row}: {column} is empty; write the sentence or remove the row")
    if not len(raw):
        raise InputError(f"{where} has no rows; give another file or leave this split out")
    features = Features(dict.fromkeys(names, Value("string")) | {"row": Value("int64")})
    return Dataset.from_dict(rows | {"row": list(numbers)}, features=features)


def encode_translations(
    dataset: DatasetDict, tokenizer: PreTrainedTokenizerBase, *, max_length: int | None = None
) -> DatasetDict:
    """Splits with the columns ``input_ids``, ``attention_mask`` and ``labels``, the token ids of the translation.

    Splits to evaluate on keep its text, ``translation``: not every tokenizer gives it back.

    Sentences, and translations to train on, are truncated to ``max_length`` tokens each, for training to no more than
    a decoder has positions; a warning gives their number.

    Raises:
        InputError: ``max_length`` is below 2.
    """
    limit = token_limit(tokenizer, max_length, least=2)

    def encode(rows: dict[str, list], split: str, limit: int) -> dict[str, list]:
        shorten = {"truncation": True, "max_length": limit}
        encoded = tokenizer([cut(text, limit, tokenizer.truncation_side) for text in rows["sentence1"]], **shorten)
        labels = tokenizer(text_target=rows["translation"], **(shorten if split == "train" else {}))
        return {**{name: encoded[name] for name in ("input_ids", "attention_mask")}, "labels": labels["input_ids"]}

    options = {"batched": True, "keep_in_memory": True, "load_from_cache_file": False}
    splits = {}
    for split, rows in dataset.items():
        most = min(limit, decoder_positions(tokenizer)) if split == "train" else limit
        unused = [column for column in rows.column_names if split == "train" or column != "translation"]
        told = {"remove_columns": unused, "desc": f"{split}: tokens"}
        splits[split] = rows.map(encode, **options, **told, fn_kwargs={"split": split, "limit": most})
        encoded = splits[split].select_columns(["input_ids", "labels"])[:]
        full = sum(most in map(len, pair) for pair in zip(*encoded.values(), strict=True))
        if full:
            logger.warning("%s: %d of %d rows reach %d tokens and may be truncated", split, full, len(rows), most)
    return DatasetDict(splits)
