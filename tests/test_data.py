"""Tasks, their splits and folds."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from datasets import ClassLabel, Dataset
from small_data import hub_rows, write_rows

from hf_blosan.data import tables
from hf_blosan.errors import InputError
from hf_blosan.tasks import TASKS, custom_task, folds, load_task
from hf_blosan.tasks.kinds import find_kind
from hf_blosan.tasks.regression import Regression


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
    write_rows(tmp_path / "trec" / "train.jsonl.gz", rows)
    write_rows(tmp_path / "trec" / "test.jsonl", rows[:3])
    data = load_task("trec", data_dir=tmp_path, seed=1)
    assert list(data) == ["train", "validation", "test"]
    assert {split: len(rows) for split, rows in data.items()} == {"train": 21, "validation": 3, "test": 3}
    assert data["train"].column_names == ["sentence1", "label", "row"]
    assert data["test"].features["label"] == ClassLabel(names=list(TASKS["trec"].labels))
    assert data["test"]["label"][:] == [3, 4, 2]
    fine = load_task("trec_fine", data_dir=tmp_path, seed=1)["test"]
    assert [TASKS["trec_fine"].labels[i] for i in fine["label"]] == ["HUM:ind", "LOC:city", "DESC:reason"]


def test_missing_splits_are_held_out_stratified_and_seeded(tmp_path):
    write_rows(tmp_path / "cr" / "train.jsonl.gz", polarity_rows(200))
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
    write_rows(tmp_path / "cr" / "train.jsonl", rows)

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
    write_rows(tmp_path / "cr" / "train.jsonl", rows[::-1])
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
        write_rows(tmp_path / "sst2" / f"{split}.jsonl", part)
    data = load_task("sst2_phrases", data_dir=tmp_path, seed=0)
    assert {split: len(part) for split, part in data.items()} == {"train": 9, "validation": 1, "test": 2}
    assert len(load_task("sst2", data_dir=tmp_path, seed=0)["train"]) == 3
    (tmp_path / "sst2" / "train_phrases.jsonl").unlink()
    with pytest.raises(InputError, match="sst2_phrases finds no .*train_phrases.jsonl.gz"):
        load_task("sst2_phrases", data_dir=tmp_path, seed=0)
    with pytest.raises(InputError, match="not on the Hub; give --data_dir"):
        load_task("sst2_phrases", seed=0)


def test_no_test_fold_on_request(tmp_path):
    write_rows(tmp_path / "cr" / "train.jsonl", polarity_rows(40))
    data = load_task("cr", data_dir=tmp_path, seed=5, num_folds=0, validation_fraction=0.25)
    assert {split: len(rows) for split, rows in data.items()} == {"train": 30, "validation": 10}


def test_test_rows_for_validation(tmp_path):
    """The released protocol: what is not tested is trained on."""
    write_rows(tmp_path / "cr" / "train.jsonl", polarity_rows(40))
    data = load_task("cr", data_dir=tmp_path, seed=5, fold=3, select_on_test=True)
    assert {split: len(rows) for split, rows in data.items()} == {"train": 36, "validation": 4, "test": 4}
    assert data["validation"][:] == data["test"][:]
    with pytest.raises(InputError, match="--select_on_test: there are no test rows"):
        load_task("cr", data_dir=tmp_path, seed=5, num_folds=0, select_on_test=True)
    for split in ("train", "validation", "test"):
        write_rows(tmp_path / "sst2" / f"{split}.jsonl", polarity_rows(4))
    with pytest.raises(InputError, match="--select_on_test: there are validation rows"):
        load_task("sst2", data_dir=tmp_path, seed=5, select_on_test=True)


def test_rare_classes_survive_stratification(tmp_path):
    rows = [{"text": str(i), "label_fine": "NUM:date" if i else "NUM:temp"} for i in range(40)]
    write_rows(tmp_path / "trec" / "train.jsonl", rows)
    data = load_task("trec_fine", data_dir=tmp_path, seed=0)
    assert sum(map(len, data.values())) == 40


def test_samples_are_drawn_at_random(tmp_path):
    rows = sorted(polarity_rows(80), key=lambda row: row["label"])
    for split in ("train", "validation", "test"):
        write_rows(tmp_path / "sst2" / f"{split}.jsonl", rows)
    data = load_task("sst2", data_dir=tmp_path, seed=0, max_train_samples=40, max_eval_samples=8)
    assert {split: len(rows) for split, rows in data.items()} == {"train": 40, "validation": 8, "test": 8}
    assert set(data["train"]["label"]) == {0, 1}
    assert load_task("sst2", data_dir=tmp_path, seed=0, max_train_samples=900)["train"].num_rows == 80


def test_regression_task(tmp_path):
    rows = [{"sentence1": "a", "sentence2": "b", "score": 1 + i % 5, "label": "neutral"} for i in range(50)]
    write_rows(tmp_path / "sick" / "train.jsonl.gz", rows)
    held_out = {"num_folds": 10, "validation_fraction": 0.1}
    data = load_task("sick_relatedness", data_dir=tmp_path, seed=0, **held_out)
    assert data["train"].column_names == ["sentence1", "sentence2", "label", "row"]
    assert data["train"].features["label"].dtype == "float32"
    assert sorted(value for split in data.values() for value in split["label"]) == sorted(
        float(row["score"]) for row in rows
    )
    assert load_task("sick_entailment", data_dir=tmp_path, seed=0, **held_out)["test"]["label"][0] == 1


def test_rows_without_gold_label_are_dropped_and_empty_texts_kept(tmp_path, caplog):
    pairs = [("entailment", "x"), ("-", "y"), ("neutral", ""), ("contradiction", None)]
    rows = [{"sentence1": "a", "sentence2": text, "label": label} for label, text in pairs]
    for split in ("train_subset", "validation", "test"):
        write_rows(tmp_path / "snli" / f"{split}.jsonl", rows)
    data = load_task("snli", data_dir=tmp_path, seed=0)
    assert data["test"]["sentence2"][:] == ["x", "", ""]
    assert "test.jsonl: sentence2 is null in 1 of 3 rows and is read as empty" in caplog.text
    assert data["test"]["label"][:] == [0, 1, 2]


def test_strata_of_a_kind_need_no_column_of_labels(tmp_path, monkeypatch):
    """Scores, in four classes; the split by labels is that of a column of labels."""
    rows = [{"text": f"a {i}", "score": i % 4 + 0.5} for i in range(40)]
    task = custom_task(write_rows(tmp_path / "scores.jsonl", rows))
    monkeypatch.setattr(Regression, "strata", lambda self, rows: [int(label) for label in rows["label"]])
    data = load_task(task, seed=0, validation_fraction=0.2)
    assert sorted(data["validation"]["label"]) == [0.5, 0.5, 1.5, 1.5, 2.5, 2.5, 3.5, 3.5]
    assert data["train"].column_names == data["validation"].column_names == ["sentence1", "label", "row"]


def test_mnli_has_both_development_splits(tmp_path):
    rows = [{"sentence1": str(i), "sentence2": "b", "label": TASKS["mnli"].labels[i % 3]} for i in range(60)]
    for split in ("train", "validation_matched", "validation_mismatched"):
        write_rows(tmp_path / "mnli" / f"{split}.jsonl", rows)
    # No test split: its protocol holds out none.
    assert list(load_task("mnli", data_dir=tmp_path, seed=0)) == ["train", "validation", "validation_mismatched"]


def test_files_replace_splits_of_a_task(tmp_path):
    write_rows(tmp_path / "sst2" / "train.jsonl", polarity_rows(8))
    write_rows(tmp_path / "sst2" / "validation.jsonl", polarity_rows(4))
    write_rows(tmp_path / "sst2" / "test.jsonl", polarity_rows(4))
    phrases = write_rows(tmp_path / "phrases.csv", [{"text": "a, b", "label": "positive"}, {"text": "", "label": "0"}])
    data = load_task("sst2", data_dir=tmp_path, train_file=phrases, seed=0)
    assert data["train"][:] == {"sentence1": ["a, b", ""], "label": [1, 0], "row": [1, 2]}
    assert len(data["test"]) == 4


def test_hub_columns_and_label_order_are_mapped(monkeypatch):
    asked = []
    monkeypatch.setattr(tables, "load_dataset", lambda *args, **options: asked.append(args) or hub_rows())
    data = load_task("snli", seed=0)
    assert asked == [("stanfordnlp/snli", None)]
    assert data["test"].column_names == ["sentence1", "sentence2", "label", "row"]
    assert data["test"]["label"][:3] == [1, 2, 0]


def test_integer_labels_follow_the_order_of_their_source(caplog):
    task = TASKS["subj"]
    raw = Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]})
    with caplog.at_level("INFO"):
        find_kind(task).normalise(
            Dataset.from_dict({"text": ["a", "b"], "label": ["1", "Subjective"]}), task.hub, "mine"
        )
    assert caplog.messages[-1:] == ["mine: numbers as labels are read as class ids: 1 for subjective"]
    assert find_kind(task).normalise(raw, task.local, "here")["label"][:] == [0, 1]
    assert find_kind(task).normalise(raw, task.hub, "there")["label"][:] == [1, 0]


def test_unreachable_hub_is_one_sentence(monkeypatch):
    def unreachable(*args, **options):
        raise ConnectionError("Couldn't reach the Hub\nand more")

    monkeypatch.setattr(tables, "load_dataset", unreachable)
    message = r"data set 'CogComp/trec' cannot be loaded \(Couldn't reach the Hub\); give --data_dir"
    with pytest.raises(InputError, match=message):
        load_task("trec", seed=0)


def test_missing_places_are_named(tmp_path):
    with pytest.raises(InputError, match="data directory .*nowhere does not exist"):
        load_task("trec", data_dir=tmp_path / "nowhere", seed=0)
    with pytest.raises(InputError, match=r"finds no .*trec/train.jsonl.gz"):
        load_task("trec", data_dir=tmp_path, seed=0)
    with pytest.raises(InputError, match="data file .*a.csv does not exist"):
        load_task("trec", train_file=tmp_path / "a.csv", seed=0)
    with pytest.raises(InputError, match="data file .* is a folder; give the path of a .jsonl"):
        load_task("trec", train_file=tmp_path, seed=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fold": 10}, "fold is 10; with 10 folds it must be 0 to 9"),
        ({"num_folds": 1}, "num_folds is 1"),
        ({"num_folds": 90}, "too few for 90 folds"),
        ({"num_folds": 30}, "largest class has 22 rows"),
        ({"validation_fraction": 1.0}, "validation_fraction is 1.0"),
        ({"validation_fraction": 0.99}, "too few to hold"),
        ({"max_train_samples": 0}, "max_train_samples is 0"),
    ],
)
def test_impossible_splits_are_refused(tmp_path, options, message):
    rows = [{"text": str(i), "label": i % 2} for i in range(44)]
    write_rows(tmp_path / "cr" / "train.jsonl", rows)
    with pytest.raises(InputError, match=message):
        load_task("cr", data_dir=tmp_path, seed=0, **options)


def test_a_message_lists_some_columns_and_shows_spaces(tmp_path):
    path = write_rows(tmp_path / "a.jsonl", [{"text": "a", " label": "b", **{f"column {i}": "" for i in range(900)}}])
    with pytest.raises(
        InputError, match=r"has no column 'label'.*; it has text, ' label', column 0, .*, \.\.\.;"
    ) as error:
        custom_task(path)
    assert len(str(error.value)) < 600
