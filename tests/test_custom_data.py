"""A user's own files and data sets, and rows and files that cannot be read."""

from __future__ import annotations

import errno
import gzip
import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict, Image
from small_data import hub_rows, parquet_file, write_rows

from hf_blosan.data import tables
from hf_blosan.data.columns import ColumnNames
from hf_blosan.data.rows import Rows
from hf_blosan.data.tables import read_table
from hf_blosan.errors import InputError
from hf_blosan.tasks import custom_task, get_task, load_task
from hf_blosan.tasks.classification import choose_texts
from hf_blosan.tasks.kinds import find_kind


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
    path = write_rows(tmp_path / "trec" / "train.jsonl", rows)
    with pytest.raises(InputError, match=message) as caught:
        load_task("trec", data_dir=tmp_path, seed=0)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("score", [0.5, 5.1, None, float("nan"), "high"])
def test_scores_outside_the_range_are_named(tmp_path, score):
    row = {"sentence1": "a", "sentence2": "b", "score": score}
    write_rows(tmp_path / "sick" / "train.jsonl", [row])
    with pytest.raises(InputError, match="row 1: score .* is not a number from 1 to 5"):
        load_task("sick_relatedness", data_dir=tmp_path, seed=0)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xlsx", b"x", "unknown type"),
        ("a.parquet", b"x", "cannot be read"),
        ("a.jsonl", b'{"text": "a", "label": 1}\n{"text": \n', "cannot be read"),
        ("a.jsonl.gz", b"not gzip", "cannot be read"),
        ("a.csv", b"text,label\n", "has no rows"),
        ("b.jsonl", b"", "cannot be read|has no rows"),
        (
            "c.csv",
            b"text,label\na,0\nb,1\ntext,label\nc,0\n",
            "c.csv, row 3 repeats the header, text,label; remove it",
        ),
        ("d.tsv", b"text\ttext\tlabel\na\tb\t0\n", "d.tsv has two columns 'text'; rename one of them"),
        ("f.csv", b"text;label\na, b;0\n", "f.csv has one column, 'text;label'; separate cells by commas in"),
        ("f.tsv", b"text,label\na,0\n", "f.tsv has one column, 'text,label'; .* by tabs in a .tsv file"),
        ("d.parquet", parquet_file(["text", "text", "label"]), "^[^ ]*d.parquet has two columns 'text'"),
        (
            "d.jsonl",
            b'{"text": "a", "text": "b", "label": 0}\n',
            "d.jsonl .*a row names 'text' twice",
        ),
        ("e.csv.gz", gzip.compress(b"text,label\n" * 999, mtime=0)[:20] + b"\xff" * 9, "e.csv.gz cannot be read"),
    ],
)
def test_unreadable_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_task("cr", train_file=tmp_path / name, seed=0)


def test_what_pandas_writes_by_default_is_one_object(tmp_path):
    (tmp_path / "a.json").write_text('{"text": {"0": "a", "1": "b"}, "label": {"0": 1, "1": 0}}')
    with pytest.raises(
        InputError, match=r"row 1: text is of type dict; .*, or one row per line .in pandas, to_json\("
    ):
        custom_task(tmp_path / "a.json")


def test_a_score_that_is_no_finite_number_is_named_with_its_row_and_file(tmp_path, caplog):
    (tmp_path / "a.csv").write_text("text,stars\na,1.5\nb,2\n")
    with caplog.at_level("INFO"):
        assert custom_task(tmp_path / "a.csv", label_column_name="stars").kind == "regression"
    assert "a.csv: texts from text, score from stars" in caplog.text
    (tmp_path / "a.csv").write_text("text,score\na,1\nb,2\n")
    for score, reason in (("50%", "is not a finite number"), ("inf", "is not a finite number"), ("1e16", "is beyond")):
        (tmp_path / "b.csv").write_text(f"text,score\na,1\n\nb,{score}\n")
        with pytest.raises(InputError, match=f"^{tmp_path}/b.csv, row 3: score '{score}' {reason}"):
            custom_task(tmp_path / "a.csv", test_file=tmp_path / "b.csv")


