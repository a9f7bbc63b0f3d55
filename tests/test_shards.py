"""`--shard` and `--vector_dtype`: parts that add up to the whole, manifests that tell what is missing, fewer bits."""

import json
import shutil
from itertools import islice
from pathlib import Path

import datasets
import numpy as np
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
import torch
from cli_models import refused
from small_data import pair_rows, question_rows, read_lines, write_rows
from test_interrupted_streams import interrupt

from hf_blosan.cli.commands import main
from hf_blosan.data.rows import Rows
from hf_blosan.errors import InputError
from hf_blosan.inference import stream
from hf_blosan.inference.output import quantized, vector_formats
from hf_blosan.inference.shards import Shard

NUMBER = 3


def run(command, model, source, output, *options) -> int:
    return main([str(word) for word in (command, model, source, output, "--batch_size", "4", *options)])


def state(output, capsys) -> tuple[int, str]:
    """What `hf-blosan shards` says."""
    capsys.readouterr()
    return main(["shards", str(output)]), capsys.readouterr().out.strip()


class TestShard:
    @pytest.mark.parametrize(("rows", "number"), [(50, 3), (5, 5), (7, 4), (1000, 16)])
    def test_the_blocks_are_those_of_datasets(self, rows, number):
        data = datasets.Dataset.from_dict({"row": range(rows)})
        for index in range(number):
            start, end = Shard(index, number).block(rows)
            assert data.shard(number, index)["row"][:] == list(range(start, end))

    @pytest.mark.parametrize("text", ["3", "1/2/3", "a/b", "-1/4", "1/", "", "1/123456", "1 / 2", "¹/4"])
    def test_not_a_shard(self, text):
        with pytest.raises(InputError, match="give INDEX/NUMBER, as in 0/16 for the first of 16 parts"):
            Shard.of(text)

    def test_there_is_no_such_shard(self):
        with pytest.raises(InputError, match="--shard is 16/16; parts are counted from 0: there are 0/16 to 15/16"):
            Shard.of("16/16")
        with pytest.raises(InputError, match="--shard is 0/0; parts are counted from 0: there has to be at least one"):
            Shard.of("0/0")

    def test_names(self):
        assert Shard(3, 16).part("out/a.b.parquet") == Path("out/a.b-00003-of-00016.parquet")
        assert Shard(3, 16).manifest("out/a.b.parquet") == Path("out/.a.b-00003-of-00016.parquet.json")


