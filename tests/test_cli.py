"""The command `hf-blosan`: what it offers, what it imports, and that its files are right, whatever interrupts it."""

import csv
import gzip
import io
import json
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch
from loopback_hub import LoopbackHub
from small_data import TINY, pair_rows, question_rows, write_rows, write_splits, write_trec
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, pipeline

import hf_blosan
from hf_blosan.cli import COMMANDS, main
from hf_blosan.data.rows import Rows
from hf_blosan.data.tables import read_table
from hf_blosan.errors import InputError
from hf_blosan.families import DESCRIPTIONS, FAMILIES
from hf_blosan.inference import stream
from hf_blosan.tasks import TASKS
from hf_blosan.tokenization import build_tokenizer

ROOT = Path(__file__).resolve().parents[1]
HEAVY = "torch transformers tokenizers numpy datasets accelerate huggingface_hub pyarrow sklearn"


def save(folder, rows, model_class, **config) -> str:
    """A model with random weights, and its tokenizer."""
    torch.manual_seed(0)
    tokenizer = build_tokenizer([text for row in rows for text in row.values() if isinstance(text, str)])
    config = {"vocab_size": len(tokenizer), "embedding_size": 6, "hidden_size": 8, "classifier_size": 8} | config
    model_class(model_class.config_class(**config)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    labels = {"id2label": {0: "animal", 1: "colour", 2: "number"}, "label2id": {"animal": 0, "colour": 1, "number": 2}}
    folder = tmp_path_factory.mktemp("classifier")
    return save(folder, question_rows(60), hf_blosan.DiSANForSequenceClassification, **labels)


@pytest.fixture(scope="module")
def scorer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scorer")
    return save(folder, pair_rows(60), hf_blosan.MTSAForPairRegression, num_sentences=2, num_heads=2)


@pytest.fixture
def questions(tmp_path):
    return str(write_rows(tmp_path / "questions.jsonl", question_rows(50)))


@pytest.fixture
def small_buffer(monkeypatch):
    """Eight rows are read ahead with `--batch_size 4`."""
    monkeypatch.setattr(stream, "BUFFER_BATCHES", 2)


def read_lines(path) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def refused(capsys, *words) -> str:
    """Run a command that ends with one sentence and code 2; return the sentence."""
    assert main([str(word) for word in words]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    return lines[0]


class TestHelp:
    def test_nothing_heavy_is_imported(self):
        """What takes time is imported when the arguments are parsed: not for any help, not for a mistake."""
        code = f"""
import contextlib, io, sys
import hf_blosan
from hf_blosan.cli import COMMANDS, main
for words in ([], ["--help"], ["--version"], ["tasks"], ["encoders"], *([name, "--help"] for name in COMMANDS),
              ["train", "--learn_rate", "1"], ["train", "--encoder", "disan"], ["predict"], ["fly"]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.suppress(SystemExit):
            main(words)
    loaded = [name for name in {HEAVY!r}.split() if name in sys.modules]
    assert not loaded, (words, loaded)
"""
        run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr

    def test_python_m_and_console_script(self):
        run = subprocess.run([sys.executable, "-m", "hf_blosan", "--help"], cwd=ROOT, capture_output=True, text=True)
        assert run.returncode == 0 and run.stdout.startswith("usage: hf-blosan COMMAND")
        assert '[project.scripts]\nhf-blosan = "hf_blosan.cli:main"\n' in (ROOT / "pyproject.toml").read_text()

    def test_every_command_is_described_and_has_its_function(self, capsys):
        assert main([]) == 0
        shown = capsys.readouterr().out
        for name, command in COMMANDS.items():
            assert re.search(rf"^    {name} +{command.summary}$", shown, re.MULTILINE)
            module, _, function = command.function.partition(":")
            assert callable(getattr(import_module(module), function))

    def test_train(self, capsys):
        with pytest.raises(SystemExit) as caught:
            main(["train", "--help"])
        assert caught.value.code == 0
        shown = capsys.readouterr().out
        groups = [shown.index(f"\n{group}:\n") for group in ("data", "model", "optimisation", "output", "tasks")]
        assert groups == sorted(groups)
        first = ("  --task_name NAME", "  --encoder ENCODER", "  --recipe {", "  --output_dir DIR")
        for group, name in zip(groups, first, strict=False):
            assert group < shown.index(name) < group + 40
        assert "--num_train_epochs EPOCHS" in shown and "Default: 256." in shown and "(default: None)" not in shown

    def test_tasks_and_encoders(self, capsys):
        assert DESCRIPTIONS.keys() == FAMILIES.keys()
        for words, names in ((["tasks"], TASKS), (["encoders"], FAMILIES)):
            assert main(words) == 0
            lines = capsys.readouterr().out.splitlines()
            assert [line.split()[0] for line in lines] == list(names)
            assert all(len(line) < 120 for line in lines)


class TestMistakes:
    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("fly", "invalid choice: 'fly'"),
            ("--fly", "unknown option '--fly'"),
            ("predict", "the following arguments are required: MODEL"),
            ("train --learn_rate 1", "unknown option '--learn_rate'; did you mean --learning_rate?"),
            ("train --learning-rate x", "argument --learning_rate: invalid float value: 'x'"),
            ("train --optimizer sgd", "argument --optimizer: invalid choice: 'sgd'"),
            ("train --cpu maybe", "'maybe' is neither true nor false"),
            ("train --encoder disan", "Nothing to train on"),
            ("train --task_name trek --encoder disan --output_dir o --cpu", "unknown task 'trek'"),
            ("evaluate none", "no saved model at 'none'"),
            ("evaluate m --test_file a --task_name b", "--task_name and --test_file exclude each other"),
            ("predict none a.jsonl b.jsonl", "no saved model at 'none'"),
            ("predict m a.jsonl b.jsonl c.jsonl", "unknown argument 'c.jsonl'"),
            ("predict m a.jsonl b.jsonl --batch_size 0", "--batch_size is 0; it must be more than 0"),
            ("predict m --resume", "--resume needs files"),
            ("encode m a b.npy --text_pair_column_name x", "--text_pair_column_name needs --text_column_name"),
            ("bench none", "no saved model at 'none'"),
            ("bench none --lengths 8 0", "--lengths has 0; it must be more than 0"),
            ("push none", "no saved model in none"),
            ("card none.json", "none.json"),
        ],
    )
    def test_one_sentence_and_code_2(self, words, message, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        assert message in refused(capsys, *words.split())
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"input": "none.csv"}, "none.csv does not exist"),
            ({"input": "x.xls"}, "x.xls is of an unknown type; use one that ends in .jsonl"),
            ({"input": "empty.csv"}, "empty.csv has no rows"),
            ({"input": "short.csv"}, "short.csv cannot be read after row 1 (the header has 2 cells"),
            ({"input": "broken.jsonl"}, "broken.jsonl cannot be read after row 1 (Expecting value"),
            ({"input": "list.jsonl"}, "list.jsonl, row 1 is no JSON object"),
            ({"input": "latin.txt"}, "latin.txt cannot be read after row 0 ('utf-8' codec"),
            ({"input": "null.jsonl"}, "null.jsonl, row 2: text is null"),
            ({"input": "pairs.jsonl"}, "the model takes one text a row, but pairs.jsonl has sentence1 and sentence2"),
            ({"input": "number.csv"}, "number.csv has no text column; name it 'text'"),
            ({"columns": ["--text_column_name", "body"]}, "has no column 'body'; it has text, label"),
            ({"output": "o.xml"}, "output file o.xml is of an unknown type; use one that ends in .jsonl, .csv"),
            ({"output": "good.jsonl/o.csv"}, "cannot be written"),
        ],
    )
    def test_rows(self, change, message, classifier, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        files = {
            "good.jsonl": '{"text": "a cat", "label": 1}\n',
            "x.xls": "",
            "empty.csv": "text\n",
            "short.csv": "text,label\na cat,1\na dog\n",
            "broken.jsonl": '{"text": "a cat"}\n{"text": \n',
            "list.jsonl": "[1, 2]\n",
            "null.jsonl": '{"text": "a cat"}\n{"text": null}\n',
            "pairs.jsonl": '{"sentence1": "a", "sentence2": "b"}\n',
            "number.csv": "id,x\n1,2\n",
        }
        for name, content in files.items():
            Path(name).write_text(content)
        Path("latin.txt").write_bytes("é".encode("latin-1"))
        words = {"input": "good.jsonl", "output": "o.jsonl", "columns": []} | change
        assert message in refused(capsys, "predict", classifier, words["input"], words["output"], *words["columns"])
        assert {path.name for path in tmp_path.iterdir()} == {*files, "latin.txt"}

    def test_models(self, classifier, scorer, questions, tmp_path, capsys):
        assert "takes pairs of texts a row, but" in refused(capsys, "predict", scorer, questions, tmp_path / "o.csv")
        encoder = str(tmp_path / "encoder")
        AutoModel.from_pretrained(classifier).save_pretrained(encoder)
        AutoTokenizer.from_pretrained(classifier).save_pretrained(encoder)
        message = refused(capsys, "predict", encoder, questions, tmp_path / "o.csv")
        assert "has no weights classifier.hidden.bias" in message
        assert "does not name a task of this package" in refused(capsys, "evaluate", classifier)
        message = refused(capsys, "evaluate", classifier, "--task_name", "demo")
        assert "predicts animal, colour, number, word-order entailment (generated) has entailment" in message
        message = refused(capsys, "evaluate", scorer, "--task_name", "demo")
        assert "is a MTSAForPairRegression, word-order entailment (generated) needs a MTSAForSequence" in message


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

    def test_scores_of_pairs(self, scorer, tmp_path):
        rows = [{"n": i, "b": row["sentence2"], "a": row["sentence1"]} for i, row in enumerate(pair_rows(30))]
        source, output = write_rows(tmp_path / "pairs.jsonl", rows), tmp_path / "o.csv"
        columns = ["--text_column_name", "a", "--text_pair_column_name", "b"]
        assert main(["predict", scorer, str(source), str(output), *columns]) == 0
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
    def test_standard_input_and_output(self, lines, classifier, monkeypatch, capsysbinary):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
        assert main(["predict", classifier]) == 0
        rows = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
        classify = pipeline("text-classification", classifier)
        assert [row["score"] for row in rows] == pytest.approx([classify(t)[0]["score"] for t in ("a cat", "", "red")])

    def test_long_texts_are_truncated_and_counted(self, classifier, questions, tmp_path, caplog):
        assert main(["predict", classifier, questions, str(tmp_path / "o.csv"), "--max_length", "3"]) == 0
        (message,) = [entry.getMessage() for entry in caplog.records if entry.levelname == "WARNING"]
        assert re.match(r"\d+ texts have more than 3 tokens \(the longest 12\)", message)


class TestEncode:
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

            def __exit__(self, *exception):
                pass

            def __iter__(self):
                nonlocal read
                for row in question_rows(3000):
                    read += 1
                    ahead.append(read - written)
                    yield row

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
        assert "is the input, which would be lost" in refused(capsys, "predict", classifier, questions, questions)
        assert Path(questions).read_bytes() == content

    def test_a_closed_pipe_ends_the_command(self, monkeypatch):
        def closed(options):
            raise BrokenPipeError

        monkeypatch.setattr("hf_blosan.cli.load", lambda function: closed)
        monkeypatch.setattr("hf_blosan.cli.os.dup2", lambda *files: None)
        assert main(["tasks"]) == 141

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
            assert f"o.jsonl was begun with another {name}; repeat that command, or leave out --resume" in message
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
        assert main(words) == 0 and len(read_lines(output)) == 50  # without --resume from the beginning
        assert not list(tmp_path.glob(".*"))

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


class TestRows:
    ROWS = [
        {"id": "007", "text": 'He said "no", twice', "label": ""},
        {"id": "8", "text": "two\nlines, ü", "label": "x"},
    ]

    def test_as_read_table(self, tmp_path):
        """Both readers give the same rows."""
        content = io.StringIO()
        writer = csv.DictWriter(content, fieldnames=list(self.ROWS[0]))
        writer.writeheader()
        writer.writerows(self.ROWS)
        lines = "".join(json.dumps(row) + "\n" for row in self.ROWS)
        plain = {"a.csv": content.getvalue(), "b.jsonl": lines, "c.json": json.dumps(self.ROWS), "d.json": lines}
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

    def test_texts(self, tmp_path):
        (tmp_path / "a.txt").write_bytes(b"a cat\r\n\n{}\nlast")
        with Rows(tmp_path / "a.txt") as rows:
            assert [row["text"] for row in rows] == ["a cat", "", "{}", "last"]
        (tmp_path / "b.csv").write_text("text\n" + "word " * 50_000 + "\n")
        with Rows(tmp_path / "b.csv") as rows:
            assert len(next(iter(rows))["text"]) == 250_000
        (tmp_path / "c.csv.gz").write_bytes(gzip.compress(b"text\n" + b"a\n" * 9999)[:-9])
        with Rows(tmp_path / "c.csv.gz") as rows, pytest.raises(InputError, match="c.csv.gz cannot be read after row"):
            list(rows)


class TestThin:
    """The commands that hand over to other parts of the package."""

    def test_train_then_evaluate(self, tmp_path, capsys, monkeypatch):
        """The figures of a saved model are those at the end of its training, held-out rows included."""
        data, output = write_trec(tmp_path / "data", train=120, test=30), tmp_path / "out"
        small = ["--config_overrides", TINY, "--optimizer", "adam", "--learning-rate", "0.01", "--num_train_epochs=2"]
        words = ["train", "--task_name", "trec", "--encoder", "disan", "--data_dir", str(data), *small, "--cpu"]
        words += ["--hub-token", "secret", "--output_dir", str(output), "--results_file", str(tmp_path / "run.json")]
        monkeypatch.setattr(sys, "argv", ["/usr/bin/hf-blosan", *words])
        assert main(words) == 0
        run = json.loads((tmp_path / "run.json").read_text())
        assert run["command"].startswith("hf-blosan train --task_name trec") and "secret" not in json.dumps(run)
        expected = {name: value for name, value in run["figures"].items()}
        figures, predictions = tmp_path / "figures.json", tmp_path / "predictions.txt"
        words = ["evaluate", str(output), "--data_dir", str(data), "--cpu", "--output_file", str(figures)]
        assert main([*words, "--predictions_file", str(predictions)]) == 0
        assert json.loads(figures.read_text()) == pytest.approx(expected)
        assert predictions.read_text() == (output / "predict_results_trec.txt").read_text()
        assert f"{expected['test_accuracy']:.4f}" in capsys.readouterr().out
        # The same rows as a user's own, under other names and with fewer classes.
        rows = [{"q": row["text"], "kind": row["label"].lower()} for row in read_lines(data / "trec" / "test.jsonl")]
        own, columns = (
            write_rows(tmp_path / "own.jsonl", rows),
            ["--text_column_name", "q", "--label_column_name", "kind"],
        )
        assert (
            main(["evaluate", str(output), "--test_file", str(own), *columns, "--cpu", "--output_file", str(figures)])
            == 0
        )
        assert json.loads(figures.read_text())["test_accuracy"] == pytest.approx(expected["test_accuracy"])
        write_rows(own, [row for row in rows if row["kind"] == "hum"])
        assert main(["evaluate", str(output), "--test_file", str(own), *columns, "--cpu"]) == 0

    def test_evaluate_scores(self, scorer, tmp_path, capsys):
        data = write_splits(tmp_path / "pairs", pair_rows)
        figures = tmp_path / "figures.json"
        assert (
            main(["evaluate", scorer, "--test_file", data["test_file"], "--cpu", "--output_file", str(figures)]) == 0
        )
        rows = read_lines(data["test_file"])
        predict = ["predict", "--cpu", scorer, data["test_file"], str(tmp_path / "o.jsonl")]
        assert main(predict) == 0
        scores = [row["score"] for row in read_lines(tmp_path / "o.jsonl")]
        errors = np.subtract(scores, [row["score"] for row in rows])
        assert json.loads(figures.read_text())["test_mse"] == pytest.approx((errors**2).mean(), rel=1e-4)
        assert "pearson" in capsys.readouterr().out

    def test_bench(self, classifier, scorer, tmp_path, capsys):
        report = tmp_path / "bench.json"
        words = [
            "--batch_sizes",
            "1",
            "3",
            "--lengths",
            "5",
            "--seconds",
            "0.01",
            "--cpu",
            "--output_file",
            str(report),
        ]
        for model, num_sentences in ((classifier, 1), (scorer, 2)):
            assert main(["bench", model, *words]) == 0
            assert f"{Path(model).name}: " in capsys.readouterr().out
            content = json.loads(report.read_text())
            assert [(cell["batch_size"], cell["tokens"]) for cell in content["cells"]] == [(1, 5), (3, 5)]
            for cell in content["cells"]:
                seconds = cell["milliseconds"] / 1e3
                assert cell["sentences_per_second"] == pytest.approx(cell["batch_size"] * num_sentences / seconds)
            saved = (Path(model) / "model.safetensors").stat().st_size / 1e6
            assert content["megabytes"] == pytest.approx(saved, abs=0.01)

    def test_export(self, monkeypatch, capsys):
        calls = []
        monkeypatch.setattr("hf_blosan.export.export", lambda *words: calls.append(words) or "written")
        assert main(["export", "out/m", "m.onnx"]) == 0 and calls == [("out/m", "m.onnx")]
        assert capsys.readouterr().out == "written\n"

    def test_card(self, tmp_path, capsys):
        record = str(ROOT / "results" / "trec_disan.json")
        assert main(["card", record, "--output_dir", str(tmp_path)]) == 0
        assert (tmp_path / "trec_disan.md").read_text() == (ROOT / "model_cards" / "trec_disan.md").read_text()

    def test_push(self, classifier, tmp_path, monkeypatch, capsys):
        with LoopbackHub() as hub:
            hub.use_here(monkeypatch, tmp_path / "cache")
            words = ["push", classifier, "--hub_model_id", "me/questions", "--hub_private_repo"]
            assert main([*words, "--commit_message", "First"]) == 0
            assert capsys.readouterr().out.strip() == f"{hub.url}/me/questions"
            repo = hub.repos["me/questions"]
            assert repo.private and repo.messages == ["First"] and "model.safetensors" in repo.files
            message = refused(capsys, *words, "--hub_token", "hf_wrong")
            assert "the Hub rejects the repository 'me/questions'" in message
