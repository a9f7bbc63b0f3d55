"""Loading, splitting, encoding and batching."""

from __future__ import annotations

import csv
import gzip
import json
import logging
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from datasets import ClassLabel, Dataset, DatasetDict

from hf_blosan.data import (
    LengthBucketBatchSampler,
    PaddingCollator,
    custom_task,
    encode_dataset,
    folds,
    length_statistics,
    load_task,
    sentence_lengths,
)
from hf_blosan.data import loading as loading_module
from hf_blosan.data.loading import normalise
from hf_blosan.data.rows import Rows
from hf_blosan.data.tables import read_table
from hf_blosan.errors import InputError
from hf_blosan.tasks import TASKS
from hf_blosan.tokenization import build_tokenizer


def write(path, rows: list[dict]):
    """Write rows to a file of the type given by its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in (".csv", ".tsv"):
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
        return path
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def polarity_rows(count: int) -> list[dict]:
    """A quarter of the rows positive."""
    return [{"text": f"review {i}", "label": int(i % 4 == 0)} for i in range(count)]


def texts(rows: Dataset) -> set[str]:
    return set(rows["sentence1"])


def test_task_with_all_splits_of_its_own(tmp_path):
    rows = [
        {"text": "Who ?", "label": "HUM", "label_fine": "HUM:ind"},
        {"text": "Where ?", "label": "LOC", "label_fine": "LOC:city"},
        {"text": "Why ?", "label": "desc", "label_fine": "DESC:reason"},
    ] * 8
    write(tmp_path / "trec" / "train.jsonl.gz", rows)
    write(tmp_path / "trec" / "test.jsonl", rows[:3])
    data = load_task("trec", data_dir=tmp_path, seed=1)
    assert list(data) == ["train", "validation", "test"]
    assert {split: len(rows) for split, rows in data.items()} == {"train": 21, "validation": 3, "test": 3}
    assert data["train"].column_names == ["sentence1", "label"]
    assert data["test"].features["label"] == ClassLabel(names=list(TASKS["trec"].labels))
    assert data["test"]["label"][:] == [3, 4, 2]
    fine = load_task("trec_fine", data_dir=tmp_path, seed=1)["test"]
    assert [TASKS["trec_fine"].labels[i] for i in fine["label"]] == ["HUM:ind", "LOC:city", "DESC:reason"]


def test_missing_splits_are_held_out_stratified_and_seeded(tmp_path):
    write(tmp_path / "cr" / "train.jsonl.gz", polarity_rows(200))
    data = load_task("cr", data_dir=tmp_path, seed=5)
    assert {split: len(rows) for split, rows in data.items()} == {"train": 162, "validation": 18, "test": 20}
    assert sum(data["test"]["label"]) == 5
    assert sum(data["validation"]["label"]) in (4, 5)
    assert set.union(*map(texts, data.values())) == {row["text"] for row in polarity_rows(200)}
    again = load_task("cr", data_dir=tmp_path, seed=5)
    other = load_task("cr", data_dir=tmp_path, seed=6)
    assert all(data[split][:] == again[split][:] for split in data)
    assert texts(data["test"]) != texts(other["test"])
    folds = [texts(load_task("cr", data_dir=tmp_path, seed=5, fold=fold, num_folds=4)["test"]) for fold in range(4)]
    assert sum(map(len, folds)) == len(set.union(*folds)) == 200


def test_folds_are_stored_for_the_rows_that_they_were_made_from(tmp_path, monkeypatch):
    """These folds hold whatever the seed is, and no row of another table."""
    rows = [{"text": f"row {i}", "label": i % 2} for i in range(40)]
    write(tmp_path / "cr" / "train.jsonl", rows)

    def test_rows(fold, **options):
        return load_task("cr", data_dir=tmp_path, fold=fold, **{"seed": 0} | options)["test"]["sentence1"]

    seeded = test_rows(3)
    assert test_rows(3, seed=1) != seeded
    labelled = Dataset.from_dict({"sentence1": [row["text"] for row in rows], "label": [row["label"] for row in rows]})
    stored = {"cr": {"rows": folds.digest(labelled), "folds": "0123456789" * 4}}
    (tmp_path / "folds.json").write_text(json.dumps(stored))
    monkeypatch.setattr(folds, "files", lambda package: tmp_path)
    assert test_rows(3) == test_rows(3, seed=1) == ["row 3", "row 13", "row 23", "row 33"]
    assert test_rows(3, num_folds=4) != test_rows(3)
    write(tmp_path / "cr" / "train.jsonl", rows[::-1])
    assert test_rows(3, seed=1) != test_rows(3, seed=0)


def test_folds_of_the_papers_tasks():
    stored = json.loads(Path(folds.__file__).with_name("folds.json").read_text())
    assert {name: len(entry["folds"]) for name, entry in stored.items()} == {"cr": 3775, "mpqa": 10606, "subj": 10000}
    for entry in stored.values():
        counts = Counter(entry["folds"])
        assert sorted(counts) == list("0123456789") and max(counts.values()) - min(counts.values()) <= 2


def test_phrases_join_the_training_rows(tmp_path):
    rows = [{"text": f"row {i}", "label": i % 2} for i in range(6)]
    for split, part in (("train", rows[:3]), ("validation", rows[3:4]), ("test", rows[4:]), ("train_phrases", rows)):
        write(tmp_path / "sst2" / f"{split}.jsonl", part)
    data = load_task("sst2_phrases", data_dir=tmp_path, seed=0)
    assert {split: len(part) for split, part in data.items()} == {"train": 9, "validation": 1, "test": 2}
    assert len(load_task("sst2", data_dir=tmp_path, seed=0)["train"]) == 3
    (tmp_path / "sst2" / "train_phrases.jsonl").unlink()
    with pytest.raises(InputError, match="sst2_phrases finds no .*train_phrases.jsonl.gz"):
        load_task("sst2_phrases", data_dir=tmp_path, seed=0)
    with pytest.raises(InputError, match="not on the Hub; give --data_dir"):
        load_task("sst2_phrases", seed=0)


def test_no_test_fold_on_request(tmp_path):
    write(tmp_path / "cr" / "train.jsonl", polarity_rows(40))
    data = load_task("cr", data_dir=tmp_path, seed=5, num_folds=0, validation_fraction=0.25)
    assert {split: len(rows) for split, rows in data.items()} == {"train": 30, "validation": 10}


def test_rare_classes_survive_stratification(tmp_path):
    rows = [{"text": str(i), "label_fine": "NUM:date" if i else "NUM:temp"} for i in range(40)]
    write(tmp_path / "trec" / "train.jsonl", rows)
    data = load_task("trec_fine", data_dir=tmp_path, seed=0)
    assert sum(map(len, data.values())) == 40


def test_samples_are_drawn_at_random(tmp_path):
    rows = sorted(polarity_rows(80), key=lambda row: row["label"])
    for split in ("train", "validation", "test"):
        write(tmp_path / "sst2" / f"{split}.jsonl", rows)
    data = load_task("sst2", data_dir=tmp_path, seed=0, max_train_samples=40, max_eval_samples=8)
    assert {split: len(rows) for split, rows in data.items()} == {"train": 40, "validation": 8, "test": 8}
    assert set(data["train"]["label"]) == {0, 1}
    assert load_task("sst2", data_dir=tmp_path, seed=0, max_train_samples=900)["train"].num_rows == 80


def test_regression_task(tmp_path):
    rows = [{"sentence1": "a", "sentence2": "b", "score": 1 + i % 5, "label": "neutral"} for i in range(50)]
    write(tmp_path / "sick" / "train.jsonl.gz", rows)
    held_out = {"num_folds": 10, "validation_fraction": 0.1}
    data = load_task("sick_relatedness", data_dir=tmp_path, seed=0, **held_out)
    assert data["train"].column_names == ["sentence1", "sentence2", "label"]
    assert data["train"].features["label"].dtype == "float32"
    assert sorted(value for split in data.values() for value in split["label"]) == sorted(
        float(row["score"]) for row in rows
    )
    assert load_task("sick_entailment", data_dir=tmp_path, seed=0, **held_out)["test"]["label"][0] == 1


def test_rows_without_gold_label_are_dropped_and_empty_texts_kept(tmp_path):
    pairs = [("entailment", "x"), ("-", "y"), ("neutral", ""), ("contradiction", None)]
    rows = [{"sentence1": "a", "sentence2": text, "label": label} for label, text in pairs]
    for split in ("train_subset", "validation", "test"):
        write(tmp_path / "snli" / f"{split}.jsonl", rows)
    data = load_task("snli", data_dir=tmp_path, seed=0)
    assert data["test"]["sentence2"][:] == ["x", "", ""]
    assert data["test"]["label"][:] == [0, 1, 2]


def test_mnli_has_both_development_splits(tmp_path):
    rows = [{"sentence1": str(i), "sentence2": "b", "label": TASKS["mnli"].labels[i % 3]} for i in range(60)]
    for split in ("train", "validation_matched", "validation_mismatched"):
        write(tmp_path / "mnli" / f"{split}.jsonl", rows)
    # No test split: its protocol holds out none.
    assert list(load_task("mnli", data_dir=tmp_path, seed=0)) == ["train", "validation", "validation_mismatched"]


def test_files_replace_splits_of_a_task(tmp_path):
    write(tmp_path / "sst2" / "train.jsonl", polarity_rows(8))
    write(tmp_path / "sst2" / "validation.jsonl", polarity_rows(4))
    write(tmp_path / "sst2" / "test.jsonl", polarity_rows(4))
    phrases = write(tmp_path / "phrases.csv", [{"text": "a, b", "label": "positive"}, {"text": "", "label": "0"}])
    data = load_task("sst2", data_dir=tmp_path, train_file=phrases, seed=0)
    assert data["train"][:] == {"sentence1": ["a, b", ""], "label": [1, 0]}
    assert len(data["test"]) == 4


def hub_rows() -> DatasetDict:
    names = ["neutral", "contradiction", "entailment"]
    label = ClassLabel(names=names)
    rows = Dataset.from_dict({"premise": ["p"] * 9, "hypothesis": ["h"] * 9, "label": [0, 1, 2] * 3})
    return DatasetDict({split: rows.cast_column("label", label) for split in ("train", "validation", "test")})


def test_hub_columns_and_label_order_are_mapped(monkeypatch):
    asked = []
    monkeypatch.setattr(loading_module, "load_dataset", lambda *args, **options: asked.append(args) or hub_rows())
    data = load_task("snli", seed=0)
    assert asked == [("stanfordnlp/snli", None)]
    assert data["test"].column_names == ["sentence1", "sentence2", "label"]
    assert data["test"]["label"][:3] == [1, 2, 0]


def test_integer_labels_follow_the_order_of_their_source():
    task = TASKS["subj"]
    raw = Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]})
    assert normalise(raw, task.local, task, "here")["label"][:] == [0, 1]
    assert normalise(raw, task.hub, task, "there")["label"][:] == [1, 0]


def test_unreachable_hub_is_one_sentence(monkeypatch):
    def unreachable(*args, **options):
        raise ConnectionError("Couldn't reach the Hub\nand more")

    monkeypatch.setattr(loading_module, "load_dataset", unreachable)
    message = r"data set 'CogComp/trec' cannot be loaded \(Couldn't reach the Hub\); give --data_dir"
    with pytest.raises(InputError, match=message):
        load_task("trec", seed=0)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": "a", "label": "HUM"}, {"text": "b", "label": "WHO"}], r"row 2: label 'WHO' is not one of .*ABBR"),
        ([{"text": "a", "label": 6}], "row 1: label 6 is not one of"),
        ([{"text": "a", "label": None}], "row 1: label None is not one of"),
        ([{"sentence": "a", "label": "HUM"}], "has no column 'text'; it has sentence, label"),
        ([{"text": "a", "class": "HUM"}], "has no column 'label'"),
    ],
)
def test_bad_rows_are_named(tmp_path, rows, message):
    path = write(tmp_path / "trec" / "train.jsonl", rows)
    with pytest.raises(InputError, match=message) as caught:
        load_task("trec", data_dir=tmp_path, seed=0)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("score", [0.5, 5.1, None, float("nan"), "high"])
def test_scores_outside_the_range_are_named(tmp_path, score):
    row = {"sentence1": "a", "sentence2": "b", "score": score}
    write(tmp_path / "sick" / "train.jsonl", [row])
    with pytest.raises(InputError, match="row 1: score .* is not a number from 1 to 5"):
        load_task("sick_relatedness", data_dir=tmp_path, seed=0)


def test_missing_places_are_named(tmp_path):
    with pytest.raises(InputError, match="data directory .*nowhere does not exist"):
        load_task("trec", data_dir=tmp_path / "nowhere", seed=0)
    with pytest.raises(InputError, match=r"finds no .*trec/train.jsonl.gz"):
        load_task("trec", data_dir=tmp_path, seed=0)
    with pytest.raises(InputError, match="data file .*a.csv does not exist"):
        load_task("trec", train_file=tmp_path / "a.csv", seed=0)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xlsx", b"x", "unknown type"),
        ("a.parquet", b"x", "cannot be read"),
        ("a.jsonl", b'{"text": "a", "label": 1}\n{"text": \n', "cannot be read"),
        ("a.jsonl.gz", b"not gzip", "cannot be read"),
        ("a.csv", b"text,label\n", "has no rows"),
        ("b.jsonl", b"", "cannot be read|has no rows"),
        ("c.csv", b"text,label\na,0\nb,1\ntext,label\nc,0\n", "c.csv, row 3 repeats the header; remove it"),
        ("d.tsv", b"text\ttext\tlabel\na\tb\t0\n", "d.tsv has two columns 'text'; rename one of them in the header"),
        ("e.csv.gz", gzip.compress(b"text,label\n" * 999)[:20] + b"\xff" * 9, "e.csv.gz cannot be read"),
    ],
)
def test_unreadable_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_task("cr", train_file=tmp_path / name, seed=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fold": 10}, "fold is 10; with 10 folds it must be 0 to 9"),
        ({"num_folds": 1}, "num_folds is 1"),
        ({"num_folds": 90}, "too few for 90 folds"),
        ({"num_folds": 30}, "largest class of cr has 22 rows"),
        ({"validation_fraction": 1.0}, "validation_fraction is 1.0"),
        ({"validation_fraction": 0.99}, "too few to hold"),
        ({"max_train_samples": 0}, "max_train_samples is 0"),
    ],
)
def test_impossible_splits_are_refused(tmp_path, options, message):
    rows = [{"text": str(i), "label": i % 2} for i in range(44)]
    write(tmp_path / "cr" / "train.jsonl", rows)
    with pytest.raises(InputError, match=message):
        load_task("cr", data_dir=tmp_path, seed=0, **options)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"text,label\na,0\ntext,label\n", "a.csv, row 2 repeats the header; remove it"),
        ("b.csv", b"text,text\na,b\n", "b.csv has two columns 'text'"),
        ("c.jsonl", b'{"text": "a", "text": "b"}\n', "c.jsonl cannot be read after row 0 .a row names 'text' twice"),
        ("d.csv.gz", gzip.compress(b"text,label\n" * 999)[:20] + b"\xff" * 9, "d.csv.gz cannot be read after row 0"),
    ],
)
def test_rows_that_cannot_be_told_apart_or_read_are_named(tmp_path, name, content, message):
    """As in tables, for rows that are read one by one."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message), Rows(tmp_path / name) as rows:
        list(rows)


