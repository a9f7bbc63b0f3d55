"""The command `hf-blosan`: what it offers, what it imports, how it refuses, and the commands that hand over."""

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from cli_models import refused, save
from loopback_hub import LoopbackHub
from small_data import TINY, question_rows, read_lines, write_rows, write_trec
from transformers import AutoModel, AutoTokenizer

from hf_blosan import DiSANForSequenceClassification
from hf_blosan.cli import commands
from hf_blosan.cli.commands import COMMANDS, main
from hf_blosan.cli.options import Parser
from hf_blosan.models.encoder import SentenceEncoderModel
from hf_blosan.registry import FAMILIES
from hf_blosan.tasks import TASKS

ROOT = Path(__file__).resolve().parents[1]
HEAVY = "torch transformers tokenizers numpy datasets accelerate huggingface_hub pyarrow sklearn"


class TestHelp:
    def test_nothing_heavy_is_imported(self):
        """What takes time is imported when the arguments are parsed: not for any help, not for a mistake."""
        code = f"""
import contextlib, io, sys
import hf_blosan
from hf_blosan.cli.commands import COMMANDS, main
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
        assert (
            '[project.scripts]\nhf-blosan = "hf_blosan.cli.commands:main"\n' in (ROOT / "pyproject.toml").read_text()
        )

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
            ("predict --model m", "MODEL is a positional argument, see hf-blosan predict --help"),
            (
                "predict m a.jsonl b.jsonl --zzz",
                "unknown option '--zzz'; hf-blosan predict --help lists them all",
            ),
            ("train --learning-rate x", "argument --learning_rate: invalid float value: 'x'"),
            ("train --optimizer sgd", "argument --optimizer: invalid choice: 'sgd'"),
            ("train --cpu maybe", "'maybe' is neither true nor false"),
            ("train --encoder disan", "Nothing to train on"),
            ("train --task_name trek --encoder disan --output_dir o --cpu", "unknown task 'trek'"),
            ("evaluate none", "no saved model at 'none'"),
            ("evaluate .", "no saved model at '.' (it is a folder without config.json); give its folder or Hub name"),
            ("evaluate m --test_file a --task_name b", "--task_name and --test_file exclude each other"),
            ("evaluate m --task_name b --label_column_name c", "A task knows its columns"),
            ("evaluate m --test_file a --fold 0", "--fold is for tasks, not for --test_file; leave it out"),
            ("evaluate m --test_file a --dataset_config_name c", "--dataset_config_name needs --dataset_name"),
            ("predict none - b.jsonl", "no saved model at 'none'"),
            ("predict m a.jsonl b.jsonl c.jsonl", "unknown argument 'c.jsonl'"),
            ("predict m a.jsonl b.jsonl --batch_size 0", "--batch_size is 0; it must be more than 0"),
            ("predict m --resume", "--resume needs files"),
            ("encode m a b.npy --text_pair_column_name x", "--text_pair_column_name needs --text_column_name"),
            ("bench none", "no saved model at 'none'"),
            ("bench Disan-mini-em", "no saved model at 'Disan-mini-em' (no such folder); did you mean disan-mini-en?"),
            ("bench none --lengths 8 0", "--lengths is 0; it must be more than 0"),
            ("bench none --seconds inf", "--seconds is inf; it must be more than 0 and at most 86,400."),
            ("push none", "no saved model in none"),
            ("card none.json", "none.json does not exist; give a file written by --results_file"),
            ("encod m a.jsonl b.npy", "invalid choice: 'encod'; did you mean encode?"),
            (
                "predict disan-mini-en - b.jsonl",
                "`hf-blosan train --model_name_or_path disan-mini-en` trains one",
            ),
            (
                "train --task_name trec --encoder disan-mini-en --output_dir o",
                "unknown encoder 'disan-mini-en'; this trained one is --model_name_or_path disan-mini-en",
            ),
            (
                "train --task_name trec --model_name_or_path mtsa --output_dir o",
                "--model_name_or_path mtsa is a type of encoder, not a trained model; --encoder mtsa trains a new one",
            ),
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
            ({"input": "short.csv"}, "short.csv, row 2 has 1 cell, the header has 2; correct the row"),
            ({"input": "broken.jsonl"}, "broken.jsonl cannot be read after row 1 (Expecting value in column"),
            ({"input": "list.jsonl"}, "list.jsonl, row 1 is not a JSON object"),
            (
                {"input": "latin.txt"},
                "latin.txt cannot be read after row 0 (byte 0xe9 is not UTF-8); save it as UTF-8",
            ),
            ({"input": "null.jsonl"}, "null.jsonl, row 2: text is null"),
            (
                {"input": "half.jsonl"},
                r"half.jsonl, row 2: text has an unpaired surrogate, '\ud83d'; correct the text",
            ),
            ({"input": "object.jsonl"}, "object.jsonl, row 1: text is of type dict; write it as text"),
            ({"input": "pairs.jsonl"}, "the model takes one text a row, but pairs.jsonl has sentence1 and sentence2"),
            ({"input": "number.csv"}, "number.csv has no text column; name it 'text'"),
            ({"columns": ["--text_column_name", "body"]}, "has no column 'body'; it has text, label"),
            ({"output": "o.xml"}, "output file o.xml is of an unknown type; use one that ends in .jsonl, .csv"),
            ({"output": "good.jsonl/o.csv"}, "good.jsonl is a file; give another path"),
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
            "half.jsonl": '{"text": "a cat"}\n{"text": "a \\ud83d"}\n',
            "object.jsonl": '{"text": {"a": "cat"}}\n',
            "pairs.jsonl": '{"sentence1": "a", "sentence2": "b"}\n',
            "number.csv": "id,x\n1,2\n",
        }
        for name, content in files.items():
            Path(name).write_text(content)
        Path("latin.txt").write_bytes("é".encode("latin-1"))
        words = {"input": "good.jsonl", "output": "o.jsonl", "columns": []} | change
        assert message in refused(capsys, "predict", classifier, words["input"], words["output"], *words["columns"])
        assert {path.name for path in tmp_path.iterdir()} == {*files, "latin.txt"}

    def test_models(self, classifier, scorer, tmp_path, capsys):
        questions = write_rows(tmp_path / "questions.jsonl", question_rows(50))
        assert "takes a pair of texts a row, but" in refused(capsys, "predict", scorer, questions, tmp_path / "o.csv")
        twice = ["--text_column_name", "text", "--text_pair_column_name", "text"]
        message = refused(capsys, "predict", scorer, questions, tmp_path / "o.csv", *twice)
        assert "column 'text' is used twice" in message
        message = refused(capsys, "evaluate", classifier, "--test_file", questions, "--text_column_name", "label")
        assert f"{questions}: column 'label' is used twice" in message
        encoder = str(tmp_path / "encoder")
        AutoModel.from_pretrained(classifier).save_pretrained(encoder)
        AutoTokenizer.from_pretrained(classifier).save_pretrained(encoder)
        message = refused(capsys, "predict", encoder, questions, tmp_path / "o.csv")
        assert f"`hf-blosan train --model_name_or_path {encoder}` trains one" in message
        tags = write_rows(tmp_path / "tags.jsonl", [{"tokens": ["a"], "tags": ["O"]}])
        message = refused(capsys, "evaluate", classifier, "--test_file", tags)
        assert "it has tokens, tags; name the column with --label_column_name, or choose other rows: the" in message
        assert message.rstrip().endswith("the model is for classifying sentences")
        assert "was not trained on a task of this package" in refused(capsys, "evaluate", classifier)
        own = [capsys, "evaluate", classifier, "--test_file", questions]
        assert "is read, too, and would be lost" in refused(*own, "--predictions_file", questions)
        both = ["--output_file", tmp_path / "o.json", "--predictions_file", tmp_path / "o.json"]
        assert "o.json; give two files" in refused(*own, *both)
        pairs = write_rows(tmp_path / "pairs.jsonl", [{"sentence1": "a", "sentence2": "b", "label": "other"}])
        message = refused(capsys, "evaluate", classifier, "--test_file", pairs)
        assert "takes one text a row, pairs.jsonl has a pair of texts; choose another model or other rows" in message
        message = refused(capsys, "evaluate", classifier, "--task_name", "demo")
        assert "predicts animal, colour, number, word-order entailment (generated) has entailment" in message
        message = refused(capsys, "evaluate", scorer, "--task_name", "demo")
        assert "is of class MTSAForPairRegression, word-order entailment (generated) needs MTSAForSequence" in message

    def test_predictions_need_test_rows(self, tmp_path, capsys):
        labels = dict(enumerate(TASKS["sst2"].labels))
        config = {"id2label": labels, "label2id": {name: i for i, name in labels.items()}}
        model = save(tmp_path / "model", question_rows(9), DiSANForSequenceClassification, **config)
        rows = [{"text": "a cat", "label": i % 2} for i in range(4)]
        for split in ("train", "validation"):
            write_rows(tmp_path / "sst2" / f"{split}.jsonl", rows)
        words = ["evaluate", model, "--task_name", "sst2", "--data_dir", tmp_path, "--cpu", "--predictions_file"]
        message = refused(capsys, *words, tmp_path / "predictions.txt")
        assert "has no test rows; give --test_file, or leave it out" in message


def test_an_interruption_without_progress(monkeypatch, capsys):
    def interrupted(task):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "describe_rows", interrupted)
    assert main(["tasks"]) == 130
    assert capsys.readouterr().err == "\ninterrupted\n"


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

    def test_bench(self, classifier, scorer, tmp_path, capsys):
        assert main(["bench", classifier, "--output_file", str(Path(classifier) / "config.json"), "--cpu"]) == 2
        assert "config.json is read, too, and would be lost" in capsys.readouterr().err
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
        huge = ["--batch_sizes", str(2**31 - 1), "--lengths", str(2**31 - 1)]
        message = refused(capsys, "bench", classifier, *huge)
        assert "a batch of 2147483647 rows of 2147483647 tokens does not fit" in message

    @pytest.mark.parametrize("command", ["encode", "predict", "evaluate"])
    def test_a_batch_that_does_not_fit_into_the_memory(self, command, classifier, tmp_path, monkeypatch, capsys):
        def allocate(*args, **kwargs):
            torch.empty(1 << 50)

        monkeypatch.setattr(SentenceEncoderModel, "forward", allocate)
        rows, output = write_rows(tmp_path / "rows.jsonl", question_rows(3)), tmp_path / "o.jsonl"
        words = ["--test_file", rows, "--cpu"] if command == "evaluate" else [rows, output]
        message = refused(capsys, command, classifier, *words)
        assert re.search(r"error: a batch .*does not fit into the memory; give a smaller ", message), message
        assert not output.exists() and not list(tmp_path.glob(".*"))

    def test_card(self, tmp_path, capsys):
        name = "demo_disan_with_order_masks"
        assert main(["card", str(ROOT / "results" / f"{name}.json"), "--output_dir", str(tmp_path)]) == 0
        assert (tmp_path / f"{name}.md").read_text() == (ROOT / "model_cards" / f"{name}.md").read_text()

    def test_push(self, classifier, tmp_path, monkeypatch, capsys):
        with LoopbackHub() as hub:
            hub.use_here(monkeypatch, tmp_path / "cache")
            words = ["push", classifier, "--hub_model_id", "me/questions", "--hub_private_repo"]
            assert main([*words, "--commit_message", "First"]) == 0
            assert capsys.readouterr().out.strip() == f"{hub.url}/me/questions"
            repo = hub.repos["me/questions"]
            assert repo.private and repo.messages == ["First"] and "model.safetensors" in repo.files
            (graphs := tmp_path / "graphs" / "onnx").mkdir(parents=True)
            (graphs / "model.onnx").touch()
            (graphs.parent / "config.json").write_text("{}")
            before = dict(repo.files)
            assert main(["push", str(graphs.parent), *words[2:4]]) == 0  # no weights: nothing is taken away
            assert repo.files == before | {"onnx/model.onnx": b""}
            message = refused(capsys, *words, "--hub_token", "hf_wrong")
            assert "the Hub rejects the repository 'me/questions'" in message


def test_only_names_of_options_may_have_hyphens():
    parser = Parser()
    parser.add_argument("--commit_message")
    parser.add_argument("texts", nargs="*")
    found = parser.parse_args(["--commit-message=--dry-run fix", "--well-known fact", "--", "--so-called"])
    assert found.texts == ["--well-known fact", "--so-called"] and found.commit_message == "--dry-run fix"
