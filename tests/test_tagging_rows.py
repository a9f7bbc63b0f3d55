"""Rows of words with tags: how they are read, which are refused, and how they become tokens."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features, LargeList, List, Value
from small_data import write_rows
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoTokenizer,
    DebertaTokenizer,
    PreTrainedTokenizerFast,
)

from hf_blosan import DiSANConfig
from hf_blosan.data.columns import ColumnNames
from hf_blosan.errors import InputError
from hf_blosan.tasks import TASKS, custom_task, load_task
from hf_blosan.tasks.kinds import find_kind, kind_of
from hf_blosan.tasks.words import TaggingCollator, encode_tags
from hf_blosan.text.tokenization import build_tokenizer
from hf_blosan.training.loop import fingerprint


def test_the_predicates_of_a_sentence_are_never_in_two_splits(tmp_path):
    rows = [{"tokens": [f"w{i}", "goes"], "tags": ["B-ARG0", "B-V"], "predicate_index": 1} for i in range(20)]
    rows += [{"tokens": row["tokens"], "tags": ["B-V", "O"], "predicate_index": 0} for row in rows]
    file = write_rows(tmp_path / "a.jsonl", rows)
    splits = load_task("propbank_srl", train_file=file, num_folds=4, validation_fraction=0.2, seed=0)
    assert [len(rows) for rows in splits.values()] == [24, 6, 10]
    assert sum(len({tuple(words) for words in rows["tokens"]}) for rows in splits.values()) == 20


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"tokens": ["a", "b"], "tags": ["O"]}, "row 2 has 2 words and 1 tags; give one tag for each word"),
        ({"tokens": [], "tags": []}, "row 2: tokens is empty"),
        ({"tokens": ["a", " "], "tags": ["O", "O"]}, "row 2: word 2 of tokens is empty"),
        ({"tokens": ["a", None], "tags": ["O", "O"]}, "row 2: word 2 of tokens is null"),
        ({"tokens": ["a"], "tags": ["B-ARG9"]}, "row 2: 'B-ARG9' is not one of the tags \\("),
        ({"tokens": ["a"], "tags": ["B-V"], "predicate_index": 1}, "row 2: predicate_index is 1, but the row has 1"),
        ({"tokens": ["a"], "tags": ["B-V"], "predicate_index": -1}, "row 2: predicate_index is -1"),
        ({"tokens": ["a"], "tags": ["B-V"], "predicate_index": None}, "row 2: predicate_index is None"),
    ],
)
def test_bad_rows_are_named(tmp_path, row, message):
    rows = [{"tokens": ["he", "goes"], "tags": ["B-ARG0", "B-V"], "predicate_index": 1}, {"predicate_index": 0} | row]
    path = write_rows(tmp_path / "a.jsonl", rows)
    with pytest.raises(InputError, match=message) as caught:
        load_task("propbank_srl", train_file=path, validation_file=path, seed=0)
    assert str(path) in str(caught.value)


def test_tags_that_are_objects(tmp_path):
    path = write_rows(tmp_path / "a.jsonl", [{"tokens": ["a"], "tags": [{"from": 1}]}])
    with pytest.raises(InputError, match="row 1: tag 1 of tags is of type dict; write it as text"):
        custom_task(path)


@pytest.mark.parametrize("left_out", [[-1, -1], [-100, -100], [-1.0, -1.0]])
def test_tags_that_are_numbers(tmp_path, left_out, caplog):
    """One number with decimals makes all of a JSON column such."""
    tags = [[0, 1], [1, 2.0 if isinstance(left_out[0], float) else 2], left_out]
    path = write_rows(tmp_path / "a.jsonl", [{"tokens": ["a", "b"], "tags": row} for row in tags])
    task = custom_task(path, path)
    assert task.labels == ("0", "1", "2")
    with caplog.at_level("INFO"):
        assert load_task(task, seed=0)["train"]["tags"][:] == [[0, 1], [1, 2]]
    assert "1 rows have no gold tags and are left out" in caplog.text


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ([-1, 2], "row 2: tag 1 of tags is -1, no tag, but other words have one; give every word a tag, or -1 to all"),
        ([2, -100], "row 2: tag 2 of tags is -100, no tag"),
        (["O", "-1"], "row 2: tag 2 of tags is -1, no tag"),
        (["O", " "], "row 2: tag 2 of tags is empty; write O for a word outside all spans"),
    ],
)
def test_words_without_a_tag(tmp_path, tags, message):
    first = [1, 2] if isinstance(tags[0], int) else ["B-X", "O"]
    path = write_rows(tmp_path / "a.jsonl", [{"tokens": ["a", "b"], "tags": row} for row in (first, tags)])
    with pytest.raises(InputError, match=message):
        custom_task(path)


def test_tags_as_users_write_them(tmp_path, caplog):
    """Spaces around tags, no gold tags beside tags that are text, numbers among words, tags in another case."""
    rows = [
        {"tokens": ["Ann", 7], "tags": ["B-PER ", " O"]},
        {"tokens": ["a", "b"], "tags": [-1, -1]},
        {"tokens": ["a", "b"], "tags": ["o", "O"]},
    ]
    own = write_rows(tmp_path / "own.jsonl", rows)
    others = write_rows(tmp_path / "others.jsonl", [{"tokens": ["Rome"], "tags": ["B-LOC"]}])
    task = custom_task(own, validation_file=others)
    assert task.labels == ("O", "B-LOC", "B-PER", "o")
    assert "tags that differ in case alone are different classes: O, o" in caplog.messages
    warning = f"{others} has tags that no training row has, and that the model cannot learn: B-LOC"
    assert [text for text in caplog.messages if "cannot learn" in text] == [warning]
    loaded = load_task(task, seed=0)["train"]
    assert loaded["tokens"][:] == [["Ann", "7"], ["a", "b"]]
    assert [[task.labels[i] for i in tags] for tags in loaded["tags"]] == [["B-PER", "O"], ["o", "O"]]
    with pytest.raises(InputError, match=r"others.jsonl: every tag is 'B-LOC'; tagging needs two or more"):
        custom_task(others, validation_file=own)
    with pytest.raises(InputError, match=r"none.jsonl: every tag is -1; tagging needs two or more"):
        custom_task(write_rows(tmp_path / "none.jsonl", rows[1:2]), validation_file=own)


def test_predicates_and_columns_as_users_write_them(tmp_path):
    rows = [{"tokens": ["he", "goes"], "tags": ["O", "B-V"], "predicate_index": index} for index in (1.0, "0", 1)]
    for row, index in zip(rows, (1, 0, 1), strict=True):
        path = write_rows(tmp_path / "a.jsonl", [row])
        loaded = load_task("propbank_srl", train_file=path, validation_file=path, seed=0)
        assert loaded["train"]["predicate_index"][:] == [index]
    with pytest.raises(InputError, match="column 'tokens' is used twice"):
        custom_task(path, label_column_name="tokens")
    path = write_rows(tmp_path / "a.csv", [{"tokens": "he goes", "tags": "O B-V"}, {"tokens": "a", "tags": "O"}])
    for options in ({}, {"label_column_name": "tags"}):
        with pytest.raises(InputError, match=r"a.csv: tokens is not a list; give a list of words and a list of tags"):
            custom_task(path, **options)
    assert custom_task(path, text_column_name="tokens", label_column_name="tags").kind == "classification"
    rows = [{"text": f"a {n}", "tokens": "2", "tags": "news", "label": label} for n, label in enumerate("ab")]
    assert custom_task(write_rows(tmp_path / "posts.csv", rows)).local.text_columns == ("text",)


def test_files_that_are_no_tagging_data(tmp_path):
    def task_of(*rows, name="a.jsonl", **columns):
        return custom_task(write_rows(tmp_path / name, list(rows)), **columns)

    with pytest.raises(InputError, match="has no column 'tags' or 'ner_tags'; it has tokens, kinds; name"):
        task_of({"tokens": ["a"], "kinds": ["O"]})
    with pytest.raises(InputError, match="every tag is 'O'; tagging needs two or more"):
        task_of({"tokens": ["a"], "tags": ["O"]})
    for tags, end in ((["B-A", "E-A", "O"], "E-A"), (["O", "I-A", "U-B"], "U-B"), (["O", "S-A", "S-A"], "S-A")):
        with pytest.raises(InputError, match=f"a.jsonl: tag '{end}' is of the form IOBES or BILOU; convert the tags"):
            task_of({"tokens": ["a", "b", "c"], "tags": tags})
    with pytest.raises(InputError, match="row 1: tags is not a list"):
        task_of({"tokens": ["a"], "tags": "O"})
    with pytest.raises(InputError, match="row 1: tag 2 of tags is null"):
        task_of({"tokens": ["a", "b"], "tags": ["O", None]})
    with pytest.raises(InputError, match="has no column 'kinds'; it has tokens, tags$"):
        task_of({"tokens": ["a"], "tags": ["O"]}, label_column_name="kinds")
    with pytest.raises(InputError, match="not a list; give a list of words"):
        path = write_rows(tmp_path / "b.csv", [{"tokens": "a", "tags": "O", "predicate_index": 0}])
        load_task("propbank_srl", train_file=path, validation_file=path, seed=0)
    with pytest.raises(InputError, match="--text_pair_column_name is 'b', but tagging takes one text a row; leave it"):
        task_of({"tokens": ["a", "b"], "tags": ["X", "Y"]}, text_column_name="tokens", text_pair_column_name="b")
    own = task_of({"words": ["a", "b"], "pos": ["X", "Y"]}, text_column_name="words", label_column_name="pos")
    assert own.kind == "tagging" and own.labels == ("X", "Y") and own.metrics == ("TagAccuracy",)


def test_rows_of_the_hub(tmp_path):
    """Class ids with names, as CoNLL-2003 has them; an I-X that continues nothing begins a span."""
    names = ["O", "I-PER", "B-PER", "I-LOC"]
    rows = Dataset.from_dict({"tokens": [["Ann", "Lee", "in", "Rome"]], "ner_tags": [[1, 1, 0, 3]]})
    rows = rows.cast_column("ner_tags", List(ClassLabel(names=names))).cast_column("tokens", List(Value("string")))
    DatasetDict(train=rows, validation=rows).save_to_disk(tmp_path / "own")
    large = rows.cast_column("ner_tags", LargeList(ClassLabel(names=names)))  # as polars writes them
    large.cast_column("tokens", LargeList(Value("string"))).to_parquet(tmp_path / "large.parquet")
    assert custom_task(tmp_path / "large.parquet").labels == (*names, "B-LOC")
    task = custom_task(dataset_name=str(tmp_path / "own"))
    assert task.labels == (*names, "B-LOC") and task.metrics == ("SpanScores", "TagAccuracy")
    loaded = load_task(task, seed=0)["train"]
    assert [task.labels[i] for i in loaded[0]["tags"]] == ["B-PER", "I-PER", "O", "B-LOC"]
    held_out = load_task(task, seed=0, num_folds=0, validation_fraction=None)
    assert len(held_out["validation"]) == 1


def test_a_tagger_that_remembers_no_columns_reads_tags():
    config = DiSANConfig(id2label={0: "O", 1: "B-X"}, architectures=["DiSANForTokenClassification"])
    rows = Dataset.from_dict({"tokens": [["a"]], "label": ["a class of the sentence"], "tags": [["O"]]})
    assert kind_of(config).for_rows(rows, "here", ColumnNames()).local.label_column == "tags"


def subword_tokenizer():
    """WordPiece with special tokens; every letter is a token, and words it knows are one."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "cat", "##s", *"abcdefghijklmnopqrstuvwxyz"]
    words += [f"##{letter}" for letter in "abcdefghijklmnopqrtuvwxyz"]
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def encoded_rows(tokenizer, max_length=64):
    rows = {"tokens": [["Cats", "don't", "go"], ["cat"]], "tags": [[1, 2, 3], [4]], "predicate_index": [1, 0]}
    return encode_tags(Dataset.from_dict(rows), tokenizer, max_length)


