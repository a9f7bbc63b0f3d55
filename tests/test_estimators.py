"""scikit-learn's interface: the command's training on rows in memory."""

import json
import logging
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pandas
import pytest
import torch
from datasets import are_progress_bars_disabled
from safetensors.torch import load_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from small_data import TINY, WORDS, pair_rows, question_rows, read_lines, write_backbone, write_rows
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline
from transformers.utils import logging as transformers_logging

import hf_blosan
from hf_blosan.cli.commands import main
from hf_blosan.cli.overrides import format_config_overrides, parse_config_overrides
from hf_blosan.errors import InputError
from hf_blosan.estimators import SentenceClassifier, SentenceRegressor
from hf_blosan.training import RunArguments, train
from hf_blosan.training.loop import TrainingLoop

SMALL = {
    "encoder": "disan",
    "config_overrides": parse_config_overrides(TINY),
    "num_train_epochs": 2,
    "batch_size": 8,
    "cpu": True,
}
# With larger word vectors the high rate is unstable.
SIZES = {"hidden_size": 16, "embedding_size": 16, "classifier_size": 16, "dropout": 0.0, "embedding_scale": 1.0}
LEARNING = {
    "encoder": "wordbag",
    "config_overrides": SIZES,
    "options": {"ema_decay": 0, "label_smoothing": 0, "bucketing": False},
    "num_train_epochs": 10,
    "learning_rate": 0.05,
}
LEFT_OUT = ("README.md", "all_results.json", "log.jsonl")
"""What the command adds to a model."""


def classifier(**parameters) -> SentenceClassifier:
    return SentenceClassifier(**(SMALL | parameters))


def test_truncated_texts_are_reported(caplog):
    texts, labels = ["one cat", "red dog and some more words"] * 8, ["a", "b"] * 8
    fitted = classifier(max_length=3).fit(texts, labels)
    caplog.clear()
    fitted.predict(["a cat", *texts])
    assert "texts with more than 3 tokens (the longest has 6) were truncated: 8; increase max_length" in caplog.text


def test_numbers_of_numpy_are_numbers():
    overrides = {"hidden_size": np.int64(64), "dropout": np.float32(0.5), "windows": [np.int64(3)]}
    assert parse_config_overrides(format_config_overrides(overrides)) == overrides


def regressor(**parameters) -> SentenceRegressor:
    return SentenceRegressor(**(SMALL | parameters))


def questions(count=60, seed=0):
    rows = question_rows(count, seed)
    return [row["text"] for row in rows], [row["label"] for row in rows]


def pairs(count=60, seed=0):
    rows = pair_rows(count, seed)
    return [(row["sentence1"], row["sentence2"]) for row in rows], [row["score"] for row in rows]


@pytest.fixture(scope="module")
def fitted():
    """A classifier that has learnt, with what it was fitted on."""
    X, y = questions(90)
    return classifier(**LEARNING).fit(X, y), X, y


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def weights(estimator) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in estimator.model_.state_dict().items()}


def assert_same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]):
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


# The command's training.


@pytest.mark.parametrize("held_out", [0.1, 0.3, "file"])
@pytest.mark.parametrize("kind", ["texts", "pairs"])
def test_the_weights_are_those_of_the_command(kind, held_out, tmp_path):
    rows, other = ((question_rows(60, seed) if kind == "texts" else pair_rows(60, seed)) for seed in (0, 1))
    (X, y), (X_val, y_val) = ((questions if kind == "texts" else pairs)(60, seed) for seed in (0, 1))
    options = {"train_file": str(write_rows(tmp_path / "train.csv", rows))}
    if held_out == "file":
        options["validation_file"], validation = str(write_rows(tmp_path / "other.csv", other)), (X_val, y_val)
    else:
        options["validation_fraction"], validation = held_out, ()
    options |= {"encoder": "disan", "config_overrides": TINY, "num_train_epochs": 2, "per_device_train_batch_size": 8}
    run = train(RunArguments(**options, seed=7, cpu=True, label_smoothing=0.0, output_dir=str(tmp_path / "command")))
    make = classifier if kind == "texts" else regressor
    fraction = {} if held_out == "file" else {"validation_fraction": held_out}
    estimator = make(random_state=7, options={"label_smoothing": 0.0}, **fraction).fit(X, y, *validation)
    estimator.save_pretrained(tmp_path / "saved")
    assert_same(*(load_file(tmp_path / name / "model.safetensors") for name in ("command", "saved")))
    for path in (tmp_path / "command").iterdir():
        if path.name not in LEFT_OUT:
            assert path.read_bytes() == (tmp_path / "saved" / path.name).read_bytes(), path.name
    best = next(entry for entry in estimator.history_[::-1] if entry["best"])
    figures = {name: value for name, value in best.items() if name.startswith("validation_")}
    assert figures == {name: value for name, value in run["figures"].items() if name.startswith("validation_")}


