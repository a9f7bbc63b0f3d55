"""`hf-blosan predict` and `encode`: their files are right in every format, whatever interrupts the command."""

import csv
import errno
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow.parquet
import pytest
import torch
from cli_models import refused, save
from small_data import pair_rows, question_rows, read_lines, write_backbone, write_rows
from tqdm import tqdm
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DistilBertConfig,
    DistilBertModel,
    pipeline,
)

import hf_blosan
from hf_blosan.cli.commands import main
from hf_blosan.data import rows as rows_of_files
from hf_blosan.data.rows import Rows
from hf_blosan.errors import InputError
from hf_blosan.files import write_json
from hf_blosan.hub.saved import load
from hf_blosan.inference import stream
from hf_blosan.inference.batches import Batches
from hf_blosan.inference.output import PREDICTIONS, Output
from hf_blosan.tasks import classification
from hf_blosan.tasks.classification import tokenize_texts
from hf_blosan.tasks.kinds import kind_of


class TestPredict:
    def test_as_the_pipeline_in_every_format(self, classifier, questions, tmp_path, small_buffer):
        classify = pipeline("text-classification", classifier)
        expected = [classify(row["text"])[0] for row in question_rows(50)]
        for name in ("o.jsonl", "o.csv", "o.parquet"):
            assert main(["predict", classifier, questions, str(tmp_path / name), "--batch-size", "4"]) == 0
        table = pyarrow.parquet.read_table(tmp_path / "o.parquet").to_pylist()
        with (tmp_path / "o.csv").open() as file:
            cells = [{"label": row["label"], "score": float(row["score"])} for row in csv.DictReader(file)]
        for found in (read_lines(tmp_path / "o.jsonl"), table, cells):
            assert [row["label"] for row in found] == [row["label"] for row in expected]
            np.testing.assert_allclose([row["score"] for row in found], [row["score"] for row in expected], atol=1e-6)
        assert not list(tmp_path.glob(".*"))

    def test_probabilities(self, classifier, questions, tmp_path):
        assert main(["predict", classifier, questions, str(tmp_path / "o.jsonl"), "--probabilities"]) == 0
        for row in read_lines(tmp_path / "o.jsonl"):
            probabilities = {name: row[f"probability_{name}"] for name in ("animal", "colour", "number")}
            assert sum(probabilities.values()) == pytest.approx(1, abs=1e-6)
            assert row["label"] == max(probabilities, key=probabilities.get) and row["score"] == max(
                probabilities.values()
            )

    @pytest.mark.parametrize("size", ["1", "64"])
    def test_scores_of_pairs(self, size, scorer, tmp_path):
        rows = [{"n": i, "b": row["sentence2"], "a": row["sentence1"]} for i, row in enumerate(pair_rows(30))]
        rows[3]["b"] = ""
        source, output = write_rows(tmp_path / "pairs.jsonl", rows), tmp_path / "o.csv"
        columns = ["--text_column_name", "a", "--text_pair_column_name", "b"]
        assert main(["predict", scorer, str(source), str(output), *columns, "--batch_size", size]) == 0
        model, tokenizer = (
            AutoModelForSequenceClassification.from_pretrained(scorer),
            AutoTokenizer.from_pretrained(scorer),
        )
        batch = tokenizer([row["a"] for row in rows], [row["b"] for row in rows], padding=True, return_tensors="pt")
        with torch.no_grad():
            expected = model(**batch).logits[:, 0]
        found = [float(row["score"]) for row in csv.DictReader(output.open())]
        np.testing.assert_allclose(found, expected, atol=1e-5)

    @pytest.mark.parametrize("lines", ["a cat\n\nred\n", '{"text": "a cat"}\n{"text": ""}\n{"text": "red"}\n'])
    @pytest.mark.parametrize("size", ["1", "64"])
    def test_standard_input_and_output(self, size, lines, classifier, monkeypatch, capsysbinary):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
        assert main(["predict", classifier, "--batch_size", size]) == 0
        rows = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
        classify = pipeline("text-classification", classifier)
        assert [row["score"] for row in rows] == pytest.approx([classify(t)[0]["score"] for t in ("a cat", "", "red")])

    def test_long_texts_are_truncated_and_counted(self, classifier, questions, tmp_path, caplog):
        """The warning has a line of its own, not the progress bar's."""
        bars = []
        with caplog.filtering(lambda entry: bars.append((entry.levelname, len(tqdm._instances))) or True):
            assert main(["predict", classifier, questions, str(tmp_path / "o.csv"), "--max_length", "3"]) == 0
        (message,) = [entry.getMessage() for entry in caplog.records if entry.levelname == "WARNING"]
        assert re.match(r"\d+ texts have more than 3 tokens \(the longest 12\)", message)
        assert ("WARNING", 0) in bars

    @pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv"])
    def test_a_line_of_any_length_costs_no_more_than_a_long_one(
        self, suffix, classifier, tmp_path, caplog, monkeypatch
    ):
        long, short, seen = "the cat of in " * 100_000, "red dog", []
        rows = write_rows(tmp_path / f"rows{suffix}", [{"text": short}, {"text": long}]) if suffix != ".txt" else None
        if rows is None:
            rows = tmp_path / "rows.txt"
            rows.write_text(f"{short}\n{long}\n")
        with monkeypatch.context() as patch:
            tokenize = classification.tokenize_texts
            see = lambda texts, *options, **named: seen.extend(texts) or tokenize(texts, *options, **named)  # noqa: E731
            patch.setattr(classification, "tokenize_texts", see)
            assert main(["predict", classifier, str(rows), str(tmp_path / "o.jsonl")]) == 0
        assert max(len(text) for (text,) in seen) == 61_200
        message = "1 texts have more than 61200 characters; no more were tokenized"
        assert message in caplog.text
        classify = pipeline("text-classification", classifier)
        expected = [classify(text, truncation=True)[0]["score"] for text in (short, long)]
        assert [row["score"] for row in read_lines(tmp_path / "o.jsonl")] == pytest.approx(expected, abs=1e-6)

    def test_rows_are_alike_whether_truncated_or_not(self, classifier, scorer):
        """A server computes them in one batch."""
        for name, texts in ((classifier, [("a b c",), ("a",)]), (scorer, [("a b c", "d"), ("a", "")])):
            model, tokenizer = load(name, None, cpu=True)
            batches = Batches(model, tokenizer, kind_of(model.config), batch_size=64, max_length=3)
            cut, rows = tokenize_texts(texts, tokenizer, 3), tokenize_texts(texts, tokenizer)
            assert [list(row) for row in cut] == [list(row) for row in rows]
            assert cut[1] == rows[1] and [len(row["input_ids"]) for row in cut] == [3, 1]
            assert len(rows[0]["input_ids"]) == sum(len(text.split()) for text in texts[0])
            assert batches.forward([cut[0], rows[1]]).shape[0] == 2

    def test_a_model_and_a_tokenizer_from_elsewhere(self, tmp_path, caplog, capsys):
        """The model has no number of sentences, the tokenizer no limit but that of the positions."""
        folder = write_backbone(tmp_path / "bert", ["a"])
        AutoModelForSequenceClassification.from_pretrained(folder).save_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.model_max_length = 10**30
        tokenizer.save_pretrained(folder)
        rows = write_rows(tmp_path / "rows.jsonl", [{"text": "a " * length} for length in (400, 0, 3)])
        assert main(["predict", str(folder), str(rows), str(tmp_path / "o.jsonl"), "--cpu"]) == 0
        assert [row["label"][:-1] for row in read_lines(tmp_path / "o.jsonl")] == ["LABEL_"] * 3
        assert "more than 320 tokens (the longest 402) and were truncated; the model has no positions" in caplog.text
        for command, options, problem in (
            ("predict", ["--max_length", "400"], "--max_length is 400, but the model has 320 positions; use that"),
            ("bench", ["--lengths", "400"], "--lengths is 400, but the model has 320 positions; use that"),
            ("predict", ["--max_length", "2"], "--max_length is 2; use 3 or more tokens"),
            ("serve", ["--batch_tokens", "2"], "--batch_tokens is 2; use 3 or more tokens"),
        ):
            files = [str(rows), str(tmp_path / "p.jsonl")] if command == "predict" else []
            assert problem in refused(capsys, command, folder, *files, *options, "--cpu")

    def test_texts_longer_than_a_backbone(self, tmp_path, caplog):
        """More tokens would be refused, so the warning does not ask for them."""
        folder = write_backbone(tmp_path / "bert", ["a"])
        model = hf_blosan.DiSANForSequenceClassification(hf_blosan.DiSANConfig(backbone=str(folder), hidden_size=8))
        tokenizer = AutoTokenizer.from_pretrained(folder)
        for limit, remedy in ((None, "increase --max_length"), (320, "the model has no positions for more")):
            batches = Batches(model.eval(), tokenizer, kind_of(model.config), batch_size=2, max_length=limit)
            batches([("a " * 400,)])
            batches.report()
            assert f"more than {limit or 300} tokens (the longest 402) and were truncated; {remedy}" in caplog.text


