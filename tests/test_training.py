"""The training loop and the steps around it, on tiny models and generated data."""

import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState
from safetensors.torch import load_file
from small_data import options, prepared, question_rows, read_log, write_rows, write_splits
from transformers import AutoModelForSequenceClassification, pipeline

import hf_blosan
from hf_blosan.errors import InputError
from hf_blosan.training import checkpoints, train
from hf_blosan.training import loop as loop_module
from hf_blosan.training import run as run_module
from hf_blosan.training.checkpoints import save_pretrained
from hf_blosan.training.evaluation import Evaluator
from hf_blosan.training.reporting import count_parameters, read_record


def assert_same_state(first: Path, second: Path):
    """Weights and optimiser of two checkpoints are bit-equal."""
    weights, others = load_file(first / "model.safetensors"), load_file(second / "model.safetensors")
    assert weights.keys() == others.keys()
    for name in weights:
        assert torch.equal(weights[name], others[name]), name
    states = [torch.load(folder / "optimizer.bin", weights_only=True)["state"] for folder in (first, second)]
    assert states[0].keys() == states[1].keys()
    for index, state in states[0].items():
        for name, value in state.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(states[1][index][name])), (index, name)


class TestRun:
    def test_learns_and_writes_everything(self, tmp_path, questions):
        output = tmp_path / "out"
        record_file = tmp_path / "results" / "run.json"
        test = tmp_path / "test.jsonl"
        test.write_text(Path(questions["test_file"]).read_text().replace("\n", "\n\n"))  # blank lines have numbers
        questions = questions | {"test_file": str(test)}
        arguments = options(output, questions, num_train_epochs=12, learning_rate=0.03, results_file=str(record_file))
        run = train(arguments, command="python run_glue_style.py --task_name custom")
        figures = run["figures"]
        names = {f"{split}_{metric}" for split in ("validation", "test") for metric in ("accuracy", "f1_macro")}
        assert figures.keys() == names
        assert figures["test_accuracy"] > 0.6  # chance is 1/3
        results = json.loads((output / "all_results.json").read_text())
        assert results["test_accuracy"] == figures["test_accuracy"]
        assert read_record(record_file) == run
        assert run["command"] == "python run_glue_style.py --task_name custom"
        assert run["data"]["rows"] == {"train": 56, "validation": 21, "test": 21}
        assert not list(output.glob(".*"))  # no temporary files are left

        predictions = (output / "predict_results_custom.txt").read_text().splitlines()
        assert predictions[0] == "index\tprediction" and len(predictions) == 22
        assert [line.split("\t")[0] for line in predictions[1:]] == [str(2 * i) for i in range(21)]
        labels = [row["label"] for row in question_rows(21, seed=2)]
        right = [line.split("\t")[1] == label for line, label in zip(predictions[1:], labels, strict=True)]
        assert np.mean(right) == pytest.approx(figures["test_accuracy"])

        texts = [row["text"] for row in question_rows(21, seed=2)]
        classify = pipeline("text-classification", model=str(output))
        assert [entry["label"] for entry in classify(texts)] == [line.split("\t")[1] for line in predictions[1:]]

    @pytest.mark.parametrize("encoder", ["biblosan", "mtsa"])
    def test_pair_regression(self, tmp_path, pairs, encoder):
        run = train(options(tmp_path, pairs, encoder=encoder, num_train_epochs=1))
        assert {name.split("_", 1)[1] for name in run["figures"]} == {"pearson", "spearmanr", "mse"}
        model = AutoModelForSequenceClassification.from_pretrained(tmp_path)
        assert type(model).__name__.endswith("ForPairRegression")
        score = pipeline("text-classification", model=str(tmp_path))({"text": "a red cat", "text_pair": "a dog"})
        assert 1 <= score["score"] <= 5
        assert run["parameters"] == count_parameters(model)

    def test_two_validation_splits(self, tmp_path):
        rows = [
            {"sentence1": "a cat", "sentence2": "a dog", "label": label}
            for label in ("entailment", "neutral", "contradiction")
        ]
        for split in ("train", "validation_matched", "validation_mismatched"):
            write_rows(tmp_path / "mnli" / f"{split}.jsonl", rows * 8)
        run = train(
            options(tmp_path / "out", {}, task_name="mnli", data_dir=str(tmp_path), num_folds=4, num_train_epochs=1)
        )
        assert run["figures"].keys() == {
            "validation_matched_accuracy",
            "validation_mismatched_accuracy",
            "test_accuracy",
        }
        assert run["data"]["held_out"] == {"test": "fold 0 of 4"}
        assert run["data"]["rows"]["validation_mismatched"] == 24

    def test_one_of_two_validation_splits(self, tmp_path):
        """Files replace the first one, and there is no other."""
        rows = [
            {"sentence1": "a cat", "sentence2": "a dog", "label": label}
            for label in ("entailment", "neutral", "contradiction")
        ]
        file = str(write_rows(tmp_path / "rows.jsonl", rows))
        data = {"train_file": file, "validation_file": file}
        arguments, preparation = prepared(options(tmp_path / "out", data, task_name="mnli"))
        evaluator = Evaluator(preparation, 8, run_module.make_accelerator(arguments))
        assert evaluator.best_metric == "validation_accuracy"
        assert evaluator.measure(preparation.model)[0].keys() == {"validation_accuracy"}

    def test_without_test_split(self, tmp_path, questions):
        data = {name: path for name, path in questions.items() if name != "test_file"}
        run = train(options(tmp_path, data, num_folds=0, max_train_steps=1))
        assert run["figures"].keys() == {"validation_accuracy", "validation_f1_macro"}
        assert not list(tmp_path.glob("predict_results_*"))

    def test_files_may_go_while_it_trains(self, tmp_path, questions, monkeypatch):
        """The record tells those that were read."""
        content, path = Path(questions["train_file"]).read_bytes(), tmp_path / "train.jsonl"
        path.write_bytes(content)
        validate = Evaluator.validate
        monkeypatch.setattr(Evaluator, "validate", lambda *args: path.unlink() or validate(*args))
        run = train(options(tmp_path / "out", questions | {"train_file": str(path)}, max_train_steps=1))
        assert run["data"]["sha256"]["train.jsonl"] == hashlib.sha256(content).hexdigest()

    def test_same_seed_same_model(self, tmp_path, questions):
        for name, seed in (("a", 1), ("b", 1), ("c", 2)):
            train(options(tmp_path / name, questions, seed=seed, max_train_steps=3))
        weights = {name: load_file(tmp_path / name / "model.safetensors") for name in "abc"}
        assert all(torch.equal(weights["a"][name], weights["b"][name]) for name in weights["a"])
        key = "model.context.layers.0.directions.0.dense_map.weight"
        assert not torch.equal(weights["a"][key], weights["c"][key])