class TestParts:
    @pytest.mark.parametrize("source", [".jsonl", ".csv", ".txt", ".parquet", ".jsonl.gz"])
    def test_of_any_input(self, source, classifier, tmp_path, small_buffer):
        """In order they are what one command writes, but for rounding: other rows share their batches."""
        path, texts = tmp_path / f"rows{source}", [row["text"] for row in question_rows(50)]
        if source == ".parquet":
            datasets.Dataset.from_dict({"text": texts}).to_parquet(path)
        elif source == ".txt":
            path.write_text("\n".join(texts) + "\n")
        else:
            write_rows(path, [{"text": text} for text in texts])
        assert run("encode", classifier, path, tmp_path / "whole.npy") == 0
        for index in range(NUMBER):
            assert run("encode", classifier, path, tmp_path / "v.npy", "--shard", f"{index}/{NUMBER}") == 0
        parts = [np.load(part) for part in sorted(tmp_path.glob("v-*"))]
        assert [len(part) for part in parts] == [17, 17, 16]
        np.testing.assert_allclose(np.concatenate(parts), np.load(tmp_path / "whole.npy"), atol=1e-6)

    def test_of_predictions(self, classifier, question_file, tmp_path, small_buffer):
        assert run("predict", classifier, question_file, tmp_path / "whole.jsonl", "--probabilities") == 0
        for index in range(NUMBER):
            shard = ["--shard", f"{index}/{NUMBER}"]
            assert run("predict", classifier, question_file, tmp_path / "p.jsonl", "--probabilities", *shard) == 0
        found = [row for part in sorted(tmp_path.glob("p-*")) for row in read_lines(part)]
        for row, expected in zip(found, read_lines(tmp_path / "whole.jsonl"), strict=True):
            assert row.pop("label") == expected.pop("label") and row == pytest.approx(expected, abs=1e-6)

    def test_read_as_one_data_set(self, classifier, question_file, tmp_path, small_buffer):
        """By readers that are given the folder, although the manifests lie in it."""
        folder = tmp_path / "vectors"
        assert run("encode", classifier, question_file, tmp_path / "whole.npy") == 0
        for index in (2, 0, 1):
            assert run("encode", classifier, question_file, folder / "v.parquet", "--shard", f"{index}/{NUMBER}") == 0
        whole, cache = np.load(tmp_path / "whole.npy"), str(tmp_path / "cache")
        rows = datasets.load_dataset("parquet", data_dir=str(folder), split="train", cache_dir=cache)
        table = pyarrow.dataset.dataset(folder, format="parquet").to_table()
        for found in (rows["vector"][:], table["vector"].to_pylist()):
            np.testing.assert_allclose(np.array(found), whole, atol=1e-6)

    def test_all_shards_take_the_same_columns(self, classifier, tmp_path, small_buffer):
        """Those of the first rows of the file, even where a part begins with rows that look different."""
        rows = [{"note": None, "text": row["text"]} for row in question_rows(120)]
        rows[100:] = [{"note": "a cat", "text": row["text"]} for row in rows[100:]]
        source = write_rows(tmp_path / "rows.jsonl", rows)
        assert run("encode", classifier, source, tmp_path / "whole.npy") == 0
        assert run("encode", classifier, source, tmp_path / "v.npy", "--shard", "5/6") == 0
        np.testing.assert_allclose(
            np.load(tmp_path / "v-00005-of-00006.npy"), np.load(tmp_path / "whole.npy")[100:], atol=1e-6
        )

    def test_numbers_of_rows_are_those_of_the_file(self, classifier, tmp_path, capsys, small_buffer):
        source = write_rows(tmp_path / "rows.jsonl", [*question_rows(40), {"text": None}, *question_rows(9)])
        assert run("encode", classifier, source, tmp_path / "v.npy", "--shard", "0/2") == 0
        assert "row 41: text is null" in refused(
            capsys, "encode", classifier, source, tmp_path / "v.npy", "--shard", "1/2"
        )

    @pytest.mark.parametrize("after", [1, 2])
    @pytest.mark.parametrize("suffix", [".npy", ".parquet"])
    def test_resumed_is_uninterrupted(
        self, suffix, after, classifier, question_file, tmp_path, monkeypatch, capsys, small_buffer
    ):
        words = ["encode", classifier, question_file, tmp_path / f"v{suffix}", "--shard", "1/3"]
        assert run(*words) == 0
        part, manifest = tmp_path / f"v-00001-of-00003{suffix}", tmp_path / f".v-00001-of-00003{suffix}.json"
        content, described = part.read_bytes(), manifest.read_bytes()
        part.unlink(), manifest.unlink()
        with monkeypatch.context() as patch:
            interrupt(patch, after=after, garbage=True)
            assert run(*words) == 130
        assert "; the same command with --resume continues there" in capsys.readouterr().err
        assert not part.exists() and not manifest.exists()
        assert run(*words, "--resume") == 0
        assert part.read_bytes() == content and manifest.read_bytes() == described

    def test_resumed_on_another_machine(self, classifier, question_file, tmp_path, monkeypatch, capsys, small_buffer):
        """Where the files have other paths and times."""
        output, other = tmp_path / "v.npy", tmp_path / "other"
        with monkeypatch.context() as patch:
            interrupt(patch, after=1)
            assert run("encode", classifier, question_file, output, "--shard", "1/3") == 130
        other.mkdir()
        model, source = shutil.copytree(classifier, other / Path(classifier).name), shutil.copy(question_file, other)
        rows = read_lines(source)
        write_rows(Path(source), [rows[0] | {"more": 1}, *rows[1:]])
        assert "another input" in refused(
            capsys, "encode", model, source, output, "--shard", "1/3", "--resume", "--batch_size", "4"
        )
        write_rows(Path(source), rows)
        assert run("encode", model, source, output, "--shard", "1/3", "--resume") == 0

    def test_a_complete_part_is_not_made_again(self, classifier, question_file, tmp_path, monkeypatch, small_buffer):
        """With --resume, so that a scheduler can start all shards again."""
        words = ["encode", classifier, question_file, tmp_path / "v.npy", "--shard", "1/3"]
        assert run(*words) == 0
        part, appended = tmp_path / "v-00001-of-00003.npy", []
        append = stream.Output.append
        monkeypatch.setattr(stream.Output, "append", lambda *given: appended.append(1) or append(*given))
        assert run(*words, "--resume") == 0 and not appended
        write_rows(Path(question_file), question_rows(51))
        assert run(*words, "--resume") == 0 and appended
        appended.clear()
        part.write_bytes(part.read_bytes()[:-4])
        assert run(*words, "--resume") == 0 and appended

    def test_killed_before_the_manifest(self, classifier, question_file, tmp_path, monkeypatch, capsys, small_buffer):
        """An older manifest does not describe the new part."""
        words = ["encode", classifier, question_file, tmp_path / "v.npy", "--shard", "0/1"]
        assert run(*words) == 0
        with monkeypatch.context() as patch:
            patch.setattr(Shard, "write_manifest", lambda *given: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run(*words)
        assert state(tmp_path / "v.npy", capsys)[0] == 1
        assert run(*words, "--resume") == 0 and state(tmp_path / "v.npy", capsys)[0] == 0

    def test_refused(self, classifier, question_file, tmp_path, capsys):
        words = ["encode", classifier, question_file]
        assert "--shard needs files" in refused(capsys, *words, "-", "--shard", "0/2")
        assert "--shard is 2/2; parts are" in refused(capsys, *words, tmp_path / "v.npy", "--shard", "2/2")
        message = refused(capsys, *words, tmp_path / "v.npy", "--shard", "0/51")
        assert message.endswith("--shard is 0/51; " + question_file + " has 50 rows, so give at most 50 parts")
        assert not list(tmp_path.glob("*v*"))


class TestManifests:
    @pytest.fixture(scope="class")
    def made(self, classifier, tmp_path_factory):
        folder = tmp_path_factory.mktemp("parts")
        source = write_rows(folder / "questions.jsonl", question_rows(50))
        for index in range(NUMBER):
            assert run("encode", classifier, source, folder / "out" / "v.npy", "--shard", f"{index}/{NUMBER}") == 0
        return folder / "out"

    @pytest.fixture
    def parts(self, made, tmp_path):
        """As copied from several machines to one place."""
        return Path(shutil.copytree(made, tmp_path / "copied")) / "v.npy"

    def test_complete(self, parts, capsys):
        assert state(parts, capsys) == (0, f"{parts}: complete, 3 parts with 50 rows")
        manifest = json.loads(Shard(1, 3).manifest(parts).read_text())
        assert (manifest["part"], manifest["block"]) == ("v-00001-of-00003.npy", [17, 34])
        source = manifest["made_from"]
        assert source["input"]["rows"] == 50 and source["input"]["name"] == "questions.jsonl"
        assert "/" not in json.dumps([source["input"], source["model"]])  # the same on every machine

    def test_partial(self, parts, capsys):
        Shard(1, 3).part(parts).unlink()
        assert state(parts, capsys) == (1, f"{parts}: partial, 2 of 3 parts with 33 rows; missing 1/3")
        Shard(0, 3).manifest(parts).unlink()
        assert state(parts, capsys) == (1, f"{parts}: partial, 1 of 3 parts with 16 rows; missing 0/3, 1/3")

    @pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"shard": "1/3"}', b"\xff", b"[" * 100_000])
    def test_damaged_manifests_are_missing_parts(self, parts, content, capsys):
        Shard(1, 3).manifest(parts).write_bytes(content)
        assert state(parts, capsys)[0] == 1

    def test_a_copy_that_was_cut_short(self, parts, capsys):
        path = Shard(2, 3).part(parts)
        path.write_bytes(path.read_bytes()[:-1])
        assert state(parts, capsys) == (1, f"{parts}: partial, 2 of 3 parts with 34 rows; missing 2/3")

    @pytest.mark.parametrize("name", ["input", "model", "--max_length", "hf_blosan"])
    def test_parts_of_something_else(self, parts, name, capsys):
        path = Shard(1, 3).manifest(parts)
        manifest = json.loads(path.read_text())
        source = manifest["made_from"]
        source[name] = source["input"] | {"name": "other.jsonl"} if name == "input" else "other"
        path.write_text(json.dumps(manifest))
        message = refused(capsys, "shards", parts)
        assert f"v-00001-of-00003.npy was made from another {name} than v-00000-of-00003.npy; make one of" in message
        assert message.endswith("make one of them again, with --shard 1/3 or 0/3")

    def test_no_parts_and_parts_of_two_jobs(self, parts, capsys):
        assert "there is no part of nowhere/v.npy, such as v-00000-of-00016.npy; give the" in refused(
            capsys, "shards", "nowhere/v.npy"
        )
        shutil.copy(Shard(0, 3).part(parts), Shard(0, 16).part(parts))
        message = refused(capsys, "shards", parts)
        assert message.endswith("has parts of v.npy of 3, 16 shards; delete all but those of one number")


