"""The command `hf-blosan`: what it offers, what it imports, how it refuses, and the commands that hand over."""

import copy
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_models import refused, save
from datasets import Dataset
from loopback_hub import LoopbackHub
from small_data import TINY, pair_rows, question_rows, read_lines, write_rows, write_splits, write_trec
from transformers import AutoModel, AutoTokenizer

from hf_blosan import DiSANConfig, DiSANForSequenceClassification
from hf_blosan.cli import lists
from hf_blosan.cli.commands import COMMANDS, main
from hf_blosan.cli.options import Parser
from hf_blosan.data import tables
from hf_blosan.models.encoder import SentenceEncoderModel
from hf_blosan.registry import FAMILIES
from hf_blosan.tasks import TASKS, custom_task
from hf_blosan.tasks.kinds import find_kind
from hf_blosan.training.optim import l2_penalty

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
            ("predict none a.jsonl b.jsonl", "no saved model at 'none'"),
            ("predict m a.jsonl b.jsonl c.jsonl", "unknown argument 'c.jsonl'"),
            ("predict m a.jsonl b.jsonl --batch_size 0", "--batch_size is 0; it must be more than 0"),
            ("predict m --resume", "--resume needs files"),
            ("encode m a b.npy --text_pair_column_name x", "--text_pair_column_name needs --text_column_name"),
            ("bench none", "no saved model at 'none'"),
            ("bench none --lengths 8 0", "--lengths is 0; it must be more than 0"),
            ("bench none --seconds inf", "--seconds is inf; it must be more than 0 and at most 86,400."),
            ("push none", "no saved model in none"),
            ("card none.json", "none.json does not exist; give a file written by --results_file"),
            ("encod m a.jsonl b.npy", "invalid choice: 'encod'; did you mean encode?"),
            (
                "predict disan-mini-en a.jsonl b.jsonl",
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

    monkeypatch.setattr(lists, "describe_rows", interrupted)
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

    def test_evaluate_reads_the_rows_that_training_held_out(self, tmp_path, capsys, monkeypatch):
        """A fold, a seed and a fraction other than the defaults; options go before what the model remembers."""
        names = ("bad", "good")
        rows = [{"text": f"{names[i % 7 < 3]} {i}", "label": ("negative", "positive")[i % 7 < 3]} for i in range(90)]
        write_rows(tmp_path / "cr" / "train.jsonl", rows)
        held_out = ["--fold", "2", "--num_folds", "3", "--seed", "7", "--validation_fraction", "0.2"]
        words = ["--task_name", "cr", "--data_dir", str(tmp_path), "--encoder", "disan", "--cpu", *held_out]
        words += ["--num_train_epochs", "15", "--learning_rate", "0.05", "--config_overrides", TINY]
        assert main(["train", *words, "--output_dir", str(tmp_path / "out")]) == 0
        expected = (tmp_path / "out" / "predict_results_cr.txt").read_text()
        assert len(set(re.findall(r"\t(\w+)\n", expected))) == 3  # the heading, and both labels
        capsys.readouterr()
        model, predictions = str(tmp_path / "out"), tmp_path / "predictions.txt"
        words = ["evaluate", model, "--data_dir", str(tmp_path), "--cpu", "--predictions_file", str(predictions)]
        assert main(words) == 0
        told = capsys.readouterr()
        assert "rows: validation 12, test 30" in told.out and "differs" not in told.err
        same = ["--output_file", str(tmp_path / "out" / ".." / "predictions.txt")]
        assert "give two files" in refused(capsys, *words, *same)
        assert predictions.read_text() == expected
        config = json.loads((tmp_path / "out" / "config.json").read_text())
        held = {"seed": 7, "fold": 2, "num_folds": 3, "validation_fraction": 0.2, "select_on_test": False}
        assert config["training_rows"] == held | {"from_data_dir": True}
        for other in (["--fold", "1"], ["--seed", "3"]):
            assert main([*words, *other]) == 0
            assert predictions.read_text() != expected
            assert f"{other[0]} differs from the training of" in capsys.readouterr().err
        capsys.readouterr()
        assert main([*words, "--num_folds", "9", "--fold", "0"]) == 0
        assert "test 10\n" in capsys.readouterr().out
        # Of another source, the rows held out may be training rows.
        monkeypatch.setattr(tables, "load_dataset", lambda *args, **options: {"train": Dataset.from_list(rows)})
        message = refused(capsys, "evaluate", model, "--cpu")
        assert "trained on rows of cr from files" in message and "give the --data_dir of the training" in message
        config["training_rows"]["from_data_dir"] = False
        (tmp_path / "out" / "config.json").write_text(json.dumps(config))
        assert f"leave out --data_dir {tmp_path}" in refused(capsys, *words)
        del config["training_rows"]["from_data_dir"]  # as before it was recorded
        (tmp_path / "out" / "config.json").write_text(json.dumps(config))
        assert main(["evaluate", model, "--cpu"]) == main(words) == 0

    def test_predictions_have_the_numbers_of_the_rows(self, classifier, tmp_path):
        """Blank lines count, and rows without a gold label, which are left out."""
        rows, predictions = tmp_path / "rows.csv", tmp_path / "predictions.txt"
        rows.write_text("text,label\nthe cat,animal\n\nthe old cat,-1\n\nthe horse,animal\nred,colour\n")
        words = ["evaluate", classifier, "--test_file", str(rows), "--cpu", "--predictions_file", str(predictions)]
        assert main(words) == 0
        lines = [line.partition("\t") for line in predictions.read_text().splitlines()]
        assert [line[0] for line in lines] == ["index", "0", "4", "5"]
        assert main(["predict", classifier, str(rows), str(tmp_path / "o.jsonl")]) == 0
        labels = [row["label"] for row in read_lines(tmp_path / "o.jsonl")]
        assert [line[2] for line in lines[1:]] == [labels[i] for i in (0, 2, 3)]  # of the rows that are not blank

    def test_evaluate_after_selection_on_the_test_rows(self, tmp_path, capsys):
        rows = [{"text": f"text {i}", "label": ("negative", "positive")[i % 2]} for i in range(60)]
        write_rows(tmp_path / "cr" / "train.jsonl", rows)
        words = ["--task_name", "cr", "--data_dir", str(tmp_path), "--encoder", "disan", "--cpu", "--select_on_test"]
        words += ["--num_train_epochs", "1", "--config_overrides", TINY, "--output_dir", str(tmp_path / "out")]
        evaluate = ["evaluate", str(tmp_path / "out"), "--data_dir", str(tmp_path), "--cpu"]
        record = tmp_path / "record.json"
        assert main(["train", *words, "--fold", "4", "--results_file", str(record)]) == 0
        run = json.loads(record.read_text())
        assert run["data"]["rows"] == {"train": 54, "validation": 6, "test": 6}
        assert run["data"]["held_out"] == {"test": "fold 4 of 10"}
        assert run["figures"]["validation_accuracy"] == run["figures"]["test_accuracy"]
        capsys.readouterr()
        assert main(evaluate) == 0
        assert "rows: validation 6, test 6\n" in capsys.readouterr().out
        own = write_rows(tmp_path / "own.jsonl", rows[:8])
        assert main(["train", *words, "--test_file", str(own)]) == 0
        assert "was trained on all rows of cr and tested on your own rows" in refused(capsys, *evaluate)

    def test_evaluate_holds_nothing_out_that_was_trained_on(self, tmp_path, capsys):
        """With validation and test rows of its own, a run has trained on all rows of the task."""
        rows = [{"text": f"text {i}", "label": ("negative", "positive")[i % 2]} for i in range(60)]
        write_rows(tmp_path / "cr" / "train.jsonl", rows)
        own = str(write_rows(tmp_path / "own.jsonl", rows[:8]))
        words = ["--task_name", "cr", "--data_dir", str(tmp_path), "--encoder", "disan", "--cpu", "--test_file", own]
        words += ["--num_train_epochs", "1", "--config_overrides", TINY, "--output_dir", str(tmp_path / "out")]
        evaluate = ["evaluate", tmp_path / "out", "--data_dir", tmp_path, "--cpu"]
        assert main(["train", *words]) == 0
        capsys.readouterr()
        assert main(list(map(str, evaluate))) == 0
        assert "rows: validation 6\n" in capsys.readouterr().out
        assert main(["train", *words, "--validation_file", own]) == 0
        assert "was trained on all rows of cr and tested on your own rows; give --test_file" in refused(
            capsys, *evaluate
        )

    def test_the_columns_of_training_are_read_again(self, tmp_path, capsys):
        rows = [{"title": f"{'good' if i % 2 else 'bad'} {i}", "text": "same", "mood": "ab"[i % 2]} for i in range(60)]
        path, out = write_rows(tmp_path / "rows.csv", rows), str(tmp_path / "out")
        words = ["--train_file", str(path), "--validation_file", str(path), "--encoder", "disan", "--cpu"]
        words += ["--text_column_name", "title", "--label_column_name", "mood", "--learning_rate", "0.01"]
        assert main(["train", *words, "--config_overrides", TINY, "--output_dir", out]) == 0
        figures = tmp_path / "figures.json"
        words = ["evaluate", out, "--test_file", str(path), "--cpu", "--output_file", str(figures)]
        assert main(words) == 0
        assert json.loads(figures.read_text())["test_accuracy"] > 0.9
        assert main(["predict", "--cpu", out, str(path), str(tmp_path / "o.jsonl")]) == 0
        assert [row["label"] for row in read_lines(tmp_path / "o.jsonl")][:4] == ["a", "b", "a", "b"]
        assert main([*words, "--text_column_name", "text"]) == 0
        assert json.loads(figures.read_text())["test_accuracy"] < 0.6
        capsys.readouterr()
        assert main([*words, "--max_eval_samples", "7"]) == 0
        assert "rows: test 7\n" in capsys.readouterr().out
        assert "--split dev needs --dataset_name" in refused(capsys, *words, "--split", "dev")

    def test_scores_of_single_texts_may_be_anywhere(self, tmp_path, capsys):
        """Trained by default options on scores far from 0; rows outside their range are measured."""
        words = {"fine": 200, "great": 400, "sad": -300, "poor": -100, "long": 50, "odd": 0}
        names, rng = list(words), np.random.default_rng(0)
        chosen = [rng.choice(names, 3) for _ in range(300)]
        rows = [{"text": " ".join(three), "score": 1000.5 + sum(words[word] for word in three)} for three in chosen]
        path = write_rows(tmp_path / "rows.csv", rows)
        out, figures = str(tmp_path / "out"), tmp_path / "figures.json"
        options = ["--train_file", str(path), "--validation_file", str(path), "--encoder", "wordbag", "--cpu"]
        assert main(["train", *options, "--learning_rate", "0.005", "--output_dir", out]) == 0
        write_rows(path, [*rows, {"text": "great great great", "score": 5000}])
        assert main(["evaluate", out, "--test_file", str(path), "--cpu", "--output_file", str(figures)]) == 0
        variance = np.var([row["score"] for row in rows])
        outlier = 3000**2 / len(rows)
        assert json.loads(figures.read_text())["test_mse"] < 0.1 * variance + outlier
        # The L2 term is on the scale of the loss, not on that of the scores.
        kind = find_kind(custom_task(path))
        model = DiSANForSequenceClassification(DiSANConfig(vocab_size=9, num_labels=1, problem_type="regression"))
        before = kind.l2_penalty(l2_penalty(model, 1.0), model, 1.0)
        scaled = copy.deepcopy(model)
        kind.start_head(scaled)
        torch.testing.assert_close(
            kind.l2_penalty(l2_penalty(scaled, 1.0), scaled, 1.0), l2_penalty(model, 1.0), rtol=1e-3, atol=0
        )
        assert before < l2_penalty(model, 1.0) < l2_penalty(scaled, 1.0)
        message = refused(capsys, "predict", out, path, tmp_path / "o.csv", "--probabilities")
        assert "'score', which has no probabilities; leave it out" in message
        assert "For scoring sentences like those" in (tmp_path / "out" / "README.md").read_text()

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