class TestResume:
    @pytest.mark.parametrize(
        "changes",
        [
            {"checkpointing_steps": "5"},  # in the middle of the first epoch of 7 batches
            {"checkpointing_steps": "7"},  # at its end
            {"checkpointing_steps": "5", "gradient_accumulation_steps": 2, "num_train_epochs": 3},
            {"checkpointing_steps": "4", "lr_scheduler_type": "linear", "eval_every": 3, "bucketing": False},
            {"checkpointing_steps": "epoch"},
            {"checkpointing_steps": "5", "recipe": "modern", "watch_test": True},
        ],
        ids=["middle", "end of epoch", "accumulation", "schedule", "epoch", "modern"],
    )
    def test_is_exact(self, tmp_path, questions, changes):
        """A run resumed from its first checkpoint ends like the uninterrupted one, with dropout enabled."""
        whole, resumed = tmp_path / "whole", tmp_path / "resumed"
        expected = train(options(whole, questions, **changes))
        checkpoints = sorted(whole.glob("*_*/checkpoint.json"), key=lambda path: int(path.parent.name.split("_")[1]))
        first, last = checkpoints[0].parent, checkpoints[-1].parent
        assert first != last
        run = train(options(resumed, questions, resume_from_checkpoint=str(first), **changes))
        assert run["figures"] == expected["figures"]
        assert_same_state(last, resumed / last.name)
        for name, tensor in load_file(whole / "model.safetensors").items():
            assert torch.equal(tensor, load_file(resumed / "model.safetensors")[name]), name
        step = read_log(resumed, "resume")[0]["step"]
        ignored = ("time", "seconds")
        logs = [
            [{k: v for k, v in entry.items() if k not in ignored} for entry in read_log(folder, event)]
            for event in ("train", "validation")
            for folder in (whole, resumed)
        ]
        for uninterrupted, continued in (logs[:2], logs[2:]):
            assert [entry for entry in uninterrupted if entry["step"] > step] == continued

    def test_dropout_is_on_and_random_state_matters(self, tmp_path, questions, monkeypatch):
        """Without an effect of dropout the test above would not notice a lost random state."""
        changes = {"checkpointing_steps": "5", "max_train_steps": 10}
        train(options(tmp_path / "whole", questions, **changes))
        monkeypatch.setattr(torch, "set_rng_state", lambda state: None)
        checkpoint = str(tmp_path / "whole" / "step_5")
        train(options(tmp_path / "resumed", questions, resume_from_checkpoint=checkpoint, **changes))
        with pytest.raises(AssertionError):
            assert_same_state(tmp_path / "whole" / "step_10", tmp_path / "resumed" / "step_10")

    def test_remembers_the_best_model(self, tmp_path, questions, monkeypatch):
        """The best model before the interruption is the result if no better one follows."""
        values = iter([0.9, 0.1, 0.2, 0.1, 0.2])
        monkeypatch.setattr(Evaluator, "validate", lambda self, model: {"validation_accuracy": next(values)})
        changes = {"checkpointing_steps": "epoch", "early_stopping_patience": 2}
        train(options(tmp_path / "whole", questions, num_train_epochs=2, **changes))
        best = load_file(tmp_path / "whole" / "epoch_0" / "model.safetensors")
        run = train(
            options(
                tmp_path / "resumed",
                questions,
                num_train_epochs=9,
                resume_from_checkpoint=str(tmp_path / "whole" / "epoch_1"),
                **changes,
            )
        )
        # One evaluation without progress before the checkpoint, one after it.
        assert len(read_log(tmp_path / "resumed", "validation")) == 1
        assert run["training"]["best_step"] == 7
        kept = load_file(tmp_path / "resumed" / "model.safetensors")
        assert all(torch.equal(best[name], kept[name]) for name in kept)

    def test_refuses_a_folder_without_a_checkpoint(self, tmp_path, questions):
        for folder in (tmp_path / "missing", tmp_path):
            with pytest.raises(InputError, match="is not a checkpoint"):
                train(options(tmp_path / "out", questions, resume_from_checkpoint=str(folder)))

    def test_refuses_other_settings(self, tmp_path, questions, monkeypatch):
        train(options(tmp_path, questions, checkpointing_steps="1", max_train_steps=1))
        resume = {"resume_from_checkpoint": str(tmp_path / "step_1")}
        with pytest.raises(InputError, match="learning_rate was 0.01, now it is 0.02"):
            train(options(tmp_path, questions, learning_rate=0.02, **resume))
        warmed = {"lr_scheduler_type": "constant_with_warmup", "num_warmup_steps": 0.5}
        train(options(tmp_path / "warmed", questions, checkpointing_steps="1", max_train_steps=2, **warmed))
        with pytest.raises(InputError, match="total_steps was 2, now it is 9"):  # whose warm-up would start again
            again = {"max_train_steps": 9, "resume_from_checkpoint": str(tmp_path / "warmed" / "step_1")}
            train(options(tmp_path / "warmed", questions, **warmed, **again))
        monkeypatch.setitem(AcceleratorState._shared_state, "_mixed_precision", "bf16")  # as a launcher sets it
        with pytest.raises(InputError, match="mixed_precision was no, now it is bf16"):
            train(options(tmp_path, questions, **resume))
        path = tmp_path / "step_1" / checkpoints.DESCRIPTION
        description = json.loads(path.read_text())
        del description["mixed_precision"], description["sha256"]  # as before it was recorded
        path.write_text(json.dumps(description | {"sha256": checkpoints._digest(description)}))
        train(options(tmp_path, questions, max_train_steps=1, **resume))

    def test_refuses_other_data(self, tmp_path, questions):
        """The same number of rows from another fold or file: training rows would become test rows."""
        own = {"train_file": questions["train_file"], "num_folds": 5, "validation_fraction": 0.1}
        train(options(tmp_path, own, checkpointing_steps="1", max_train_steps=1))
        resume = {"resume_from_checkpoint": str(tmp_path / "step_1")}
        with pytest.raises(InputError, match="fold was 0, now it is 1"):
            train(options(tmp_path, own, fold=1, **resume))
        rows = [json.loads(line) for line in Path(questions["train_file"]).read_text().splitlines()]
        other = own | {"train_file": str(write_rows(tmp_path / "other.jsonl", rows[::-1]))}
        with pytest.raises(InputError, match="train_data was"):
            train(options(tmp_path, other, **resume))

    @pytest.mark.parametrize(
        ("changed", "old", "new", "name"),
        [("train_file", "cat", "cow", "vocabulary"), ("validation_file", "a red", "a", "validation_data")],
    )
    def test_refuses_changed_files(self, tmp_path, changed, old, new, name):
        """Words that are replaced have the ids of those before."""
        rows = [{"text": "a cat", "label": "animal"}, {"text": "a red thing", "label": "colour"}] * 6
        data = {
            f"{split}_file": str(write_rows(tmp_path / f"{split}.jsonl", rows)) for split in ("train", "validation")
        }
        train(options(tmp_path / "out", data, checkpointing_steps="1", max_train_steps=1))
        path = Path(data[changed])
        path.write_text(path.read_text().replace(old, new))
        with pytest.raises(InputError, match=rf"different settings \(.*{name}\)"):
            train(options(tmp_path / "out", data, resume_from_checkpoint=str(tmp_path / "out" / "step_1")))