def test_training_starts_from_the_encoder_of_the_package(tiny_en, monkeypatch):
    monkeypatch.setattr("hf_blosan.estimators.sentences.START", tiny_en)
    X, y = questions(20)
    fitted = SentenceClassifier(num_train_epochs=1, cpu=True).fit(X, y)
    wanted = AutoTokenizer.from_pretrained(hf_blosan.pretrained(tiny_en))
    assert fitted.tokenizer_.get_vocab() == wanted.get_vocab() and fitted.model_.config.hidden_size == 8
    with pytest.raises(InputError, match="model='a/model' starts from a trained encoder, encoder='mtsa' from scratch"):
        SentenceClassifier("a/model", encoder="mtsa").fit(X, y)


def test_a_saved_model_is_continued(fitted, tmp_path):
    estimator, X, y = fitted
    estimator.save_pretrained(tmp_path / "first")
    again = SentenceClassifier(tmp_path / "first", learning_rate=1e-9, num_train_epochs=1, cpu=True).fit(X, y)
    np.testing.assert_allclose(again.predict_proba(X), estimator.predict_proba(X), atol=1e-3)
    assert estimator.score(X, y) > 0.9
    # So is one whose labels have another order.
    config = estimator.model_.config.to_dict() | {"id2label": dict(enumerate(["number", "colour", "animal"]))}
    renamed = dict(zip(["animal", "colour", "number"], ["number", "colour", "animal"], strict=True))
    (tmp_path / "first" / "config.json").write_text(json.dumps(config | {"label2id": None}))
    again.fit(X, y := [renamed[label] for label in y])
    assert again.classes_.tolist() == ["animal", "colour", "number"] and again.score(X, y) > 0.9
    assert again.model_.config.id2label == {0: "number", 1: "colour", 2: "animal"}
    np.testing.assert_allclose(again.predict_proba(X)[:, ::-1], estimator.predict_proba(X), atol=1e-3)


def test_a_classifier_of_transformers_predicts(tmp_path):
    folder = write_backbone(tmp_path / "bert", ["a cat", "a dog"])
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
    model.save_pretrained(folder)
    found = SentenceClassifier.from_pretrained(folder, cpu=True)
    assert found.classes_.tolist() == ["LABEL_0", "LABEL_1"] and found.predict(["a cat", "a dog"]).shape == (2,)
    assert found.max_length == found.tokenizer_.model_max_length == 300


def test_a_loaded_model_reads_as_many_tokens_as_it_was_trained_on(tmp_path):
    X, y = questions(60)
    estimator = classifier(max_length=2, num_train_epochs=1).fit(X, y)
    estimator.save_pretrained(tmp_path / "model")
    found = SentenceClassifier.from_pretrained(tmp_path / "model", cpu=True)
    np.testing.assert_array_equal(found.predict_proba(X), estimator.predict_proba(X))
    assert clone(found).max_length == 2


