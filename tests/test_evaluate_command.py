"""`hf-blosan evaluate`: the rows that a model is measured on, and the figures."""

import copy
import json
import re

import numpy as np
import pytest
import torch
from cli_models import refused
from datasets import Dataset
from small_data import TINY, pair_rows, read_lines, write_rows, write_splits

from hf_blosan import DiSANConfig, DiSANForSequenceClassification
from hf_blosan.cli.commands import main
from hf_blosan.data import tables
from hf_blosan.tasks import custom_task
from hf_blosan.tasks.kinds import find_kind
from hf_blosan.training.optim import l2_penalty


def test_evaluate_reads_the_rows_that_training_held_out(tmp_path, capsys, monkeypatch):
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
    for more, said in (([], False), (["--fold", "1"], True)):
        given = [*words, *more, "--max_train_steps", "1", "--output_dir", str(tmp_path / "further")]
        given[given.index("--encoder") : given.index("--encoder") + 2] = ["--model_name_or_path", model]
        assert main(["train", *given]) == 0
        told = capsys.readouterr().err
        assert (f"--fold differs from the training of {model}: rows held out here may be among" in told) == said
    # Nothing is held out of the training rows if others are given.
    files = [f"--{split}_file={tmp_path / 'cr' / 'train.jsonl'}" for split in ("train", "validation", "test")]
    given = ["train", "--task_name", "cr", "--model_name_or_path", model, *files, "--max_train_steps", "1", "--cpu"]
    assert main([*given, "--output_dir", str(tmp_path / "others")]) == 0
    assert "differs from the training" not in capsys.readouterr().err
    words = ["evaluate", model, "--data_dir", str(tmp_path), "--cpu", "--predictions_file", str(predictions)]
    assert main(words) == 0
    told = capsys.readouterr()
    assert "rows: validation 12, test 30" in told.out and "differs" not in told.err
    for option, name in (("--output_file", "config.json"), ("--predictions_file", "model.safetensors")):
        assert "is read, too, and would be lost" in refused(capsys, *words, option, str(tmp_path / "out" / name))
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


def test_predictions_have_the_numbers_of_the_rows(classifier, tmp_path):
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


def test_minus_one_beside_one_other_label_is_a_class_as_in_training(classifier, tmp_path, capsys):
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\nthe cat,1\nthe old cat,-1\nthe horse,1\n")
    message = refused(capsys, "evaluate", classifier, "--test_file", rows, "--cpu")
    assert "row 2: label '-1' is not one of the labels" in message


def test_evaluate_after_selection_on_the_test_rows(tmp_path, capsys):
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


def test_evaluate_holds_nothing_out_that_was_trained_on(tmp_path, capsys):
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
    assert "was trained on all rows of cr and tested on your own rows; give --test_file" in refused(capsys, *evaluate)


def test_the_columns_of_training_are_read_again(tmp_path, capsys):
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


def test_scores_of_single_texts_may_be_anywhere(tmp_path, capsys):
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


def test_evaluate_scores(scorer, tmp_path, capsys):
    data = write_splits(tmp_path / "pairs", pair_rows)
    figures = tmp_path / "figures.json"
    assert main(["evaluate", scorer, "--test_file", data["test_file"], "--cpu", "--output_file", str(figures)]) == 0
    rows = read_lines(data["test_file"])
    predict = ["predict", "--cpu", scorer, data["test_file"], str(tmp_path / "o.jsonl")]
    assert main(predict) == 0
    scores = [row["score"] for row in read_lines(tmp_path / "o.jsonl")]
    errors = np.subtract(scores, [row["score"] for row in rows])
    assert json.loads(figures.read_text())["test_mse"] == pytest.approx((errors**2).mean(), rel=1e-4)
    assert "pearson" in capsys.readouterr().out