def test_tags_are_aligned_with_tokens(caplog):
    """The first token of a word has its tag, for tokenizers of words and of parts of words; -100 everywhere else."""
    words = encoded_rows(build_tokenizer(["cats don't go", "cat"]))
    assert words["labels"] == [[1, 2, -100, 3], [4]]  # cats do n't go
    assert words["word_mask"] == [[1, 1, 0, 1], [1]] and words["predicate_mask"] == [[0, 1, 1, 0], [1]]
    tokenizer = subword_tokenizer()
    parts = encoded_rows(tokenizer)
    assert parts["labels"][0] == [-100, 1, -100, 2, -100, -100, -100, -100, 3, -100, -100]  # cat s d o n ' t g o
    assert not caplog.records
    cut = encoded_rows(tokenizer, max_length=5)
    assert cut["labels"][0] == [-100, 1, -100, 2, -100] and "1 words of 1 rows have no token" in caplog.text
    assert cut["gold"][0] == {"tags": [1, 2, 3], "words": [0, 1]}
    for side in ("right", "left"):
        tokenizer.padding_side = side
        batch = TaggingCollator(tokenizer)([parts[0], parts[1]])
        order = slice(None) if side == "right" else slice(None, None, -1)
        assert batch["labels"][1].tolist()[order] == [-100, 4, *[-100] * 9]
        assert batch["predicate_mask"][1].tolist()[order] == batch["word_mask"][1].tolist()[order] == [0, 1, *[0] * 9]
        assert torch.equal(batch["attention_mask"].sum(1), torch.tensor([11, 3]))


