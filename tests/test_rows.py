"""Rows that are read one by one: the same as in tables, and bounded."""

import csv
import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hf_blosan.data.columns import row_numbers
from hf_blosan.data.rows import Rows
from hf_blosan.data.tables import read_table
from hf_blosan.errors import InputError

ROWS = [
    {"id": "007", "text": 'He said "no", twice', "label": ""},
    {"id": "8", "text": "two\nlines, ü", "label": "x"},
]


def test_as_read_table(tmp_path):
    """Both readers give the same rows."""
    content = io.StringIO()
    writer = csv.DictWriter(content, fieldnames=list(ROWS[0]))
    writer.writeheader()
    writer.writerows(ROWS)
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    plain = {"a.csv": content.getvalue(), "b.jsonl": lines, "c.json": json.dumps(ROWS), "d.json": lines}
    plain["e.tsv"] = 'id\ttext\tlabel\n007\the "said\tx\n\n8\t\t\n'
    for name, text in plain.items():
        (tmp_path / name).write_text(text, encoding="utf-8-sig" if name == "a.csv" else "utf-8")
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    read_table(tmp_path / "b.jsonl").to_parquet(tmp_path / "f.parquet")
    for path in sorted(tmp_path.iterdir()):
        with Rows(path) as rows:
            found = list(rows)
            assert found == list(read_table(path)), path.name
            assert rows.position == (2 if path.suffix == ".parquet" else path.stat().st_size) == rows.total
        assert len(found) == 2


def test_numbers_count_blank_lines_but_before_a_list(tmp_path):
    lines, path = "".join(f"\n{json.dumps(row)}\n" for row in ROWS), tmp_path / "rows.jsonl"
    for content, numbers in ((lines, [2, 4]), (f"\n\n{json.dumps(ROWS)}", [1, 2])):
        path.write_text(content)
        with Rows(path) as rows:
            assert [number for number, _ in rows.numbered()] == numbers
        assert list(row_numbers(read_table(path))) == numbers


def test_cells_of_several_types_are_text(tmp_path):
    """As in a file without types; nested ones are refused."""
    rows = [{"text": "a", "label": 1}, {"text": 5, "label": "x", "more": 2**70}, {"text": True}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_table(tmp_path / "rows.jsonl")
    assert found[:] == {"text": ["a", "5", "True"], "label": ["1", "x", None], "more": [None, str(2**70), None]}
    for cell in (["a", 1], {"b": ["a", 1]}):
        (tmp_path / "rows.jsonl").write_text(json.dumps({"text": "a"}) + "\n\n" + json.dumps({"text": cell}) + "\n")
        with pytest.raises(InputError, match="rows.jsonl cannot be read: column 'text' has cells of .* at row 3"):
            read_table(tmp_path / "rows.jsonl")


def test_columns_of_parquet_that_datasets_has_no_type_for(tmp_path):
    column = pa.array([[("key", 1)]], pa.map_(pa.string(), pa.int64()))
    pq.write_table(pa.table({"text": ["a"], "more": column}), tmp_path / "rows.parquet")
    with pytest.raises(InputError, match="rows.parquet cannot be read .*map<string, int64.*leave that column out"):
        read_table(tmp_path / "rows.parquet")


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ('\n{"text": "a"}\n\n{"text": "b"}\n', [(2, "a"), (4, "b")]),
        ('[\n  {"text": "a"},\n  {"text": "b"}\n]\n', [(1, "a"), (2, "b")]),
        ('[{"text": "a"}]', [(1, "a")]),
        ("\na\n{}\n", [(1, ""), (2, "a"), (3, "{}")]),
        ("[1] a\n{sigh}\n", [(1, "[1] a"), (2, "{sigh}")]),
        ('["Stop", she said\n', [(1, '["Stop", she said')]),
        ("\n\n", [(1, ""), (2, "")]),
        ("", []),
        ('{\n  "text": "a"\n}\n', None),
        ('{"text": "a"\n', None),
        ('["a", "b"]\n', None),
    ],
)
def test_standard_input(content, rows, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    with Rows("-") as found:
        if rows is None:
            with pytest.raises(InputError, match="standard input.*(one text, per|write one per) line"):
                list(found)
        else:
            assert [(number, row["text"]) for number, row in found.numbered()] == rows


def test_texts(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a cat\r\n\n{}\nlast")
    with Rows(tmp_path / "a.txt") as rows:
        assert [row["text"] for row in rows] == ["a cat", "", "{}", "last"]
    (tmp_path / "b.csv").write_text("text\n" + "word " * 50_000 + "\n")
    with Rows(tmp_path / "b.csv") as rows:
        assert len(next(iter(rows))["text"]) == 250_000
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(b"text\n" + b"a\n" * 9999)[:-9])
    with Rows(tmp_path / "c.csv.gz") as rows, pytest.raises(InputError, match="c.csv.gz cannot be read after row"):
        list(rows)


@pytest.mark.parametrize(
    ("name", "head", "filling"),
    [
        ("a.txt", "short\n", "word "),
        ("a.jsonl", '{"text": "short"}\n{"text": "', "word "),
        ("a.json", '[{"text": "', "word "),
        ("a.json", "[\n", '{"text": "a"},\n'),
        ("a.csv", 'text,label\nshort,0\n"', "word "),
        ("a.csv", 'text,label\nshort,0\n"', "word\n"),
        ("a.csv", "", "word,"),
        ("a.tsv", "text\tlabel\n", "word\t"),
    ],
)
def test_one_row_cannot_fill_the_memory(name, head, filling, tmp_path, monkeypatch):
    """A small compressed file may have a row of many gigabytes; no more than the limit is read of it."""
    monkeypatch.setattr("hf_blosan.data.rows.MAX_ROW", 100_000)
    monkeypatch.setattr("hf_blosan.data.rows.MAX_LIST", 200_000)
    path = tmp_path / f"{name}.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(head.encode())
        for _ in range(200):
            file.write(filling.encode() * 20_000)
    read, take = [], gzip.GzipFile.read1

    def count(file, size=-1):
        read.append(take(file, size))
        return read[-1]

    monkeypatch.setattr(gzip.GzipFile, "read1", count)
    for reader in (read_table, lambda path: list(Rows(path)))[name == "a.txt" :]:
        read.clear()
        with pytest.raises(InputError, match=r"a (row|list of rows) has more than \d00,000 characters\); divide it"):
            reader(path)
        assert 0 < sum(map(len, read)) < 1_500_000