class TestEncode:
    @pytest.mark.parametrize(
        ("fields", "why"), [({"pooling": "none"}, 'has pooling="none"'), ({"predicate_size": 2}, "needs predicates")]
    )
    def test_encoders_without_sentence_vectors(self, fields, why, questions, tmp_path, capsys):
        folder = save(tmp_path / "model", question_rows(6), hf_blosan.DiSANModel, **fields)
        message = refused(capsys, "encode", folder, questions, tmp_path / "o.npy")
        assert why in message and message.endswith("gives no sentence vectors; give another one")

    def test_the_pooled_output_in_every_format(self, classifier, questions, tmp_path, small_buffer):
        model, tokenizer = AutoModel.from_pretrained(classifier), AutoTokenizer.from_pretrained(classifier)
        with torch.no_grad():
            texts = [row["text"] for row in question_rows(50)]
            expected = model(**tokenizer(texts, padding=True, return_tensors="pt")).pooler_output.numpy()
        for name in ("o.npy", "o.jsonl", "o.parquet"):
            assert main(["encode", classifier, questions, str(tmp_path / name), "--batch_size", "4"]) == 0
        vectors = np.load(tmp_path / "o.npy", mmap_mode="r")
        assert vectors.dtype == np.float32 and vectors.shape == (50, 8)
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
        table = pyarrow.parquet.read_table(tmp_path / "o.parquet")["vector"].to_pylist()
        for found in (table, [row["vector"] for row in read_lines(tmp_path / "o.jsonl")]):
            np.testing.assert_array_equal(np.array(found, dtype=np.float32), vectors)

    def test_both_texts(self, scorer, tmp_path, capsys):
        source = write_rows(tmp_path / "pairs.jsonl", pair_rows(20))
        assert "the model takes one text a row" in refused(capsys, "encode", scorer, source, tmp_path / "o.npy")
        columns = ["--text_column_name", "sentence1", "--text_pair_column_name", "sentence2"]
        for name in ("o.npy", "o.jsonl", "o.parquet"):
            assert main(["encode", scorer, str(source), str(tmp_path / name), *columns]) == 0
        assert (
            main(["encode", scorer, str(source), str(tmp_path / "second.npy"), "--text_column_name", "sentence2"]) == 0
        )
        both = np.load(tmp_path / "o.npy")
        assert both.shape == (20, 2, 8)
        np.testing.assert_allclose(both[:, 1], np.load(tmp_path / "second.npy"), atol=1e-6)
        for rows in (read_lines(tmp_path / "o.jsonl"), pyarrow.parquet.read_table(tmp_path / "o.parquet").to_pylist()):
            np.testing.assert_array_equal(np.array([row["vector_pair"] for row in rows], dtype=np.float32), both[:, 1])


