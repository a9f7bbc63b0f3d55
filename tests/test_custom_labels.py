"""Labels of a user's own rows: what are classes, what are scores, and in which order."""

from __future__ import annotations

import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from small_data import write_rows

from hf_blosan.errors import InputError
from hf_blosan.tasks import custom_task, load_task
from hf_blosan.training import RunArguments, parse_arguments


def test_custom_numbers_are_names_and_not_positions(tmp_path):
    train = write_rows(tmp_path / "a.csv", [{"text": str(i), "label": 10 + i % 2} for i in range(40)])
    task = custom_task(train)
    assert (task.num_sentences, task.labels) == (1, ("10", "11"))
    assert set(load_task(task, seed=0, validation_fraction=0.1)["train"]["label"]) == {0, 1}
    with pytest.raises(InputError, match="there are no validation rows, .* --validation_fraction 0.1"):
        load_task(task, seed=0)
    padded = write_rows(tmp_path / "c.csv", [{"text": "a", "label": cell} for cell in ("2", "02", "10", "1", "01")])
    assert custom_task(padded).labels == ("01", "1", "02", "2", "10")
    other = write_rows(tmp_path / "b.csv", [{"text": "a", "label": 0}])
    with pytest.raises(InputError, match="label '0' is not one of the labels"):
        load_task(task, validation_file=other, seed=0)


@pytest.mark.parametrize("names", [["1", "2", "3"], ["-1", "0", "1"], ["No", "no", "yes"]])
def test_class_labels_are_positions_whatever_their_names(names, tmp_path):
    rows = {"text": [str(i) for i in range(9)], "label": [i % 3 for i in range(9)]}
    table = Dataset.from_dict(rows, features=Features({"text": Value("string"), "label": ClassLabel(names=names)}))
    DatasetDict(train=table, validation=table).save_to_disk(str(tmp_path / "own"))
    task = custom_task(dataset_name=str(tmp_path / "own"))
    data = load_task(task, seed=0)["train"]
    assert task.labels == tuple(names) and data["label"][:] == rows["label"]


@pytest.mark.parametrize(
    ("labels", "names", "cells", "expected"),
    [
        ("ham spam", "good bad", [1, 0], [1, 0]),
        ("1 2 3", "low mid high", [1, 2, 0], [1, 2, 0]),
        ("negative positive", "positive Negative neutral", [0, 1], [1, 0]),  # by name, whatever the third is
        ("negative positive", "positive negative neutral", [1, 2], "row 2: label 'neutral' is not one of the labels"),
    ],
)
def test_class_labels_are_read_by_name_or_all_by_position(labels, names, cells, expected, tmp_path, caplog):
    labels, names = labels.split(), names.split()
    first = write_rows(tmp_path / "a.jsonl", [{"text": "x", "label": label} for label in labels])
    features = Features({"text": Value("string"), "label": ClassLabel(names=names)})
    Dataset.from_dict({"text": ["c"] * len(cells), "label": cells}, features=features).to_parquet(
        tmp_path / "b.parquet"
    )
    task = custom_task(first, first)
    if isinstance(expected, str):
        with pytest.raises(InputError, match=expected):
            load_task(task, validation_file=tmp_path / "b.parquet", seed=0)
        return
    assert load_task(task, validation_file=tmp_path / "b.parquet", seed=0)["validation"]["label"][:] == expected
    read = f"read by position: {names[0]} as {labels[0]}, {names[1]} as {labels[1]}"
    assert (read in caplog.text) == (labels[0] not in names[1].lower())


def test_scores_or_classes_as_the_user_says(tmp_path, caplog):
    """As pandas writes whole numbers beside an empty cell, and classes in a column of another name."""
    floats = tmp_path / "floats.csv"
    floats.write_text("text,label\na,0.0\nb,1.0\nc,0.0\n")
    assert custom_task(floats).kind == "regression"
    assert "floats.csv: the labels are whole numbers with decimals, and read as scores; if they are" in caplog.text
    task = custom_task(floats, floats, do_regression=False)
    assert task.kind == "classification" and task.labels == ("0.0", "1.0")
    assert load_task(task, seed=0)["train"]["label"] == [0, 1, 0]
    named = write_rows(tmp_path / "named.csv", [{"text": "a", "score": "low"}, {"text": "b", "score": "high"}])
    assert custom_task(named, do_regression=False).labels == ("high", "low")
    whole = write_rows(tmp_path / "whole.csv", [{"text": "a", "label": 1}, {"text": "b", "label": 3}])
    assert custom_task(whole).kind == "classification"
    assert custom_task(whole, do_regression=True).score_max == 3.0
    mixed = write_rows(tmp_path / "mixed.jsonl", [{"text": "a", "score": score} for score in (1.5, True, 2)])
    with pytest.raises(InputError, match="row 2: score 'True' is not a finite number"):  # nor 1.0
        custom_task(mixed)
    commas = write_rows(tmp_path / "commas.csv", [{"text": "a", "score": score} for score in ("4,5", "3,0")])
    with pytest.raises(
        InputError, match="score has no number, for example '4,5'; write numbers with a point before the decimals"
    ):
        custom_task(commas)
    arguments = RunArguments(train_file="a.csv", encoder="disan", output_dir="out", do_regression=False)
    assert parse_arguments(arguments.to_argv()) == arguments
    with pytest.raises(InputError, match="--task_name knows whether it has scores or classes; leave out"):
        RunArguments(task_name="trec", encoder="disan", output_dir="out", do_regression=False)


