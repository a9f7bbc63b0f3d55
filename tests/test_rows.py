"""Rows that are read one by one: the same as in tables, and bounded."""

import csv
import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_data import parquet_file

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
        ("[12]\n[1, 2]\n", [(1, "[12]"), (2, "[1, 2]")]),
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


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"text,label\na,0\ntext,label\n", "a.csv, row 2 repeats the header, text,label; remove it"),
        ("b.csv", b"text,text\na,b\n", "b.csv has two columns 'text'"),
        ("e.csv", b"id\ttext\n1\ta\n", r"e.csv has one column, 'id\\ttext'"),
        ("b.parquet", parquet_file(["text", "text"]), "b.parquet has two columns 'text'; rename one of them"),
        ("c.jsonl", b'{"text": "a", "text": "b"}\n', "c.jsonl cannot be read after row 0 .a row names 'text' twice"),
        (
            "d.csv.gz",
            gzip.compress(b"text,label\n" * 999, mtime=0)[:20] + b"\xff" * 9,
            "d.csv.gz cannot be read after row 0",
        ),
    ],
)
def test_rows_that_cannot_be_told_apart_or_read_are_named(tmp_path, name, content, message):
    """As in tables, for rows that are read one by one."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message), Rows(tmp_path / name) as rows:
        list(rows)


def test_names_in_upper_case(tmp_path):
    """As Windows and spreadsheets write them."""
    (tmp_path / "A.CSV").write_text("text,label\na cat,x\n")
    (tmp_path / "B.Parquet").write_bytes(parquet_file(["text", "label"]))
    for name in ("A.CSV", "B.Parquet"):
        with Rows(tmp_path / name) as rows:
            assert (
                list(rows) == list(read_table(tmp_path / name)) and rows.count() == {"A.CSV": 1, "B.Parquet": 2}[name]
            )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "label,text\npos,a\n\nneg,b,c\n", "row 3 has 3 cells, the header has 2; correct the row"),
        ("b.tsv", "label\ttext\npos\ta\tb\n", "row 1 has 3 cells, the header has 2"),  # pandas: an index
        ("c.csv", "label,text\npos,a\nneg\n", "row 2 has 1 cell, the header has 2"),
        ("d.csv", 'label,text\npos,a\nneg,"b\npos,c\n', r"row 2 is not CSV \(unexpected end of data\); close every"),
        (
            "f.csv",
            "text,label\ncaf\xe9,pos\n".encode("latin-1"),
            r"cannot be read after row 0 .byte 0xe9 is not UTF-8.; save it as UTF-8",
        ),
        ("i.csv", b"text,label\n" + b"a,pos\n" * 7000 + b"caf\xe9,pos\n", "cannot be read after row 7000 .byte 0xe9"),
        ("i.jsonl", b'{"text": "a"}\n' * 7000 + b'{"text": "\xe9"}\n', "cannot be read after row 7000 .byte 0xe9"),
        (
            "g.jsonl",
            '{"text": "a", "label": ' + "[" * 3000 + "]" * 3000 + "}\n",
            "cannot be read .*nest .* less deeply",
        ),
        ("h.jsonl", '{"text": "a", "label": ' + "[" * 200_000, "cannot be read .*nest .* less deeply"),
        ("e.csv", 'label,text\npos,"a "b" c"\n', "row 1 is not CSV .* double those within a quoted cell"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_rows_are_refused_alike_by_both_readers(tmp_path, name, content, message):
    """Nothing is shifted, filled up or swallowed."""
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for read in (read_table, lambda path: list(Rows(path))):
        with pytest.raises(InputError, match=f"{name},? {message}"):
            read(path)


def test_quotes_in_tsv_and_blank_lines_before_a_header(tmp_path):
    (tmp_path / "a.tsv").write_text('label\ttext\npos\t"a\nneg\tb "c" d\n')
    (tmp_path / "b.csv").write_text("\n\nlabel,text\npos,a\n")
    for name, texts in (("a.tsv", ['"a', 'b "c" d']), ("b.csv", ["a"])):
        assert list(read_table(tmp_path / name)["text"]) == texts
        with Rows(tmp_path / name) as rows:
            assert [row["text"] for row in rows] == texts


def test_one_column_may_repeat_its_name_and_columns_may_have_none(tmp_path):
    (tmp_path / "one.csv").write_text("text\na\ntext\n")
    (tmp_path / "index.csv").write_text(",text\n0,a\n")  # as pandas writes it
    for name, expected in (("one", {"text": ["a", "text"]}), ("index", {"Unnamed: 0": ["0"], "text": ["a"]})):
        assert read_table(tmp_path / f"{name}.csv")[:] == expected
        with Rows(tmp_path / f"{name}.csv") as rows:
            assert list(rows) == [
                dict(zip(expected, row, strict=True)) for row in zip(*expected.values(), strict=True)
            ]