class TestVectorDtype:
    def test_float16(self, scorer, tmp_path, small_buffer):
        source = write_rows(tmp_path / "pairs.jsonl", pair_rows(20))
        columns = ["--text_column_name", "sentence1", "--text_pair_column_name", "sentence2"]
        assert run("encode", scorer, source, tmp_path / "whole.npy", *columns) == 0
        for name in ("o.npy", "o.parquet"):
            assert run("encode", scorer, source, tmp_path / name, *columns, "--vector_dtype", "float16") == 0
        whole, vectors = np.load(tmp_path / "whole.npy"), np.load(tmp_path / "o.npy")
        assert vectors.dtype == np.float16
        np.testing.assert_array_equal(vectors, whole.astype(np.float16))
        table = pq.read_table(tmp_path / "o.parquet")
        assert table.schema.field("vector").type == pyarrow.list_(pyarrow.float16(), 8)
        np.testing.assert_array_equal(np.array(table["vector_pair"].to_pylist(), np.float16), vectors[:, 1])

    def test_int8(self, scorer, tmp_path, small_buffer):
        source = write_rows(tmp_path / "pairs.jsonl", pair_rows(20))
        columns = ["--text_column_name", "sentence1", "--text_pair_column_name", "sentence2"]
        assert run("encode", scorer, source, tmp_path / "whole.npy", *columns) == 0
        assert run("encode", scorer, source, tmp_path / "o.parquet", *columns, "--vector_dtype", "int8") == 0
        table, whole = pq.read_table(tmp_path / "o.parquet"), np.load(tmp_path / "whole.npy")
        assert table.column_names == ["vector", "vector_scale", "vector_pair", "vector_pair_scale"]
        assert table.schema.field("vector").type == pyarrow.list_(pyarrow.int8(), 8)
        for i, name in enumerate(("vector", "vector_pair")):
            scales = np.array(table[f"{name}_scale"])
            np.testing.assert_array_equal(scales, np.abs(whole[:, i]).max(1) / np.float32(127))
            again = np.array(table[name].to_pylist()) * scales[:, None]
            assert (np.abs(again - whole[:, i]) <= scales[:, None] * 0.5001).all()

    def test_quantized_at_the_edges(self):
        rows = np.array([[0, 0], [1e-45, 0], [-3e38, 3e38], [1, -0.5]], dtype=np.float32)
        codes, scales = quantized(rows)
        assert codes.tolist() == [[0, 0], [0, 0], [-127, 127], [127, -64]] and np.isfinite(scales).all()
        table = torch.tensor(rows[3:])
        torch.testing.assert_close(torch.tensor(codes[3:] * scales[3:, None]), table, atol=0.5 / 127, rtol=0)

    def test_too_large_for_float16(self):
        with pytest.raises(InputError, match="a vector has the number 7e.04, which float16 cannot hold; leave out"):
            vector_formats("float16")[".npy"].encode({"vector": np.array([[1.0, -7e4]], dtype=np.float32)})

    @pytest.mark.parametrize(("dtype", "output"), [("float16", "o.jsonl"), ("int8", "o.npy"), ("int8", "-")])
    def test_files_that_cannot_hold_it(self, dtype, output, classifier, question_file, capsys):
        message = refused(capsys, "encode", classifier, question_file, output, "--vector_dtype", dtype)
        assert message.startswith(f"error: --vector_dtype {dtype} is for files that end in ")
        assert message.endswith(f".parquet; the output is {output}.")

    def test_another_dtype_is_not_continued(
        self, classifier, question_file, tmp_path, monkeypatch, capsys, small_buffer
    ):
        words = ["encode", classifier, question_file, tmp_path / "o.npy"]
        with monkeypatch.context() as patch:
            interrupt(patch, after=2)
            assert run(*words) == 130
        message = refused(capsys, *words, "--batch_size", "4", "--vector_dtype", "float16", "--resume")
        assert "o.npy was started with another --vector_dtype; repeat" in message


