"""The paired test of the difference between two systems."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from small_data import options, question_rows, write_splits

from hf_blosan.errors import InputError
from hf_blosan.training import RunArguments, train
from reproduce import significance
from reproduce.runner import Run
from reproduce.significance import NotComparable, paired_bootstrap, paired_p_value, recorded_runs

LABELS = np.random.default_rng(0).integers(0, 2, 400).astype(float)
ROWS = np.stack([LABELS, np.arange(400)], axis=1)


def runs(monkeypatch, wrong, seeds=(1, 2), folds=(0, 1)) -> list[Run]:
    """Runs whose predictions differ from the labels at every `wrong`-th row."""
    monkeypatch.setattr(significance, "_load_rows", lambda task, seed, fold, **_: ROWS[fold::2])
    found = []
    for seed, fold in itertools.product(seeds, folds):
        predictions = LABELS.copy()
        predictions[::wrong] = 1 - predictions[::wrong]
        arguments = RunArguments(task_name="cr", encoder="disan", output_dir="o", seed=seed, fold=fold)
        record = {"test_predictions": predictions[fold::2].tolist(), "task": {"labels": ["negative", "positive"]}}
        found.append(Run(None, arguments, 10, record=record))
    return found


def test_interval_holds_the_difference(monkeypatch):
    one, other = runs(monkeypatch, 10), runs(monkeypatch, 5)
    mean, low, high = paired_bootstrap("test_accuracy", one, other)
    assert mean == pytest.approx(0.1)
    # The systems differ in a tenth of the rows, always to the advantage of the first.
    width = 1.96 * (0.1 * 0.9 / 400) ** 0.5
    assert low == pytest.approx(0.1 - width, abs=0.01) and high == pytest.approx(0.1 + width, abs=0.01)
    assert paired_bootstrap("test_accuracy", one, other) == (mean, low, high)
    assert paired_bootstrap("test_accuracy", other, one)[0] == -mean
    assert paired_bootstrap("test_mse", one, one) == (0, 0, 0)


def test_runs_of_records(tmp_path, monkeypatch):
    """On a user's own files; each run is tested on the rows that its command names."""
    data, found = write_splits(tmp_path, question_rows), []
    for encoder in ("disan", "birnn"):
        arguments = options(tmp_path / encoder, data, encoder=encoder, results_file=str(tmp_path / f"{encoder}.json"))
        monkeypatch.setattr("sys.argv", ["run_glue_style.py", *arguments.to_argv()])
        record = train(arguments)
        found.append(record["figures"]["test_accuracy"])
    first, second = (recorded_runs([tmp_path / f"{encoder}.json"]) for encoder in ("disan", "birnn"))
    mean, low, high = paired_bootstrap("test_accuracy", first, second)
    assert low <= mean <= high and mean == pytest.approx(found[0] - found[1])
    rows = write_splits(tmp_path / "others", question_rows, evaluation=20)
    arguments = replace(arguments, results_file=str(tmp_path / "third.json"), **rows)
    monkeypatch.setattr("sys.argv", ["run_glue_style.py", *arguments.to_argv()])
    train(arguments)
    with pytest.raises(InputError, match="the test rows differ between seeds or systems"):
        paired_bootstrap("test_accuracy", first, recorded_runs([tmp_path / "third.json"]))
    with pytest.raises(
        InputError, match=r"disan.json and .*birnn.json differ in encoder.*; give the runs of one system"
    ):
        recorded_runs([tmp_path / "disan.json", tmp_path / "birnn.json"])
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InputError, match="other.json is not the record of a run"):
        recorded_runs([tmp_path / "other.json"])


def test_classes_are_compared_by_name(tmp_path, monkeypatch):
    """A model that is trained further keeps the order of its labels, a new one has them sorted."""
    data, found = write_splits(tmp_path, question_rows), []
    turned = tmp_path / "start"
    train(options(turned, data, max_train_steps=1))
    config = json.loads((turned / "config.json").read_text())
    names = [*config["id2label"].values()][::-1]
    config |= {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    (turned / "config.json").write_text(json.dumps(config))
    for name, start in (("new", {}), ("continued", {"encoder": None, "model_name_or_path": str(turned)})):
        arguments = options(tmp_path / name, data, results_file=str(tmp_path / f"{name}.json"), **start)
        monkeypatch.setattr("sys.argv", ["run_glue_style.py", *arguments.to_argv()])
        found.append(train(arguments))
    assert found[0]["task"]["labels"] == found[1]["task"]["labels"][::-1]
    new, continued = (recorded_runs([tmp_path / f"{name}.json"]) for name in ("new", "continued"))
    accuracy = [record["figures"]["test_accuracy"] for record in found]
    assert paired_bootstrap("test_accuracy", new, continued)[0] == pytest.approx(accuracy[0] - accuracy[1])


def test_only_runs_in_common_are_compared(monkeypatch, caplog):
    one = runs(monkeypatch, 10)
    for other in (runs(monkeypatch, 5, seeds=(3,)), runs(monkeypatch, 5, folds=(0,)), []):
        with pytest.raises(NotComparable, match=r"no seed has predictions of the same folds .* \(seeds 1, 2"):
            paired_bootstrap("test_accuracy", one, other)
    with pytest.raises(InputError, match="test_f1 cannot be computed from predictions; choose from test_accuracy"):
        paired_bootstrap("test_f1", one, one)
    assert not caplog.records
    other = runs(monkeypatch, 5, seeds=(2, 3))
    assert paired_bootstrap("test_accuracy", one, other)[0] == pytest.approx(0.1)
    assert "seeds without predictions of the same folds in both systems are left out: 1, 3" in caplog.text
    del other[0].record["test_predictions"]
    with pytest.raises(NotComparable, match="no seed has predictions of the same folds"):
        paired_bootstrap("test_accuracy", one, other)
    with pytest.raises(InputError, match="two runs of a system have seed 1 and fold 0"):
        paired_bootstrap("test_accuracy", [*one, *one], other)


def test_what_is_undefined_is_not_compared(monkeypatch):
    one, other = runs(monkeypatch, 10), runs(monkeypatch, 5)
    other[0].record["test_predictions"] = [3.0] * 200
    other[1].record["test_predictions"] = [3.0] * 200
    for run in [*one, *other]:
        run.record["task"] = {}
    with pytest.raises(NotComparable, match="test_pearson is undefined for the predictions of a run"):
        paired_bootstrap("test_pearson", one, other)
    for run in [*one, *other]:
        run.record["figures"] = {"test_accuracy": 0.5}
    assert paired_p_value("test_accuracy", one, other) == 1


@pytest.mark.parametrize("differs", [[1, 0], [0, 1]], ids=["labels", "rows with the same labels"])
def test_seeds_with_other_test_rows_are_not_compared(differs, monkeypatch):
    one = runs(monkeypatch, 10)
    monkeypatch.setattr(
        significance, "_load_rows", lambda task, seed, fold, **_: ROWS[fold::2] + seed * np.array(differs)
    )
    with pytest.raises(InputError, match="the test rows differ"):
        paired_bootstrap("test_accuracy", one, one)
