"""What `hf-blosan predict` and `encode` leave behind when they are interrupted, and how they go on."""

import errno
import io
import json
import os
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
from cli_models import refused
from small_data import question_rows, read_lines, write_rows
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from hf_blosan.cli.commands import main
from hf_blosan.data import rows as rows_of_files
from hf_blosan.data.rows import Rows
from hf_blosan.errors import InputError
from hf_blosan.files import write_json
from hf_blosan.inference import output as output_module
from hf_blosan.inference import stream
from hf_blosan.inference.batches import Batches
from hf_blosan.inference.output import NESTED_PREDICTIONS, PREDICTIONS, Output

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
        (tmp_path / "rows.txt").touch()
        output = tmp_path / "o.npy"
        assert main(["encode", classifier, str(tmp_path / "rows.txt"), str(output), "--batch_size", "16"]) == 0
        assert np.load(output, mmap_mode="r").shape == (3000, 8) and read == written == 3000
        assert max(ahead) == 32

    def test_full_disk(self, classifier, question_file, tmp_path, capsys, small_buffer):
        """What does not fit is lost, and nothing else."""
        whole, output = tmp_path / "whole.jsonl", tmp_path / "o.jsonl"
        words = ["encode", classifier, question_file, str(output), "--batch_size", "4"]
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

    def test_full_disk_at_the_end(self, classifier, question_file, tmp_path, monkeypatch, capsys):
        with monkeypatch.context() as patch:
            error = OSError(errno.ENOSPC, "No space left on device")
            patch.setattr(pyarrow.parquet.ParquetWriter, "write_table", Mock(side_effect=error))
            message = refused(capsys, "encode", classifier, question_file, tmp_path / "o.parquet")
        assert "cannot be written (No space left on device); free some space and repeat the command" in message
        assert {path.name for path in tmp_path.glob(".o*")} == {".o.parquet.partial", ".o.parquet.partial.json"}
        assert main(["encode", classifier, question_file, str(tmp_path / "o.parquet"), "--resume"]) == 0

    def test_input_that_cannot_be_read_for_a_while(
        self, classifier, question_file, tmp_path, monkeypatch, capsys, small_buffer
    ):
        """As on a network drive; a damaged file keeps nothing, see below."""
        output, read = tmp_path / "o.jsonl", rows_of_files.lines_of
        words = ["predict", classifier, question_file, str(output), "--batch_size", "4"]

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
        self, command, suffix, after, classifier, question_file, tmp_path, monkeypatch, capsys, small_buffer
    ):
        whole, output = tmp_path / f"whole{suffix}", tmp_path / f"o{suffix}"
        words = [command, classifier, question_file, str(output), "--batch_size", "4"]
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

    def test_the_input_is_not_overwritten(self, classifier, question_file, capsys):
        content = Path(question_file).read_bytes()
        assert "is read, too, and would be lost" in refused(
            capsys, "predict", classifier, question_file, question_file
        )
        assert Path(question_file).read_bytes() == content

    def test_a_closed_pipe_ends_the_command(self):
        """As in `hf-blosan tasks | head -0`."""
        reading, writing = os.pipe()
        os.close(reading)
        with open(writing, "wb") as pipe:
            command = [sys.executable, "-m", "hf_blosan", "tasks"]
            run = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE)
        assert run.returncode == 141 and not run.stderr

    def test_what_has_changed_is_not_continued(
        self, classifier, scorer, question_file, tmp_path, monkeypatch, capsys, small_buffer
    ):
        output = tmp_path / "o.jsonl"
        words = ["predict", classifier, question_file, str(output), "--batch_size", "4"]
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
        with open(question_file, "a") as file:
            file.write('{"text": "one more"}\n')
        assert "another input" in refused(capsys, *words, "--resume")
        assert partial.read_bytes() == content and not output.exists()
        partial.write_bytes(content[:-9])
        write_rows(Path(question_file), question_rows(50))
        assert main([*words, "--overwrite"]) == 0 and len(read_lines(output)) == 50
        assert not list(tmp_path.glob(".*"))

    def test_unfinished_output_is_not_thrown_away(
        self, classifier, question_file, tmp_path, monkeypatch, capsys, small_buffer
    ):
        output, partial = tmp_path / "o.jsonl", tmp_path / ".o.jsonl.partial"
        words = ["predict", classifier, question_file, str(output), "--batch_size", "4"]
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

    def test_killed_before_the_first_rows(self, classifier, question_file, tmp_path):
        """Nothing is there to be continued or lost."""
        path = tmp_path / "o.jsonl"
        for options in ([], ["--resume"]):
            output = Output(str(path), PREDICTIONS, {"input": ["a"]})
            output.file.write(b"half of the fi")
            output.file.close()
            output.lock.release()
            assert main(["predict", classifier, question_file, str(path), *options]) == 0
            assert len(read_lines(path)) == 50 and not list(tmp_path.glob(".*"))

    def test_a_parquet_file_of_tags_some_of_which_are_missing(self, tmp_path, monkeypatch):
        monkeypatch.setattr(output_module, "_ROWS_AT_ONCE", 2)
        path, rows = tmp_path / "o.parquet", [[None], [], ["B-X"], [None, "O"], [None]]
        output = Output(str(path), NESTED_PREDICTIONS, {"input": "a"})
        output.append({"tags": rows})
        output.complete()
        output.close()
        assert pyarrow.parquet.read_table(path)["tags"].to_pylist() == rows

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
        rows = write_rows(tmp_path / "a.csv", [{"text": "a"}])
        assert "is a folder; give a file" in refused(capsys, "predict", "none", rows, folder)
        for command in ("bench", "evaluate"):
            assert "is a folder; give a file" in refused(capsys, command, "none", "--output_file", folder)
        assert "is a folder; give a file" in refused(capsys, "evaluate", "none", "--predictions_file", folder)
        with pytest.raises(IsADirectoryError):
            write_json(folder, {})
        assert sorted(tmp_path.iterdir()) == [rows, folder]
        for name in ("stdin", "stdout"):
            with monkeypatch.context() as patch:
                patch.setattr(sys, name, None)
                words = ["-", "o.csv"] if name == "stdin" else [rows, "-"]
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

    def test_rows_before_the_memory_was_full_are_kept(
        self, classifier, question_file, tmp_path, monkeypatch, capsys, small_buffer
    ):
        whole, output = tmp_path / "whole.jsonl", tmp_path / "o.jsonl"
        assert main(["predict", classifier, question_file, str(whole), "--batch_size", "4"]) == 0
        words = ["predict", classifier, question_file, str(output), "--batch_size", "4"]
        with monkeypatch.context() as patch:
            answers = [Batches.forward] * 3 + [Mock(side_effect=RuntimeError("CUDA out of memory"))]
            patch.setattr(Batches, "forward", lambda *given: answers.pop(0)(*given))
            message = refused(capsys, *words)
        assert "give a smaller batch size or maximum length and --overwrite; or, once there is more memory" in message
        assert "continue after 8 rows by the same command with --resume" in message and not output.exists()
        assert main([*words, "--resume"]) == 0 and output.read_bytes() == whole.read_bytes()


def spy(tokenize, counts):
    def counting(self, texts):
        counts.append(len(texts))
        return tokenize(self, texts)

    return counting