def test_one_column_may_repeat_its_name_and_columns_may_have_none(tmp_path):
    (tmp_path / "one.csv").write_text("text\na\ntext\n")
    (tmp_path / "index.csv").write_text(",text\n0,a\n")  # as pandas writes it
    for name, expected in (("one", {"text": ["a", "text"]}), ("index", {"Unnamed: 0": ["0"], "text": ["a"]})):
        assert read_table(tmp_path / f"{name}.csv")[:] == expected
        with Rows(tmp_path / f"{name}.csv") as rows:
            assert list(rows) == [
                dict(zip(expected, row, strict=True)) for row in zip(*expected.values(), strict=True)
            ]


def test_scores_that_arithmetic_cannot_hold_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("text,score\na,1e308\nb,0\n")
    with pytest.raises(InputError, match="score '1e308' is beyond 1e.15; scale the scores"):
        custom_task(tmp_path / "a.csv")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_custom_pair_classification(tmp_path, suffix):
    rows = [{"id": 1, "first": f"a {i}", "second": "b", "label": ("yes", "no", "Maybe")[i % 3]} for i in range(30)]
    train, validation = write(tmp_path / f"a{suffix}", rows), write(tmp_path / f"b{suffix}", rows[:6])
    if suffix != ".jsonl":
        train, validation = (
            write(path, [{k: v for k, v in row.items() if k != "id"} for row in rows]) for path in (train, validation)
        )
    task = custom_task(train, validation)
    assert (task.problem, task.num_sentences, task.labels) == ("classification", 2, ("Maybe", "no", "yes"))
    data = load_task(task, seed=0)
    assert data["validation"][0] == {"sentence1": "a 0", "sentence2": "b", "label": 2}
    assert list(data) == ["train", "validation"] and len(data["train"]) == 30  # nothing is held out unasked
    assert list(load_task(task, seed=0, num_folds=5)) == ["train", "validation", "test"]