def test_an_encoder_that_pools_nothing(classifier, questions, tmp_path, capsys):
    tokenizer = AutoTokenizer.from_pretrained(classifier)
    config = DistilBertConfig(vocab_size=len(tokenizer), dim=8, hidden_dim=8, n_layers=1, n_heads=1)
    for part in (DistilBertModel(config), tokenizer):
        part.save_pretrained(tmp_path / "model")
    message = refused(capsys, "encode", tmp_path / "model", questions, tmp_path / "o.npy")
    assert "model gives no sentence vectors (pooler_output); give an encoder that pools its tokens" in message.replace(
        "'", ""
    )


OUTPUTS = [
    ("predict", ".jsonl"),
    ("predict", ".csv"),
    ("predict", ".parquet"),
    ("encode", ".npy"),
    ("encode", ".parquet"),
]


def interrupt(monkeypatch, *, after: int, garbage: Path | None = None):
    """Send SIGINT to this process after some blocks of rows."""
    append, count = stream.Output.append, iter(range(after))

    def append_or_stop(output, columns):
        if next(count, None) is None:
            if garbage:  # what an interruption in the middle of writing leaves behind
                output.file.write(b"half a ro")
            handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
            try:
                signal.raise_signal(signal.SIGINT)
            finally:
                signal.signal(signal.SIGINT, handler)
        append(output, columns)

    monkeypatch.setattr(stream.Output, "append", append_or_stop)


