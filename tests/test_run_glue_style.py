"""The training command: its launchers and its error messages."""

import json
import os
import runpy
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_data import TINY, pair_rows, question_rows, write_rows, write_splits, write_vectors

import hf_blosan.training
from hf_blosan.errors import InputError, install
from hf_blosan.training import RunArguments

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "run_glue_style.py"
SMALL = [
    *("--encoder", "disan", "--config_overrides", TINY, "--optimizer", "adam", "--learning_rate", "0.01", "--cpu"),
    *("--per_device_train_batch_size", "8", "--per_device_eval_batch_size", "8", "--num_train_epochs", "1"),
]


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    """Options that name three files of single sentences."""
    data = write_splits(tmp_path_factory.mktemp("questions"), question_rows, train=64, evaluation=21)
    return [word for name, path in data.items() for word in (f"--{name}", path)]


def launch(*command, **environment) -> subprocess.CompletedProcess:
    # One thread per process, since small tensors do not occupy several.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | environment
    return subprocess.run(
        [sys.executable, *map(str, command)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )


def fails(capsys, *arguments) -> str:
    """Run the command in this process, check that it rejects its input, and return the message."""
    assert hf_blosan.training.main([str(argument) for argument in arguments]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: ")
    return error


def test_accelerate_launch(tmp_path, questions):
    output, record = tmp_path / "out", tmp_path / "run.json"
    options = [*questions, *SMALL, "--output_dir", output, "--results_file", record, "--hub_token", "secret"]
    done = launch("-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1", SCRIPT, *options)
    assert done.returncode == 0, done.stderr
    figures = json.loads((output / "all_results.json").read_text())
    measured = [f"{figures[name]:.4f}" for name in ("test_accuracy", "test_f1_macro")]
    assert ["test", *measured] in [line.split() for line in done.stdout.splitlines()]
    assert "training: 100%" in done.stderr
    run = json.loads(record.read_text())
    assert run["command"].startswith("python run_glue_style.py --train_file")
    assert "secret" not in record.read_text()


TWO_PROCESSES = """
import sys
from pathlib import Path

sys.path.insert(0, {tests!r})
from small_data import options
from hf_blosan.training import train

output, data = Path({output!r}), {data!r}
common = {{"num_train_epochs": 1, "l2": 0.001, "checkpointing_steps": "2"}}
train(options(output / "whole", data, **common))
train(options(output / "resumed", data, resume_from_checkpoint=str(output / "whole" / "step_2"), **common))
"""


@pytest.mark.slow
def test_two_processes(tmp_path):
    """Half as many updates, every row predicted once, one model, and exact resume."""
    data = write_splits(tmp_path / "data", question_rows, train=64)
    script = tmp_path / "two.py"
    script.write_text(TWO_PROCESSES.format(tests=str(ROOT / "tests"), output=str(tmp_path), data=data))
    done = launch("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("best model after") == 2
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    results = json.loads((whole / "all_results.json").read_text())
    assert results["steps"] == 4  # 64 rows in batches of 2 x 8
    predictions = (whole / "predict_results_custom.txt").read_text().splitlines()[1:]
    labels = [row["label"] for row in question_rows(21, seed=2)]
    right = sum(line.split("\t")[1] == label for line, label in zip(predictions, labels, strict=True))
    assert right / 21 == pytest.approx(results["test_accuracy"])
    assert len(list((whole / "step_2").glob("random_states_*"))) == 2
    expected, weights = (load_file(folder / "step_4" / "model.safetensors") for folder in (whole, resumed))
    assert all(torch.equal(expected[name], weights[name]) for name in expected)


def test_help_shows_every_option(capsys):
    with pytest.raises(SystemExit) as caught:
        hf_blosan.training.main(["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    for name in (
        "--task_name",
        "--encoder",
        "--resume_from_checkpoint",
        "--no_bucketing",
        "--early_stopping_patience",
    ):
        assert name in shown


def test_bad_input_ends_with_code_2_and_no_traceback(tmp_path, monkeypatch, capsys):
    argv = [str(SCRIPT), "--task_name", "trek", "--encoder", "disan", "--output_dir", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.strip().splitlines()[-1].startswith("error: unknown task 'trek'; choose one of cola, cr, demo")
    assert "Traceback" not in error


class TestBadInput:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                "--task_name demo --encoder lstm --output_dir o",
                "unknown encoder 'lstm'; choose one of disan, biblosan",
            ),
            ("--task_name nope --encoder disan --output_dir o", "unknown task 'nope'; choose one of"),
            ("--encoder disan --output_dir o", "Nothing to train on"),
            ("--task_name demo --output_dir o", "No model: give --model_name_or_path"),
            ("--task_name demo --encoder disan", "No --output_dir"),
            ("--task_name demo --encoder disan --model_name_or_path m --output_dir o", "exclude each other"),
            ("--task_name demo --train_file f.csv --encoder disan --output_dir o --cpu", "f.csv does not exist"),
            (
                "--task_name demo --encoder disan --output_dir o --learning_rate 0",
                "--learning_rate is 0.0; it must be",
            ),
            (
                "--task_name demo --encoder disan --output_dir o --seed 4294967296",
                "--seed is 4294967296; it must be 0 or more and below 4,294,967,296",
            ),
            (
                "--task_name demo --encoder disan --output_dir o --learning_rate inf",
                "--learning_rate is inf; it must be more than 0 and finite",
            ),
            (
                "--task_name demo --encoder disan --output_dir o --checkpointing_steps x",
                "--checkpointing_steps is 'x'",
            ),
            ("--task_name demo --encoder disan --output_dir o --vocabulary vectors", "--vocabulary vectors needs"),
            ("--task_name demo --encoder disan --output_dir o --tokenizer_name t --word_vectors w", "--word_vectors"),
            (
                "--task_name demo --encoder disan --output_dir o --word_vectors none.txt --cpu",
                "none.txt does not exist",
            ),
            ("--task_name trec --encoder disan --output_dir o --data_dir none --cpu", "data directory none does not"),
            ("--task_name demo --encoder disan --output_dir o --config_overrides =3 --cpu", "config_overrides"),
            ("--task_name demo --encoder disan --output_dir o --with_tracking --report_to no --cpu", "accelerate"),
            ("--task_name demo --encoder disan --output_dir o --learn_rate 1", "unknown option '--learn_rate'"),
            ("--task_name demo --encoder disan --output_dir o --data_dir d", "the rows of demo are generated"),
            ("--train_file a --encoder disan --output_dir o --data_dir d", "--data_dir has the files of tasks"),
            ("--train_file a --encoder disan --output_dir o --dataset_config_name c", "needs --dataset_name"),
            ("--task_name demo --encoder disan --output_dir o --hub_model_id x", "--hub_model_id needs --push_to_hub"),
            ("--task_name demo --encoder disan --output_dir o --hub_private_repo", "needs --push_to_hub"),
            ("--task_name demo --encoder disan --output_dir o --report_to x", "--report_to needs --with_tracking"),
            (
                "--task_name trec --encoder disan --output_dir o --cpu --select_on_test --validation_fraction 0.2",
                "leave out --validation_fraction",
            ),
            (
                "--task_name demo_relatedness --encoder disan --output_dir o --cpu --label_smoothing 0.2",
                "--label_smoothing has no effect on the scores of",
            ),
            (
                "--task_name demo --encoder disan --output_dir o --cpu --embedding_trainable all "
                "--config_overrides embedding_trainable=none",
                "--embedding_trainable is all, but --config_overrides has embedding_trainable=none",
            ),
        ],
    )
    def test_options(self, tmp_path, monkeypatch, capsys, arguments, message):
        monkeypatch.chdir(tmp_path)
        assert message in fails(capsys, *arguments.split())

    def test_data(self, tmp_path, capsys):
        rows = [{"text": "a cat", "label": "animal"}, {"text": "red", "label": "colour"}] * 12
        options = [
            "--train_file",
            write_rows(tmp_path / "train.jsonl", rows),
            *SMALL,
            "--output_dir",
            tmp_path / "out",
        ]
        assert "there are no validation rows" in fails(capsys, *options)
        options += ["--validation_fraction", 0.1]
        wrong = write_rows(tmp_path / "wrong.jsonl", [*rows, {"text": "two", "label": "number"}])
        message = fails(capsys, *options, "--validation_file", wrong)
        assert "row 25: label 'number' is not one of the labels" in message
        missing = write_rows(tmp_path / "missing.jsonl", [{"words": "a cat", "label": "animal"}])
        assert "has no column 'text'" in fails(capsys, *options, "--test_file", missing)
        vectors = write_vectors(tmp_path / "vectors.txt", ["cat", "dog", "red"])
        broken = tmp_path / "broken.txt"
        broken.write_text(vectors.read_text().replace("dog ", "dog 1 "))
        assert "broken.txt, line 2" in fails(capsys, *options, "--word_vectors", broken)
        assert "is not a checkpoint" in fails(capsys, *options, "--resume_from_checkpoint", tmp_path)

    def test_a_variable_that_accelerate_reads(self, tmp_path, questions, monkeypatch, capsys):
        monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
        given = [*questions, *SMALL, "--output_dir", tmp_path]
        assert "STEPS is 4, --gradient_accumulation_steps 1; unset the variable" in fails(capsys, *given)

    def test_wrong_type(self, capsys):
        for arguments in (["--learning_rate", "fast"], ["--lr_scheduler_type", "up"], ["--seed"]):
            assert f"error: argument {arguments[0]}" in fails(capsys, *arguments)

    def test_options_from_python(self, tmp_path):
        """Their values are those of the command line."""
        common = {"task_name": "demo", "encoder": "disan", "output_dir": str(tmp_path)}
        with pytest.raises(InputError, match="--recipe is 'papers'; choose from modern, paper"):
            RunArguments(**common, recipe="papers")
        assert RunArguments(**common, checkpointing_steps=100).checkpointing_steps == "100"
        with pytest.raises(InputError, match="--checkpointing_steps is 0.5; give a number"):
            RunArguments(**common, checkpointing_steps=0.5)

    def test_missing_extra(self, monkeypatch, capsys):
        monkeypatch.setitem(sys.modules, "scipy", None)
        spec = util.spec_from_file_location("run_glue_style", SCRIPT)
        script = util.module_from_spec(spec)
        spec.loader.exec_module(script)
        assert script.main() == 2
        assert capsys.readouterr().err == f"error: training needs scipy; {install('train')}\n"


def test_odd_texts_train(tmp_path):
    """Empty texts and too long texts in every split."""
    rows = [*question_rows(30), {"text": "", "label": "animal"}, {"text": "red " * 50, "label": "colour"}]
    data = write_splits(tmp_path / "data", lambda count, seed: rows)
    options = [word for name, path in data.items() for word in (f"--{name}", path)]
    assert (
        hf_blosan.training.main([*options, *SMALL, "--max_length", "16", "--output_dir", str(tmp_path / "out")]) == 0
    )
    results = json.loads((tmp_path / "out" / "all_results.json").read_text())
    assert 0 <= results["test_accuracy"] <= 1


def test_pairs_with_empty_sentences_train(tmp_path):
    rows = [*pair_rows(30), *({"sentence1": "", "sentence2": "", "score": 1.5} for _ in range(8))]
    data = write_splits(tmp_path / "data", lambda count, seed: rows)
    options = [word for name, path in data.items() for word in (f"--{name}", path)]
    small = [*SMALL, "--encoder", "mtsa", "--config_overrides", "hidden_size=8,embedding_size=6"]
    assert hf_blosan.training.main([*options, *small, "--output_dir", str(tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out" / "all_results.json").read_text())["test_mse"] < 16