def test_a_number_that_is_not_finite_is_no_class(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\na,0.5\nb,inf\nc,1.5\n")
    with pytest.raises(InputError, match="a.csv, row 2: score 'inf' is not a finite number; correct it or remove it"):
        custom_task(tmp_path / "a.csv")


def test_a_folder_of_rows_with_two_columns_of_one_name(tmp_path):
    (tmp_path / "train.parquet").write_bytes(parquet_file(["text", "text", "label"]))
    with pytest.raises(InputError, match=r"cannot be loaded \(Multiple matches for .*text.*\); check --dataset_name"):
        custom_task(dataset_name=str(tmp_path))


def test_scores_that_arithmetic_cannot_hold_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("text,score\na,1e308\nb,0\n")
    with pytest.raises(InputError, match="score '1e308' is beyond 1e.15; scale the scores"):
        custom_task(tmp_path / "a.csv")


def test_scores_too_close_to_be_learned_are_said(tmp_path, caplog):
    for scale, said in ((0.05, False), (0.0001, True)):
        rows = [{"text": f"text {i}", "score": scale * i / 9} for i in range(10)]
        assert custom_task(write_rows(tmp_path / "a.csv", rows)).score_max == scale
        assert ("the scores are within 0.0001 of each other" in caplog.text) == said


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_custom_pair_classification(tmp_path, suffix):
    rows = [{"id": 1, "first": f"a {i}", "second": "b", "label": ("yes", "no", "Maybe")[i % 3]} for i in range(30)]
    train, validation = write_rows(tmp_path / f"a{suffix}", rows), write_rows(tmp_path / f"b{suffix}", rows[:6])
    if suffix != ".jsonl":
        train, validation = (
            write_rows(path, [{k: v for k, v in row.items() if k != "id"} for row in rows])
            for path in (train, validation)
        )
    task = custom_task(train, validation)
    assert (task.kind, task.num_sentences, task.labels) == ("classification", 2, ("Maybe", "no", "yes"))
    data = load_task(task, seed=0)
    assert data["validation"][0] == {"sentence1": "a 0", "sentence2": "b", "label": 2, "row": 1}
    assert list(data) == ["train", "validation"] and len(data["train"]) == 30  # nothing is held out unasked
    assert list(load_task(task, seed=0, num_folds=5)) == ["train", "validation", "test"]


def test_a_data_set_of_the_disk_is_read_without_its_format(tmp_path):
    table = Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]})
    table.set_format("torch", columns=["label"])
    table.save_to_disk(tmp_path / "own")
    task = custom_task(dataset_name=str(tmp_path / "own"))
    assert task.labels == ("0", "1") and task.text_columns == ("sentence1",)
    assert (
        len(
            load_task(
                task,
                data_dir=tmp_path,
                validation_file=write_rows(tmp_path / "v.csv", [{"text": "c", "label": 1}]),
                seed=0,
            )["train"]
        )
        == 2
    )


def test_labels_with_braces_and_data_without_rows(tmp_path, monkeypatch):
    first = write_rows(tmp_path / "a.jsonl", [{"text": "a", "label": "{x}"}, {"text": "b", "label": "y"}])
    other = write_rows(tmp_path / "b.jsonl", [{"text": "a", "label": "z"}])
    with pytest.raises(InputError, match=r"label 'z' is not one of the labels \(y, {x}\)"):
        load_task(custom_task(first, other), seed=0)
    table = DatasetDict(train=Dataset.from_dict({"text": ["a"], "label": ["x"]}).select([]))
    monkeypatch.setattr(tables, "load_dataset", lambda *given, **options: table)
    with pytest.raises(InputError, match="me/own train has no rows; give rows to train on"):
        custom_task(dataset_name="me/own")


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    path = write_rows(tmp_path / "a.jsonl", [{"text": "a"}])
    monkeypatch.setattr(Path, "open", Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))
    with pytest.raises(InputError, match=r"a.jsonl cannot be read \(Permission denied\); make it readable"):
        Rows(path)


@pytest.mark.parametrize("column", ["score", "label"])
def test_custom_regression(tmp_path, column):
    rows = [{"sentence1": "a", "sentence2": "b", column: i / 4} for i in range(1, 16)]
    task = custom_task(
        write_rows(tmp_path / "a.csv", rows), write_rows(tmp_path / "b.jsonl", rows + [rows[0] | {column: 7}])
    )
    assert (task.kind, task.score_min, task.score_max, task.num_score_classes) == ("regression", 0.0, 7.0, 8)
    assert load_task(task, seed=0)["validation"]["label"][-1] == 7.0