class TestStreaming:
    def test_constant_memory(self, classifier, tmp_path, monkeypatch, small_buffer):
        """Of 3,000 rows that a generator makes, never more than a buffer is read ahead of what is written."""
        read, written, ahead = 0, 0, []

        class Generated(Rows):
            def __init__(self, path):
                self.path, self.name, self.total, self.unit, self._number = Path(path), "generated", 3000, "rows", 0
                self.left = self.generated()

            def __exit__(self, *exception):
                pass

            def numbered(self):
                return self.left

            def generated(self):
                nonlocal read
                for row in question_rows(3000):
                    read += 1
                    ahead.append(read - written)
                    yield read, row

        append = stream.Output.append

        def count(output, columns):
            nonlocal written
            append(output, columns)
            written = output.rows
            assert output.partial.stat().st_size == output.bytes

        monkeypatch.setattr(stream, "Rows", Generated)
        monkeypatch.setattr(stream.Output, "append", count)
        (tmp_path / "rows").touch()
        output = tmp_path / "o.npy"
        assert main(["encode", classifier, str(tmp_path / "rows"), str(output), "--batch_size", "16"]) == 0
        assert np.load(output, mmap_mode="r").shape == (3000, 8) and read == written == 3000
        assert max(ahead) == 32

    def test_full_disk(self, classifier, questions, tmp_path, capsys, small_buffer):
        """What does not fit is lost, and nothing else."""
        whole, output = tmp_path / "whole.jsonl", tmp_path / "o.jsonl"
        words = ["encode", classifier, questions, str(output), "--batch_size", "4"]
        assert main([*words[:3], str(whole), *words[4:]]) == 0
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (whole.stat().st_size // 2, limits[1]))
        try:
            message = refused(capsys, *words)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert "cannot be written (File too large); free some space and repeat the command with --resume" in message
        assert {path.name for path in tmp_path.glob(".o*")} == {".o.jsonl.partial", ".o.jsonl.partial.json"}
        assert main([*words, "--resume"]) == 0
        assert output.read_bytes() == whole.read_bytes()

    def test_full_disk_at_the_end(self, classifier, questions, tmp_path, monkeypatch, capsys):
        with monkeypatch.context() as patch:
            error = OSError(errno.ENOSPC, "No space left on device")
            patch.setattr(pyarrow.parquet.ParquetWriter, "write_table", Mock(side_effect=error))
            message = refused(capsys, "encode", classifier, questions, tmp_path / "o.parquet")
        assert "cannot be written (No space left on device); free some space and repeat the command" in message
        assert {path.name for path in tmp_path.glob(".o*")} == {".o.parquet.partial", ".o.parquet.partial.json"}
        assert main(["encode", classifier, questions, str(tmp_path / "o.parquet"), "--resume"]) == 0

    def test_input_that_cannot_be_read_for_a_while(
        self, classifier, questions, tmp_path, monkeypatch, capsys, small_buffer
    ):
        """As on a network drive; a damaged file keeps nothing, see below."""
        output, read = tmp_path / "o.jsonl", rows_of_files.lines_of
        words = ["predict", classifier, questions, str(output), "--batch_size", "4"]

        def stop(file):
            yield from islice(read(file), 30)
            raise OSError(errno.ESTALE, "Stale file handle")

        with monkeypatch.context() as patch:
            patch.setattr(rows_of_files, "lines_of", stop)
            message = refused(capsys, *words)
        assert message.endswith("after row 30 (Stale file handle); repeat the command with --resume")
        assert json.loads((tmp_path / ".o.jsonl.partial.json").read_text())["rows"] == 24
        assert main([*words, "--resume"]) == 0 and len(read_lines(output)) == 50

    @pytest.mark.parametrize("after", [1, 4])
    @pytest.mark.parametrize(("command", "suffix"), OUTPUTS)
    def test_resumed_is_uninterrupted(
        self, command, suffix, after, classifier, questions, tmp_path, monkeypatch, capsys, small_buffer
    ):
        whole, output = tmp_path / f"whole{suffix}", tmp_path / f"o{suffix}"
        words = [command, classifier, questions, str(output), "--batch_size", "4"]
        assert main([*words[:3], str(whole), *words[4:]]) == 0
        with monkeypatch.context() as patch:
            interrupt(patch, after=after, garbage=after == 4)
            assert main(words) == 130
        message = capsys.readouterr().err.splitlines()[-1]
        assert message == f"interrupted after {8 * after} rows; the same command with --resume continues there"
        assert not output.exists() and (tmp_path / f".o{suffix}.partial").exists()
        rows_read = []
        monkeypatch.setattr(stream.Batches, "tokenize", spy(stream.Batches.tokenize, rows_read))
        assert main([*words, "--resume"]) == 0
        assert sum(rows_read) == 50 - 8 * after
        assert output.read_bytes() == whole.read_bytes()
        assert not list(tmp_path.glob(".*"))

    def test_the_input_is_not_overwritten(self, classifier, questions, capsys):
        content = Path(questions).read_bytes()
        assert "is read, too, and would be lost" in refused(capsys, "predict", classifier, questions, questions)
        assert Path(questions).read_bytes() == content

    def test_a_closed_pipe_ends_the_command(self):
        """As in `hf-blosan tasks | head -0`."""
        reading, writing = os.pipe()
        os.close(reading)
        with open(writing, "wb") as pipe:
            command = [sys.executable, "-m", "hf_blosan", "tasks"]
            run = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE)
        assert run.returncode == 141 and not run.stderr

    def test_what_has_changed_is_not_continued(
        self, classifier, scorer, questions, tmp_path, monkeypatch, capsys, small_buffer
    ):
        output = tmp_path / "o.jsonl"
        words = ["predict", classifier, questions, str(output), "--batch_size", "4"]
        with monkeypatch.context() as patch:
            interrupt(patch, after=2)
            assert main(words) == 130
        partial = tmp_path / ".o.jsonl.partial"
        content = partial.read_bytes()
        capsys.readouterr()
        for change, name in (
            (["--batch_size", "8"], "--batch_size"),
            (["--max_length", "9"], "--max_length"),
            (["--probabilities"], "--probabilities"),
            (["--text_column_name", "label"], "--text_column_name or --text_pair_column_name"),
        ):
            message = refused(capsys, *words, *change, "--resume")
            assert (
                f"o.jsonl was started with another {name}; repeat that command, or start over with --over" in message
            )
        with monkeypatch.context() as patch:
            patch.setattr(stream, "__version__", "0.0.1")
            assert "another hf_blosan" in refused(capsys, *words, "--resume")
        other = tmp_path / "other"
        AutoModelForSequenceClassification.from_pretrained(classifier).save_pretrained(other)
        AutoTokenizer.from_pretrained(classifier).save_pretrained(other)
        assert "another model" in refused(capsys, words[0], other, *words[2:], "--resume")
        with open(questions, "a") as file:
            file.write('{"text": "one more"}\n')
        assert "another input" in refused(capsys, *words, "--resume")
        assert partial.read_bytes() == content and not output.exists()
        partial.write_bytes(content[:-9])
        write_rows(Path(questions), question_rows(50))
        assert main([*words, "--overwrite"]) == 0 and len(read_lines(output)) == 50
        assert not list(tmp_path.glob(".*"))

    def test_unfinished_output_is_not_thrown_away(
        self, classifier, questions, tmp_path, monkeypatch, capsys, small_buffer
    ):
        output, partial = tmp_path / "o.jsonl", tmp_path / ".o.jsonl.partial"
        words = ["predict", classifier, questions, str(output), "--batch_size", "4"]
        with monkeypatch.context() as patch:
            interrupt(patch, after=2)
            assert main(words) == 130
        content, state = partial.read_bytes(), (tmp_path / ".o.jsonl.partial.json").read_bytes()
        capsys.readouterr()
        message = refused(capsys, *words)
        assert message.startswith(f"error: {output} is unfinished: {partial} has 16 rows of an earlier command; ")
        assert message.endswith("; --resume continues it, --overwrite discards it and starts over")
        assert "give one of them" in refused(capsys, *words, "--resume", "--overwrite")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a cat\n")))
        assert "; --overwrite discards" in refused(capsys, "predict", classifier, "-", output)  # cannot be resumed
        assert partial.read_bytes() == content and not (tmp_path / ".o.jsonl.lock").exists()

        for damaged in (state[:-40], b"[]", b'{"rows": "x"}', b'{"rows": -1, "bytes": 9, "made_from": {}}', b"\xff"):
            (tmp_path / ".o.jsonl.partial.json").write_bytes(damaged)
            for options in ([], ["--resume"]):
                message = refused(capsys, *words, *options)
                assert (
                    ".o.jsonl.partial.json, which records" in message
                    and "is damaged; " in message
                    and "--overwrite discards both" in message
                )
                assert partial.read_bytes() == content and not (tmp_path / ".o.jsonl.lock").exists()
        (tmp_path / ".o.jsonl.partial.json").unlink()
        for options in ([], ["--resume"]):
            assert "which records its progress, is missing; --overwrite" in refused(capsys, *words, *options)
        assert partial.read_bytes() == content
        (tmp_path / ".o.jsonl.partial.json").write_bytes(state)
        assert main([*words, "--resume"]) == 0 and len(read_lines(output)) == 50
        assert not list(tmp_path.glob(".*"))

    def test_killed_before_the_first_rows(self, classifier, questions, tmp_path):
        """Nothing is there to be continued or lost."""
        path = tmp_path / "o.jsonl"
        for options in ([], ["--resume"]):
            output = Output(str(path), PREDICTIONS, {"input": ["a"]})
            output.file.write(b"half of the fi")
            output.file.close()
            output.lock.release()
            assert main(["predict", classifier, questions, str(path), *options]) == 0
            assert len(read_lines(path)) == 50 and not list(tmp_path.glob(".*"))

    def test_one_command_at_a_time(self, tmp_path):
        path, rows = tmp_path / "o.csv", {"score": [1.0]}
        first = Output(str(path), PREDICTIONS, {"input": "a"})
        first.append(rows)
        with pytest.raises(InputError, match="another command is writing to .*o.csv; wait"):
            Output(str(path), PREDICTIONS, {"input": "b"})
        first.close()
        with pytest.raises(InputError, match="started with another input"):
            Output(str(path), PREDICTIONS, {"input": "b"}, resume=True)
        assert not (tmp_path / ".o.csv.lock").exists()
        second = Output(str(path), PREDICTIONS, {"input": "a"}, resume=True)
        second.append(rows)
        second.complete()
        second.close()
        assert path.read_text() == "score\n1.0\n1.0\n" and list(tmp_path.iterdir()) == [path]

    def test_paths_are_checked_before_the_model_is_loaded(self, tmp_path, capsys, monkeypatch):
        folder = tmp_path / "folder.csv"
        folder.mkdir()
        assert "is a folder; give a file" in refused(capsys, "predict", "none", "a.csv", folder)
        for command in ("bench", "evaluate"):
            assert "is a folder; give a file" in refused(capsys, command, "none", "--output_file", folder)
        assert "is a folder; give a file" in refused(capsys, "evaluate", "none", "--predictions_file", folder)
        with pytest.raises(IsADirectoryError):
            write_json(folder, {})
        assert list(tmp_path.iterdir()) == [folder]
        for name in ("stdin", "stdout"):
            with monkeypatch.context() as patch:
                patch.setattr(sys, name, None)
                words = ["-", "o.csv"] if name == "stdin" else ["a.csv", "-"]
                assert f"standard {name[3:]}put is closed" in refused(capsys, "predict", "none", *words)

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
    def test_standard_output_without_room(self):
        with open("/dev/full", "w") as full:
            command = [sys.executable, "-m", "hf_blosan", "tasks"]
            ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
        assert ended.returncode == 2 and ended.stderr.startswith("error: standard output cannot be written (No space")
        assert ended.stderr.count("\n") == 1

    def test_no_file_after_a_failure(self, classifier, tmp_path, monkeypatch, capsys, small_buffer):
        source = write_rows(tmp_path / "rows.jsonl", [*question_rows(30), {"text": None}])
        output = tmp_path / "o.jsonl"
        output.write_text("of yesterday")
        words = ["predict", classifier, str(source), str(output), "--batch_size", "4"]
        assert "row 31: text is null" in refused(capsys, *words)
        assert output.read_text() == "of yesterday" and not list(tmp_path.glob(".*"))
        write_rows(source, question_rows(30))
        with monkeypatch.context() as patch:
            append = stream.Output.append
            patch.setattr(
                stream.Output, "append", lambda output, columns: append(output, columns) or 1 / (output.rows < 16)
            )
            with pytest.raises(ZeroDivisionError):
                main(words)
        assert output.read_text() == "of yesterday"
        assert main([*words, "--resume"]) == 0 and len(read_lines(output)) == 30


def spy(tokenize, counts):
    def counting(self, texts):
        counts.append(len(texts))
        return tokenize(self, texts)

    return counting
