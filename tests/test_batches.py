"""Encoding rows and batching them."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from datasets import Dataset, DatasetDict
from transformers import DataCollatorWithPadding

from hf_blosan import DiSANConfig, DiSANForSequenceClassification
from hf_blosan.data import (
    LengthBucketBatchSampler,
    PaddingCollator,
    encode_dataset,
    length_statistics,
    sentence_lengths,
)
from hf_blosan.data.batching import characters, cut
from hf_blosan.errors import InputError
from hf_blosan.inference import batches
from hf_blosan.tasks.passages import tokens_of_passages
from hf_blosan.tasks.words import cut_words, encode_words
from hf_blosan.text.tokenization import build_tokenizer


@pytest.fixture
def encoded():
    rows = Dataset.from_dict(
        {"sentence1": ["a b c", "a", ""], "sentence2": ["c", "a b c d e", ""], "label": [0, 1, 0]}
    )
    tokenizer = build_tokenizer([text for column in ("sentence1", "sentence2") for text in rows[column]])
    return rows, tokenizer


def test_encoding(encoded):
    rows, tokenizer = encoded
    result = encode_dataset(DatasetDict(train=rows), tokenizer)["train"]
    assert set(result.column_names) == {"input_ids", "token_type_ids", "attention_mask", "labels"}
    assert result["token_type_ids"][:] == [[0, 0, 0, 1], [0, 1, 1, 1, 1, 1], []]
    assert result["labels"][:] == [0, 1, 0]
    assert sentence_lengths(result).tolist() == [[3, 1], [1, 5], [0, 0]]
    assert length_statistics(result) == pytest.approx((10 / 6, np.std([3, 1, 1, 5, 0, 0])))
    single = encode_dataset(rows.remove_columns("sentence2"), tokenizer)
    assert length_statistics(single) == pytest.approx((4 / 3, np.std([3, 1, 0])))


def test_long_rows_are_cut_with_a_warning(encoded, caplog):
    rows, tokenizer = encoded
    with caplog.at_level(logging.WARNING):
        result = encode_dataset(DatasetDict(test=rows), tokenizer, max_length=4)
    assert sentence_lengths(result["test"]).tolist() == [[3, 1], [1, 3], [0, 0]]
    assert "test: 1 of 3 rows have more than 4 tokens (the longest 6) and were truncated" in caplog.text
    with pytest.raises(InputError, match="max_length is 0; use 2 or more tokens"):
        encode_dataset(rows, tokenizer, max_length=0)


def test_collator_pads_and_takes_rows_without_tokens(encoded):
    rows, tokenizer = encoded
    result = encode_dataset(rows, tokenizer)
    collate = PaddingCollator(tokenizer)
    batch = collate([result[0], result[2]])
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [0, 0, 0, 0]]
    assert batch["labels"].tolist() == [0, 0]
    empty = collate([result[2], result[2]])
    assert empty["input_ids"].tolist() == [[0], [0]]
    assert empty["attention_mask"].tolist() == [[0], [0]]
    assert all(values.dtype == torch.int64 for values in empty.values())


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("options", [{}, {"padding": "max_length", "max_length": 20}, {"pad_to_multiple_of": 4}])
def test_collator_pads_as_that_of_transformers(side, options):
    tokenizer = build_tokenizer(["a cat sat on the mat"])
    tokenizer.padding_side = side
    texts = ["a cat", "a cat sat on the mat", "sat"]
    for labels in ([2, 0, 1], [0.5, 1.0, 2.0], [[0.1, 0.9], [0.5, 0.5], [1.0, 0.0]]):
        for name in ("label", "labels"):
            rows = [dict(tokenizer(text, text)) | {name: label} for text, label in zip(texts, labels, strict=True)]
            found, expected = (kind(tokenizer, **options)(rows) for kind in (PaddingCollator, DataCollatorWithPadding))
            assert found.keys() == expected.keys()
            for key, value in expected.items():
                assert torch.equal(found[key], value) and found[key].dtype == value.dtype


def test_collator_marks_second_sentences_that_are_all_empty():
    """So that a pair does not depend on the others of its batch."""
    tokenizer = build_tokenizer(["a cat sat"])
    config = DiSANConfig(
        vocab_size=len(tokenizer), embedding_size=6, hidden_size=8, classifier_size=8, num_sentences=2
    )
    model = DiSANForSequenceClassification(config).eval()
    empty, full = (dict(tokenizer("a cat", second)) for second in ("", "sat"))
    collate = PaddingCollator(tokenizer, num_sentences=2)
    alone = collate([empty])
    assert alone["token_type_ids"].tolist() == [[0, 0, 1]] and alone["attention_mask"].tolist() == [[1, 1, 0]]
    with torch.no_grad():
        torch.testing.assert_close(model(**alone).logits, model(**collate([empty, full])).logits[:1])
        with pytest.raises(ValueError, match="token_type_ids are 0 throughout"):
            model(**PaddingCollator(tokenizer)([empty]))


def lengths(count: int = 1003) -> np.ndarray:
    return np.random.default_rng(0).integers(1, 60, count)


@pytest.mark.parametrize("drop_last", [True, False])
def test_batches_hold_every_row_once_and_the_short_one_is_last(drop_last):
    sampler = LengthBucketBatchSampler(lengths(), 8, seed=1, drop_last=drop_last)
    batches = list(sampler)
    rows = [row for batch in batches for row in batch]
    assert len(batches) == len(sampler) == (125 if drop_last else 126)
    assert len(set(rows)) == len(rows) == (1000 if drop_last else 1003)
    assert [len(batch) for batch in batches[:125]] == [8] * 125


def test_batch_order_depends_on_seed_and_epoch_alone():
    def in_order(seed: int, epoch: int) -> list[list[int]]:
        sampler = LengthBucketBatchSampler(lengths(), 8, seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert in_order(1, 0) == in_order(1, 0)
    assert in_order(1, 0) != in_order(1, 1)
    assert in_order(1, 0) != in_order(2, 0)


def test_buckets_need_little_padding():
    def width(batches) -> int:
        return sum(len(batch) * max(lengths()[batch]) for batch in batches)

    rows = np.random.default_rng(1).permutation(1003)
    plain = width([rows[start : start + 8] for start in range(0, 1003, 8)])
    assert width(LengthBucketBatchSampler(lengths(), 8)) < 0.7 * plain


def test_accelerate_deals_out_every_row():
    shards = [BatchSamplerShard(LengthBucketBatchSampler(lengths(), 8, seed=3), 2, rank) for rank in range(2)]
    dealt = [row for shard in shards for batch in shard for row in batch]
    assert set(dealt) == set(range(1003))


def test_batch_size_below_one_is_refused():
    with pytest.raises(InputError, match="batch_size is 0"):
        LengthBucketBatchSampler([1, 2], 0)


LONG = "a cat sat on the mat , " * 1500
"""Of more characters than are tokenized where 200 tokens are wanted."""


@pytest.mark.parametrize("side", ["left", "right"])
def test_what_is_left_out_of_a_long_text_changes_nothing(side):
    tokenizer = build_tokenizer([LONG, "dog the end"])
    tokenizer.truncation_side = side
    texts = [f"dog {LONG} the end", "a cat", LONG[: characters(200)], ""]
    assert [len(cut(text, 200, side)) for text in texts] == [30_000, 5, 30_000, 0]
    rows = Dataset.from_dict({"sentence1": texts, "label": [0] * 4})
    whole = tokenizer(texts, truncation=True, max_length=200)["input_ids"]
    assert encode_dataset(rows, tokenizer, max_length=200)["input_ids"][:] == whole
    pairs = rows.add_column("sentence2", [LONG, LONG, "dog", LONG])
    whole = tokenizer(texts, pairs["sentence2"][:], truncation=True, max_length=200)["input_ids"]
    assert encode_dataset(pairs, tokenizer, max_length=200)["input_ids"][:] == whole


def test_long_words_sentences_and_questions():
    tokenizer = build_tokenizer([LONG])
    words = LONG.split() * 9
    for parts in (words, ["cat" * 19_999, "a"], ["cat"], []):
        kept = cut_words(parts, 200)
        assert sum(len(word) + 1 for word in kept) <= characters(200) + 1
        assert kept[:1] == [word[:30_000] for word in parts[:1]]
    columns, of_tokens = encode_words(tokenizer, [words], [1], 200)
    whole = tokenizer([words], is_split_into_words=True, truncation=True, max_length=200)
    assert columns["input_ids"] == whole["input_ids"] and of_tokens[0] == whole.word_ids(0)
    assert sum(columns["predicate_mask"][0]) == 1
    passages, questions, _ = tokens_of_passages([LONG], [(LONG, "a cat")], tokenizer, 200)
    assert questions[0] == passages[0][0] == tokenizer(LONG, truncation=True, max_length=200)["input_ids"]


def test_texts_are_tokenized_in_portions(monkeypatch):
    monkeypatch.setattr(batches, "CHARACTERS_AT_ONCE", 10)
    sizes = [3, 4, 3, 1, 25, 9, 1, 0]
    found = list(batches.portions([(i,) for i in range(8)], sizes))
    assert [[i for (i,) in part] for part in found] == [[0, 1, 2], [3], [4], [5, 6, 7]]
    assert list(batches.portions([], [])) == []