@pytest.mark.parametrize("ends", [("csv", "jsonl"), ("jsonl", "csv")])
@pytest.mark.parametrize(
    ("values", "ids"),
    [
        ((0.0, 0.5, 1.0), [0, 1, 2]),  # 1.0 is not the second class
        ((1.0, 1.5, 2.0), [0, 1, 2]),
        ((-1.0, 1.0), [0, 1]),
        ((-1.0, 0.0, 1.0), [0, 1]),  # -1 is no label
        ((-2.0, -1.0, 0.0), [0, 1, 2]),  # but for lower ones
        ((2.0, 10.0, 11.5), [0, 1, 2]),
    ],
)
def test_classes_with_decimals(values, ids, ends, tmp_path):
    """Read from CSV as text and from JSON as numbers."""
    rows = [{"text": f"a {x}", "label": x} for x in values]
    train, test = (write_rows(tmp_path / f"steps.{end}", rows) for end in ends)
    task = custom_task(train, test, do_regression=False)
    assert [float(name) for name in task.labels] == sorted(values)[-len(ids) :]
    loaded = load_task(task, seed=0)
    assert loaded["train"]["label"][:] == loaded["validation"]["label"][:] == ids


def test_whole_numbers_with_and_without_decimals_are_the_same_classes(tmp_path):
    rows = [{"text": f"a {x}", "label": x} for x in ("0", "1", "0.0", "1.0", "2", "7.0")]
    train = write_rows(tmp_path / "steps.csv", rows)
    task = custom_task(train, train, do_regression=False)
    assert task.labels == ("0", "1", "2", "7.0")
    assert load_task(task, seed=0)["train"]["label"][:] == [0, 1, 0, 1, 2, 3]


@pytest.mark.parametrize("given, other", [(("3.10", "3.9", "x"), "3.1"), (("007", "008", "x"), "7")])
def test_numbers_that_are_not_written_as_such_are_names(given, other, tmp_path):
    train = write_rows(tmp_path / "a.csv", [{"text": f"a {x}", "label": x} for x in given])
    wrong = write_rows(tmp_path / "b.csv", [{"text": "a", "label": other}])
    task = custom_task(train, wrong, do_regression=False)
    with pytest.raises(InputError, match=f"label '{other}' is not one of the labels"):
        load_task(task, seed=0)


def test_labels_that_differ_in_case_are_classes_and_said(tmp_path, caplog):
    rows = [{"text": f"text {i}", "label": ("Good", "bad", "good")[i % 3]} for i in range(12)]
    assert custom_task(write_rows(tmp_path / "a.jsonl", rows)).labels == ("Good", "bad", "good")
    assert "labels that differ in case alone are different classes: Good, good" in caplog.messages


def test_labels_that_are_all_different_are_not_called_too_few(tmp_path):
    rows = [{"text": f"text {i}", "label": f"row {i}"} for i in range(30)]
    task = custom_task(write_rows(tmp_path / "a.jsonl", rows))
    with pytest.raises(InputError, match="none of 30 training rows can be held out .* label of its own"):
        load_task(task, seed=0, validation_fraction=0.1)


@pytest.mark.parametrize(
    ("labels", "classes", "left_out"),
    [
        (["pos", "neg", "-1"], ("neg", "pos"), 2),
        (["0", "1", " -1"], ("0", "1"), 2),
        (["pos", "-1"], ("-1", "pos"), 0),
        (["-2", "-1", "0"], ("-2", "-1", "0"), 0),
        (["-1", "1"], ("-1", "1"), 0),
    ],
)
def test_minus_one_is_no_class_unless_it_must_be_one(tmp_path, labels, classes, left_out):
    rows = [{"text": f"a {i}", "label": label} for i, label in enumerate(labels * 2)]
    path = write_rows(tmp_path / "a.jsonl", rows)
    task = custom_task(path, path)
    assert task.labels == classes and len(load_task(task, seed=0)["train"]) == len(rows) - left_out