def test_words_without_a_token_count_in_figures(tmp_path):
    """Behind the limit a word is predicted to be outside of every span; the gold tags are those of all words."""
    rows = [{"tokens": "a b c d".split(), "tags": "B-X O B-Y I-Y".split()}, {"tokens": ["a"], "tags": ["B-X"]}]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    kind = find_kind(custom_task(path))
    dataset = DatasetDict(test=load_task(kind.task, validation_fraction=0.5, seed=0, test_file=path)["test"])
    encoded = kind.encode(dataset, build_tokenizer(["a b c d"]), max_length=2)["test"]
    labels = np.array([row + [-100] * (2 - len(row)) for row in encoded["labels"][:]])
    predictions = kind.complete(labels, encoded["gold"][:])
    assert list(kind.lines(predictions, None)) == ["B-X O O O", "B-X"]
    figures = kind.figures(predictions, encoded["gold"][:], None)
    assert (figures["precision"], figures["recall"]) == (1, pytest.approx(2 / 3))
    assert figures["accuracy"] == pytest.approx(3 / 5)


def test_training_rows_that_teach_nothing_are_left_out(caplog):
    """One whose predicate is behind the limit, and one whose only word has no token."""
    rows = {"tokens": [["cat", "cat", "cat"], ["cat"], ["\u200d"]], "tags": [[1, 2, 3], [4], [1]]}
    dataset = Dataset.from_dict(rows | {"predicate_index": [2, 0, 0]})
    tokenizer = subword_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.BertNormalizer()
    options = {"where": "train: ", "for_training": True}
    assert encode_tags(dataset, tokenizer, 3)["labels"] == [[-100, 1, -100], [-100, 4, -100], [-100, -100]]
    assert encode_tags(dataset, tokenizer, 3, **options)["labels"] == [[-100, 4, -100]]
    assert "train: 2 rows have no token for a word or the predicate and are left out" in caplog.text
    with pytest.raises(InputError, match="train: no row has tokens for a word and its predicate"):
        encode_tags(dataset.select([0, 2]), tokenizer, 3, **options)