def test_custom_numbers_are_names_and_not_positions(tmp_path):
    train = write(tmp_path / "a.csv", [{"text": str(i), "label": 10 + i % 2} for i in range(40)])
    task = custom_task(train)
    assert (task.num_sentences, task.labels) == (1, ("10", "11"))
    assert set(load_task(task, seed=0, validation_fraction=0.1)["train"]["label"]) == {0, 1}
    with pytest.raises(InputError, match="custom has no validation rows, .* --validation_fraction 0.1"):
        load_task(task, seed=0)
    other = write(tmp_path / "b.csv", [{"text": "a", "label": 0}])
    with pytest.raises(InputError, match="label '0' is not one of the labels of custom"):
        load_task(task, validation_file=other, seed=0)


@pytest.mark.parametrize("column", ["score", "label"])
def test_custom_regression(tmp_path, column):
    rows = [{"sentence1": "a", "sentence2": "b", column: i / 4} for i in range(1, 16)]
    task = custom_task(write(tmp_path / "a.csv", rows), write(tmp_path / "b.jsonl", rows + [rows[0] | {column: 7}]))
    assert (task.problem, task.score_min, task.score_max, task.num_score_classes) == ("regression", 0.0, 7.0, 8)
    assert load_task(task, seed=0)["validation"]["label"][-1] == 7.0


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": "a"}], "has no column 'label', 'labels' or 'score'; it has text; name the column with --label_col"),
        ([{"number": 3, "label": 1}], "has no text column"),
        ([{"text": "a", "label": 1}], "every label is '1'"),
        ([{"text": "a", "label": "x"}, {"text": "b", "label": ""}], "row 2: label is empty"),
        ([{"text": "a", "score": "high"}], "score 'high' is not a number"),
        ([{"text": "a", "score": 2}], "every score is 2"),
    ],
)
def test_unusable_custom_files(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        custom_task(write(tmp_path / "a.jsonl", rows))


def test_custom_columns(tmp_path, caplog):
    """Identifiers are not texts; columns can be named; the log says which were taken."""
    rows = [{"id": f"{i}", "body": f"text {i}", "mood": "bad", "labels": ("no", "yes")[i % 2]} for i in range(20)]
    rows[0]["mood"] = "good"
    path = write(tmp_path / "a.csv", rows)
    with caplog.at_level("INFO"):
        task = custom_task(path)
    assert task.local.text_columns == ("body", "mood") and task.local.label_column == "labels"
    assert "a.csv: texts from body and mood, labels from labels" in caplog.text
    task = custom_task(path, text_column_name="mood", text_pair_column_name="body", label_column_name="labels")
    first = load_task(task, seed=0, validation_file=path)["train"][0]
    assert first == {"sentence1": "good", "sentence2": "text 0", "label": 0}
    task = custom_task(path, path, text_column_name="body", label_column_name="mood")
    assert task.labels == ("bad", "good") and task.num_sentences == 1
    for wrong in ({"text_column_name": "subject"}, {"label_column_name": "class"}):
        with pytest.raises(InputError, match=f"has no column '{next(iter(wrong.values()))}'; it has id, body, mood"):
            load_task(custom_task(path, path, **wrong), seed=0)


def test_custom_rows_without_a_label_or_text(tmp_path, caplog):
    rows = [{"text": f"text {i}", "label": (-1, 0, 1)[i % 3]} for i in range(12)]
    task = custom_task(write(tmp_path / "a.jsonl", rows), write(tmp_path / "b.jsonl", rows))
    assert task.labels == ("0", "1")
    with caplog.at_level("INFO"):
        assert len(load_task(task, seed=0)["train"]) == 8
    assert "4 of 12 rows have no gold label and are left out" in caplog.text
    signs = [{"text": f"text {i}", "label": (-1, 1)[i % 2]} for i in range(12)]
    assert custom_task(write(tmp_path / "signs.jsonl", signs)).labels == ("-1", "1")
    path = write(tmp_path / "c.jsonl", [*rows[1:3], {"text": None, "label": 1}, {"text": "", "label": 0}])
    with pytest.raises(InputError, match="c.jsonl, row 3: text is null; fill it in or remove the row"):
        custom_task(path)


@pytest.mark.parametrize("saved_as", ["parquet", "folder", "split", "hub"])
def test_custom_data_set_of_the_hub_or_the_disk(tmp_path, monkeypatch, saved_as):
    """Class names, validation and test come with it; a test split without labels is none."""
    rows = hub_rows()
    unlabelled = rows["test"].map(lambda row: {"label": -1})
    named = DatasetDict(train=rows["train"], validation=rows["validation"], test=unlabelled)
    if saved_as == "parquet":
        rows["train"].to_parquet(tmp_path / "a.parquet")
        task = custom_task(tmp_path / "a.parquet", tmp_path / "a.parquet")
    elif saved_as == "hub":
        monkeypatch.setattr(loading_module, "load_dataset", lambda *args, **options: named)
        task = custom_task(dataset_name="me/pairs")
        assert (task.name, task.hub.location) == ("pairs", "me/pairs")
    elif saved_as == "folder":
        named.save_to_disk(tmp_path / "pairs")
        task = custom_task(dataset_name=str(tmp_path / "pairs"))
    else:
        rows["train"].save_to_disk(tmp_path / "pairs")
        task = custom_task(dataset_name=str(tmp_path / "pairs"))
        with pytest.raises(InputError, match="pairs has no validation rows"):
            load_task(task, seed=0)
    assert task.labels == ("neutral", "contradiction", "entailment")
    data = load_task(task, seed=0, validation_fraction=0.34)
    assert list(data) == ["train", "validation"] and data["train"].features["label"].names == list(task.labels)
    assert data["train"][0]["sentence1"] == "p"


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
    with pytest.raises(InputError, match="max_length is 0"):
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


def lengths(count: int = 1003) -> np.ndarray:
    return np.random.default_rng(0).integers(1, 60, count)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
def test_batches_hold_every_row_once_and_the_short_one_is_last(shuffle, drop_last):
    sampler = LengthBucketBatchSampler(lengths(), 8, shuffle=shuffle, seed=1, drop_last=drop_last)
    batches = list(sampler)
    rows = [row for batch in batches for row in batch]
    assert len(batches) == len(sampler) == (125 if drop_last else 126)
    assert len(set(rows)) == len(rows) == (1000 if drop_last else 1003)
    assert [len(batch) for batch in batches[:125]] == [8] * 125


def test_batch_order_depends_on_seed_and_epoch_alone():
    def batches(seed: int, epoch: int) -> list[list[int]]:
        sampler = LengthBucketBatchSampler(lengths(), 8, seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert batches(1, 0) == batches(1, 0)
    assert batches(1, 0) != batches(1, 1)
    assert batches(1, 0) != batches(2, 0)


def test_buckets_need_little_padding():
    def width(batches) -> int:
        return sum(len(batch) * max(lengths()[batch]) for batch in batches)

    rows = np.random.default_rng(1).permutation(1003)
    plain = width([rows[start : start + 8] for start in range(0, 1003, 8)])
    assert width(LengthBucketBatchSampler(lengths(), 8)) < 0.7 * plain
    assert width(LengthBucketBatchSampler(lengths(), 8, shuffle=False)) < 1.02 * lengths().sum() + 60


def test_accelerate_deals_out_every_row():
    shards = [BatchSamplerShard(LengthBucketBatchSampler(lengths(), 8, seed=3), 2, rank) for rank in range(2)]
    dealt = [row for shard in shards for batch in shard for row in batch]
    assert set(dealt) == set(range(1003))


def test_batch_size_below_one_is_refused():
    with pytest.raises(InputError, match="batch_size is 0"):
        LengthBucketBatchSampler([1, 2], 0)