class TestLoop:
    def test_stops_early_and_keeps_the_best(self, tmp_path, questions, monkeypatch):
        values = iter([0.2, math.nan, 0.5, 0.4, 0.5, 0.9])
        monkeypatch.setattr(Evaluator, "validate", lambda self, model: {"validation_accuracy": next(values)})
        arguments = options(
            tmp_path, questions, eval_every=2, early_stopping_patience=2, checkpointing_steps="2", num_train_epochs=9
        )
        run = train(arguments)
        events = read_log(tmp_path, "validation")
        assert [entry["step"] for entry in events] == [2, 4, 6, 8, 10]
        assert [entry["best"] for entry in events] == [True, False, True, False, False]
        assert events[1]["validation_accuracy"] is None  # JSON has no NaN
        assert run["training"]["best_step"] == 6 and run["training"]["steps"] == 10
        best = load_file(tmp_path / "step_6" / "model.safetensors")
        assert all(torch.equal(best[name], value) for name, value in load_file(tmp_path / "model.safetensors").items())

    def test_first_number_beats_an_undefined_metric(self, tmp_path, questions, monkeypatch):
        values = iter([math.nan, 0.1])
        monkeypatch.setattr(Evaluator, "validate", lambda self, model: {"validation_accuracy": next(values)})
        assert train(options(tmp_path, questions))["training"]["best_step"] == 14

    def test_a_figure_of_zero_is_no_reason_to_stop(self, tmp_path, questions, monkeypatch):
        """A tagger has it until it finds a first span, and may be near that."""
        values = iter([0.0, 0.0, 0.0, 0.1, 0.1])
        monkeypatch.setattr(Evaluator, "validate", lambda self, model: {"validation_accuracy": next(values)})
        train(options(tmp_path, questions, eval_every=2, early_stopping_patience=1, num_train_epochs=9))
        assert [entry["best"] for entry in read_log(tmp_path, "validation")] == [True, True, True, True, False]

    def test_patience_zero_never_stops(self, tmp_path, questions):
        run = train(options(tmp_path, questions, learning_rate=1e-12, num_train_epochs=4, early_stopping_patience=0))
        assert run["training"]["steps"] == 28 and run["training"]["epochs"] == 4

    def test_an_undefined_figure_selects_nothing_and_says_so(self, tmp_path, questions, monkeypatch, caplog):
        monkeypatch.setattr(Evaluator, "validate", lambda self, model: {"validation_accuracy": math.nan})
        run = train(options(tmp_path, questions, num_train_epochs=2, early_stopping_patience=1))
        assert run["training"]["best_step"] == run["training"]["steps"] == 14
        assert caplog.text.count("validation_accuracy is undefined; the last model is kept") == 1

    @pytest.mark.parametrize("patience", [None, 2, 0])
    def test_your_own_data_stop_early_and_say_so(self, tmp_path, monkeypatch, caplog, patience):
        """After 3 epochs of 50 updates without a better figure, or as many evaluations as are given."""
        data = write_splits(tmp_path / "data", question_rows, train=400)
        values = iter([0.2, 0.5, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1])
        monkeypatch.setattr(Evaluator, "validate", lambda self, model: {"validation_accuracy": next(values)})
        changes = {"recipe": "modern", "num_train_epochs": 7, "early_stopping_patience": patience}
        with caplog.at_level("INFO", "hf_blosan"):
            run = train(options(tmp_path / "out", data, **changes))
        lines = [line for line in caplog.messages if line.startswith("early stopping")]
        assert run["training"]["best_step"] == 100
        if patience == 0:
            assert run["training"]["steps"] == 350 and not lines
            return
        made, allowed = (200, 2) if patience else (250, 3)
        assert run["training"]["steps"] == made and run["settings"]["early_stopping_patience"] == allowed
        assert lines == [
            f"early stopping: training ends after {allowed} evaluations without a better validation_accuracy "
            "(--early_stopping_patience; 0: never)",
            "early stopping: validation_accuracy is no better than after update 100; training ends after update "
            f"{made} of 350",
        ]

    @pytest.mark.parametrize("rows", [8, 4], ids=["whole group", "short group"])
    def test_accumulated_batches_are_one_batch(self, tmp_path, rows, monkeypatch):
        """One update of 8 rows equals one of two batches of 4, also in an incomplete group at the end of an epoch."""
        monkeypatch.setattr(
            loop_module, "build_optimizer", lambda model, *_, **__: torch.optim.SGD(model.parameters(), lr=1.0)
        )
        data = write_splits(tmp_path / "data", question_rows, train=rows)
        common = {"max_train_steps": 1, "l2": 0.02, "config_overrides": "hidden_size=8,embedding_size=6,dropout=0"}
        train(options(tmp_path / "one", data, per_device_train_batch_size=8, **common))
        split = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
        train(options(tmp_path / "two", data, **split, **common))
        train(options(tmp_path / "start", data, max_grad_norm=1e-30, **common))
        one, two, start = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two", "start"))
        for name in one:
            torch.testing.assert_close(one[name], two[name], rtol=1e-5, atol=1e-7)
        assert (one["classifier.hidden.weight"] - start["classifier.hidden.weight"]).abs().max() > 1e-3

    def test_l2_term_is_in_the_loss(self, tmp_path, questions, monkeypatch):
        """One step of gradient descent: the L2 term moves a matrix by lr * factor * matrix more."""
        monkeypatch.setattr(
            loop_module, "build_optimizer", lambda model, *_, **__: torch.optim.SGD(model.parameters(), lr=0.1)
        )
        common = {"max_train_steps": 1, "config_overrides": "hidden_size=8,embedding_size=6,dropout=0"}
        for name, changes in {
            "without": {"l2": 0.0},
            "with": {"l2": 0.5},
            "start": {"l2": 0.0, "max_grad_norm": 1e-30},
        }.items():
            train(options(tmp_path / name, questions, **common, **changes))
        key = "classifier.hidden.weight"
        without, with_l2, start = (
            load_file(tmp_path / n / "model.safetensors")[key] for n in ("without", "with", "start")
        )
        torch.testing.assert_close(without - with_l2, 0.1 * 0.5 * start, rtol=1e-3, atol=1e-6)

    def test_gradient_is_clipped(self, tmp_path, questions, monkeypatch):
        monkeypatch.setattr(
            loop_module, "build_optimizer", lambda model, *_, **__: torch.optim.SGD(model.parameters(), lr=1.0)
        )
        for name, norm in (("small", 0.01), ("start", 1e-30)):
            train(options(tmp_path / name, questions, max_train_steps=1, max_grad_norm=norm, l2=0.0))
        small, start = (load_file(tmp_path / name / "model.safetensors") for name in ("small", "start"))
        moved = sum((small[name] - start[name]).square().sum() for name in small) ** 0.5
        assert moved == pytest.approx(0.01, rel=1e-3)

    def test_the_average_of_the_weights_is_saved(self, tmp_path, questions):
        changes = {"checkpointing_steps": "1", "max_train_steps": 4, "num_warmup_steps": 0.5}
        train(options(tmp_path, questions, ema_decay=0.3, lr_scheduler_type="linear", **changes))
        assert [round(entry["learning_rate"], 6) for entry in read_log(tmp_path, "train")] == [0.005, 0.01, 0.005, 0.0]
        steps = [load_file(tmp_path / f"step_{step}" / "model.safetensors") for step in range(1, 5)]
        average = steps[0]
        for t, weights in enumerate(steps[1:], 1):
            decay = min(0.3, (1 + t) / (10 + t))
            average = {name: decay * average[name] + (1 - decay) * weights[name] for name in weights}
        saved = load_file(tmp_path / "model.safetensors")
        for name, tensor in average.items():
            torch.testing.assert_close(saved[name], tensor, rtol=1e-5, atol=1e-7)
        assert not torch.equal(saved["classifier.hidden.weight"], steps[-1]["classifier.hidden.weight"])

    def test_label_smoothing_mixes_the_loss_of_all_labels(self, tmp_path, questions):
        """(1 - s) loss(label) + s mean(loss of every label) is linear in s."""
        common = {"max_train_steps": 1, "l2": 0.0, "config_overrides": "hidden_size=8,embedding_size=6,dropout=0"}
        losses = []
        for smoothing in (0.0, 0.2, 0.4):
            train(options(tmp_path, questions, label_smoothing=smoothing, **common))
            losses.append(read_log(tmp_path, "train")[0]["loss"])
        assert losses[2] - losses[1] == pytest.approx(losses[1] - losses[0], abs=1e-6) and losses[0] != losses[1]

    def test_the_test_split_is_watched_and_selects_nothing(self, tmp_path, questions):
        runs = [train(options(tmp_path / str(watch), questions, watch_test=watch)) for watch in (False, True)]
        assert runs[0]["figures"] == runs[1]["figures"] and runs[0]["training"]["best_test"] is None
        seen = [entry["test_accuracy"] for entry in read_log(tmp_path / "True", "validation")]
        assert len(seen) == 2 and runs[1]["training"]["best_test"] == max(seen)
        assert "test_accuracy" not in read_log(tmp_path / "False", "validation")[0]
        with pytest.raises(InputError, match="^--watch_test: there are no test rows; give --test_file"):
            train(options(tmp_path, questions | {"test_file": None}, watch_test=True))

    def test_predictions_are_in_the_order_of_the_data(self, tmp_path, questions):
        arguments, preparation = prepared(options(tmp_path, questions))
        accelerator = run_module.make_accelerator(arguments)
        evaluator = Evaluator(preparation, 8, accelerator)
        split = evaluator.splits[-1]
        predicted = evaluator.predict(preparation.model, split)
        rows = preparation.data["test"]
        names = ("input_ids", "token_type_ids", "attention_mask")
        with torch.no_grad():
            alone = [
                preparation.model(**{name: torch.tensor([row[name]]) for name in names}).logits.argmax()
                for row in rows
            ]
        assert predicted.tolist() == [int(label) for label in alone]
        assert split.order.tolist() != list(range(len(rows)))

    def test_half_written_model_leaves_the_old_one(self, tmp_path, questions):
        _, preparation = prepared(options(tmp_path, questions))
        save_pretrained(preparation.model, preparation.tokenizer, tmp_path)
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

        class Broken:
            def save_pretrained(self, folder):
                raise OSError("disk full")

        with torch.no_grad():
            preparation.model.classifier.output.weight.add_(1)
        with pytest.raises(OSError, match="disk full"):
            save_pretrained(preparation.model, Broken(), tmp_path)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_cpu_of_an_earlier_run_is_said(tmp_path, questions, monkeypatch, caplog):
    run_module.make_accelerator(options(tmp_path, questions))
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("cuda"))
    run_module.make_accelerator(options(tmp_path, questions))
    assert not caplog.messages
    run_module.make_accelerator(options(tmp_path, questions, cpu=False))
    assert "training on the CPU, as earlier in this process; start a new process to use cuda" in caplog.text


def test_optimizers_import_without_the_extra():
    assert callable(hf_blosan.training.build_optimizer) and callable(hf_blosan.training.l2_penalty)