def test_rows_and_splits_without_gold_tags(tmp_path, caplog):
    """Class ids of -1 are no tags; a test split of them is none, as of sentences without labels."""
    features = Features({"tokens": List(Value("string")), "ner_tags": List(ClassLabel(names=["O", "B-X", "I-X"]))})
    tags = [[0, 1, 2], [-1, -1, -1], [1, 0, 0]]

    def table(tags):
        return Dataset.from_dict({"tokens": [["a", "b", "c"]] * len(tags), "ner_tags": tags}, features=features)

    DatasetDict(train=table(tags * 5), test=table(tags[1:2])).save_to_disk(tmp_path / "names")
    with caplog.at_level("INFO"):
        data = load_task(custom_task(dataset_name=str(tmp_path / "names")), validation_fraction=0.2, seed=0)
    assert set(data) == {"train", "validation"} and len(data["train"]) + len(data["validation"]) == 10
    assert "test has no gold labels and is not used" in caplog.text
    assert "5 rows have no gold tags and are left out" in caplog.text
    table([[0, -1, 1]]).to_parquet(tmp_path / "mixed.parquet")
    task = custom_task(tmp_path / "mixed.parquet", tmp_path / "mixed.parquet")
    with pytest.raises(InputError, match="row 1: tag -1 is not from 0 to 2; correct the row"):
        load_task(task, seed=0)
    # Names in one file, class ids in the other.
    named = write_rows(tmp_path / "named.jsonl", [{"tokens": ["a", "b"], "ner_tags": ["O", "B-X"]}])
    table(tags).to_parquet(tmp_path / "ids.parquet")
    task = custom_task(named, tmp_path / "ids.parquet")
    assert task.labels == ("O", "B-X", "I-X")
    assert load_task(task, seed=0)["validation"]["tags"] == [[0, 1, 2], [1, 0, 0]]