def test_rows_that_are_passed_over(tmp_path, monkeypatch):
    """They are counted, blank lines are not, and what follows has its number."""
    lines = "".join(f'{{"text": "{i}"}}\n\n' for i in range(5))
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "b.json").write_text(json.dumps([{"text": str(i)} for i in range(5)]))
    (tmp_path / "c.csv").write_text("text,more\n" + "".join(f"{i},x\n\n" for i in range(5)))
    datasets.Dataset.from_dict({"text": list("01234")}).to_parquet(tmp_path / "d.parquet")
    for path in sorted(tmp_path.iterdir()):
        with Rows(path) as rows:
            assert rows.count() == 5
            assert rows.skip(3) == 3
            number = 7 if path.suffix in (".jsonl", ".csv") else 4
            assert next(rows.numbered()) == (number, {"text": "3"} | ({"more": "x"} if path.suffix == ".csv" else {}))
            assert rows.skip() == 1 and not list(rows.numbered())
    columns = {"text": list("0123456789"), "more": [{"x": i} for i in range(10)]}
    datasets.Dataset.from_dict(columns).to_parquet(tmp_path / "f.parquet", batch_size=4)  # groups of 4, 4 and 2 rows
    decoded, read = [], pq.ParquetFile.iter_batches
    see = lambda *given, **named: decoded.append(named) or read(*given, **named)  # noqa: E731
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", see)
    for start in range(11):
        with Rows(tmp_path / "f.parquet") as rows:
            head = list(islice(rows, min(start, 1)))
            rows.take_only(["text"])
            assert rows.skip(start - len(head)) == start - len(head)
            decoded.clear()
            assert list(rows.numbered()) == [(i + 1, {"text": str(i)}) for i in range(start, 10)]
            groups = range(start // 4, 3) if start < 10 else ()
            assert decoded == [{"row_groups": [group], "columns": ["text"]} for group in groups]
    (tmp_path / "a.jsonl").write_text(lines + "{")
    with Rows(tmp_path / "a.jsonl") as rows:
        assert rows.skip() == 6
    (tmp_path / "e.json").write_text('["{}"]')
    with Rows(tmp_path / "e.json") as rows, pytest.raises(InputError, match="row 1 is not a JSON object"):
        list(rows)