def test_the_last_weights_are_kept_without_validation_rows(tmp_path):
    """All rows are trained on: the words of the last row are known."""
    X, y = questions(60)
    X[-1] = "unheard"
    estimator = classifier(num_train_epochs=3).fit(X, y)
    assert [entry["best"] for entry in estimator.history_] == [True] * 3
    assert "unheard" in estimator.tokenizer_.get_vocab()
    assert not any(name.startswith("validation_") for entry in estimator.history_ for name in entry)
    with pytest.raises(InputError, match="^early_stopping_patience=1 needs rows to evaluate on; give validation_frac"):
        classifier(early_stopping_patience=1).fit(X, y)
    never = classifier(num_train_epochs=3, early_stopping_patience=0).fit(X, y)
    assert_same(weights(estimator), weights(never))


# What goes in and comes out.


@pytest.mark.parametrize(
    "form", [list, tuple, np.array, lambda X: np.array(X, dtype=object), pandas.Series, lambda X: np.array(X)[:, None]]
)
def test_forms_of_texts(form, fitted):
    estimator, X, y = fitted
    expected = weights(clone(estimator).set_params(num_train_epochs=1).fit(X, y))
    assert_same(expected, weights(clone(estimator).set_params(num_train_epochs=1).fit(form(X), y)))
    assert estimator.predict(form(X[:5])).tolist() == estimator.predict(X[:5]).tolist()


@pytest.mark.parametrize(
    "form",
    [
        lambda X: [list(pair) for pair in X],
        np.array,
        lambda X: np.array(X, dtype=object),
        pandas.Series,
        pandas.DataFrame,
    ],
)
def test_forms_of_pairs(form):
    X, y = pairs(40)
    expected = regressor(num_train_epochs=1).fit(X, y)
    estimator = regressor(num_train_epochs=1).fit(form(X), y)
    assert_same(weights(expected), weights(estimator))
    assert estimator.n_features_in_ == 2
    np.testing.assert_array_equal(estimator.predict(form(X[:5])), expected.predict(X[:5]))


@pytest.mark.parametrize(
    "names",
    [
        ["b", "a", "c"],
        [10, 9, -1],
        [1, 2, 0],
        ["A", "a", "B"],
        [" x", "x", ""],
        np.array([3.0, 1.0, 2.0]),
        [True, False],
        pandas.Series(["no", "yes", "so"], dtype="category"),
        pandas.Series(["no", "yes"], dtype="string"),
        pandas.Series([3, 1], dtype="Int64"),
        pandas.Series([True, False], dtype="boolean"),
        np.array([3, 1], dtype=object),  # a column of a table of several types
        np.array([True, False], dtype=object),
    ],
)
def test_predictions_are_of_the_labels_own_type(names):
    X, kinds = questions(60)
    ids = [list(WORDS).index(kind) % len(names) for kind in kinds]
    y = names.iloc[ids] if isinstance(names, pandas.Series) else np.array(names)[ids]
    estimator = classifier(**LEARNING).fit(X, y)
    predicted = estimator.predict(X)
    assert type(predicted.tolist()[0]) is type(np.asarray(y).tolist()[0])
    assert estimator.classes_.tolist() == sorted(set(np.asarray(y).tolist()))
    assert (predicted == np.asarray(y)).mean() > 0.9
    names = [str(name).removesuffix(".0") for name in estimator.classes_.tolist()]  # as files with 3.0 are read
    assert list(estimator.model_.config.id2label.values()) == names


def test_a_model_of_float_labels_is_evaluated_on_the_same_labels(tmp_path):
    """As pandas reads integers beside an empty cell."""
    X, kinds = questions(60)
    y = pandas.Series([5.0 if kind == "animal" else 1.0 for kind in kinds])
    classifier(**LEARNING).fit(X, y).save_pretrained(tmp_path / "model")
    write_rows(tmp_path / "rows.jsonl", [{"text": text, "label": label} for text, label in zip(X, y, strict=True)])
    assert main(["evaluate", str(tmp_path / "model"), "--test_file", str(tmp_path / "rows.jsonl"), "--cpu"]) == 0