def byte_level(pre_tokenizer=None):
    """A tokenizer like RoBERTa's, with one token for " cat" after a space."""
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "ca", "cat", "Ġcat"]
    ids = {token: i for i, token in enumerate(vocabulary)}
    backend = Tokenizer(models.BPE(ids, [("c", "a"), ("ca", "t"), ("Ġ", "cat")], unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizer or pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    names = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


@pytest.mark.parametrize("kind", ["plain", "sequence", "class"])
def test_words_have_the_same_tokens_as_in_a_text(kind, tmp_path):
    """Before and after saving; byte-level tokenizers have other tokens without the space."""
    tokenizer = byte_level()
    if kind == "sequence":
        step = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer = byte_level(pre_tokenizers.Sequence([step, pre_tokenizers.Digits()]))
    if kind == "class":  # it marks pairs, and is built anew when it is loaded
        backend = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
        names = {name: tokenizer.special_tokens_map[name] for name in tokenizer.special_tokens_map}
        merges = [tuple(merge) for merge in backend["merges"]]
        tokenizer = DebertaTokenizer(vocab=backend["vocab"], merges=merges, **names)
    kind = find_kind(TASKS["propbank_srl"])
    tokenizer = kind.prepare_tokenizer(tokenizer, for_backbone=False)
    tokenizer.save_pretrained(tmp_path)
    text = tokenizer("cat cat")["input_ids"]
    cat = tokenizer.convert_tokens_to_ids("Ġcat")
    assert text.count(cat) == 2
    for found in (tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
        assert encode_tags(Dataset.from_dict({"tokens": [["cat", "cat"]], "tags": [[0, 1]]}), found)["input_ids"] == [
            text
        ]
        assert found("cat cat")["input_ids"] == text


def test_tokenizers_that_divide_texts_before_bytes_are_refused():
    steps = [pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer = byte_level(pre_tokenizers.Sequence(steps))
    with pytest.raises(
        InputError, match="splits a word alone differently than in a text; choose another one for tagging"
    ):
        find_kind(TASKS["propbank_srl"]).prepare_tokenizer(tokenizer, for_backbone=True)


def test_encoded_rows_can_be_told_apart_for_resuming():
    """The hash is that of the rows, whichever process encodes them."""
    tokenizer = subword_tokenizer()
    first, again, cut = encoded_rows(tokenizer), encoded_rows(tokenizer), encoded_rows(tokenizer, max_length=5)
    assert fingerprint(first) == fingerprint(again) != fingerprint(cut)