def test_a_table_without_names_of_columns(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("Who wrote it,person\nWhere is it,place\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"it has Who wrote it, person \(from its first line\); name the column"):
        custom_task(path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": "a"}], "has no column 'label', 'labels' or 'score'; it has text; name the column with --label_col"),
        ([{"number": 3, "label": 1}], "has no text column"),
        ([{"text": "a", "label": 1}], "every label is '1'"),
        ([{"text": "a", "label": "x"}, {"text": "b", "label": ""}], "row 2: label is empty"),
        ([{"text": "a", "score": "high"}], "score has no number, for example 'high'; for classes give"),
        ([{"text": "a", "score": "high"}, {"text": "b", "score": 2}], "row 1: score 'high' is not a finite number"),
        ([{"words": ["a"], "label": ["b"]}], "name both columns, --text_column_name words and --label_column_name"),
        ([{"text": "a", "score": 2}], "every score is 2"),
        ([{"text": ["a"], "label": 0}, {"text": ["b"], "label": 1}], "row 1: text is of type list; write it as text"),
        ([{"text": "a", "label": {"x": 0}}, {"text": "b", "label": {"x": 1}}], "row 1: label is of type dict"),
        (
            [{"text": "a", "label": ["x", "y"]}] * 2,
            "label is of type list; write it as text; for several labels a row",
        ),
    ],
)
def test_unusable_custom_files(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        custom_task(write_rows(tmp_path / "a.jsonl", rows))


def test_thousands_of_classes(tmp_path):
    rows = [{"text": f"text {i}", "label": f"code {i // 2}"} for i in range(2400)]
    assert len(custom_task(write_rows(tmp_path / "codes.jsonl", rows)).labels) == 1200
    rows[::2] = [row | {"label": row["text"]} for row in rows[::2]]
    with pytest.raises(InputError, match="has 2400 different labels in 2400 rows; check the label column"):
        custom_task(write_rows(tmp_path / "texts.jsonl", rows))


@pytest.mark.parametrize(
    "names",
    [
        {"text_column_name": "label"},
        {"label_column_name": "text"},
        {"text_column_name": "text", "text_pair_column_name": "text"},
    ],
)
def test_a_column_is_not_taken_twice(tmp_path, names):
    path = write_rows(tmp_path / "a.jsonl", [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}])
    with pytest.raises(InputError, match=r"a.jsonl: column '(text|label)' is used twice; name a separate column"):
        custom_task(path, **names)


def test_known_tasks_take_no_lists_for_texts(tmp_path):
    path = write_rows(tmp_path / "a.jsonl", [{"text": ["a"], "label": 0}])
    with pytest.raises(InputError, match="a.jsonl, row 1: text is of type list"):
        load_task("cr", train_file=path, seed=0)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_file_is_read_once(suffix, tmp_path, monkeypatch):
    """From the command's options to the loaded splits."""
    rows, paths = [{"text": f"a {i}", "label": ("no", "yes")[i % 2]} for i in range(6)], {}
    for split in ("train", "validation", "test"):
        paths[f"{split}_file"] = path = str(tmp_path / f"{split}{suffix}")
        Dataset.from_list(rows).to_parquet(path) if suffix == ".parquet" else write_rows(Path(path), rows)
    opened, take = [], Path.open
    monkeypatch.setattr(
        Path, "open", lambda path, *mode, **options: opened.append(str(path)) or take(path, *mode, **options)
    )
    data = load_task(custom_task(**paths), **paths, seed=0)
    assert {split: len(found) for split, found in data.items()} == dict.fromkeys(("train", "validation", "test"), 6)
    assert sorted(opened) == sorted(paths.values())


def test_custom_columns(tmp_path, caplog):
    """Identifiers are not texts; columns can be named; the log says which were taken."""
    rows = [{"id": f"{i}", "body": f"text {i}", "mood": "bad", "labels": ("no", "yes")[i % 2]} for i in range(20)]
    rows[0]["mood"] = "good"
    path = write_rows(tmp_path / "a.csv", rows)
    with caplog.at_level("INFO"):
        task = custom_task(path)
    assert task.local.text_columns == ("body", "mood") and task.local.label_column == "labels"
    assert "a.csv: pairs of texts from body and mood, labels from labels" in caplog.text
    task = custom_task(path, text_column_name="mood", text_pair_column_name="body", label_column_name="labels")
    first = load_task(task, seed=0, validation_file=path)["train"][0]
    assert first == {"sentence1": "good", "sentence2": "text 0", "label": 0, "row": 1}
    task = custom_task(path, path, text_column_name="body", label_column_name="mood")
    assert task.labels == ("bad", "good") and task.num_sentences == 1
    for wrong in ({"text_column_name": "subject"}, {"label_column_name": "class"}):
        with pytest.raises(InputError, match=f"has no column '{next(iter(wrong.values()))}'; it has id, body, mood"):
            load_task(custom_task(path, path, **wrong), seed=0)


@pytest.mark.parametrize(
    "others",
    [
        {"notes": ""},
        {"ID": "R{}"},
        {"review_id": "R{}"},
        {"date": "2024-03-{:02}"},
        {"written": "2024-03-01T10:{:02}:00"},
        {"count": "{}"},
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_what_is_not_text(tmp_path, others, suffix):
    rows = [
        {name: value.format(i + 1) for name, value in others.items()} | {"review": f"a {i}", "label": "ab"[i % 2]}
        for i in range(12)
    ]
    for row in rows if suffix == "jsonl" else []:
        row["notes"] = None
    path = write_rows(tmp_path / f"a.{suffix}", rows)
    assert custom_task(path).local.text_columns == ("review",)


def test_a_data_set_with_the_name_of_a_task_is_not_that_task(tmp_path):
    hub_rows().save_to_disk(tmp_path / "cr")
    assert custom_task(dataset_name=str(tmp_path / "cr")).name == "custom_cr"


@pytest.mark.parametrize("name", ["validation", "dev", "val", "valid"])
def test_names_of_validation_splits(tmp_path, name):
    rows = Dataset.from_dict({"text": ["a", "b"], "label": ["x", "y"]})
    DatasetDict({"train": rows, name: rows}).save_to_disk(tmp_path / "own")
    assert len(load_task(custom_task(dataset_name=str(tmp_path / "own")), seed=0)["validation"]) == 2


def test_a_file_without_a_header_is_warned_of(caplog):
    texts, _ = choose_texts([{"who wrote it": "where is it"}], "a.csv", ColumnNames(), ("text",), 1)
    assert (
        texts == ("who wrote it",)
        and "'who wrote it' is taken for the name of a column; if it is a row, put" in caplog.text
    )


def test_custom_rows_without_a_label_or_text(tmp_path, caplog):
    rows = [{"text": f"text {i}", "label": (-1, 0, 1)[i % 3]} for i in range(12)]
    task = custom_task(write_rows(tmp_path / "a.jsonl", rows), write_rows(tmp_path / "b.jsonl", rows))
    assert task.labels == ("0", "1")
    with caplog.at_level("INFO"):
        assert len(load_task(task, seed=0)["train"]) == 8
    assert "4 of 12 rows have no gold label and are left out" in caplog.text
    assert {record.levelname for record in caplog.records if "gold" in record.message} == {"WARNING"}
    signs = [{"text": f"text {i}", "label": (-1, 1)[i % 2]} for i in range(12)]
    assert custom_task(write_rows(tmp_path / "signs.jsonl", signs)).labels == ("-1", "1")
    path = write_rows(tmp_path / "c.jsonl", [*rows[1:3], {"text": None, "label": 1}, {"text": "", "label": 0}])
    with pytest.raises(InputError, match="c.jsonl, row 3: text is null or missing; fill it in or remove the row"):
        custom_task(path)
    path.write_text('{"text": "a", "label": "x"}\n{"text": "b", "label": NaN}\n{"text": "c", "label": "y"}\n')
    with pytest.raises(InputError, match="c.jsonl, row 2: label is null or missing; fill it in or remove the row"):
        custom_task(path)
    path.write_text('{"text": "a", "label": 0}\n{"text": "b", "label": NaN}\n{"text": "c", "label": 1}\n')
    with pytest.raises(InputError, match="c.jsonl, row 2: label is nan; fill it in or remove the row"):
        custom_task(path)
    path.write_text('{"text": "a", "label": "x"}\n{"text": NaN, "label": "y"}\n')
    with pytest.raises(InputError, match="c.jsonl, row 2: text is null"):
        custom_task(path)


def test_a_fraction_beside_validation_rows_is_said_not_to_be_used(tmp_path, caplog):
    rows = [{"text": f"text {i}", "label": "ab"[i % 2]} for i in range(12)]
    path = write_rows(tmp_path / "a.jsonl", rows)
    assert len(load_task(custom_task(path, path), seed=0, validation_fraction=0.5)["train"]) == 12
    assert "there are validation rows: validation_fraction 0.5 is not used" in caplog.messages
    load_task(custom_task(path, path, path), seed=0, num_folds=4)
    assert "fold 0 of 4 is not used: there are test rows" in caplog.messages
    load_task(custom_task(path, path), seed=0, fold=3)
    assert "fold 3 is not used: there are no folds" in caplog.messages


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
        monkeypatch.setattr(tables, "load_dataset", lambda *args, **options: named)
        task = custom_task(dataset_name="me/pairs")
        assert (task.name, task.hub.location) == ("pairs", "me/pairs")
    elif saved_as == "folder":
        named.save_to_disk(tmp_path / "pairs")
        task = custom_task(dataset_name=str(tmp_path / "pairs"))
    else:
        rows["train"].save_to_disk(tmp_path / "pairs")
        task = custom_task(dataset_name=str(tmp_path / "pairs"))
        with pytest.raises(InputError, match="there are no validation rows"):
            load_task(task, seed=0)
    assert task.labels == ("neutral", "contradiction", "entailment")
    data = load_task(task, seed=0, validation_fraction=0.34)
    assert list(data) == ["train", "validation"] and data["train"].features["label"].names == list(task.labels)
    assert data["train"][0]["sentence1"] == "p"


def test_columns_of_pandas_and_of_images_are_no_texts(tmp_path):
    """The index has a column of its own in Parquet; an image that cannot be read is not decoded."""
    columns = {"review": ["a b", "b c"], "label": [0, 1], "__index_level_0__": ["row 0", "row 1"]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert custom_task(tmp_path / "a.parquet").local.text_columns == ("review",)
    rows = Dataset.from_dict(
        {"image": [{"bytes": b"none", "path": None}] * 2, "review": ["a b", "c"], "label": [0, 1]}
    )
    DatasetDict(train=rows.cast_column("image", Image())).save_to_disk(tmp_path / "images")
    assert custom_task(dataset_name=str(tmp_path / "images")).local.text_columns == ("review",)


def test_the_folder_of_a_data_set_may_be_the_current_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hub_rows().save_to_disk(tmp_path)
    assert custom_task(dataset_name=".").name == tmp_path.name


TAGS = {"tokens": ["a", "b"], "tags": ["O", "B-V"], "predicate_index": 1}
SQUAD = {"question": "Where?", "context": "In Rome.", "answers": {"text": ["Rome"], "answer_start": [3]}}
NO_ANSWER = {"answers": {"text": [], "answer_start": []}}


@pytest.mark.parametrize(
    ("task", "rows", "numbers"),
    [
        ("cr", [{"text": "a", "label": 0}, {"text": "b", "label": -1}, {}, {}, {"text": "c", "label": 1}], [1, 5]),
        ("sick_relatedness", [{}, {"sentence1": "a", "sentence2": "b", "score": 2}], [2]),
        ("propbank_srl", [{}, TAGS, {}, TAGS], [2, 4]),
        ("squad_sentences", [{**SQUAD, **NO_ANSWER}, {}, SQUAD, {}, {}, SQUAD], [3, 6]),
        ("multi30k_en_de", [{"en": "a", "de": "ein"}, {}, {"en": "b", "de": "kein"}], [1, 3]),
    ],
)
def test_rows_have_the_numbers_of_the_file(task, rows, numbers, tmp_path):
    """An empty dictionary is a blank line here."""
    task = get_task(task)
    if task.kind == "classification":
        task = replace(task, unlabelled=("-1",))
    lines = [json.dumps(row) if row else "" for row in rows]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    table = read_table(tmp_path / "rows.jsonl")
    assert find_kind(task).normalise(table, task.local, "here")["row"][:] == numbers
    if task.kind == "classification":
        (tmp_path / "rows.csv").write_text(
            "text,label\n" + "\n".join(f"{r['text']},{r['label']}" if r else "" for r in rows)
        )
        assert find_kind(task).normalise(read_table(tmp_path / "rows.csv"), task.local, "here")["row"][:] == numbers
        (tmp_path / "rows.csv").write_text("text,label\n\na,7\n")
        with pytest.raises(InputError, match="row 2: label '7' is not one of"):
            find_kind(task).normalise(read_table(tmp_path / "rows.csv"), task.local, "here")