def test_probabilities_are_those_of_the_saved_model(fitted, tmp_path, code_of_checkpoints):
    estimator, X, y = fitted
    found = estimator.predict_proba(X)
    assert found.shape == (len(X), 3) and estimator.score(X, y) == (estimator.predict(X) == np.array(y)).mean() > 0.9
    np.testing.assert_allclose(found.sum(axis=1), 1)
    estimator.save_pretrained(tmp_path / "model")
    write_rows(tmp_path / "rows.jsonl", [{"text": text} for text in X])
    output = tmp_path / "out.jsonl"
    command = ["predict", tmp_path / "model", tmp_path / "rows.jsonl", output, "--probabilities"]
    assert main(list(map(str, command))) == 0
    rows = read_lines(output)
    assert [row["label"] for row in rows] == estimator.predict(X).tolist()
    names = [f"probability_{name}" for name in estimator.classes_]
    np.testing.assert_allclose([[row[name] for name in names] for row in rows], found, atol=1e-6)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert type(model) is hf_blosan.WordBagForSequenceClassification
    again = SentenceClassifier.from_pretrained(tmp_path / "model", max_length=128)
    assert again.predict(X).tolist() == list(map(str, estimator.predict(X))) and again.max_length == 128
    np.testing.assert_array_equal(again.predict_proba(X), found)
    assert again.classes_.tolist() == list(map(str, estimator.classes_))
    with pytest.raises(InputError, match="is not of the kind regression; give one that SentenceRegressor saved"):
        SentenceRegressor.from_pretrained(tmp_path / "model")
    shutil.copytree(tmp_path / "model", tmp_path / "several")
    config = model.config.to_dict() | {"problem_type": "multi_label_classification"}
    (tmp_path / "several" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(
        InputError, match="gives a row several labels, an estimator one; predict with hf-blosan predict"
    ):
        SentenceClassifier.from_pretrained(tmp_path / "several")
    classify = pipeline("text-classification", model, tokenizer=AutoTokenizer.from_pretrained(tmp_path / "model"))
    assert classify(X[0])[0]["label"] == estimator.predict(X[:1])[0]


def test_scores_are_within_the_range_of_the_training_scores():
    X, y = pairs(60)
    estimator = regressor(**LEARNING).fit(X, y)
    predicted = estimator.predict(X)
    assert predicted.dtype == np.float64 and 1 <= predicted.min() < predicted.max() <= 5
    assert estimator.score(X, y) > 0.3
    assert (estimator.model_.config.score_min, estimator.model_.config.score_max) == (1, 5)


def test_empty_texts_are_texts(fitted):
    estimator, X, _ = fitted
    assert np.isfinite(estimator.predict_proba(["", "  ", X[0]])).all()


# As an estimator among others.


def test_pipeline_and_search(fitted):
    estimator, X, y = fitted
    steps = make_pipeline(FunctionTransformer(lambda texts: [text.upper() for text in texts]), clone(estimator))
    scores = cross_val_score(steps, X, y, cv=2)
    assert scores.shape == (2,) and scores.mean() > 0.6
    grid = {"learning_rate": np.array([1e-6, 0.05]), "config_overrides": [LEARNING["config_overrides"]]}
    search = GridSearchCV(clone(estimator), grid, cv=2).fit(np.array(X), y)
    assert search.best_params_["learning_rate"] == 0.05 and search.predict(X[:2]).shape == (2,)
    X, y = pairs(40)
    assert cross_val_predict(regressor(), X, y, cv=2).shape == (40,)


@pytest.mark.slow
def test_search_in_processes(fitted):
    """After a forward pass with several threads, where forked processes would wait for each other."""
    estimator, X, y = fitted
    torch.set_num_threads(2)
    estimator.predict(X)
    torch.set_num_threads(1)
    search = GridSearchCV(clone(estimator), {"learning_rate": [1e-6, 0.05]}, cv=2, n_jobs=2).fit(X, y)
    assert search.best_params_ == {"learning_rate": 0.05}
    alone = cross_val_score(clone(estimator), X, y, cv=2)
    found = [search.cv_results_[f"split{i}_test_score"][1] for i in range(2)]
    np.testing.assert_allclose(found, alone)


def test_fits_in_threads_are_those_of_one_thread():
    X, y = questions(40)
    expected = weights(classifier().fit(X, y))
    found = [classifier(), classifier(), classifier()]
    threads = [threading.Thread(target=estimator.fit, args=(X, y)) for estimator in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for estimator in found:
        assert_same(expected, weights(estimator))


def test_predictions_in_threads_are_those_of_one_thread():
    """A tokenizer's limit is a state, which long and short texts change."""
    X, y = questions(40)
    estimator = classifier(max_length=6).fit(X, y)
    calls = [[" ".join(X[i : i + 9]) for i in range(30)] * 4, ["the cat"] * 100]
    expected = [estimator.predict_proba(call) for call in calls]
    with ThreadPoolExecutor(4) as threads:
        found = [*threads.map(estimator.predict_proba, calls * 30)]
    for i, probabilities in enumerate(found):
        np.testing.assert_allclose(probabilities, expected[i % 2], atol=1e-5)


@pytest.mark.parametrize("store", ["pickle", "joblib"])
def test_a_fitted_estimator_is_stored(store, fitted, tmp_path):
    estimator, X, _ = fitted
    if store == "pickle":
        again = pickle.loads(pickle.dumps(estimator))
    else:
        joblib.dump(estimator, tmp_path / "estimator")
        again = joblib.load(tmp_path / "estimator")
    np.testing.assert_array_equal(again.predict_proba(X), estimator.predict_proba(X))
    assert again.get_params() == estimator.get_params() and again.history_ == estimator.history_


def test_random_state():
    X, y = questions(40)
    first, second, other = (weights(classifier(random_state=seed).fit(X, y)) for seed in (1, np.int64(1), 2))
    assert_same(first, second)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    np.random.seed(3)
    drawn = [weights(classifier(random_state=state).fit(X, y)) for state in (None, np.random.RandomState(3))]
    assert_same(*drawn)


def test_nothing_else_changes(temporary, tmp_path, capfd):
    X, y = questions(40)
    transformers_logging.enable_progress_bar()

    def settings():
        numbers = random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist()
        bars = are_progress_bars_disabled(), transformers_logging.is_progress_bar_enabled()
        levels = transformers_logging.get_verbosity(), logging.getLogger().level
        handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
        return *numbers, *bars, *levels, *handlers, torch.is_grad_enabled()

    before = settings()
    estimator = classifier().fit(X, y)
    estimator.predict(X)
    estimator.save_pretrained(tmp_path / "model")
    assert settings() == before and not list(temporary.iterdir())
    with pytest.raises(InputError):
        classifier(learning_rate=1e30, options={"max_grad_norm": 0.0}).fit(X, y)
    assert settings() == before and not list(temporary.iterdir())
    assert capfd.readouterr() == ("", "")
    classifier(verbose=True, validation_fraction=0.1).fit(X, y)
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 2 and lines[1].startswith("epoch 2: ") and "validation_accuracy" in lines[1]


def test_an_interrupted_fit_leaves_nothing(temporary, monkeypatch):
    X, y = questions(40)
    batch = TrainingLoop._batch
    monkeypatch.setattr(TrainingLoop, "_batch", lambda *args: os.kill(os.getpid(), signal.SIGINT) or batch(*args))
    estimator = classifier()
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(X, y)
    assert not list(temporary.iterdir())
    with pytest.raises(NotFittedError):
        estimator.predict(X)


def test_imports_wait_for_the_first_use(tmp_path):
    code = """
import sys
import hf_blosan, hf_blosan.estimators
assert dir(hf_blosan.estimators) == ["SentenceClassifier", "SentenceRegressor"]
assert not {"sklearn", "datasets", "torch"} & sys.modules.keys()
import importlib.util
find = importlib.util.find_spec
import hf_blosan.errors
hf_blosan.errors.find_spec = lambda name: None if name == "sklearn" else find(name)
try:
    from hf_blosan.estimators import SentenceClassifier
except ImportError as error:
    assert "needs sklearn; pip install" in str(error) and "[train]" in str(error), error
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
